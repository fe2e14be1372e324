//! Every setting of a server: its key, its description, and its valid values. The help, the printed configuration and
//! the checks are all generated from this table.

use muster_core::lease::{LEASE_MAX, LEASE_MIN};
use muster_core::limits::QUOTA_VCPUS_MAX;

use super::kind::Kind;

/// If draining takes longer, the server does not stop at all in practice.
const DRAIN_S_MAX: u64 = 3_600;
/// Clouds give a few minutes at most.
const EVICTION_GRACE_S_MAX: u64 = 3_600;
/// A client may take a while between uploading bytes and committing them.
const BLOB_GRACE_S_MIN: u64 = 60;
/// An upload may be resumed the next morning.
const BLOCK_LIFETIME_S_MIN: u64 = 3_600;
/// One year, which is practically unlimited.
const BLOB_KEPT_S_MAX: u64 = 365 * 86_400;
/// Ten years.
const DAYS_MAX: u64 = 3_650;
/// Followers need some entries to resume from.
const EVENTS_MIN: u64 = 1_000;
/// About a terabyte.
const EVENTS_MAX: u64 = 1_000_000_000;
/// 2^20 GiB are one pebibyte.
const JOB_DISK_GB_MAX: u64 = 1 << 20;
/// One tebibyte.
const LOG_MB_MAX: u64 = 1 << 20;
/// Every file is renamed when the log is rotated.
const LOG_FILES_MAX: u64 = 1_000;
/// The maximum for all users together.
const QUEUED_JOBS_MAX: u64 = muster_core::limits::QUEUED_JOBS_MAX as u64;
/// Far more than a server can answer.
const REQUESTS_MAX: u64 = 1_000_000;
/// The number of connections that the server accepts in all.
const CONNECTIONS_MAX: u64 = 16_384;

pub struct Setting {
    /// The key in the file. With `--` in front, it is the flag.
    pub key: &'static str,
    /// A second name of the flag.
    pub alias: Option<&'static str>,
    pub variable: &'static str,
    pub kind: Kind,
    pub what: &'static str,
    /// The default, as it would be written in the file.
    pub default: Preset,
}

