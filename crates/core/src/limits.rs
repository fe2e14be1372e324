//! Every limit of the model in one place, each with its reason. A limit that a user can meet is named in
//! the refusal together with the value that was given.

use crate::time::Span;

/// The largest pool that the decisions are designed for.
pub const CLUSTER_NODES_MAX: u32 = 10_000;
/// Longer than any job may live (30 days), so a longer idle time could only be a slip.
pub const IDLE_TIME_MAX: Span = Span::seconds(30 * 24 * 3600);
/// Azure Resource Manager's own bounds on tags; clients are built for them.
pub const TAGS_MAX: usize = 50;
pub const TAG_NAME_BYTES_MAX: usize = 512;
pub const TAG_VALUE_BYTES_MAX: usize = 256;
pub const DESCRIPTION_BYTES_MAX: usize = 4_096;
/// Linux refuses a single argument of 128 KiB or more; the command becomes one.
pub const COMMAND_BYTES_MAX: usize = 120_000;
pub const ENVIRONMENT_VARIABLES_MAX: usize = 256;
/// Together with the command it must stay well inside what `execve` takes.
pub const ENVIRONMENT_BYTES_MAX: usize = 128_000;
/// Of a job, and of its outputs: each becomes variables and a folder.
pub const JOB_INPUTS_MAX: usize = 100;
pub const INPUT_NAME_BYTES_MAX: usize = 64;
pub const LITERAL_BYTES_MAX: usize = 16_384;
/// Of a job; each may be a process of its own on every node.
pub const SERVICES_MAX: usize = 16;
/// Of a service's name, which is a part of its address.
pub const SERVICE_NAME_BYTES_MAX: usize = 64;
pub const SERVICE_PROPERTIES_BYTES_MAX: usize = 4_096;
/// Below it only root may listen.
pub const SERVICE_PORT_MIN: u16 = 1_024;
/// Files of one input; each is made one by one on the node.
pub const DATA_FILES_MAX: usize = 100_000;
/// Of one node.
pub const PROCESSES_PER_NODE_MAX: u32 = 256;
pub const JOB_NAME_BYTES_MAX: usize = 255;
/// Of each pool that the service makes itself, and so of one serverless job.
pub const SERVERLESS_NODES_MAX: u32 = 32;
/// What clients note about a job, keys and values together.
pub const JOB_PROPERTIES_BYTES_MAX: usize = 64 * 1024;
/// Azure's longest job lifetime.
pub const JOB_TIMEOUT_MAX: Span = Span::seconds(30 * 24 * 3600);
/// A million that wait and those that run; beyond it a submit is refused, not half-accepted.
pub const QUEUED_JOBS_MAX: usize = 1_100_000;
pub const CLUSTERS_MAX: usize = 2_500;
pub const LOCATION_BYTES_MAX: usize = 64;
/// Far more than the largest cluster of the largest size, and far from where sums could overflow.
pub const QUOTA_VCPUS_MAX: u64 = 1_000_000_000;
/// How many waiting jobs a predictive pool looks at before it decides how far to grow.
pub const FORESEEN_JOBS_MAX: usize = 10_000;
/// A label of a DNS name.
pub const HOST_NAME_BYTES_MAX: usize = 63;
/// Every host is looked at for every new node.
pub const HOSTS_MAX: usize = 1_000;
pub const TICKETS_MAX: usize = 1_000;
/// A ticket that lies around is a key that lies around.
pub const TICKET_LIFETIME_MAX: Span = Span::seconds(30 * 24 * 3600);
pub const WORKSPACES_MAX: usize = 10_000;
/// Everybody's key is compared with a presented one, so this bounds what a login takes.
pub const USERS_MAX: usize = 10_000;
pub const USER_NAME_BYTES_MAX: usize = 64;
pub const ROLES_MAX: usize = 50_000;
/// A GUID has 36.
pub const ROLE_NAME_BYTES_MAX: usize = 64;
pub const SUBSCRIPTION_BYTES_MAX: usize = 64;
/// Azure's own bounds on names, which clients are built for.
pub const RESOURCE_GROUP_NAME_BYTES_MAX: usize = 90;
pub const FRIENDLY_NAME_BYTES_MAX: usize = 256;
pub const LOCK_NAME_BYTES_MAX: usize = 260;
pub const LOCK_NOTES_BYTES_MAX: usize = 512;
/// As many as there can be workspaces.
pub const RESOURCE_GROUPS_MAX: usize = 10_000;
/// Of the name and of the version of what is kept in versions.
pub const ASSET_NAME_BYTES_MAX: usize = 255;
/// What clients make on the way to every pipeline shares one name, so it must last for years.
pub const ASSET_VERSIONS_MAX: u32 = 100_000;
/// What one is made of; the largest are components with pipelines in them.
pub const ASSET_BODY_BYTES_MAX: usize = 1024 * 1024;
pub const ASSET_PROPERTIES_BYTES_MAX: usize = 64 * 1024;
pub const DATASTORE_NAME_BYTES_MAX: usize = 255;
/// In one workspace; what is made for each run belongs into a folder of one.
pub const DATASTORES_MAX: usize = 200;

pub const DEPLOYMENT_NAME_BYTES_MAX: usize = 64;
pub const DEPLOYMENTS_PER_GROUP_MAX: usize = 800;
/// A delete looks at each of them.
pub const LOCKS_MAX: usize = 5_000;
/// Names of what was asked for and has no effect that a resource remembers.
pub const IGNORED_MAX: usize = 20;
