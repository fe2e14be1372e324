//! Where a deployment is made.

use muster_core::model::Scope;

/// A resource group as the user wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    pub subscription: Box<str>,
    pub resource_group: Box<str>,
}

impl Home {
    pub fn scope(&self) -> Scope {
        Scope::group(&self.subscription, &self.resource_group)
    }
}