/// The value that applies if none is set.
#[derive(Clone, Copy)]
pub enum Preset {
    Fixed(&'static str),
    /// No value.
    Unset,
    /// The default depends on something else; this describes it.
    Derived(&'static str),
}

pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "listen",
        alias: None,
        variable: "MUSTER_LISTEN",
        kind: Kind::Address,
        what: "Address to listen on. Port 0 uses the previous port again, or any free port.",
        default: Preset::Fixed("127.0.0.1:7443"),
    },
    Setting {
        key: "files-port",
        alias: None,
        variable: "MUSTER_FILES_PORT",
        kind: Kind::Port,
        what: "Port for job logs and other job files, on the same address. It is separate from the API so that it is another origin.",
        default: Preset::Derived("the port after that of listen, or any free port if that is 0"),
    },
    Setting {
        key: "metrics-listen",
        alias: None,
        variable: "MUSTER_METRICS_LISTEN",
        kind: Kind::Address,
        what: "Address on which /metrics is also served without TLS and without a key, for a local Prometheus.",
        default: Preset::Unset,
    },
    Setting {
        key: "public-host",
        alias: None,
        variable: "MUSTER_PUBLIC_HOST",
        kind: Kind::Host,
        what: "Host name in every address that is given to clients, and in Muster's own certificate.",
        default: Preset::Derived("localhost on loopback, else this machine's name or address"),
    },
    Setting {
        key: "tls-cert",
        alias: Some("cert"),
        variable: "MUSTER_TLS_CERT",
        kind: Kind::File,
        what: "Your own certificate with its chain, in PEM format. It is reloaded when the file changes.",
        default: Preset::Derived("a certificate of Muster's own CA"),
    },
    Setting {
        key: "tls-key",
        alias: Some("key"),
        variable: "MUSTER_TLS_KEY",
        kind: Kind::File,
        what: "Private key of that certificate, in PEM format.",
        default: Preset::Unset,
    },
    Setting {
        key: "trusted-users",
        alias: None,
        variable: "MUSTER_TRUSTED_USERS",
        kind: Kind::Switch,
        what: "Allow connections from other machines. Every user with a key can run programs on this machine, in sandboxes that are new.",
        default: Preset::Fixed("false"),
    },
    Setting {
        key: "isolation",
        alias: None,
        variable: "MUSTER_ISOLATION",
        kind: Kind::Word(&["auto", "sandbox", "none"]),
        what: "Isolation of nodes on this machine: sandbox (namespaces and cgroups), none (plain processes), or auto (the \
               best that the machine supports).",
        default: Preset::Fixed("auto"),
    },
    Setting {
        key: "job-sandbox",
        alias: None,
        variable: "MUSTER_JOB_SANDBOX",
        kind: Kind::Word(&["own", "shared"]),
        what: "Whether each job has its own sandbox, or all jobs on a node share the node's. Sharing is faster for many short \
               jobs, but they can see each other's processes.",
        default: Preset::Fixed("own"),
    },
    Setting {
        key: "user",
        alias: None,
        variable: "MUSTER_USER",
        kind: Kind::Account,
        what: "User, by name or id, that the server runs as when it is started by root. Only the parts that need root keep \
               running as root, in a separate process. Can be set by flag or variable only.",
        default: Preset::Derived("the calling user with sudo, else root"),
    },
    Setting {
        key: "helper-socket",
        alias: None,
        variable: "MUSTER_HELPER_SOCKET",
        kind: Kind::File,
        what: "Socket of `muster launcher`, which runs as root and creates sandboxes for a server that does not.",
        default: Preset::Unset,
    },
    Setting {
        key: "node-folders",
        alias: None,
        variable: "MUSTER_NODE_FOLDERS",
        kind: Kind::Folders,
        what: "Additional folders of this machine that sandboxed nodes can read, separated by colons.",
        default: Preset::Unset,
    },
    Setting {
        key: "egress",
        alias: None,
        variable: "MUSTER_EGRESS",
        kind: Kind::Switch,
        what: "Whether sandboxed nodes can reach everything that this machine can, or only their cluster and the server.",
        default: Preset::Derived("true with up, false with serve"),
    },
    Setting {
        key: "user-identity",
        alias: None,
        variable: "MUSTER_USER_IDENTITY",
        kind: Kind::Switch,
        what: "Whether jobs with the identity user_identity get tokens of the user who submitted them. Everyone who can \
               change the code or the data of such a job can act as that user.",
        default: Preset::Derived("true with up, false with serve"),
    },
    Setting {
        key: "over-commit",
        alias: None,
        variable: "MUSTER_OVER_COMMIT",
        kind: Kind::Switch,
        what: "Whether this machine accepts more nodes than it has cores and memory for, or lets them wait for capacity.",
        default: Preset::Derived("true with up, false with serve"),
    },
    Setting {
        key: "cluster-names",
        alias: None,
        variable: "MUSTER_CLUSTER_NAMES",
        kind: Kind::Word(&["workspace", "region"]),
        what: "Where the names of computes must be unique: in a workspace, or in all workspaces of a region, as on \
               Azure.",
        default: Preset::Derived("workspace with up, region with serve"),
    },
    Setting {
        key: "regions",
        alias: None,
        variable: "MUSTER_REGIONS",
        kind: Kind::Regions,
        what: "Names of your own regions for workspaces and clusters, in addition to Azure's, separated by spaces.",
        default: Preset::Unset,
    },
    Setting {
        key: "dedicated-cores",
        alias: None,
        variable: "MUSTER_DEDICATED_CORES",
        kind: Kind::Count { least: 0, most: QUOTA_VCPUS_MAX },
        what: "Quota of dedicated vCPUs for clusters and compute instances in each region of a subscription, unless `muster quota \
               update` sets another; 0 means no limit.",
        default: Preset::Derived("100000 with up, 10000 with serve"),
    },
    Setting {
        key: "family-cores",
        alias: None,
        variable: "MUSTER_FAMILY_CORES",
        kind: Kind::Count { least: 0, most: QUOTA_VCPUS_MAX },
        what: "The same quota for each VM family.",
        default: Preset::Derived("100000 with up, 10000 with serve"),
    },
    Setting {
        key: "low-priority-cores",
        alias: None,
        variable: "MUSTER_LOW_PRIORITY_CORES",
        kind: Kind::Count { least: 0, most: QUOTA_VCPUS_MAX },
        what: "The same quota for low-priority vCPUs of all families together.",
        default: Preset::Derived("100000 with up, 10000 with serve"),
    },
    Setting {
        key: "job-disk-gb",
        alias: None,
        variable: "MUSTER_JOB_DISK_GB",
        kind: Kind::Count { least: 1, most: JOB_DISK_GB_MAX },
        what: "Size of a sandboxed node's disk, in GiB. It is at most an eighth of the space that is left for nodes when the node is created.",
        default: Preset::Fixed("64"),
    },
    Setting {
        key: "uv",
        alias: None,
        variable: "MUSTER_UV",
        kind: Kind::File,
        what: "Path of uv, the program that builds the Python environments of jobs.",
        default: Preset::Derived("uv on the PATH, else beside this program"),
    },
    Setting {
        key: "package-indexes",
        alias: None,
        variable: "MUSTER_PACKAGE_INDEXES",
        kind: Kind::Addresses,
        what: "Addresses of Python package indexes that environments may use in addition to the default index, separated by \
               spaces.",
        default: Preset::Unset,
    },
    Setting {
        key: "environments-file",
        alias: None,
        variable: "MUSTER_ENVIRONMENTS_FILE",
        kind: Kind::File,
        what: "TOML file with your own substitute environments for curated environments and images. They take precedence over those that Muster ships.",
        default: Preset::Unset,
    },
    Setting {
        key: "environments-gb",
        alias: None,
        variable: "MUSTER_ENVIRONMENTS_GB",
        kind: Kind::Count { least: 1, most: JOB_DISK_GB_MAX },
        what: "Maximum disk space for all environments and their packages, in GiB. The least recently used are deleted first.",
        default: Preset::Fixed("20"),
    },
    Setting {
        key: "environment-minutes",
        alias: None,
        variable: "MUSTER_ENVIRONMENT_MINUTES",
        kind: Kind::Count { least: 1, most: 1_440 },
        what: "Time limit for building one environment.",
        default: Preset::Fixed("30"),
    },
    Setting {
        key: "blob-store",
        alias: None,
        variable: "MUSTER_BLOB_STORE",
        kind: Kind::ObjectStore,
        what: "Object store for the bytes of blobs and job files, instead of the state directory: s3://BUCKET/PREFIX, \
               az://CONTAINER/PREFIX or gs://BUCKET/PREFIX. Credentials are taken from the usual variables (AWS_…, AZURE_…, \
               GOOGLE_…).",
        default: Preset::Unset,
    },
    Setting {
        key: "blob-grace-seconds",
        alias: None,
        variable: "MUSTER_BLOB_GRACE_SECONDS",
        kind: Kind::Seconds { least: BLOB_GRACE_S_MIN, most: BLOB_KEPT_S_MAX },
        what: "How long bytes are kept after the last blob or job stops referencing them.",
        default: Preset::Fixed("600"),
    },
    Setting {
        key: "block-lifetime-seconds",
        alias: None,
        variable: "MUSTER_BLOCK_LIFETIME_SECONDS",
        kind: Kind::Seconds { least: BLOCK_LIFETIME_S_MIN, most: BLOB_KEPT_S_MAX },
        what: "How long uploaded blocks are kept before they are committed.",
        default: Preset::Fixed("604800"),
    },
    Setting {
        key: "job-days",
        alias: None,
        variable: "MUSTER_JOB_DAYS",
        kind: Kind::Count { least: 0, most: DAYS_MAX },
        what: "How many days jobs are kept after their end, with their attempts, logs and files. Named outputs, costs and \
               jobs that assets refer to are kept. 0 means for ever.",
        default: Preset::Fixed("400"),
    },
    Setting {
        key: "log-days",
        alias: None,
        variable: "MUSTER_LOG_DAYS",
        kind: Kind::Count { least: 0, most: DAYS_MAX },
        what: "How many days logs are kept after the end of their job. 0 means as long as the job.",
        default: Preset::Fixed("0"),
    },
    Setting {
        key: "activity-days",
        alias: None,
        variable: "MUSTER_ACTIVITY_DAYS",
        kind: Kind::Count { least: 1, most: DAYS_MAX },
        what: "How many days the entries of the activity log are kept.",
        default: Preset::Fixed("90"),
    },
    Setting {
        key: "event-days",
        alias: None,
        variable: "MUSTER_EVENT_DAYS",
        kind: Kind::Count { least: 1, most: DAYS_MAX },
        what: "How many days the entries of the event log are kept, which clients follow.",
        default: Preset::Fixed("7"),
    },
    Setting {
        key: "events-max",
        alias: None,
        variable: "MUSTER_EVENTS_MAX",
        kind: Kind::Count { least: EVENTS_MIN, most: EVENTS_MAX },
        what: "Maximum number of entries of the event log. The oldest are deleted first.",
        default: Preset::Fixed("1000000"),
    },
    Setting {
        key: "history-days",
        alias: None,
        variable: "MUSTER_HISTORY_DAYS",
        kind: Kind::Count { least: 1, most: DAYS_MAX },
        what: "How many days of the history of computes are kept (`muster compute history`).",
        default: Preset::Fixed("365"),
    },
    Setting {
        key: "history-mb-per-compute",
        alias: None,
        variable: "MUSTER_HISTORY_MB_PER_COMPUTE",
        kind: Kind::Count { least: 1, most: 1_000 },
        what: "Maximum disk space for the history of one compute, in MB. The oldest values of its nodes are deleted first.",
        default: Preset::Fixed("1"),
    },
    Setting {
        key: "queued-jobs-per-user",
        alias: None,
        variable: "MUSTER_QUEUED_JOBS_PER_USER",
        kind: Kind::Count { least: 1, most: QUEUED_JOBS_MAX },
        what: "Maximum number of queued jobs per user, in all workspaces together.",
        default: Preset::Fixed("50000"),
    },
    Setting {
        key: "queued-jobs-per-workspace",
        alias: None,
        variable: "MUSTER_QUEUED_JOBS_PER_WORKSPACE",
        kind: Kind::Count { least: 1, most: QUEUED_JOBS_MAX },
        what: "Maximum number of queued jobs per workspace.",
        default: Preset::Fixed("100000"),
    },
    Setting {
        key: "workspace-storage-gb",
        alias: None,
        variable: "MUSTER_WORKSPACE_STORAGE_GB",
        kind: Kind::Count { least: 0, most: JOB_DISK_GB_MAX },
        what: "Maximum disk space for the blobs, job files and logs of one workspace, in GiB; 0 means no limit.",
        default: Preset::Derived("1024; with serve at most half of the disk"),
    },
    Setting {
        key: "user-requests-per-second",
        alias: None,
        variable: "MUSTER_USER_REQUESTS_PER_SECOND",
        kind: Kind::Count { least: 0, most: REQUESTS_MAX },
        what: "Maximum number of API requests per second from one user, averaged over ten seconds; 0 means no limit.",
        default: Preset::Fixed("1000"),
    },
    Setting {
        key: "workspace-requests-per-second",
        alias: None,
        variable: "MUSTER_WORKSPACE_REQUESTS_PER_SECOND",
        kind: Kind::Count { least: 0, most: REQUESTS_MAX },
        what: "Maximum number of API requests per second to one workspace, averaged over ten seconds; 0 means no limit.",
        default: Preset::Fixed("2000"),
    },
    Setting {
        key: "workspace-file-requests-per-second",
        alias: None,
        variable: "MUSTER_WORKSPACE_FILE_REQUESTS_PER_SECOND",
        kind: Kind::Count { least: 0, most: REQUESTS_MAX },
        what: "Maximum number of requests per second for the blobs, files and logs of one workspace, averaged over ten seconds; 0 means no limit.",
        default: Preset::Fixed("4000"),
    },
    Setting {
        key: "connections-per-address",
        alias: None,
        variable: "MUSTER_CONNECTIONS_PER_ADDRESS",
        kind: Kind::Count { least: 0, most: CONNECTIONS_MAX },
        what: "Maximum number of connections per client address and port, for a server that is not behind a proxy; 0 means no limit.",
        default: Preset::Derived("a quarter of all connections, but at least 16"),
    },
    Setting {
        key: "eviction-grace-seconds",
        alias: None,
        variable: "MUSTER_EVICTION_GRACE_SECONDS",
        kind: Kind::Seconds { least: 0, most: EVICTION_GRACE_S_MAX },
        what: "How long a job can keep running after it is notified that its node is being evicted, before it is killed.",
        default: Preset::Fixed("30"),
    },
    Setting {
        key: "lease-seconds",
        alias: None,
        variable: "MUSTER_LEASE_SECONDS",
        kind: Kind::Seconds { least: LEASE_MIN.as_seconds(), most: LEASE_MAX.as_seconds() },
        what: "How long a node may run jobs without contact with the server. Its jobs are stopped before then, and start on \
               other nodes soon after. A shorter lease recovers jobs sooner but tolerates less network delay.",
        default: Preset::Fixed("60"),
    },
    Setting {
        key: "prices",
        alias: None,
        variable: "MUSTER_PRICES",
        kind: Kind::File,
        what: "JSON file with your own prices: [{\"size\": …, \"usd_per_hour\": \"0.31\"}, …].",
        default: Preset::Unset,
    },
    Setting {
        key: "drain-seconds",
        alias: None,
        variable: "MUSTER_DRAIN_SECONDS",
        kind: Kind::Seconds { least: 0, most: DRAIN_S_MAX },
        what: "How long a server that is stopping waits for requests in progress.",
        default: Preset::Fixed("10"),
    },
    Setting {
        key: "log-level",
        alias: None,
        variable: "MUSTER_LOG",
        kind: Kind::Filter,
        what: "Log level, or a filter such as muster_server=debug,info.",
        default: Preset::Derived("info with serve, which logs a line per request; warn with up"),
    },
    Setting {
        key: "log-format",
        alias: None,
        variable: "MUSTER_LOG_FORMAT",
        kind: Kind::Word(&["text", "json"]),
        what: "Log format: lines for people (text), or one JSON object per line (json).",
        default: Preset::Fixed("text"),
    },
    Setting {
        key: "log-file",
        alias: None,
        variable: "MUSTER_LOG_FILE",
        kind: Kind::File,
        what: "Log file. The server rotates it by size.",
        default: Preset::Derived("standard error, without rotation"),
    },
    Setting {
        key: "log-max-mb",
        alias: None,
        variable: "MUSTER_LOG_MAX_MB",
        kind: Kind::Count { least: 1, most: LOG_MB_MAX },
        what: "Size at which log-file is rotated, in MiB.",
        default: Preset::Fixed("50"),
    },
    Setting {
        key: "log-max-files",
        alias: None,
        variable: "MUSTER_LOG_MAX_FILES",
        kind: Kind::Count { least: 2, most: LOG_FILES_MAX },
        what: "Number of log files to keep, including the current one.",
        default: Preset::Fixed("5"),
    },
];

pub fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}
