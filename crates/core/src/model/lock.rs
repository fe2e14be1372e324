//! Locks, which protect resources from being deleted, or from being changed at all.

use serde::{Deserialize, Serialize};

use super::Scope;
use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    pub name: Box<str>,
    /// The locked resource. The lock also applies to everything below it.
    pub scope: Scope,
    pub level: LockLevel,
    pub notes: Option<Box<str>>,
    pub created_at: Wall,
}

impl Lock {
    /// The resource ID of the lock.
    pub fn id(&self) -> String {
        format!("{}/providers/Microsoft.Authorization/locks/{}", self.scope, self.name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockLevel {
    CanNotDelete,
    ReadOnly,
}

impl LockLevel {
    pub const ALL: [LockLevel; 2] = [LockLevel::CanNotDelete, LockLevel::ReadOnly];

    /// Azure's name for the level.
    pub fn as_str(self) -> &'static str {
        match self {
            LockLevel::CanNotDelete => "CanNotDelete",
            LockLevel::ReadOnly => "ReadOnly",
        }
    }

    pub fn parse(text: &str) -> Option<LockLevel> {
        LockLevel::ALL.into_iter().find(|level| level.as_str().eq_ignore_ascii_case(text))
    }
}
