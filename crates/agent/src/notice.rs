//! The notice to a job that its node is being evicted. It is a file, because the environment of a running process
//! cannot be changed. A variable contains its path from the start.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_core::time::Span;

pub(crate) const VARIABLE: &str = "MUSTER_EVICTION_NOTICE";
const DEADLINE: &str = "MUSTER_EVICTION_DEADLINE";

/// The path of the notice in the job's own folder.
pub(crate) fn path(work_dir: &Path) -> PathBuf {
    work_dir.join(".muster-eviction")
}

/// Writes one line, in the syntax of a shell assignment: when the job will be killed, in whole seconds since 1970. The
/// file appears atomically.
pub(crate) fn write(work_dir: &Path, within: Span, now: SystemTime) -> io::Result<()> {
    let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let deadline = since_1970 + Duration::from_micros(within.0);
    let path = path(work_dir);
    let unfinished = path.with_extension("tmp");
    // The folder belongs to the job: an entry with this name may be a link to one of our files.
    let _ = std::fs::remove_file(&unfinished);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&unfinished)?;
    file.write_all(format!("{DEADLINE}={}\n", deadline.as_secs()).as_bytes())?;
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
        assert_eq!(
            std::fs::read_to_string(path(folder.path())).unwrap(),
            "MUSTER_EVICTION_DEADLINE=1030\n"
        );
    }

    #[test]
    fn a_job_cannot_lead_us_to_other_files() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ours = other.path().join("journal");
        std::fs::write(&ours, "ours").unwrap();
        for name in [path(folder.path()), path(folder.path()).with_extension("tmp")] {
            std::os::unix::fs::symlink(&ours, name).unwrap();
        }
        write(folder.path(), Span::seconds(1), UNIX_EPOCH).unwrap();
        assert_eq!(std::fs::read_to_string(&ours).unwrap(), "ours");
        assert_eq!(
            std::fs::read_to_string(path(folder.path())).unwrap(),
            "MUSTER_EVICTION_DEADLINE=1\n"
        );
    }
}
