//! Compute clusters: elastic pools of like nodes. An instance is one of them, see [`ComputeKind`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Capacity, ClusterName, ComputeKind, LastOperation, Lifecycle, Scope};
use crate::ids::{ClusterId, OperationId, PrincipalId, WorkspaceId};
use crate::time::{Span, Wall};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    pub id: ClusterId,
    pub workspace: WorkspaceId,
    pub name: ClusterName,
    pub spec: ClusterSpec,
    pub phase: ClusterPhase,
    /// The operation that reports the present phase to whoever asked for it.
    pub operation: Option<OperationId>,
    pub created_at: Wall,
    pub created_by: PrincipalId,
    pub modified_at: Wall,
    /// What each node has, and the family that its vCPUs count for: the size is fixed for life.
    pub capacity: Capacity,
    pub family: Arc<str>,
    pub backoff: Backoff,
    pub rest: Rest,
    /// How long nodes take from the request to their first report: the mean of the last few.
    pub boot: Option<Span>,
    /// Only an instance has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastOperation>,
}

/// Whether idle nodes are counted down. While a waiting job will take them once it has enough of them they
/// are not; afterwards their time starts anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rest {
    Held,
    Free { since: Wall },
}

impl Default for Rest {
    fn default() -> Rest {
        Rest::Free { since: Wall(0) }
    }
}

impl Cluster {
    /// The mean moves by a quarter of what is new.
    pub fn boot_after(&self, observed: Span) -> Span {
        match self.boot {
            Some(mean) => Span(mean.0 - mean.0 / 4 + observed.0 / 4),
            None => observed,
        }
    }
}

/// Everything that Azure's AmlCompute can say about a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSpec {
    #[serde(default, skip_serializing_if = "ComputeKind::is_cluster")]
    pub kind: ComputeKind,
    /// Without it a stopped instance keeps its place in the quota, so that it can always be started again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub releases_quota_on_stop: bool,
    pub location: Box<str>,
    pub description: Option<Box<str>>,
    pub tags: Arc<BTreeMap<String, String>>,
    /// As the user wrote it; looked up without case.
    pub vm_size: Arc<str>,
    pub tier: Tier,
    pub scale: ScaleSettings,
    pub os_type: OsType,
    pub virtual_machine_image: Option<Box<str>>,
    pub isolated_network: bool,
    pub subnet: Option<Box<str>>,
    pub admin: Option<AdminAccount>,
    pub remote_login: RemoteLogin,
    pub enable_node_public_ip: bool,
    pub disable_local_auth: bool,
    pub identity: Option<Identity>,
    /// Opaque to us: the JSON text that the client sent, given back as it came.
    pub property_bag: Option<Box<str>>,
    /// The names of what was asked for and is not known here: whoever looks at the cluster is told.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ignored: BTreeSet<Box<str>>,
}

impl ClusterSpec {
    /// The resource group of the network that its nodes are in.
    pub fn network_group(&self) -> Option<Scope> {
        let mut parts = self.subnet.as_deref()?.split('/').filter(|part| !part.is_empty());
        let (first, subscription) = (parts.next()?, parts.next()?);
        let (second, group) = (parts.next()?, parts.next()?);
        let is_address = first.eq_ignore_ascii_case("subscriptions")
            && second.eq_ignore_ascii_case("resourceGroups");
        is_address.then(|| Scope::group(subscription, group))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleSettings {
    pub nodes_min: u32,
    pub nodes_max: u32,
    pub idle_time: Span,
    #[serde(default)]
    pub scale_up: ScaleUp,
}

/// When a pool grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ScaleUp {
    /// A node for every node that a job waits for.
    #[default]
    Immediate,
    /// Only if none that is there will probably be free before a new one could be up.
    Predictive,
}

impl ScaleUp {
    pub fn as_str(self) -> &'static str {
        match self {
            ScaleUp::Immediate => "immediate",
            ScaleUp::Predictive => "predictive",
        }
    }
}

