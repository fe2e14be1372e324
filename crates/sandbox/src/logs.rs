//! What the agents of nodes that are gone had to say.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How many are kept.
const LOGS_MAX: usize = 200;

/// Moves the log of a node's agent to those of nodes that are gone, and lets the oldest of them go.
pub fn keep(log: &Path, node: &str, logs: &Path) -> io::Result<()> {
    none_is_fine(std::fs::rename(log, logs.join(format!("{node}.log"))))?;
    drop_oldest(logs, LOGS_MAX)
}

fn drop_oldest(logs: &Path, keep: usize) -> io::Result<()> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(logs)? {
        let entry = entry?;
        // Another delete may have dropped it just now.
        if let Ok(modified) = entry.metadata().and_then(|metadata| metadata.modified()) {
            found.push((modified, entry.path()));
        }
    }
    found.sort();
    let excess = found.len().saturating_sub(keep);
    found[..excess].iter().try_for_each(|(_, path)| none_is_fine(std::fs::remove_file(path)))
}

fn none_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
