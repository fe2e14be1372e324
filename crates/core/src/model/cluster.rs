//! Compute clusters: elastic pools of like nodes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{ClusterName, Lifecycle};
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
    pub backoff: Backoff,
}

/// Everything that Azure's AmlCompute can say about a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSpec {
    pub location: Box<str>,
    pub description: Option<Box<str>>,
    pub tags: BTreeMap<String, String>,
    /// As the user wrote it; looked up without case.
    pub vm_size: Box<str>,
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleSettings {
    pub nodes_min: u32,
    pub nodes_max: u32,
    pub idle_time: Span,
}

impl Default for ScaleSettings {
    /// What Azure's own clients fill in: 0 to 4 nodes, two minutes.
    fn default() -> ScaleSettings {
        ScaleSettings { nodes_min: 0, nodes_max: 4, idle_time: Span::seconds(120) }
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

/// After failed creates the pool waits before it tries again, so that a broken provider is not hammered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub failures: u32,
    pub until: Wall,
}

impl Backoff {
    const FIRST: Span = Span::seconds(2);
    const LONGEST: Span = Span::seconds(300);

    pub fn after_failure(self, now: Wall) -> Backoff {
        let factor = 1u64 << self.failures.min(20);
        let pause = Span(Self::FIRST.0.saturating_mul(factor)).min(Self::LONGEST);
        Backoff { failures: self.failures.saturating_add(1), until: now + pause }
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
            (P::Creating | P::Updating | P::Succeeded | P::Deleting, E::BackoffChanged) => {
                Some(self)
            }
            (P::Gone, E::BackoffChanged) => None,
        }
    }
}
