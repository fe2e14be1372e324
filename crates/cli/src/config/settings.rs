//! Every setting of a server: its key, what it does, and what it may be. Help, the printed configuration and the
//! checks are all made from this table.

use muster_core::lease::{LEASE_MAX, LEASE_MIN};
use muster_core::limits::QUOTA_VCPUS_MAX;

use super::kind::Kind;

/// A drain that takes longer is a server that does not stop.
const DRAIN_S_MAX: u64 = 3_600;
/// Clouds give minutes at most.
const EVICTION_GRACE_S_MAX: u64 = 3_600;
/// Between sending bytes and naming them a client may take a while.
const BLOB_GRACE_S_MIN: u64 = 60;
/// An upload goes on after a night.
const BLOCK_LIFETIME_S_MIN: u64 = 3_600;
/// A year: longer is for ever.
const BLOB_KEPT_S_MAX: u64 = 365 * 86_400;
/// A mebi of them is an exbibyte.
const JOB_DISK_GB_MAX: u64 = 1 << 20;
/// A tebibyte.
const LOG_MB_MAX: u64 = 1 << 20;
/// Each has to be renamed when the log is rotated.
const LOG_FILES_MAX: u64 = 1_000;
/// As many as there may be of all users together.
const QUEUED_JOBS_MAX: u64 = muster_core::limits::QUEUED_JOBS_MAX as u64;
/// Far more than a server answers.
const REQUESTS_MAX: u64 = 1_000_000;
/// As many as there are places for.
const CONNECTIONS_MAX: u64 = 16_384;

pub struct Setting {
    /// The key in the file, and with `--` before it the flag.
    pub key: &'static str,
    /// Another name of the flag.
    pub alias: Option<&'static str>,
    pub variable: &'static str,
    pub kind: Kind,
    pub what: &'static str,
    /// As it would be written in the file.
    pub default: Preset,
}

