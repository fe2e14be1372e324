//! Nodes: the members of a cluster, from the intent to create one until it is deleted.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Capacity, Category, HostName, Lifecycle, Part, Tier};
use crate::ids::{ClusterId, Epoch, JobId, NodeId, PrincipalId};
use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    /// Chosen before the provider is asked and never used again, so it is also the create call's idempotency key.
    pub name: Arc<str>,
    pub cluster: ClusterId,
    /// The host that it is created on. It is chosen with the request and never changes.
    #[serde(default, skip_serializing_if = "HostName::is_local")]
    pub host: HostName,
    pub vm_size: Arc<str>,
    pub capacity: Capacity,
    pub tier: Tier,
    /// The price when the node was requested. A later price list does not change a running bill.
    pub price_micro_usd_per_hour: u64,
    pub requested_at: Wall,
    pub state: NodeState,
    /// Distinguishes a reboot from a reconnect. Empty until the agent has reported.
    pub boot_id: Arc<str>,
    pub address: Arc<str>,
    /// The approximate time of its eviction. Its jobs have been notified, and no other job starts on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evict_at: Option<Wall>,
    /// Covers the part of the node that no job holds. The rest is metered with the jobs.
    pub meter: Option<Meter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeState {
    /// The intent is on disk, and the create call is in the outbox.
    Requested,
    /// The provider has accepted the request; the agent has not reported yet.
    Booting,
    Idle {
        since: Wall,
        /// Whether any job ever ran here.
        has_served: bool,
    },
    /// Held by one job as a whole, or by several in parts, in the order of their grants.
    Leased {
        leases: Vec<Lease>,
    },
    /// Lost, or never started. It is being deleted.
    Unusable {
        why: Trouble,
    },
    /// Being deleted because it is no longer needed.
    Leaving,
    Gone,
}

/// An attempt's hold on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub job: JobId,
    pub epoch: Epoch,
    /// The rank of the attempt's member on this node.
    pub rank: u32,
    /// The share of the node that it holds; `None` is the whole node.
    pub share: Option<Capacity>,
    /// The tasks that the node starts by itself after this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<Batch>,
}

/// Tasks of one array that a node was given together with the one before them. It starts each of them, in the same place,
/// when the one before has ended, without asking. Their job IDs and epochs follow those of the lease without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// How many tasks follow. There is at least one.
    pub followers: u32,
    /// Whose tasks they are.
    pub principal: PrincipalId,
    /// When the task before them began.
    pub since: Wall,
    /// The node has to return those that it has not started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_recalled: bool,
}

impl Lease {
    /// The leases of the tasks that follow in the same place, as they will be once it is their turn.
    pub fn followers(self) -> impl Iterator<Item = Lease> {
        std::iter::successors(self.next(), |lease| lease.next())
    }

    /// The lease of the next task in the same place.
    pub fn next(self) -> Option<Lease> {
        let batch = self.batch?;
        let followers = batch.followers - 1;
        Some(Lease {
            job: JobId(self.job.0 + 1),
            epoch: Epoch(self.epoch.0 + 1),
            batch: (followers > 0).then_some(Batch { followers, ..batch }),
            ..self
        })
    }

    /// The epoch of the last task that follows, or its own.
    pub fn last_epoch(&self) -> Epoch {
        Epoch(self.epoch.0 + self.batch.map_or(0, |batch| u64::from(batch.followers)))
    }

    /// The same with at most this many tasks that follow.
    pub fn cut(self, followers: u32) -> Lease {
        let batch = self.batch.filter(|_| followers > 0);
        Lease {
            batch: batch.map(|batch| Batch { followers: batch.followers.min(followers), ..batch }),
            ..self
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// It did not report for longer than the lease.
    LeaseExpired,
    /// The agent reported with another boot ID, so everything that it ran has ended.
    Rebooted,
    BootTimedOut,
    /// All its processes ended although that was not requested.
    Ended,
    CreateFailed {
        message: Box<str>,
    },
    /// It was a low-priority node, and the provider evicted it.
    Evicted,
}

/// The open segment of a node's bill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    pub category: Category,
    pub since: Wall,
    /// The part of the node that it covers.
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

    /// The lease of an attempt, also if it waits behind another in the same place.
    pub fn lease_of(&self, epoch: Epoch) -> Option<Lease> {
        let holds = |lease: &&Lease| (lease.epoch..=lease.last_epoch()).contains(&epoch);
        let lease = *self.leases().iter().find(holds)?;
        if lease.epoch == epoch {
            Some(lease)
        } else {
            lease.followers().find(|lease| lease.epoch == epoch)
        }
    }

    /// The capacity that is left for further jobs.
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

    /// The part of the node that such a share represents.
    pub fn part_of(&self, share: Option<Capacity>) -> Part {
        share.map_or(Part::WHOLE, |share| self.capacity.part(share))
    }

    /// The part of the node that no job holds.
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
    /// Its idle time is now caused by the minimum, or no longer is.
    RestChanged,
    Granted,
    /// One of several jobs released it.
    PartReleased,
    /// The last job released it.
    Released,
    /// The next task of a batch is in the place of the one before, or the node has returned tasks of a batch.
    BatchChanged,
    Lost,
    BootTimedOut,
    /// Its jobs were notified, and have some time before it is evicted.
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
        NodeEvent::BatchChanged,
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
            // A provider may report a failure and still leave something behind, so the node is deleted anyway.
            (P::Requested, E::CreateFailed) => Some(P::Unusable),
            (
                P::Booting | P::Idle | P::Leased | P::Unusable | P::Leaving | P::Gone,
                E::CreateFailed,
            ) => None,
            // The agent may report before the provider answers.
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
            (P::Leased, E::BatchChanged) => Some(P::Leased),
            (
                P::Requested | P::Booting | P::Idle | P::Unusable | P::Leaving | P::Gone,
                E::BatchChanged,
            ) => None,
            (P::Idle | P::Leased, E::Lost) => Some(P::Unusable),
            (P::Requested | P::Booting | P::Unusable | P::Leaving | P::Gone, E::Lost) => None,
            (P::Requested | P::Booting, E::BootTimedOut) => Some(P::Unusable),
            (P::Idle | P::Leased | P::Unusable | P::Leaving | P::Gone, E::BootTimedOut) => None,
            (P::Leased, E::EvictionNoticed) => Some(P::Leased),
            // Without any job there is nothing to notify, so the node is evicted at once.
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
