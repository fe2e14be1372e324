//! Long-running operations, which a client polls after its request was accepted.

use serde::{Deserialize, Serialize};

use super::Scope;
use crate::ids::OperationId;
use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub id: OperationId,
    /// Callers who may read this scope may follow the operation.
    pub scope: Scope,
    /// The object ID of the caller, who may follow it even if the scope is deleted.
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
    /// Another request replaced it before it was done.
    Canceled,
}
