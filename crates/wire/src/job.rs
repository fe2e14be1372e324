//! Jobs on the wire: Azure's Command jobs, and run history's view of them.
//!
//! [`parse_request`] reads the body of a PUT, [`request_json`] writes one, [`resource`] is the answer to PUT
//! and GET, [`details`] is what clients poll while they stream a log.

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

/// Keys of ours among a job's properties. All values are text.
pub mod property {
    /// What all of them begin with.
    pub const OURS: &str = "muster.";
    /// How many times it was tried.
    pub const ATTEMPTS: &str = "muster.attempts";
    /// Why it waits, while it does.
    pub const WAIT_REASON: &str = "muster.waitReason";
    /// The same in words for programs, such as `QuotaReached`, with commas between them.
    pub const WAIT_CODE: &str = "muster.waitCode";
    /// Why it failed.
    pub const FAILURE: &str = "muster.failure";
    /// What failed: `prepare`, `user code`, `node` or `data`. (`provision` fails no job.)
    pub const FAILURE_CLASS: &str = "muster.failureClass";
    /// What becomes of it when its low-priority node is taken away: `requeue`, as if left out, or `fail`.
    pub const ON_EVICTION: &str = "muster.onEviction";
    /// The files in its working folder when it starts: the id of a tree.
    pub const CODE: &str = "muster.code";
    /// The folder that is kept while it runs, and is there again in its next attempt.
    pub const CHECKPOINT: &str = "muster.checkpoint";
    /// What its owner should know although nothing is wrong: what it asks for and does not get.
    pub const NOTE: &str = crate::notes::NOTE;
    /// Whether it suits low priority, and why: its nodes can be taken away at any time then.
    pub const LOW_PRIORITY: &str = "muster.lowPriority";
    /// Why it was canceled, if not by request.
    pub const CANCEL_REASON: &str = "muster.cancelReason";
}

#[cfg(test)]
mod tests;
