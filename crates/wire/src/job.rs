//! Jobs in Azure's API: Command jobs, and run history's view of them.
//!
//! [`parse_request`] reads the body of a PUT, [`request_json`] writes one, [`resource`] is the response to PUT and GET,
//! and [`details`] is what clients poll while they stream a log.

mod array;
mod attempts;
mod data;
mod details;
mod identity;
mod list;
mod patch;
mod request;
mod resource;
mod run;
mod sentence;
mod services;
mod timeline;
mod wants;

pub use array::{Family, counts_text, parse_plan};
pub use attempts::{AttemptEntry, Attempts, SavedEntry, attempts};
pub use data::{
    DataUri, DistributionEntry, InputEntry, OutputEntry, Resolve, kind_text, older_kind_text,
};
pub use details::{RunDetails, RunError, details};
pub use identity::IdentityEntry;
pub use list::asks_for_commands;
pub use patch::parse_patch;
pub use request::{
    BODY_BYTES_MAX, DEFAULT_EXPERIMENT, is_archived, parse_request, parse_spec_text, request_json,
    spec_text,
};
pub use resource::{
    CommandJob, CreationContext, JobFacts, JobLimits, JobResource, JobResources, JobStatus, Waits,
    resource,
};
pub use run::{
    Dialect, ResolvedPath, ResolvedPaths, ResolvedUri, ResolvedUris, Run, RunData, RunList,
    RunOutput, parse_asset_id, parse_run_id, parse_values, resolved, run,
};
pub use services::{
    STUDIO, ServiceEntry, ServiceInstance, ServiceInstances, ServiceStatus, ServiceView, instances,
};
pub use timeline::Phases;
pub use wants::{NodeShare, QueueSettings, parse_memory};

/// Muster's own keys among the properties of a job. All values are text.
pub mod property {
    /// The prefix of all these keys.
    pub const OURS: &str = "muster.";
    /// The number of attempts so far.
    pub const ATTEMPTS: &str = "muster.attempts";
    /// Why the job waits, while it does.
    pub const WAIT_REASON: &str = "muster.waitReason";
    /// The same as codes for programs, such as `QuotaReached`, separated by commas.
    pub const WAIT_CODE: &str = "muster.waitCode";
    /// Why it failed.
    pub const FAILURE: &str = "muster.failure";
    /// What failed: `prepare`, `user code`, `node` or `data`. (`provision` fails no job.)
    pub const FAILURE_CLASS: &str = "muster.failureClass";
    /// What happens to the job when its low-priority node is evicted: `requeue`, which is the default, or `fail`.
    pub const ON_EVICTION: &str = "muster.onEviction";
    /// The files in the working folder when the job starts: the id of a tree.
    pub const CODE: &str = "muster.code";
    /// The folder that is saved while the job runs, and restored in its next attempt.
    pub const CHECKPOINT: &str = "muster.checkpoint";
    /// What the owner should know although nothing is wrong: the requested settings that have no effect.
    pub const NOTE: &str = crate::notes::NOTE;
    /// Whether the job suits low priority, where its nodes may be evicted at any time, and why.
    pub const LOW_PRIORITY: &str = "muster.lowPriority";
    /// Why the job was canceled, if not on request.
    pub const CANCEL_REASON: &str = "muster.cancelReason";
    /// Makes the job an array: the indices of its tasks and, after `%`, how many may run at once, such as `0-99%8`.
    pub const ARRAY: &str = "muster.array";
    /// How long all tasks of an array may take together, as an ISO 8601 duration.
    pub const ARRAY_TIMEOUT: &str = "muster.arrayTimeout";
    /// The array that a task belongs to, and its index.
    pub const PARENT: &str = "muster.parent";
    pub const ARRAY_INDEX: &str = "muster.arrayIndex";
    /// What the children of the job are doing, as a text and as numbers.
    pub const CHILDREN: &str = "muster.children";
    pub const CHILDREN_WAITING: &str = "muster.children.waiting";
    pub const CHILDREN_RUNNING: &str = "muster.children.running";
    pub const CHILDREN_COMPLETED: &str = "muster.children.completed";
    pub const CHILDREN_FAILED: &str = "muster.children.failed";
    pub const CHILDREN_CANCELED: &str = "muster.children.canceled";
}

#[cfg(test)]
mod tests;
