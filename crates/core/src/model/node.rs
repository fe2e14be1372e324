//! Nodes: the machines of a pool, from the intent to have one until it is gone.

use serde::{Deserialize, Serialize};

use super::{Category, Lifecycle, Tier};
use crate::ids::{ClusterId, Epoch, JobId, NodeId};
use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    /// Made by us before the provider is asked, never used again: the create call's idempotency key.
    pub name: Box<str>,
    pub cluster: ClusterId,
    pub vm_size: Box<str>,
    pub tier: Tier,
    /// Captured when the node was asked for; a later price list does not change a running bill.
    pub price_micro_usd_per_hour: u64,
    pub requested_at: Wall,
    pub state: NodeState,
    /// What tells a reboot from a reconnect. Empty until the agent reported.
    pub boot_id: Box<str>,
    pub address: Box<str>,
    pub meter: Option<Meter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeState {
    /// The intent is on disk, the create call is in the outbox.
    Requested,
    /// The provider took the order; the agent has not reported yet.
    Booting,
    Idle {
        since: Wall,
        /// A waiting job will take this node once it has company, so its idle timer rests.
        awaited: bool,
    },
    Leased {
        job: JobId,
        epoch: Epoch,
    },
    /// Lost, or never came up. Being deleted.
    Unusable {
        why: Trouble,
    },
    /// Being deleted in peace.
    Leaving,
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// No report for longer than the lease.
    LeaseExpired,
    /// The agent reported with another boot id: what it ran is gone.
    Rebooted,
    BootTimedOut,
    /// The provider took it away.
    Evicted,
    CreateFailed {
        message: Box<str>,
    },
}

/// The open piece of a node's bill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    pub category: Category,
    pub since: Wall,
}

impl Node {
    pub fn phase(&self) -> NodePhase {
        match self.state {
            NodeState::Requested => NodePhase::Requested,
            NodeState::Booting => NodePhase::Booting,
            NodeState::Idle { .. } => NodePhase::Idle,
            NodeState::Leased { .. } => NodePhase::Leased,
            NodeState::Unusable { .. } => NodePhase::Unusable,
            NodeState::Leaving => NodePhase::Leaving,
            NodeState::Gone => NodePhase::Gone,
        }
    }

    pub fn lease(&self) -> Option<(JobId, Epoch)> {
        match self.state {
            NodeState::Leased { job, epoch } => Some((job, epoch)),
            NodeState::Requested
            | NodeState::Booting
            | NodeState::Idle { .. }
            | NodeState::Unusable { .. }
            | NodeState::Leaving
            | NodeState::Gone => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodePhase {
    Requested,
    Booting,
    Idle,
    Leased,
    Unusable,
    Leaving,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeEvent {
    Requested,
    Created,
    CreateFailed,
    Joined,
    /// Its idle timer stopped or started again, or its idle time became part of the floor, or left it.
    RestChanged,
    Granted,
    /// The user's process runs: from here on it is run time.
    Started,
    Released,
    Lost,
    BootTimedOut,
    ScaledDown,
    Deleted,
}

impl Lifecycle for NodePhase {
    type Event = NodeEvent;
    const NAME: &'static str = "node";
    const INITIAL: Self = NodePhase::Requested;
    const PHASES: &'static [Self] = &[
        NodePhase::Requested,
        NodePhase::Booting,
        NodePhase::Idle,
        NodePhase::Leased,
        NodePhase::Unusable,
        NodePhase::Leaving,
        NodePhase::Gone,
    ];
    const EVENTS: &'static [NodeEvent] = &[
        NodeEvent::Requested,
        NodeEvent::Created,
        NodeEvent::CreateFailed,
        NodeEvent::Joined,
        NodeEvent::RestChanged,
        NodeEvent::Granted,
        NodeEvent::Started,
        NodeEvent::Released,
        NodeEvent::Lost,
        NodeEvent::BootTimedOut,
        NodeEvent::ScaledDown,
        NodeEvent::Deleted,
    ];

    fn after(self, event: NodeEvent) -> Option<NodePhase> {
        use NodeEvent as E;
        use NodePhase as P;
        match (self, event) {
            (P::Requested, E::Requested) => Some(P::Requested),
            (
                P::Booting | P::Idle | P::Leased | P::Unusable | P::Leaving | P::Gone,
                E::Requested,
            ) => None,
            (P::Requested, E::Created) => Some(P::Booting),
            (P::Booting | P::Idle | P::Leased | P::Unusable | P::Leaving | P::Gone, E::Created) => {
                None
            }
            // A provider may say "failed" and still leave something behind: it is deleted all the same.
            (P::Requested, E::CreateFailed) => Some(P::Unusable),
            (
                P::Booting | P::Idle | P::Leased | P::Unusable | P::Leaving | P::Gone,
                E::CreateFailed,
            ) => None,
            // The agent can be quicker than the provider's answer.
            (P::Requested | P::Booting, E::Joined) => Some(P::Idle),
            (P::Idle | P::Leased | P::Unusable | P::Leaving | P::Gone, E::Joined) => None,
            (P::Idle, E::RestChanged) => Some(P::Idle),
            (
                P::Requested | P::Booting | P::Leased | P::Unusable | P::Leaving | P::Gone,
                E::RestChanged,
            ) => None,
            (P::Idle, E::Granted) => Some(P::Leased),
            (
                P::Requested | P::Booting | P::Leased | P::Unusable | P::Leaving | P::Gone,
                E::Granted,
            ) => None,
            (P::Leased, E::Started) => Some(P::Leased),
            (
                P::Requested | P::Booting | P::Idle | P::Unusable | P::Leaving | P::Gone,
                E::Started,
            ) => None,
            (P::Leased, E::Released) => Some(P::Idle),
            (
                P::Requested | P::Booting | P::Idle | P::Unusable | P::Leaving | P::Gone,
                E::Released,
            ) => None,
            (P::Idle | P::Leased, E::Lost) => Some(P::Unusable),
            (P::Requested | P::Booting | P::Unusable | P::Leaving | P::Gone, E::Lost) => None,
            (P::Requested | P::Booting, E::BootTimedOut) => Some(P::Unusable),
            (P::Idle | P::Leased | P::Unusable | P::Leaving | P::Gone, E::BootTimedOut) => None,
            (P::Requested | P::Booting | P::Idle, E::ScaledDown) => Some(P::Leaving),
            // Never while it holds a job.
            (P::Leased | P::Unusable | P::Leaving | P::Gone, E::ScaledDown) => None,
            (P::Unusable | P::Leaving, E::Deleted) => Some(P::Gone),
            (P::Requested | P::Booting | P::Idle | P::Leased | P::Gone, E::Deleted) => None,
        }
    }
}