impl Default for ScaleSettings {
    /// What Azure's own clients fill in: 0 to 4 nodes, two minutes.
    fn default() -> ScaleSettings {
        ScaleSettings {
            nodes_min: 0,
            nodes_max: 4,
            idle_time: Span::seconds(120),
            scale_up: ScaleUp::Immediate,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Tier {
    Dedicated,
    LowPriority,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OsType {
    Linux,
    Windows,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemoteLogin {
    Enabled,
    Disabled,
    NotSpecified,
}

/// The administrator of every node. Secrets are kept as digests only and never shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminAccount {
    pub user_name: Box<str>,
    pub ssh_public_key: Option<Box<str>>,
    pub password_digest: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub system_assigned: bool,
    pub user_assigned: BTreeSet<String>,
}

/// After nodes failed to come up the pool waits before it tries again, longer each time, so that a broken
/// provider is not hammered. From the third failure in a row on it tries with one node at a time, and after
/// failures that cost money it waits up to an hour: one bad pool cannot burn money.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub failures: u32,
    pub until: Wall,
    /// What the last failure was.
    #[serde(default)]
    pub last: Option<Arc<str>>,
}

impl Backoff {
    const FIRST: Span = Span::seconds(2);
    const LONGEST: Span = Span::seconds(300);
    const LONGEST_PAID: Span = Span::seconds(3_600);
    /// So many failures in a row open the breaker.
    pub const BREAKER: u32 = 3;

    /// `is_paid`: the node that failed was running, and billed, until then.
    #[must_use]
    pub fn after_failure(&self, now: Wall, is_paid: bool, last: &str) -> Backoff {
        let longest = if is_paid { Self::LONGEST_PAID } else { Self::LONGEST };
        let factor = 1u64 << self.failures.min(20);
        let pause = Span(Self::FIRST.0.saturating_mul(factor)).min(longest);
        // Nodes that were asked for together fail together: that is one more failure, but not one each.
        let failures = if self.until > now { self.failures } else { self.failures + 1 };
        Backoff { failures, until: self.until.max(now + pause), last: Some(last.into()) }
    }

    /// Nodes that may be on their way at a time.
    pub fn pending_max(&self) -> u32 {
        if self.failures >= Self::BREAKER { 1 } else { u32::MAX }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ClusterPhase {
    Creating,
    Updating,
    Succeeded,
    Deleting,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterEvent {
    CreateAsked,
    UpdateAsked,
    Provisioned,
    DeleteAsked,
    /// The last node and the last job have left.
    Emptied,
    /// Creating a node failed, or worked again: the pause before the next try changed.
    BackoffChanged,
    /// Its idle nodes are kept for a waiting job, or not any more.
    RestChanged,
    /// A node came up: how long that takes is known better.
    BootMeasured,
}

impl Lifecycle for ClusterPhase {
    type Event = ClusterEvent;
    const NAME: &'static str = "cluster";
    const INITIAL: Self = ClusterPhase::Creating;
    const PHASES: &'static [Self] = &[
        ClusterPhase::Creating,
        ClusterPhase::Updating,
        ClusterPhase::Succeeded,
        ClusterPhase::Deleting,
        ClusterPhase::Gone,
    ];
    const EVENTS: &'static [ClusterEvent] = &[
        ClusterEvent::CreateAsked,
        ClusterEvent::UpdateAsked,
        ClusterEvent::Provisioned,
        ClusterEvent::DeleteAsked,
        ClusterEvent::Emptied,
        ClusterEvent::BackoffChanged,
        ClusterEvent::RestChanged,
        ClusterEvent::BootMeasured,
    ];

    fn after(self, event: ClusterEvent) -> Option<ClusterPhase> {
        use ClusterEvent as E;
        use ClusterPhase as P;
        match (self, event) {
            (P::Creating, E::CreateAsked) => Some(P::Creating),
            (P::Updating | P::Succeeded | P::Deleting | P::Gone, E::CreateAsked) => None,
            (P::Creating | P::Updating | P::Succeeded, E::UpdateAsked) => Some(P::Updating),
            (P::Deleting | P::Gone, E::UpdateAsked) => None,
            (P::Creating | P::Updating, E::Provisioned) => Some(P::Succeeded),
            (P::Succeeded | P::Deleting | P::Gone, E::Provisioned) => None,
            (P::Creating | P::Updating | P::Succeeded, E::DeleteAsked) => Some(P::Deleting),
            (P::Deleting | P::Gone, E::DeleteAsked) => None,
            (P::Deleting, E::Emptied) => Some(P::Gone),
            (P::Creating | P::Updating | P::Succeeded | P::Gone, E::Emptied) => None,
            (
                P::Creating | P::Updating | P::Succeeded | P::Deleting,
                E::BackoffChanged | E::RestChanged | E::BootMeasured,
            ) => Some(self),
            (P::Gone, E::BackoffChanged | E::RestChanged | E::BootMeasured) => None,
        }
    }
}
