//! Nodes: the machines of a pool, from the intent to have one until it is gone.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Capacity, Category, HostName, Lifecycle, Part, Tier};
use crate::ids::{ClusterId, Epoch, JobId, NodeId};
use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    /// Made by us before the provider is asked, never used again: the create call's idempotency key.
    pub name: Arc<str>,
    pub cluster: ClusterId,
    /// The machine that it is made on; chosen when it is asked for, and never another.
    #[serde(default, skip_serializing_if = "HostName::is_local")]
    pub host: HostName,
    pub vm_size: Arc<str>,
    pub capacity: Capacity,
    pub tier: Tier,
    /// Captured when the node was asked for; a later price list does not change a running bill.
    pub price_micro_usd_per_hour: u64,
    pub requested_at: Wall,
    pub state: NodeState,
    /// What tells a reboot from a reconnect. Empty until the agent reported.
    pub boot_id: Arc<str>,
    pub address: Arc<str>,
    /// It will be taken away at about this time: whoever runs here was told, and nobody else starts here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evict_at: Option<Wall>,
    /// Runs on whatever of the node no job holds; what a job holds is metered with the job.
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
        /// Whether any job ever ran here.
        has_served: bool,
    },
    /// Held by one job as a whole, or by several in parts; in the order of their grants.
    Leased {
        leases: Vec<Lease>,
    },
    /// Lost, or never came up. Being deleted.
    Unusable {
        why: Trouble,
    },
    /// Being deleted in peace.
    Leaving,
    Gone,
}

/// An attempt's hold on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub job: JobId,
    pub epoch: Epoch,
    /// Which of the attempt's members this node is.
    pub rank: u32,
    /// What it takes; `None` is all of it.
    pub share: Option<Capacity>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// No report for longer than the lease.
    LeaseExpired,
    /// The agent reported with another boot id: what it ran is gone.
    Rebooted,
    BootTimedOut,
    /// All its processes ended, and nobody had asked for that.
    Ended,
    CreateFailed {
        message: Box<str>,
    },
    /// A low-priority node that the provider took back.
    Evicted,
}

/// The open piece of a node's bill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    pub category: Category,
    pub since: Wall,
    /// How much of the node it stands for.
    #[serde(default)]
    pub part: Part,
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

    pub fn leases(&self) -> &[Lease] {
        match &self.state {
            NodeState::Leased { leases } => leases,
            NodeState::Requested
            | NodeState::Booting
            | NodeState::Idle { .. }
            | NodeState::Unusable { .. }
            | NodeState::Leaving
            | NodeState::Gone => &[],
        }
    }

    pub fn lease_of(&self, epoch: Epoch) -> Option<&Lease> {
        self.leases().iter().find(|lease| lease.epoch == epoch)
    }

    /// What is left for further jobs.
    pub fn room(&self) -> Capacity {
        let left = |room: Capacity, lease: &Lease| room.without(lease.share.unwrap_or(room));
        match &self.state {
            _ if self.evict_at.is_some() => Capacity::default(),
            NodeState::Idle { .. } => self.capacity,
            NodeState::Leased { leases } => leases.iter().fold(self.capacity, left),
            NodeState::Requested
            | NodeState::Booting
            | NodeState::Unusable { .. }
            | NodeState::Leaving
            | NodeState::Gone => Capacity::default(),
        }
    }

    /// How much of it such a share stands for.
    pub fn part_of(&self, share: Option<Capacity>) -> Part {
        share.map_or(Part::WHOLE, |share| self.capacity.part(share))
    }

    /// How much of it no job holds.
    pub fn spare_part(&self) -> Part {
        let held: u32 = self.leases().iter().map(|lease| self.part_of(lease.share).0).sum();
        Part(Part::WHOLE.0.saturating_sub(held))
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
    /// Its idle time became part of the floor, or left it.
    RestChanged,
    Granted,
    /// One of several jobs has left it.
    PartReleased,
    /// The last job has left it.
    Released,
    Lost,
    BootTimedOut,
    /// What it runs has some time left before it is taken away.
    EvictionNoticed,
    Evicted,
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
        NodeEvent::PartReleased,
        NodeEvent::Released,
        NodeEvent::Lost,
        NodeEvent::BootTimedOut,
        NodeEvent::EvictionNoticed,
        NodeEvent::Evicted,
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
            (P::Idle | P::Leased, E::Granted) => Some(P::Leased),
            (P::Requested | P::Booting | P::Unusable | P::Leaving | P::Gone, E::Granted) => None,
            (P::Leased, E::PartReleased) => Some(P::Leased),
            (
                P::Requested | P::Booting | P::Idle | P::Unusable | P::Leaving | P::Gone,
                E::PartReleased,
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
            (P::Leased, E::EvictionNoticed) => Some(P::Leased),
            // Without anything that runs there is nobody to be told: it is gone at once.
            (
                P::Requested | P::Booting | P::Idle | P::Unusable | P::Leaving | P::Gone,
                E::EvictionNoticed,
            ) => None,
            (P::Requested | P::Booting | P::Idle | P::Leased, E::Evicted) => Some(P::Unusable),
            (P::Unusable | P::Leaving | P::Gone, E::Evicted) => None,
            (P::Requested | P::Booting | P::Idle, E::ScaledDown) => Some(P::Leaving),
            // Never while it holds a job.
            (P::Leased | P::Unusable | P::Leaving | P::Gone, E::ScaledDown) => None,
            (P::Unusable | P::Leaving, E::Deleted) => Some(P::Gone),
            (P::Requested | P::Booting | P::Idle | P::Leased | P::Gone, E::Deleted) => None,
        }
    }
}
