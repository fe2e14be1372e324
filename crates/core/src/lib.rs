//! Muster's model and every decision about it.
//!
//! This crate is pure: it has no IO, no clock, no random numbers and no Azure JSON. Decisions and effects are
//! separate. `core` makes every decision and returns it as data; the driver (the server or the simulator) owns the
//! clock, the disk and the network. It calls [`step`], commits the changes in one transaction, and only then sends
//! the answers and carries out the effects. So a crash at any moment loses nothing that was acknowledged, and the
//! simulator can run the same code as the server, in virtual time and with every kind of fault.
//!
//! Start here, in this order:
//! 1. [`model`]: what exists, and what may happen to it (one wildcard-free table per lifecycle).
//! 2. [`Change`]: what a decision did. World, rows and the event log are all built from changes, so they cannot
//!    disagree.
//! 3. [`World`]: the live entities, with the indexes that keep decisions cheap.
//! 4. [`step`]: inputs in, changes and answers out. It decides after each input.
//! 5. [`decide`]: looks only at state, never at the event that woke it. Deciding a second time changes nothing.
//! 6. [`agent`]: the node's side of the protocol, which is just as pure.
//! 7. [`why`]: the reasons why a job waits, computed when they are asked for.
//! 8. [`access`]: which user may do what. [`governance`]: what is locked. [`hosts`]: the hosts that nodes run on.
//! 9. [`invariants`]: what must always hold. [`binding`]: how `${{inputs.x}}` is replaced in a command.
//!    `job_trees`: jobs that consist of other jobs. `batches`: short tasks that a node is given together.
//!    [`read_only`]: what can still be answered while the store refuses writes. [`retention`]: how long ended jobs are
//!    kept.

pub mod access;
mod activity;
pub mod agent;
mod attempts;
mod batches;
pub mod binding;
pub mod catalogue;
mod change;
pub mod cluster_properties;
mod decide;
mod error_chain;
mod failure;
pub mod governance;
pub mod hosts;
pub mod ids;
mod input;
pub mod invariants;
mod job_trees;
pub mod lease;
pub mod limits;
mod meter;
pub mod model;
pub mod nearest;
mod observations;
pub mod orphans;
pub mod planted;
pub mod read_only;
pub mod refusal;
mod regions;
mod requests;
pub mod retention;
mod step;
pub mod storage;
pub mod time;
pub mod why;
mod world;

pub use change::{Change, Effect, EffectKind, MemberChange, NodeRequest};
pub use decide::{decide, decide_everything};
pub use error_chain::ErrorChain;
pub use input::{
    AccessRequest, AssetAction, AssetRequest, ClusterPatch, DeployRequest, DeployStep, DeployWhat,
    ExpiredJobs, Foreseen, GovernanceRequest, GroupPatch, HostRequest, Input, InputResult,
    JobAction, JobEdit, JobPatch, JobRequest, KnownAsset, KnownJob, NewHost, NewLock, NewUser,
    RefusalKind, Refused, Reply, SaveRequest, WorkspacePatch,
};
pub use model::DEFAULT_VM_SIZE;
pub use observations::{desired_for, renew_unchanged};
pub use regions::Regions;
pub use requests::check_region;
pub use step::{Output, Wake, next_wake, step, step_deciding_everything};
pub use world::{
    Ahead, Candidate, ClusterIndex, ClusterNames, HostNodes, IdSet, Queue, QuotaShort, QuotaUse,
    Settings, Tree, TreeRows, World, WorldRows,
};
