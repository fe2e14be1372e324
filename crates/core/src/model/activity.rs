//! The activity log: every change that a user requested, with the state before and after, and every refusal.

use serde::{Deserialize, Serialize};

use super::{
    About, Caller, Capacity, ClusterPhase, ClusterSpec, HostName, HostState, Lock, Quota,
    ResourceGroup, RoleAssignment, Scope, UserKind,
};
use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    pub at: Wall,
    pub by: Caller,
    /// Entries written before November 2026 use another name for this field. They are chained by their digests, so no
    /// migration may rewrite them.
    #[serde(alias = "deed")] // word list: quoted
    pub request: ActivityRequest,
    pub outcome: ActivityOutcome,
}

/// What was requested, as described by the layer that received the request. No decision depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityRequest {
    /// Azure's name for it, such as `Microsoft.MachineLearningServices/workspaces/computes/write`.
    pub operation: Box<str>,
    /// The ID of the resource.
    pub resource: Box<str>,
    /// Callers who may read this scope may read the entry.
    pub scope: Scope,
    /// The correlation ID of the request.
    pub correlation: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActivityOutcome {
    /// `None` if there was nothing, or if the record is kept permanently elsewhere (jobs).
    Done {
        before: Option<Box<Record>>,
        after: Option<Box<Record>>,
    },
    Refused {
        status: u16,
        code: Box<str>,
        message: Box<str>,
    },
}

/// The state of an entity at that moment, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    Compute { phase: ClusterPhase, spec: Box<ClusterSpec> },
    Workspace { location: Box<str>, about: About, is_deleting: bool },
    Group(ResourceGroup),
    Lock(Lock),
    Quota(Quota),
    User { name: Box<str>, kind: UserKind, key_made_at: Option<Wall> },
    Role(RoleAssignment),
    Host { name: HostName, capacity: Capacity, intent: Scope, state: HostState },
}