/// What holds when nobody says anything.
#[derive(Clone, Copy)]
pub enum Preset {
    Fixed(&'static str),
    /// Nothing at all.
    Unset,
    /// It depends; in words.
    Derived(&'static str),
}

pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "listen",
        alias: None,
        variable: "MUSTER_LISTEN",
        kind: Kind::Address,
        what: "The address to listen on; port 0 takes the last one again, or any.",
        default: Preset::Fixed("127.0.0.1:7443"),
    },
    Setting {
        key: "files-port",
        alias: None,
        variable: "MUSTER_FILES_PORT",
        kind: Kind::Port,
        what: "The port of logs and other files of jobs: another origin than the API's, at the same address.",
        default: Preset::Derived("the one after the port of listen, or any if that is 0"),
    },
    Setting {
        key: "metrics-listen",
        alias: None,
        variable: "MUSTER_METRICS_LISTEN",
        kind: Kind::Address,
        what: "Where /metrics is also served without TLS and without a key, for a Prometheus nearby.",
        default: Preset::Unset,
    },
    Setting {
        key: "public-host",
        alias: None,
        variable: "MUSTER_PUBLIC_HOST",
        kind: Kind::Host,
        what: "The host in every address that clients are given, and in our certificate.",
        default: Preset::Derived("localhost on loopback, else this machine's name or address"),
    },
    Setting {
        key: "tls-cert",
        alias: Some("cert"),
        variable: "MUSTER_TLS_CERT",
        kind: Kind::File,
        what: "Your own certificate with its chain, PEM; a new one is taken as soon as the file changes.",
        default: Preset::Derived("one of our own CA"),
    },
    Setting {
        key: "tls-key",
        alias: Some("key"),
        variable: "MUSTER_TLS_KEY",
        kind: Kind::File,
        what: "The private key of that certificate, PEM.",
        default: Preset::Unset,
    },
    Setting {
        key: "trusted-users",
        alias: None,
        variable: "MUSTER_TRUSTED_USERS",
        kind: Kind::Switch,
        what: "Let other machines in: every user with a key runs programs here, and the sandboxes around them are new.",
        default: Preset::Fixed("false"),
    },
    Setting {
        key: "isolation",
        alias: None,
        variable: "MUSTER_ISOLATION",
        kind: Kind::Word(&["auto", "sandbox", "none"]),
        what: "How nodes on this machine are kept apart: in a sandbox (namespaces, cgroups), as plain processes \
               (none), or as well as the machine lets us (auto).",
        default: Preset::Fixed("auto"),
    },
    Setting {
        key: "job-sandbox",
        alias: None,
        variable: "MUSTER_JOB_SANDBOX",
        kind: Kind::Word(&["own", "shared"]),
        what: "Whether each job in a sandbox has a sandbox of its own, or jobs on one node share the node's: that is \
               quicker for many short ones, and they see each other's processes.",
        default: Preset::Fixed("own"),
    },
    Setting {
        key: "user",
        alias: None,
        variable: "MUSTER_USER",
        kind: Kind::Account,
        what: "Who the server runs as when root starts it, a name or a number; what needs root stays in a process of its \
               own. Taken from the flag or the variable only.",
        default: Preset::Derived("with sudo whoever called it, else root"),
    },
    Setting {
        key: "helper-socket",
        alias: None,
        variable: "MUSTER_HELPER_SOCKET",
        kind: Kind::File,
        what: "Where `muster launcher`, which has root, makes the sandboxes of nodes for a server that has not.",
        default: Preset::Unset,
    },
    Setting {
        key: "node-folders",
        alias: None,
        variable: "MUSTER_NODE_FOLDERS",
        kind: Kind::Folders,
        what: "More of this machine that sandboxed nodes see, read-only: folders, with a colon between them.",
        default: Preset::Unset,
    },
    Setting {
        key: "egress",
        alias: None,
        variable: "MUSTER_EGRESS",
        kind: Kind::Switch,
        what: "Whether sandboxed nodes reach what this machine reaches, or only their cluster and the server.",
        default: Preset::Derived("true with up, false with serve"),
    },
    Setting {
        key: "over-commit",
        alias: None,
        variable: "MUSTER_OVER_COMMIT",
        kind: Kind::Switch,
        what: "Whether this machine takes more nodes than it has cores and memory for, or has them wait for room.",
        default: Preset::Derived("true with up, false with serve"),
    },
    Setting {
        key: "cluster-names",
        alias: None,
        variable: "MUSTER_CLUSTER_NAMES",
        kind: Kind::Word(&["workspace", "region"]),
        what: "Where no two computes may have the same name: in a workspace, or in all workspaces of a region together, as on \
               Azure.",
        default: Preset::Derived("workspace with up, region with serve"),
    },
    Setting {
        key: "regions",
        alias: None,
        variable: "MUSTER_REGIONS",
        kind: Kind::Regions,
        what: "Regions of your own beside Azure's, in which workspaces and clusters can be: names, with spaces between them.",
        default: Preset::Unset,
    },
    Setting {
        key: "dedicated-cores",
        alias: None,
        variable: "MUSTER_DEDICATED_CORES",
        kind: Kind::Count { least: 0, most: QUOTA_VCPUS_MAX },
        what: "How many dedicated vCPUs clusters and instances may have in one region of one subscription where `muster quota \
               update` set no limit; 0: any number.",
        default: Preset::Derived("100000 with up, 10000 with serve"),
    },
    Setting {
        key: "family-cores",
        alias: None,
        variable: "MUSTER_FAMILY_CORES",
        kind: Kind::Count { least: 0, most: QUOTA_VCPUS_MAX },
        what: "The same for each family of VM sizes.",
        default: Preset::Derived("100000 with up, 10000 with serve"),
    },
    Setting {
        key: "low-priority-cores",
        alias: None,
        variable: "MUSTER_LOW_PRIORITY_CORES",
        kind: Kind::Count { least: 0, most: QUOTA_VCPUS_MAX },
        what: "The same for low-priority vCPUs, whatever their family.",
        default: Preset::Derived("100000 with up, 10000 with serve"),
    },
    Setting {
        key: "job-disk-gb",
        alias: None,
        variable: "MUSTER_JOB_DISK_GB",
        kind: Kind::Count { least: 1, most: JOB_DISK_GB_MAX },
        what: "The size of a node's disk in a sandbox, in GiB, and never more than an eighth of what is left for nodes when it is made.",
        default: Preset::Fixed("64"),
    },
    Setting {
        key: "uv",
        alias: None,
        variable: "MUSTER_UV",
        kind: Kind::File,
        what: "The program uv, which builds the Python environments of jobs.",
        default: Preset::Derived("the one on the path, else beside this program"),
    },
    Setting {
        key: "package-indexes",
        alias: None,
        variable: "MUSTER_PACKAGE_INDEXES",
        kind: Kind::Addresses,
        what: "Indexes of Python packages that an environment may name beside the usual one: addresses, with spaces between \
               them.",
        default: Preset::Unset,
    },
    Setting {
        key: "environments-file",
        alias: None,
        variable: "MUSTER_ENVIRONMENTS_FILE",
        kind: Kind::File,
        what: "Your own stand-ins for curated environments and images, before those that are shipped: a TOML file.",
        default: Preset::Unset,
    },
    Setting {
        key: "environments-gb",
        alias: None,
        variable: "MUSTER_ENVIRONMENTS_GB",
        kind: Kind::Count { least: 1, most: JOB_DISK_GB_MAX },
        what: "What all environments and their packages may take on disk, in GiB; those that were wanted longest ago go first.",
        default: Preset::Fixed("20"),
    },
    Setting {
        key: "environment-minutes",
        alias: None,
        variable: "MUSTER_ENVIRONMENT_MINUTES",
        kind: Kind::Count { least: 1, most: 1_440 },
        what: "How long the build of one environment may take.",
        default: Preset::Fixed("30"),
    },
    Setting {
        key: "blob-store",
        alias: None,
        variable: "MUSTER_BLOB_STORE",
        kind: Kind::ObjectStore,
        what: "Where the bytes of blobs and of jobs' files are kept instead of the state directory: s3://BUCKET/PREFIX, \
               az://CONTAINER/PREFIX or gs://BUCKET/PREFIX. What opens it is in the usual variables (AWS_…, AZURE_…, \
               GOOGLE_…).",
        default: Preset::Unset,
    },
    Setting {
        key: "blob-grace-seconds",
        alias: None,
        variable: "MUSTER_BLOB_GRACE_SECONDS",
        kind: Kind::Seconds { least: BLOB_GRACE_S_MIN, most: BLOB_KEPT_S_MAX },
        what: "How long bytes are kept that no blob and no job names any more.",
        default: Preset::Fixed("600"),
    },
    Setting {
        key: "block-lifetime-seconds",
        alias: None,
        variable: "MUSTER_BLOCK_LIFETIME_SECONDS",
        kind: Kind::Seconds { least: BLOCK_LIFETIME_S_MIN, most: BLOB_KEPT_S_MAX },
        what: "How long blocks wait for somebody to put them together.",
        default: Preset::Fixed("604800"),
    },
    Setting {
        key: "queued-jobs-per-user",
        alias: None,
        variable: "MUSTER_QUEUED_JOBS_PER_USER",
        kind: Kind::Count { least: 1, most: QUEUED_JOBS_MAX },
        what: "How many jobs of one user may wait, in all workspaces together.",
        default: Preset::Fixed("50000"),
    },
    Setting {
        key: "queued-jobs-per-workspace",
        alias: None,
        variable: "MUSTER_QUEUED_JOBS_PER_WORKSPACE",
        kind: Kind::Count { least: 1, most: QUEUED_JOBS_MAX },
        what: "How many jobs may wait in one workspace.",
        default: Preset::Fixed("100000"),
    },
    Setting {
        key: "workspace-storage-gb",
        alias: None,
        variable: "MUSTER_WORKSPACE_STORAGE_GB",
        kind: Kind::Count { least: 0, most: JOB_DISK_GB_MAX },
        what: "What the blobs of one workspace, the files of its jobs and their logs may take, in GiB; 0: as much as there is.",
        default: Preset::Derived("1024; with serve at most half of the disk"),
    },
    Setting {
        key: "user-requests-per-second",
        alias: None,
        variable: "MUSTER_USER_REQUESTS_PER_SECOND",
        kind: Kind::Count { least: 0, most: REQUESTS_MAX },
        what: "How many requests to the API one user may send, for longer than ten seconds; 0: any number.",
        default: Preset::Fixed("1000"),
    },
    Setting {
        key: "workspace-requests-per-second",
        alias: None,
        variable: "MUSTER_WORKSPACE_REQUESTS_PER_SECOND",
        kind: Kind::Count { least: 0, most: REQUESTS_MAX },
        what: "How many requests to the API one workspace may get, for longer than ten seconds; 0: any number.",
        default: Preset::Fixed("2000"),
    },
    Setting {
        key: "workspace-file-requests-per-second",
        alias: None,
        variable: "MUSTER_WORKSPACE_FILE_REQUESTS_PER_SECOND",
        kind: Kind::Count { least: 0, most: REQUESTS_MAX },
        what: "How many requests for the blobs, files and logs of one workspace are served, for longer than ten seconds; 0: any number.",
        default: Preset::Fixed("4000"),
    },
    Setting {
        key: "connections-per-address",
        alias: None,
        variable: "MUSTER_CONNECTIONS_PER_ADDRESS",
        kind: Kind::Count { least: 0, most: CONNECTIONS_MAX },
        what: "How many connections one address may have at each port, for a server that is not behind a proxy; 0: all.",
        default: Preset::Derived("a quarter of the places, and 16 at least"),
    },
    Setting {
        key: "eviction-grace-seconds",
        alias: None,
        variable: "MUSTER_EVICTION_GRACE_SECONDS",
        kind: Kind::Seconds { least: 0, most: EVICTION_GRACE_S_MAX },
        what: "How long a job has from when it is told that its node is taken away until it is killed.",
        default: Preset::Fixed("30"),
    },
    Setting {
        key: "lease-seconds",
        alias: None,
        variable: "MUSTER_LEASE_SECONDS",
        kind: Kind::Seconds { least: LEASE_MIN.as_seconds(), most: LEASE_MAX.as_seconds() },
        what: "How long a node may go on unheard: its jobs stop before, and are given to others soon after. Shorter is \
               sooner, and less patient with a slow network.",
        default: Preset::Fixed("60"),
    },
    Setting {
        key: "prices",
        alias: None,
        variable: "MUSTER_PRICES",
        kind: Kind::File,
        what: "Your own prices: a JSON file of [{\"size\": …, \"usd_per_hour\": \"0.31\"}, …].",
        default: Preset::Unset,
    },
    Setting {
        key: "drain-seconds",
        alias: None,
        variable: "MUSTER_DRAIN_SECONDS",
        kind: Kind::Seconds { least: 0, most: DRAIN_S_MAX },
        what: "How long a stop waits for requests under way.",
        default: Preset::Fixed("10"),
    },
    Setting {
        key: "log-level",
        alias: None,
        variable: "MUSTER_LOG",
        kind: Kind::Filter,
        what: "How much is logged: a level, or a filter by part.",
        default: Preset::Derived("info with serve, a line per request; warn with up"),
    },
    Setting {
        key: "log-format",
        alias: None,
        variable: "MUSTER_LOG_FORMAT",
        kind: Kind::Word(&["text", "json"]),
        what: "Lines for people (text) or an object per line (json).",
        default: Preset::Fixed("text"),
    },
    Setting {
        key: "log-file",
        alias: None,
        variable: "MUSTER_LOG_FILE",
        kind: Kind::File,
        what: "A file for the log, which the server rotates by size.",
        default: Preset::Derived("standard error, without rotation"),
    },
    Setting {
        key: "log-max-mb",
        alias: None,
        variable: "MUSTER_LOG_MAX_MB",
        kind: Kind::Count { least: 1, most: LOG_MB_MAX },
        what: "How large log-file may get before it is rotated, in MiB.",
        default: Preset::Fixed("50"),
    },
    Setting {
        key: "log-max-files",
        alias: None,
        variable: "MUSTER_LOG_MAX_FILES",
        kind: Kind::Count { least: 2, most: LOG_FILES_MAX },
        what: "How many files of the log are kept, with the one that is written to.",
        default: Preset::Fixed("5"),
    },
];

pub fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}
