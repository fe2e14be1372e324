//! Nodes on this host as plain processes: each is a `muster agent` process with a folder of its own.
//!
//! Nodes outlive the server: an agent has its own session, and everything that is needed to find it again is in its
//! folder and its environment. There is no sandbox: a node is not limited to its size, and its jobs run as our own
//! user.

mod start;
pub(crate) mod stop;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_agent::home::Home;
use muster_agent::kin;
use muster_core::NodeRequest;
use muster_sandbox::disk_space::DiskSpace;
use muster_sandbox::logs;
use muster_sandbox::protocol::{LOG_TAIL_MAX, Remains};

use crate::locks::NodeLocks;
use crate::{BadName, CreateError, DeleteError, ListError, Provider, check_name};

/// The time from asking an agent to end until it is killed. Longer than the agent gives its jobs.
const STOP_GRACE: Duration = Duration::from_secs(15);

pub struct LocalConfig {
    /// Contains one folder per node. The logs of deleted nodes' agents are moved to `node-logs` beside it.
    pub nodes_dir: PathBuf,
    /// The `muster` program.
    pub agent_binary: PathBuf,
    pub server_url: String,
    pub ca_file: PathBuf,
    /// Contains a folder for each cluster, with the Python environments that its nodes see.
    pub environments: Option<PathBuf>,
    /// Returns the secret with which the node of this name authenticates.
    pub node_secret: Box<dyn Fn(&str) -> String + Send + Sync>,
}

pub struct Local {
    config: LocalConfig,
    stop_grace: Duration,
    locks: NodeLocks,
}

impl Local {
    pub fn new(config: LocalConfig) -> Local {
        // Agents have another working folder, and their folders identify their processes.
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let config = LocalConfig {
            nodes_dir: absolute(config.nodes_dir),
            agent_binary: absolute(config.agent_binary),
            ca_file: absolute(config.ca_file),
            ..config
        };
        Local { config, stop_grace: STOP_GRACE, locks: NodeLocks::default() }
    }

    /// Sets how long an agent has to stop its jobs and end before it is killed.
    pub fn with_stop_grace(self, stop_grace: Duration) -> Local {
        Local { stop_grace, ..self }
    }

    fn home(&self, name: &str) -> Result<Home, BadName> {
        check_name(name)?;
        Ok(Home::new(self.config.nodes_dir.join(name)))
    }
}

impl Provider for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn create(&self, request: &NodeRequest) -> Result<(), CreateError> {
        let home = self.home(&request.name)?;
        let _lock = self.locks.take(&request.name);
        start::start(&self.config, (&request.name, request.cluster), &home)
    }

    fn delete(&self, node_name: &str) -> Result<(), DeleteError> {
        let home = self.home(node_name)?;
        let _lock = self.locks.take(node_name);
        stop::end_processes(node_name, &home, self.stop_grace)?;
        stop::keep_log(node_name, &home, &self.config.nodes_dir);
        muster_agent::home::remove_tree(home.dir())
            .map_err(|source| DeleteError::Folder { dir: home.dir().to_path_buf(), source })
    }

    fn list(&self) -> Result<Vec<String>, ListError> {
        let dir = &self.config.nodes_dir;
        let mut names =
            folders(dir).map_err(|source| ListError::Folder { dir: dir.clone(), source })?;
        // A node whose folder was removed is still running.
        names.extend(kin::nodes_alive(dir).map_err(|source| ListError::Processes { source })?);
        Ok(names.into_iter().filter(|name| check_name(name).is_ok()).collect())
    }

    fn remains(&self, node_name: &str) -> Option<Remains> {
        let home = self.home(node_name).ok()?;
        let disk = DiskSpace::of(&self.config.nodes_dir).ok();
        let disk_free_bytes = disk.map(|disk| disk.free_bytes);
        let log = logs::tail(&home.agent_log(), LOG_TAIL_MAX).ok()?;
        Some(Remains { disk_free_bytes, log, ..Remains::default() })
    }

    /// Processes of a job may outlive the agent here, so its end proves nothing.
    fn ended(&self) -> Result<Vec<String>, ListError> {
        Ok(Vec::new())
    }
}

fn folders(dir: &Path) -> io::Result<BTreeSet<String>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(error),
    };
    let mut names = BTreeSet::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    Ok(names)
}
