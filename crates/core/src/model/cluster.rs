//! Compute clusters: elastic groups of equal nodes. An instance is a special case, see [`ComputeKind`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Capacity, ClusterName, ComputeKind, LastOperation, Lifecycle, Scope};
use crate::ids::{ClusterId, OperationId, PrincipalId, WorkspaceId};
use crate::time::{Span, Wall};

/// The size that Azure's clients send if the user names none.
pub const DEFAULT_VM_SIZE: &str = "STANDARD_DS3_V2";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    pub id: ClusterId,
    pub workspace: WorkspaceId,
    pub name: ClusterName,
    pub spec: ClusterSpec,
    pub phase: ClusterPhase,
    /// The operation that reports the current phase to the client.
    pub operation: Option<OperationId>,
    pub created_at: Wall,
    pub created_by: PrincipalId,
    pub modified_at: Wall,
    /// The capacity of each node, and the family that its vCPUs count towards. The size of a cluster never changes.
    pub capacity: Capacity,
    pub family: Arc<str>,
    pub backoff: Backoff,
    pub rest: Rest,
    /// How long nodes take from the request to their first report: a moving average.
    pub boot: Option<Span>,
    /// Only instances have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastOperation>,
}

/// Whether the idle time of idle nodes is running. It is not while a waiting job will use them once it has enough of
/// them; afterwards it starts over.
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
    /// The average moves by a quarter of the difference to the new value.
    pub fn boot_after(&self, observed: Span) -> Span {
        match self.boot {
            Some(mean) => Span(mean.0 - mean.0 / 4 + observed.0 / 4),
            None => observed,
        }
    }
}

/// Everything that Azure's AmlCompute can specify about a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSpec {
    #[serde(default, skip_serializing_if = "ComputeKind::is_cluster")]
    pub kind: ComputeKind,
    /// If false, a stopped instance keeps its place in the quota, so that it can always be started again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub releases_quota_on_stop: bool,
    pub location: Box<str>,
    pub description: Option<Box<str>>,
    pub tags: Arc<BTreeMap<String, String>>,
    /// As the user wrote it. It is looked up without case.
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
    /// The JSON text that the client sent. Muster does not interpret it, and returns it unchanged.
    pub property_bag: Option<Box<str>>,
    /// The names of requested properties that Muster does not know. They are shown with the cluster.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ignored: BTreeSet<Box<str>>,
}

impl ClusterSpec {
    /// A compute for which nothing is requested: Azure's defaults.
    pub fn new(kind: ComputeKind, location: &str) -> ClusterSpec {
        ClusterSpec {
            kind,
            releases_quota_on_stop: false,
            location: location.into(),
            description: None,
            tags: Arc::default(),
            vm_size: DEFAULT_VM_SIZE.into(),
            tier: Tier::Dedicated,
            scale: match kind {
                ComputeKind::Cluster => ScaleSettings::default(),
                ComputeKind::Instance => ScaleSettings::of_instance(true),
                ComputeKind::Serverless => ScaleSettings::of_serverless(),
            },
            os_type: OsType::Linux,
            virtual_machine_image: None,
            isolated_network: false,
            subnet: None,
            admin: None,
            remote_login: RemoteLogin::NotSpecified,
            enable_node_public_ip: true,
            disable_local_auth: false,
            identity: None,
            property_bag: None,
            ignored: BTreeSet::new(),
        }
    }

    /// The resource group of the network that the nodes are in.
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

/// When a cluster grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ScaleUp {
    /// Adds a node for every node that a job waits for.
    #[default]
    Immediate,
    /// Adds a node only if none will probably be free before a new one could start.
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
    /// The defaults of Azure's own clients: 0 to 4 nodes, two minutes.
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

/// The administrator account of every node. Secrets are stored only as digests and never shown.
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

/// After nodes failed to start, the cluster waits before it tries again, longer each time, so that a broken provider is
/// not flooded with requests. From the third failure in a row on it tries one node at a time, and after failures that
/// cost money it waits up to an hour, so that one broken cluster cannot run up a bill.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub failures: u32,
    pub until: Wall,
    /// The error of the last failure.
    #[serde(default)]
    pub last: Option<Arc<str>>,
}

impl Backoff {
    const FIRST: Span = Span::seconds(2);
    const LONGEST: Span = Span::seconds(300);
    const LONGEST_PAID: Span = Span::seconds(3_600);
    /// After this many failures in a row, the cluster tries one node at a time.
    pub const BREAKER: u32 = 3;

    /// `is_paid` is whether the failed node was running, and billed, until then.
    #[must_use]
    pub fn after_failure(&self, now: Wall, is_paid: bool, last: &str) -> Backoff {
        let longest = if is_paid { Self::LONGEST_PAID } else { Self::LONGEST };
        let factor = 1u64 << self.failures.min(20);
        let pause = Span(Self::FIRST.0.saturating_mul(factor)).min(longest);
        // Nodes that were requested together fail together, which counts as one failure.
        let failures = if self.until > now { self.failures } else { self.failures + 1 };
        Backoff { failures, until: self.until.max(now + pause), last: Some(last.into()) }
    }

    /// How many nodes may be starting at a time.
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
    /// Its last node and its last job have ended.
    Emptied,
    /// Creating a node failed, or succeeded again, so the pause before the next try changed.
    BackoffChanged,
    /// Its idle nodes are now held for a waiting job, or no longer are.
    RestChanged,
    /// A node has started, so the average start time changed.
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
