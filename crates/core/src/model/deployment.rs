//! Deployments: templates that somebody had carried out, and what came of them.
//!
//! They are kept for those who ask later; no decision depends on them, so World does not hold them.

use serde::{Deserialize, Serialize};

use super::{Caller, Scope};
use crate::ids::OperationId;
use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// Another one each time that it is carried out.
    pub id: OperationId,
    pub subscription: Box<str>,
    pub resource_group: Box<str>,
    pub name: Box<str>,
    pub at: Wall,
    pub by: Caller,
    /// The request that it came with.
    pub correlation: Box<str>,
    /// Of the template's text. The template itself is not kept: it may hold secrets.
    pub template_hash: Box<str>,
    /// In the order in which it was made.
    pub made: Vec<Deployed>,
    /// What the template brings along that there is no use for here.
    pub left_out: Vec<LeftOut>,
    /// JSON, as whoever read the template made it.
    pub outputs: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployed {
    /// As Azure writes it.
    pub resource: Box<str>,
    pub kind: Box<str>,
    /// Otherwise it was there and may have been changed.
    pub is_new: bool,
    /// What is to be followed until it is ready.
    pub operation: Option<OperationId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub resource: Box<str>,
    pub kind: Box<str>,
}

impl Deployment {
    /// The group that it is in.
    pub fn scope(&self) -> Scope {
        Scope::group(&self.subscription, &self.resource_group)
    }
}
