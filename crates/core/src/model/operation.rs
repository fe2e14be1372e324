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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationKind {
    PutCluster,
    DeleteCluster,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationStatus {
    InProgress,
    Succeeded,
}
