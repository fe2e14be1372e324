//! The word that a job is left when its node is taken away: a file, as the environment of what runs
//! cannot be changed any more. Its variable says from the start where it will be.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_core::time::Span;

pub(crate) const VARIABLE: &str = "MUSTER_PREEMPTION_NOTICE";

/// In the job's own folder.
pub(crate) fn path(work_dir: &Path) -> PathBuf {
    work_dir.join(".muster-preemption")
}

/// One line: when the job will be killed, in whole seconds since 1970. Whoever sees the file sees all
/// of it.
pub(crate) fn write(work_dir: &Path, within: Span, now: SystemTime) -> io::Result<()> {
    let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let deadline = since_1970 + Duration::from_micros(within.0);
    let path = path(work_dir);
    let unfinished = path.with_extension("tmp");
    std::fs::write(&unfinished, format!("{}\n", deadline.as_secs()))?;
    std::fs::rename(unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_when_the_job_will_be_killed() {
        let folder = tempfile::tempdir().unwrap();
        let now = UNIX_EPOCH + Duration::from_secs(1_000);
        write(folder.path(), Span::seconds(30), now).unwrap();
        assert_eq!(std::fs::read_to_string(path(folder.path())).unwrap(), "1030\n");
    }
}
