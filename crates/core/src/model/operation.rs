//! Long-running operations: what a client polls after it was told "accepted".

use serde::{Deserialize, Serialize};

use super::Scope;
use crate::ids::OperationId;
use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub id: OperationId,
    /// Whoever may read what is there may follow the operation.
    pub scope: Scope,
    /// So may whoever asked for it, where what is there goes.
    #[serde(default)]
    pub by: Option<Box<str>>,
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
    DeleteWorkspace,
    DeleteGroup,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationStatus {
    InProgress,
    Succeeded,
    Failed,
    /// Something else was asked for before it was done.
    Canceled,
}
