//! Ends everything of a node, and keeps its agent's log.

use std::io;
use std::path::Path;
use std::time::Duration;

use muster_agent::home::{Home, make_private_dir};
use muster_agent::identity::Identity;
use muster_agent::kin;
use rustix::process::Signal;

use crate::DeleteError;

/// A killed process ends at once, unless it is blocked in the kernel, for example by a disk.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn end_processes(name: &str, home: &Home, grace: Duration) -> Result<(), DeleteError> {
    let failed = |source| DeleteError::Processes { node: name.to_owned(), source };
    ask_to_leave(home, grace).map_err(failed)?;
    let left = kin::kill_all(name, home, KILLED_WITHIN).map_err(failed)?;
    if left.is_empty() {
        Ok(())
    } else {
        Err(DeleteError::Remains { node: name.to_owned(), count: left.len() })
    }
}

/// Asks the agent to stop its jobs and end. Whether it did is not checked here, because whatever is left is killed
/// anyway.
fn ask_to_leave(home: &Home, grace: Duration) -> io::Result<()> {
    let agent = Identity::read(&home.agent_pid())?;
    if let Some(agent) = agent.map(|agent| agent.open()).transpose()?.flatten() {
        agent.signal(Signal::TERM)?;
        agent.wait(grace)?;
    }
    Ok(())
}

/// Moves the agent's log to `node-logs` beside the nodes' folder. If that fails, the node is removed anyway.
pub(super) fn keep_log(name: &str, home: &Home, nodes_dir: &Path) {
    let Some(logs_dir) = nodes_dir.parent().map(|parent| parent.join("node-logs")) else { return };
    let kept = make_private_dir(&logs_dir)
        .and_then(|()| muster_sandbox::logs::keep(&home.agent_log(), name, &logs_dir));
    if let Err(error) = kept {
        tracing::warn!(node = name, %error, "cannot keep the log of a node's agent");
    }
}
