//! `Change`: the one value that World, the rows and the event log are all made from.
//!
//! A change says what happened (`event`) and what the entity is now (the whole record). Nothing computes a
//! new state from it: World replaces, the store upserts, the log appends. So the three cannot disagree. The
//! records are shared, not copied, on their way.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::access::AccessChange;
use crate::governance::GovernanceChange;
use crate::hosts::HostChange;
use crate::ids::{ClusterId, EffectId, Epoch, JobId, NodeId, WorkspaceId};
use crate::model::{
    Account, Activity, Asset, AssetContainer, AssetKind, AttemptRecord, Capacity, Cluster,
    ClusterEvent, Datastore, Deployment, HostName, Job, JobEvent, JobMetadata, JobSpec, LedgerLine,
    Member, Node, NodeEvent, NodeFailure, Operation, Principal, Quota, SavedTree, Scope, Tier,
    Verdict, Workspace,
};
use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    PrincipalSeen(Principal),
    WorkspaceChanged(Workspace),
    /// It has no computes any more. What it cost stays in the ledger.
    WorkspaceGone(WorkspaceId),
    /// A cluster whose phase is `Gone` leaves World and its row goes.
    ClusterChanged {
        event: ClusterEvent,
        cluster: Arc<Cluster>,
    },
    /// Carries the specification to its row; World keeps only the job.
    JobSubmitted {
        job: Arc<Job>,
        spec: Arc<JobSpec>,
    },
    /// A job in a terminal phase leaves World; its row stays.
    JobChanged {
        event: JobEvent,
        job: Arc<Job>,
    },
    /// Only its row: something else is written on the job now.
    JobMetadataChanged {
        job: JobId,
        metadata: Box<JobMetadata>,
    },
    /// Only rows: it had ended. What it cost stays in the ledger. The name in small letters.
    JobGone {
        job: JobId,
        workspace: WorkspaceId,
        name: Box<str>,
    },
    /// One member of a job's attempt, so that a thousand nodes do not say the other 999 again each.
    MemberChanged(MemberChange),
    AttemptEnded(AttemptRecord),
    /// Only its row: what a member leaves to its next attempt, in place of what it left before.
    TreeSaved(SavedTree),
    /// A node whose state is `Gone` leaves World and its row goes.
    NodeChanged {
        event: NodeEvent,
        node: Arc<Node>,
    },
    LedgerPosted(LedgerLine),
    /// What a principal has used of a pool; goes with the cluster.
    AccountChanged(Account),
    QuotaChanged(Quota),
    AccessChanged(AccessChange),
    GovernanceChanged(GovernanceChange),
    HostsChanged(HostChange),
    /// Only its row: World holds no deployments.
    DeploymentChanged(Box<Deployment>),
    /// The name in small letters.
    DeploymentGone {
        group: Scope,
        name: Box<str>,
    },
    /// Only its row, as with deployments.
    DatastoreChanged(Box<Datastore>),
    /// The name in small letters.
    DatastoreGone {
        workspace: WorkspaceId,
        name: Box<str>,
    },
    /// Only its row, as with deployments.
    AssetChanged(Box<Asset>),
    /// The name in small letters.
    AssetGone {
        workspace: WorkspaceId,
        kind: AssetKind,
        name: Box<str>,
        version: Box<str>,
    },
    AssetContainerChanged(Box<AssetContainer>),
    /// With all its versions. The name in small letters.
    AssetContainerGone {
        workspace: WorkspaceId,
        kind: AssetKind,
        name: Box<str>,
    },
    ActivityNoted(Box<Activity>),
    OperationChanged(Operation),
    EffectQueued(Effect),
    EffectSettled {
        id: EffectId,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberChange {
    pub job: JobId,
    pub epoch: Epoch,
    pub rank: u32,
    pub member: Member,
    /// The attempt's verdict, now that this member has changed.
    pub verdict: Option<Verdict>,
}

/// A wish to the outside world. It leaves the outbox at least once; whoever carries it out must take the
/// same one twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    pub id: EffectId,
    pub queued_at: Wall,
    pub kind: EffectKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EffectKind {
    CreateNode(NodeRequest),
    DeleteNode {
        node: NodeId,
        name: Arc<str>,
        /// Of one that did not leave in peace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Box<NodeFailure>>,
    },
}

impl EffectKind {
    /// Effects on one node are carried out in the order of the outbox.
    pub fn node(&self) -> NodeId {
        match self {
            EffectKind::CreateNode(request) => request.node,
            EffectKind::DeleteNode { node, .. } => *node,
        }
    }
}

/// Everything that a provider needs to make a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRequest {
    pub node: NodeId,
    /// Nodes of one cluster see each other.
    #[serde(default = "no_cluster")]
    pub cluster: ClusterId,
    pub name: Arc<str>,
    /// Where it is to be made.
    #[serde(default, skip_serializing_if = "HostName::is_local")]
    pub host: HostName,
    pub vm_size: Arc<str>,
    pub capacity: Capacity,
    pub tier: Tier,
}

/// Of orders that were written down before they named one.
fn no_cluster() -> ClusterId {
    ClusterId(0)
}

impl Change {
    /// The largest number of the id sequence that this change brings into the world.
    pub fn highest_sequence(&self) -> u64 {
        match self {
            Change::PrincipalSeen(principal) => principal.id.0,
            Change::WorkspaceChanged(workspace) => workspace.id.0,
            Change::ClusterChanged { cluster, .. } => {
                cluster.id.0.max(cluster.operation.map_or(0, |operation| operation.0))
            }
            Change::JobSubmitted { job, .. } | Change::JobChanged { job, .. } => {
                job.id.0.max(job.attempt().map_or(0, |attempt| attempt.epoch.0))
            }
            Change::NodeChanged { node, .. } => node.id.0,
            Change::OperationChanged(operation) => operation.id.0,
            Change::DeploymentChanged(deployment) => deployment.id.0,
            Change::EffectQueued(effect) => effect.id.0,
            Change::MemberChanged(_)
            | Change::JobMetadataChanged { .. }
            | Change::JobGone { .. }
            | Change::AttemptEnded(_)
            | Change::TreeSaved(_)
            | Change::LedgerPosted(_)
            | Change::AccountChanged(_)
            | Change::QuotaChanged(_)
            | Change::AccessChanged(_)
            | Change::GovernanceChanged(_)
            | Change::HostsChanged(_)
            | Change::DeploymentGone { .. }
            | Change::DatastoreChanged(_)
            | Change::AssetChanged(_)
            | Change::AssetGone { .. }
            | Change::AssetContainerChanged(_)
            | Change::AssetContainerGone { .. }
            | Change::DatastoreGone { .. }
            | Change::ActivityNoted(_)
            | Change::WorkspaceGone(_)
            | Change::EffectSettled { .. } => 0,
        }
    }
}
