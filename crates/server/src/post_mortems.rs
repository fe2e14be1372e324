//! Post-mortems: what is recorded about nodes that failed or were lost. There is a folder for each cluster, and a file
//! for each node.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use muster_core::ids::ClusterId;
use muster_core::model::NodeFailure;
use muster_providers::{End, Remains};
use muster_wire::post_mortem::{Findings, PostMortem};
use tracing::warn;

use crate::pki::files::{self, FileError};

/// How many are kept for one cluster; the oldest is deleted first.
pub const KEPT_MAX: usize = 20;
/// How many clusters have post-mortems, including deleted ones; the one without a new post-mortem for the longest time
/// is deleted first.
const CLUSTERS_MAX: usize = 100;
/// Twice the longest log, in case every character has to be escaped, and the rest.
const FILE_BYTES_MAX: u64 = 160 * 1024;

pub struct PostMortems {
    dir: PathBuf,
}

impl PostMortems {
    pub fn new(dir: PathBuf) -> PostMortems {
        PostMortems { dir }
    }

    /// Writes the post-mortem of a node before the node is deleted. A delete may be repeated, and by then less may be
    /// left of the node, so the first post-mortem is kept.
    pub fn keep(
        &self,
        node: &str,
        failure: &NodeFailure,
        examine: impl FnOnce() -> Option<Remains>,
    ) -> Result<(), FileError> {
        let folder = self.folder(failure.cluster);
        let path = folder.join(format!("{node}.json"));
        if path.exists() {
            return Ok(());
        }
        let found = examine().map(|remains| (findings(&remains), remains.log));
        let text = muster_wire::to_json(&PostMortem::new(node, failure, found));
        files::ensure_dir(&folder)?;
        files::write(&path, text.as_bytes(), files::PRIVATE)?;
        for (folder, most) in [(&folder, KEPT_MAX), (&self.dir, CLUSTERS_MAX)] {
            if let Err(error) = drop_oldest(folder, most) {
                warn!(folder = %folder.display(), %error, "cannot remove old post-mortems");
            }
        }
        Ok(())
    }

    /// Newest first. A post-mortem that cannot be read is left out.
    pub fn of(&self, cluster: ClusterId) -> Vec<PostMortem> {
        let entries = std::fs::read_dir(self.folder(cluster)).into_iter().flatten().flatten();
        let read = |path: PathBuf| {
            let text = files::read(&path, FILE_BYTES_MAX).ok().flatten()?;
            muster_wire::from_json(&text).ok()
        };
        let json = entries.map(|entry| entry.path());
        let json = json.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
        let mut all: Vec<PostMortem> = json.filter_map(read).collect();
        all.sort_by(|a, b| (&b.given_up_on, &b.node).cmp(&(&a.given_up_on, &a.node)));
        all
    }

    fn folder(&self, cluster: ClusterId) -> PathBuf {
        self.dir.join(cluster.to_string())
    }
}

fn findings(remains: &Remains) -> Findings {
    let (exit_code, signal) = match remains.end {
        Some(End::Code(code)) => (Some(code), None),
        Some(End::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    let used = remains.usage.unwrap_or_default();
    Findings {
        exit_code,
        signal,
        memory_limit_bytes: used.memory_limit_bytes,
        memory_peak_bytes: used.memory_peak_bytes,
        memory_bytes: used.memory_bytes,
        memory_high: used.memory_high,
        memory_max: used.memory_max,
        oom_kills: used.oom_kills,
        processes_peak: used.pids_peak,
        processes_denied: used.pids_denied,
        cpu_microseconds: used.cpu_us,
        disk_free_bytes: remains.disk_free_bytes,
    }
}

/// Deletes the files or folders that have not been written to for the longest time.
fn drop_oldest(folder: &Path, most: usize) -> io::Result<()> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // Another thread may have just deleted it.
        if let Ok(modified) = entry.metadata().and_then(|about| about.modified()) {
            found.push((modified, entry.path()));
        }
    }
    found.sort();
    let excess = found.len().saturating_sub(most);
    for (_, path) in &found[..excess] {
        let removed = match path.is_dir() {
            true => std::fs::remove_dir_all(path),
            false => std::fs::remove_file(path),
        };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use muster_core::model::{HostName, NodePhase, Trouble};
    use muster_core::time::Wall;

    use super::*;

    fn failure(cluster: u64, seconds: u64) -> NodeFailure {
        NodeFailure {
            cluster: ClusterId(cluster),
            cluster_name: "cpu".into(),
            host: HostName::local(),
            vm_size: "Standard_DS3_v2".into(),
            why: Trouble::Ended,
            was: NodePhase::Idle,
            requested_at: Wall(0),
            given_up_at: Wall(seconds * 1_000_000),
            jobs: Vec::new(),
        }
    }

    fn remains(log: &str) -> Option<Remains> {
        Some(Remains { end: Some(End::Signal(9)), log: log.to_owned(), ..Remains::default() })
    }

    #[test]
    fn the_newest_are_kept_and_the_first_version_of_each() {
        let dir = tempfile::tempdir().unwrap();
        let kept = PostMortems::new(dir.path().join("post-mortems"));
        assert!(kept.of(ClusterId(1)).is_empty());
        for number in 0..=KEPT_MAX {
            let (name, at) = (format!("n-{number:02}"), 100 + number as u64);
            kept.keep(&name, &failure(1, at), || remains("first")).unwrap();
            // Sets times, so that the files have different ages on any file system.
            let path = kept.folder(ClusterId(1)).join(format!("{name}.json"));
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(at)).unwrap();
        }
        kept.keep("n-20", &failure(1, 900), || panic!("it exists already")).unwrap();
        kept.keep("other", &failure(2, 0), || None).unwrap();
        let names: Vec<String> = kept.of(ClusterId(1)).into_iter().map(|one| one.node).collect();
        let expected: Vec<String> = (1..=KEPT_MAX).rev().map(|n| format!("n-{n:02}")).collect();
        assert_eq!(names, expected, "the oldest is deleted");
        let newest = &kept.of(ClusterId(1))[0];
        assert_eq!(newest.agent_log.as_deref(), Some("first"));
        assert_eq!(newest.findings.as_ref().unwrap().signal, Some(9));
        assert_eq!(kept.of(ClusterId(2))[0].findings, None);
    }

    #[test]
    fn the_longest_log_is_read_again_and_what_is_damaged_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let kept = PostMortems::new(dir.path().to_owned());
        let log = "\"".repeat(64 * 1024);
        kept.keep("long", &failure(1, 1), || remains(&log)).unwrap();
        std::fs::write(kept.folder(ClusterId(1)).join("bad.json"), "{").unwrap();
        let all = kept.of(ClusterId(1));
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].agent_log.as_deref(), Some(log.as_str()));
    }
}
