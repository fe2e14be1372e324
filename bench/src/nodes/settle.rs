//! Which tasks of a peer have run, and how often: each leaves a line with its number.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::PATIENCE;

const PAUSE: Duration = Duration::from_millis(20);
/// How long no new lines must appear.
const QUIET: Duration = Duration::from_secs(5);
/// How long no new lines may appear while the peer still has tasks.
const STUCK: Duration = Duration::from_secs(180);

pub struct Runs {
    /// The number of runs, by task.
    pub runs: BTreeMap<usize, usize>,
    pub last_at: Instant,
}

pub fn wait_for_half(lines: &Path, tasks: usize) -> Result<()> {
    let started = Instant::now();
    while read(lines).len() < tasks / 2 {
        ensure!(started.elapsed() < PATIENCE, "half of the tasks were not over in time");
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Waits until nothing more happens and the peer has no tasks left.
pub fn count(lines: &Path, tasks: usize, mut has_more: impl FnMut() -> bool) -> Runs {
    let (mut seen, mut last_at) = (0, Instant::now());
    loop {
        let runs = read(lines);
        let total = runs.values().sum();
        if total != seen {
            (seen, last_at) = (total, Instant::now());
        }
        let quiet = last_at.elapsed();
        if quiet > STUCK || quiet > QUIET && (runs.len() == tasks || !has_more()) {
            return Runs { runs, last_at };
        }
        std::thread::sleep(PAUSE);
    }
}

fn read(lines: &Path) -> BTreeMap<usize, usize> {
    let mut runs = BTreeMap::new();
    let text = fs::read_to_string(lines).unwrap_or_default();
    for task in text.lines().filter_map(|line| line.parse().ok()) {
        *runs.entry(task).or_default() += 1;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Crash;

    #[test]
    fn tasks_are_lost_or_run_again_by_their_lines() {
        let folder = tempfile::tempdir().unwrap();
        let lines = folder.path().join("lines");
        assert!(read(&lines).is_empty());
        fs::write(&lines, "3\n1\n3\n7\n3\n1\n").unwrap();
        let (runs, now) = (read(&lines), Instant::now());
        let crash = Crash::of(5, &Runs { runs, last_at: now }, now);
        assert_eq!((crash.lost, crash.again), (2, 2));
    }
}
