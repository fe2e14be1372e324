//! The messages about the services of an attempt: their state, and the clients that wait to be connected to them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The protocol name in the HTTP upgrade of a connection that leads to a service on a node.
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
    /// The service knows the path under which it is published, and expects requests with the whole path.
    pub keeps_path: bool,
    /// The `Authorization` header that the service expects. Other jobs on the node do not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Box<str>>,
    /// The same secret as a cookie, `NAME=VALUE`, for a service that supports nothing else.
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

/// The clients that wait to be connected: the number of each call, and the service that it wants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCalls {
    pub calls: BTreeMap<u64, Box<str>>,
}
