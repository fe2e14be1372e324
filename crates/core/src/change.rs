//! `Change`: the one value from which World, the rows and the event log are all built.
//!
//! A change records what happened (`event`) and what the entity is now (the whole record). Nothing computes a new
//! state from it: World replaces the record, the store upserts the row, and the log appends the change. So the three
//! cannot disagree. The records are shared rather than copied on their way.

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
    /// The workspace has no computes any more. Its costs are kept in the ledger.
    WorkspaceGone(WorkspaceId),
    /// A cluster whose phase is `Gone` is removed from World, and its row is deleted.
    ClusterChanged {
        event: ClusterEvent,
        cluster: Arc<Cluster>,
    },
    /// Carries the specification to its row. World keeps only the job.
    JobSubmitted {
        job: Arc<Job>,
        spec: Arc<JobSpec>,
    },
    /// A child that had no record until now. Its specification is that of its parent.
    ChildCreated {
        event: JobEvent,
        job: Arc<Job>,
    },
    /// A job in a terminal phase is removed from World. Its row is kept.
    JobChanged {
        event: JobEvent,
        job: Arc<Job>,
    },
    /// Affects only the row of the job: its tags or other metadata have changed.
    JobMetadataChanged {
        job: JobId,
        metadata: Box<JobMetadata>,
    },
    /// Affects only rows, because the job had ended. Its costs are kept in the ledger. The name is in lower case.
    JobGone {
        job: JobId,
        /// The last of its children, which are deleted with it, or the job itself.
        #[serde(default = "no_job")]
        last: JobId,
        workspace: WorkspaceId,
        name: Box<str>,
    },
    /// One member of a job's attempt, so that a change on one of a thousand nodes does not record the other 999 again.
    MemberChanged(MemberChange),
    AttemptEnded(AttemptRecord),
    /// Affects only the row: replaces the files that a member passes on to the job's next attempt.
    TreeSaved(SavedTree),
    /// A node whose state is `Gone` is removed from World, and its row is deleted.
    NodeChanged {
        event: NodeEvent,
        node: Arc<Node>,
    },
    LedgerPosted(LedgerLine),
    /// How much of a cluster a user has used. Deleted together with the cluster.
    AccountChanged(Account),
    QuotaChanged(Quota),
    AccessChanged(AccessChange),
    GovernanceChanged(GovernanceChange),
    HostsChanged(HostChange),
    /// Affects only the row: World holds no deployments.
    DeploymentChanged(Box<Deployment>),
    /// The name is in lower case.
    DeploymentGone {
        group: Scope,
        name: Box<str>,
    },
    /// Affects only the row, as with deployments.
    DatastoreChanged(Box<Datastore>),
    /// The name is in lower case.
    DatastoreGone {
        workspace: WorkspaceId,
        name: Box<str>,
    },
    /// Affects only the row, as with deployments.
    AssetChanged(Box<Asset>),
    /// The name is in lower case.
    AssetGone {
        workspace: WorkspaceId,
        kind: AssetKind,
        name: Box<str>,
        version: Box<str>,
    },
    AssetContainerChanged(Box<AssetContainer>),
    /// Includes all of its versions. The name is in lower case.
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

/// Something to be done outside, such as creating a node. It leaves the outbox at least once, so carrying it out
/// twice must be harmless.
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
        /// Set if the node failed or was lost, so that a post-mortem is recorded.
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

/// Everything that a provider needs to create a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRequest {
    pub node: NodeId,
    /// Nodes of the same cluster can reach each other.
    #[serde(default = "no_cluster")]
    pub cluster: ClusterId,
    pub name: Arc<str>,
    /// The host to create it on.
    #[serde(default, skip_serializing_if = "HostName::is_local")]
    pub host: HostName,
    pub vm_size: Arc<str>,
    pub capacity: Capacity,
    pub tier: Tier,
}

/// For entries from before jobs had children.
fn no_job() -> JobId {
    JobId(0)
}

/// For requests that were stored before they had this field.
fn no_cluster() -> ClusterId {
    ClusterId(0)
}

impl Change {
    /// The largest number from the ID sequence that this change introduces.
    pub fn highest_sequence(&self) -> u64 {
        match self {
            Change::PrincipalSeen(principal) => principal.id.0,
            Change::WorkspaceChanged(workspace) => workspace.id.0,
            Change::ClusterChanged { cluster, .. } => {
                cluster.id.0.max(cluster.operation.map_or(0, |operation| operation.0))
            }
            Change::JobSubmitted { job, .. }
            | Change::ChildCreated { job, .. }
            | Change::JobChanged { job, .. } => {
                job.last_id().0.max(job.attempt().map_or(0, |attempt| attempt.epoch.0))
            }
            Change::NodeChanged { node, .. } => {
                let epochs = node.leases().iter().map(|lease| lease.last_epoch().0);
                epochs.chain([node.id.0]).max().unwrap_or_default()
            }
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
