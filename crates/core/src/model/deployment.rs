//! Deployments: templates that were deployed, and their results.
//!
//! They are kept for later queries. No decision depends on them, so World does not hold them.

use serde::{Deserialize, Serialize};

use super::{Caller, Scope};
use crate::ids::OperationId;
use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// A new ID each time the template is deployed.
    pub id: OperationId,
    pub subscription: Box<str>,
    pub resource_group: Box<str>,
    pub name: Box<str>,
    pub at: Wall,
    pub by: Caller,
    /// The correlation ID of the request.
    pub correlation: Box<str>,
    /// The hash of the template's text. The template itself is not kept, because it may contain secrets.
    pub template_hash: Box<str>,
    /// The deployed resources, in order.
    pub made: Vec<Deployed>,
    /// Resources of the template that Muster has no use for.
    pub left_out: Vec<LeftOut>,
    /// The evaluated outputs of the template, as JSON.
    pub outputs: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployed {
    /// The resource ID in Azure's form.
    pub resource: Box<str>,
    pub kind: Box<str>,
    /// Whether it was created. Otherwise it existed before and may have been changed.
    pub is_new: bool,
    /// The operation to follow until the resource is ready.
    pub operation: Option<OperationId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub resource: Box<str>,
    pub kind: Box<str>,
}

impl Deployment {
    /// The resource group of the deployment.
    pub fn scope(&self) -> Scope {
        Scope::group(&self.subscription, &self.resource_group)
    }
}
