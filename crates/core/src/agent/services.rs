//! What goes over the wire about the services of an attempt: how they are, and who wants to reach them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a connection is upgraded to that leads to a service on a node.
pub const SERVICE_PROTOCOL: &str = "muster-service";

/// All services of one member of an attempt, as its node sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicesReport {
    pub services: BTreeMap<String, ServiceReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceReport {
    pub phase: ServicePhase,
    pub port: Option<u16>,
    /// It knows under which path it is found, and wants to be asked with all of it.
    pub keeps_path: bool,
    /// What it wants to see as `Authorization`: others on the node do not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Box<str>>,
    /// The same as a cookie, `NAME=VALUE`, for one that knows no other way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServicePhase {
    /// Nothing listens on its port yet.
    Starting,
    Listening,
    Failed(Box<str>),
}

/// Everybody who waits to be connected: number of the call → service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCalls {
    pub calls: BTreeMap<u64, Box<str>>,
}
