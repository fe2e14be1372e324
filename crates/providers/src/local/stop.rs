//! Ends everything of a node, and keeps what its agent said.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use muster_agent::home::{Home, make_private_dir};
use muster_agent::identity::Identity;
use muster_agent::kin;
use rustix::process::Signal;

use crate::DeleteError;

/// What was killed is gone in an instant, unless it waits in the kernel, for a disk say.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
/// How many logs of deleted nodes are kept.
pub(crate) const LOGS_MAX: usize = 200;

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

/// The agent stops its jobs and leaves. Whether it did is not asked here: what remains is killed
/// anyway.
fn ask_to_leave(home: &Home, grace: Duration) -> io::Result<()> {
    let agent = Identity::read(&home.agent_pid())?;
    if let Some(agent) = agent.map(|agent| agent.open()).transpose()?.flatten() {
        agent.signal(Signal::TERM)?;
        agent.wait(grace)?;
    }
    Ok(())
}

/// Moves the agent's log to `node-logs` beside the nodes' folder. A node is not kept for its log's
/// sake.
pub(super) fn keep_log(name: &str, home: &Home, nodes_dir: &Path) {
    let Some(logs_dir) = nodes_dir.parent().map(|parent| parent.join("node-logs")) else { return };
    let kept = move_log(name, home, &logs_dir).and_then(|()| drop_oldest(&logs_dir, LOGS_MAX));
    if let Err(error) = kept {
        tracing::warn!(node = name, %error, "cannot keep the log of a node's agent");
    }
}

fn move_log(name: &str, home: &Home, logs_dir: &Path) -> io::Result<()> {
    make_private_dir(logs_dir)?;
    none_is_fine(std::fs::rename(home.agent_log(), logs_dir.join(format!("{name}.log"))))
}

pub(crate) fn drop_oldest(logs_dir: &Path, keep: usize) -> io::Result<()> {
    let mut logs: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(logs_dir)? {
        let entry = entry?;
        // Another delete may have dropped it just now.
        if let Ok(modified) = entry.metadata().and_then(|metadata| metadata.modified()) {
            logs.push((modified, entry.path()));
        }
    }
    logs.sort();
    let excess = logs.len().saturating_sub(keep);
    logs[..excess].iter().try_for_each(|(_, path)| none_is_fine(std::fs::remove_file(path)))
}

fn none_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_logs_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for age in 0..5 {
            let file = std::fs::File::create(dir.path().join(format!("{age}.log"))).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        drop_oldest(dir.path(), 2).unwrap();
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["0.log", "1.log"]);
        drop_oldest(dir.path(), 2).unwrap();
    }
}
