//! Resource groups, which contain workspaces.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Deletion, Scope};
use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceGroup {
    pub subscription: Box<str>,
    pub name: Box<str>,
    pub location: Box<str>,
    pub tags: BTreeMap<String, String>,
    pub created_at: Wall,
    /// Set while its workspaces are being deleted.
    pub deletion: Option<Deletion>,
}

impl ResourceGroup {
    pub fn scope(&self) -> Scope {
        Scope::group(&self.subscription, &self.name)
    }
}
