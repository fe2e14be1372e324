//! Nodes that recently failed or were lost, according to their post-mortems.

use std::path::Path;
use std::time::{Duration, SystemTime};

use muster_server::state_dir::StateDir;
use muster_wire::post_mortem::PostMortem;

use super::finding::Finding;
use crate::failure::brief;

const LATELY: Duration = Duration::from_secs(24 * 3600);

pub struct BadNodes {
    pub count: usize,
    pub newest: Option<PostMortem>,
}

/// Unreadable post-mortems are not counted: another finding reports the reason.
pub fn look(state_dir: &Path, now: SystemTime) -> BadNodes {
    let folders = std::fs::read_dir(StateDir::new(state_dir).post_mortems());
    let folders = folders.into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path())).flatten().flatten();
    let aged = files.filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())));
    // A time in the future means that the clock was set back.
    let is_late = |at: SystemTime| now.duration_since(at).map_or(true, |age| age < LATELY);
    let mut late: Vec<_> = aged.filter(|(at, _)| is_late(*at)).collect();
    late.sort();
    let text = late.last().and_then(|(_, path)| std::fs::read(path).ok());
    let newest = text.and_then(|text| muster_wire::from_json(&text).ok());
    BadNodes { count: late.len(), newest }
}

pub fn check(bad: &BadNodes) -> Finding {
    const ID: &str = "bad-nodes";
    const MEANING: &str =
        "nodes that did not start, ended unexpectedly or stopped responding leave a post-mortem";
    match &bad.newest {
        Some(newest) => {
            let PostMortem { node, compute, cause, .. } = newest;
            let text = format!("{} in the last day; the latest is {node}: {cause}", bad.count);
            Finding::note(ID, brief(&text), MEANING).fix(brief(&format!(
                "muster compute show-post-mortem --name {compute} --node {node}"
            )))
        }
        None if bad.count > 0 => {
            Finding::note(ID, format!("{} in the last day", bad.count), MEANING)
        }
        None => Finding::ok(ID, "none in the last day", MEANING),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    const ONE: &str = r#"{"node":"cpu-1","compute":"cpu","host":"local","vmSize":"S","cause":"Ended","message":"m",
        "was":"Idle","requestedOn":"a","givenUpOn":"b","jobs":[]}"#;

    #[test]
    fn recent_post_mortems_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        assert_eq!(check(&look(dir.path(), now)).state, State::Ok);
        let folder = dir.path().join("post-mortems/c1");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cpu-1.json"), ONE).unwrap();
        let finding = check(&look(dir.path(), now));
        assert_eq!(finding.found, "1 in the last day; the latest is cpu-1: Ended");
        assert_eq!(check(&look(dir.path(), now + 2 * LATELY)).state, State::Ok);
        std::fs::write(folder.join("cpu-1.json"), "damaged").unwrap();
        assert_eq!(check(&look(dir.path(), now)).found, "1 in the last day");
    }
}
