//! Long-running operations: what a client polls after it was told "accepted".

use serde::{Deserialize, Serialize};

use crate::ids::{OperationId, WorkspaceId};
use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub id: OperationId,
    pub workspace: WorkspaceId,
    pub kind: OperationKind,
    pub status: OperationStatus,
    pub started_at: Wall,
    pub ended_at: Option<Wall>,
    /// Why it failed or was canceled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationKind {
    PutCluster,
    DeleteCluster,
    /// Starting, stopping or restarting an instance.
    Power,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationStatus {
    InProgress,
    Succeeded,
    Failed,
    /// Something else was asked for before it was done.
    Canceled,
}
