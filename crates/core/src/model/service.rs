//! The services of a job, which users can open while it runs: a notebook, a dashboard, or a port of the job's own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobService {
    pub kind: ServiceKind,
    /// The port that it listens on. A service that Muster starts finds a free port by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Whether it runs on every node of the job, not only on the first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_all_nodes: bool,
    /// The properties as sent by the client. Only [`LOG_DIR`] has a meaning.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

/// The property with the folder that TensorBoard shows.
pub const LOG_DIR: &str = "logDir";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ServiceKind {
    JupyterLab,
    TensorBoard,
    VsCode,
    /// The job's own command listens on Ray's usual port.
    RayDashboard,
    /// Accepted so that jobs which ask for it can run, but not provided.
    Ssh,
    /// The job's own command listens on the given port.
    Custom,
}

/// Ray's default port.
const RAY_DASHBOARD_PORT: u16 = 8265;

impl ServiceKind {
    /// Azure's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            ServiceKind::JupyterLab => "JupyterLab",
            ServiceKind::TensorBoard => "TensorBoard",
            ServiceKind::VsCode => "VSCode",
            ServiceKind::RayDashboard => "RayDashboard",
            ServiceKind::Ssh => "SSH",
            ServiceKind::Custom => "Custom",
        }
    }
}

impl JobService {
    pub fn is_on(&self, rank: u32) -> bool {
        rank == 0 || self.on_all_nodes
    }

    /// The port that it listens on, as far as it is known in advance.
    pub fn known_port(&self) -> Option<u16> {
        match self.kind {
            ServiceKind::Ssh => None,
            ServiceKind::RayDashboard => self.port.or(Some(RAY_DASHBOARD_PORT)),
            ServiceKind::JupyterLab
            | ServiceKind::TensorBoard
            | ServiceKind::VsCode
            | ServiceKind::Custom => self.port,
        }
    }
}

/// The path prefix of all services on the second listener.
pub const SERVICES_PATH: &str = "/services";

/// The path of a service on the second listener, without a trailing slash.
pub fn service_path(epoch: crate::ids::Epoch, rank: u32, name: &str) -> String {
    format!("{SERVICES_PATH}/{epoch}/{rank}/{name}")
}
