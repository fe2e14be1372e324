//! Every limit of the model in one place, each with its reason. A refusal names the limit together with the given
//! value.

use crate::time::Span;

/// The largest cluster that the decisions are designed for.
pub const CLUSTER_NODES_MAX: u32 = 10_000;
/// The longest lifetime of a job (30 days). A longer idle time could only be a mistake.
pub const IDLE_TIME_MAX: Span = Span::seconds(30 * 24 * 3600);
/// Azure Resource Manager's own bounds on tags; clients are built for them.
pub const TAGS_MAX: usize = 50;
pub const TAG_NAME_BYTES_MAX: usize = 512;
pub const TAG_VALUE_BYTES_MAX: usize = 256;
pub const DESCRIPTION_BYTES_MAX: usize = 4_096;
/// Linux refuses a single argument of 128 KiB or more; the command becomes one.
pub const COMMAND_BYTES_MAX: usize = 120_000;
pub const ENVIRONMENT_VARIABLES_MAX: usize = 256;
/// Together with the command it must be well within what `execve` accepts.
pub const ENVIRONMENT_BYTES_MAX: usize = 128_000;
/// The inputs of a job, and its outputs. Each of them becomes variables and a folder.
pub const JOB_INPUTS_MAX: usize = 100;
pub const INPUT_NAME_BYTES_MAX: usize = 64;
pub const LITERAL_BYTES_MAX: usize = 16_384;
/// The services of a job. Each may be a process of its own on every node.
pub const SERVICES_MAX: usize = 16;
/// The name of a service is part of its address.
pub const SERVICE_NAME_BYTES_MAX: usize = 64;
pub const SERVICE_PROPERTIES_BYTES_MAX: usize = 4_096;
/// Only root may listen on lower ports.
pub const SERVICE_PORT_MIN: u16 = 1_024;
/// The files of one input, which are created one by one on the node.
pub const DATA_FILES_MAX: usize = 100_000;
/// The processes that a distributed job starts on one node.
pub const PROCESSES_PER_NODE_MAX: u32 = 256;
pub const JOB_NAME_BYTES_MAX: usize = 255;
/// The nodes of a serverless cluster, and so of one serverless job.
pub const SERVERLESS_NODES_MAX: u32 = 32;
/// The properties that clients attach to a job, keys and values together.
pub const JOB_PROPERTIES_BYTES_MAX: usize = 64 * 1024;
/// Azure's longest job lifetime.
pub const JOB_TIMEOUT_MAX: Span = Span::seconds(30 * 24 * 3600);
/// A million waiting jobs and the running ones. Beyond this a submit is refused, never half accepted.
pub const QUEUED_JOBS_MAX: usize = 1_100_000;
/// The tasks of one array job. Tasks that wait cost nothing, but everything about those that have ended is kept.
pub const ARRAY_TASKS_MAX: u32 = 100_000;
/// The ranges in which the indices of an array are given. They are kept in memory while it runs.
pub const ARRAY_RANGES_MAX: usize = 256;
/// The largest index of an array job's tasks, as in Slurm.
pub const ARRAY_INDEX_MAX: u32 = 4_000_000;
pub const CLUSTERS_MAX: usize = 2_500;
pub const LOCATION_BYTES_MAX: usize = 64;
/// Far more than the largest cluster of the largest size, and far below where sums could overflow.
pub const QUOTA_VCPUS_MAX: u64 = 1_000_000_000;
/// How many waiting jobs a predictive cluster considers when it decides how far to grow.
pub const FORESEEN_JOBS_MAX: usize = 10_000;
/// The longest label of a DNS name.
pub const HOST_NAME_BYTES_MAX: usize = 63;
/// Every host is considered for every new node.
pub const HOSTS_MAX: usize = 1_000;
pub const TICKETS_MAX: usize = 1_000;
/// An unused join token is as dangerous as a leaked key, so it must expire.
pub const TICKET_LIFETIME_MAX: Span = Span::seconds(30 * 24 * 3600);
pub const WORKSPACES_MAX: usize = 10_000;
/// The keys of all users are compared with a presented one, so this bounds the cost of a login.
pub const USERS_MAX: usize = 10_000;
pub const USER_NAME_BYTES_MAX: usize = 64;
pub const ROLES_MAX: usize = 50_000;
/// A GUID has 36 characters.
pub const ROLE_NAME_BYTES_MAX: usize = 64;
pub const SUBSCRIPTION_BYTES_MAX: usize = 64;
/// Azure's own limits on names, which clients are built for.
pub const RESOURCE_GROUP_NAME_BYTES_MAX: usize = 90;
pub const FRIENDLY_NAME_BYTES_MAX: usize = 256;
pub const LOCK_NAME_BYTES_MAX: usize = 260;
pub const LOCK_NOTES_BYTES_MAX: usize = 512;
/// As many groups as there can be workspaces.
pub const RESOURCE_GROUPS_MAX: usize = 10_000;
/// The name and the version of an asset.
pub const ASSET_NAME_BYTES_MAX: usize = 255;
/// Clients create anonymous versions under one name for every pipeline, so this must last for years.
pub const ASSET_VERSIONS_MAX: u32 = 100_000;
/// The body of an asset. The largest are components that contain pipelines.
pub const ASSET_BODY_BYTES_MAX: usize = 1024 * 1024;
pub const ASSET_PROPERTIES_BYTES_MAX: usize = 64 * 1024;
pub const DATASTORE_NAME_BYTES_MAX: usize = 255;
/// The datastores of one workspace. Data of single runs belongs into folders of one datastore.
pub const DATASTORES_MAX: usize = 200;

pub const DEPLOYMENT_NAME_BYTES_MAX: usize = 64;
pub const DEPLOYMENTS_PER_GROUP_MAX: usize = 800;
/// A delete has to check every lock.
pub const LOCKS_MAX: usize = 5_000;
/// How many names of ineffective properties a resource remembers.
pub const IGNORED_MAX: usize = 20;
