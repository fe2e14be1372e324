//! The activity log: every change that somebody asked for, with what was there before and after, and every
//! refusal.

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
    /// Entries written before November 2026 have the other name. They are chained by their digests, so no migration may
    /// rewrite them.
    #[serde(alias = "deed")]
    pub request: ActivityRequest,
    pub outcome: ActivityOutcome,
}

/// What was asked, in the words of whoever took the request: nothing is decided by them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityRequest {
    /// As Azure calls it: `Microsoft.MachineLearningServices/workspaces/computes/write`.
    pub operation: Box<str>,
    /// The address of what it was about.
    pub resource: Box<str>,
    /// Whoever may read there may read of it.
    pub scope: Scope,
    /// The request that it came with.
    pub correlation: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActivityOutcome {
    /// `None` where there was nothing, or where the record is kept elsewhere for good (jobs).
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

/// What an entity was at that moment, without secrets.
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
