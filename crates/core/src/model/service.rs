//! What runs beside a job's command for people to open: a notebook, a board, or a port of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobService {
    pub kind: ServiceKind,
    /// Where it listens. One that we start finds a free one by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// On every node of the job, instead of on the first alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_all_nodes: bool,
    /// As the client gave them; [`LOG_DIR`] is the one that means something.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

/// The property of a board that says which folder it shows.
pub const LOG_DIR: &str = "logDir";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ServiceKind {
    JupyterLab,
    TensorBoard,
    VsCode,
    /// The job's own command listens there, on a port that is known.
    RayDashboard,
    /// Taken, so that jobs that ask for it run; there is none.
    Ssh,
    /// The job's own command listens there.
    Custom,
}

/// Where Ray has it if nobody says.
const RAY_DASHBOARD_PORT: u16 = 8265;

impl ServiceKind {
    /// As Azure spells it.
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

    /// Where it listens, as far as that is known before it runs.
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

/// Below which the addresses of all services are, on the second listener.
pub const SERVICES_PATH: &str = "/services";

/// Where a service is found on the second listener: no slash at its end.
pub fn service_path(epoch: crate::ids::Epoch, rank: u32, name: &str) -> String {
    format!("{SERVICES_PATH}/{epoch}/{rank}/{name}")
}
