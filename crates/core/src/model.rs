//! The model: what exists, in words that users know.
//!
//! Every entity is a plain record. What may happen to it is defined by a wildcard-free table beside it, its
//! [`Lifecycle`]; `World::apply` checks every change against that table.

mod access;
mod account;
mod activity;
mod asset;
mod capacity;
mod cluster;
mod datastore;
mod deployment;
mod digest;
mod ending;
mod files;
mod group;
mod host;
mod instance;
mod job;
mod job_data;
mod job_identity;
mod job_metadata;
mod job_tree;
mod ledger;
mod lock;
mod names;
mod node;
mod node_failure;
mod operation;
mod quota;
mod recipe;
mod serverless;
mod service;
mod workspace;

pub use access::*;
pub use account::*;
pub use activity::*;
pub use asset::*;
pub use capacity::*;
pub use cluster::*;
pub use datastore::*;
pub use deployment::*;
pub use digest::*;
pub use ending::*;
pub use files::*;
pub use group::*;
pub use host::*;
pub use instance::*;
pub use job::*;
pub use job_data::*;
pub use job_identity::*;
pub use job_metadata::*;
pub use job_tree::*;
pub use ledger::*;
pub use lock::*;
pub use names::*;
pub use node::*;
pub use node_failure::*;
pub use operation::*;
pub use quota::*;
pub use recipe::*;
pub use serverless::*;
pub use service::*;
pub use workspace::*;

/// An event that the entity's current phase does not allow. This is always a bug in Muster, never a user's mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{machine}: {event} is not possible in phase {phase}")]
pub struct Rejected {
    pub machine: &'static str,
    pub phase: String,
    pub event: String,
}

/// A lifecycle that can be drawn as a diagram and checked exhaustively.
pub trait Lifecycle: Copy + Eq + std::fmt::Debug + Sized + 'static {
    type Event: Copy + Eq + std::fmt::Debug + 'static;
    const NAME: &'static str;
    const PHASES: &'static [Self];
    const EVENTS: &'static [Self::Event];
    const INITIAL: Self;

    /// The phase after `event`, or `None` if the event cannot happen in this phase.
    fn after(self, event: Self::Event) -> Option<Self>;

    fn on(self, event: Self::Event) -> Result<Self, Rejected> {
        self.after(event).ok_or_else(|| Rejected {
            machine: Self::NAME,
            phase: format!("{self:?}"),
            event: format!("{event:?}"),
        })
    }
}
