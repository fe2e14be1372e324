//! The model of Muster and every decision about it. Pure: no IO, no clock, no random numbers, no Azure JSON.
//!
//! Start here, in this order:
//! 1. [`model`]: what exists, and what may happen to it (one wildcard-free table per lifecycle);
//! 2. [`Change`]: the one value that World, rows and event log are made from;
//! 3. [`World`]: the live entities with the indexes that keep decisions cheap;
//! 4. [`step`]: inputs in, changes and answers out; after each input it calls [`decide`];
//! 5. [`decide`]: looks at state only, never at what woke it; asked again, it has nothing to say;
//! 6. [`agent`]: the node's side of the protocol, equally pure;
//! 7. [`why`]: why a job waits, computed when asked;
//! 8. [`access`]: who may do what; [`governance`]: what is locked; [`hosts`]: on which machines;
//! 9. [`invariants`]: what must always hold; [`binding`]: what stands for `${{inputs.x}}` in a command;
//!    [`read_only`]: what is answered while nothing can be written.
//!
//! The driver (server or simulator) owns the clock, the disk and the network: it calls `step`, commits the
//! changes in one transaction, and only then lets answers and effects out.

pub mod access;
mod activity;
pub mod agent;
mod attempts;
pub mod binding;
pub mod catalogue;
mod change;
mod decide;
mod error_chain;
mod failure;
pub mod governance;
pub mod hosts;
pub mod ids;
mod input;
pub mod invariants;
pub mod lease;
pub mod limits;
mod meter;
pub mod model;
pub mod nearest;
mod observations;
pub mod orphans;
pub mod planted;
pub mod read_only;
mod regions;
mod requests;
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
    Foreseen, GovernanceRequest, GroupPatch, HostRequest, Input, InputResult, JobAction, JobEdit,
    JobPatch, JobRequest, KnownAsset, KnownJob, NewHost, NewLock, NewUser, RefusalKind, Refused,
    Reply, SaveRequest, WorkspacePatch,
};
pub use observations::desired_for;
pub use regions::Regions;
pub use requests::check_region;
pub use requests::cluster::DEFAULT_VM_SIZE;
pub use step::{Output, Wake, step, step_deciding_everything};
pub use world::{
    Ahead, Candidate, ClusterIndex, ClusterNames, HostNodes, Queue, QuotaShort, QuotaUse, Settings,
    World, WorldRows,
};
