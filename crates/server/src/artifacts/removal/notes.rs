//! Records on disk of the jobs that are being deleted: `logs/JOB.deleted` contains the job's workspace and name. The
//! record is written before the delete, and removed when nothing of the job is left. A server reads them at start to
//! finish the work of an earlier one.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use muster_core::ErrorChain;
use muster_core::ids::{JobId, WorkspaceId};
use tracing::warn;

const ENDING: &str = ".deleted";
/// More than a workspace's id and a job's name need.
const BYTES_MAX: u64 = 4 << 10;

/// The folder that contains the records. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Notes(PathBuf);

impl Notes {
    pub fn in_folder(logs: PathBuf) -> Notes {
        Notes(logs)
    }

    fn path(&self, job: JobId) -> PathBuf {
        self.0.join(format!("{job}{ENDING}"))
    }

    /// The record is on disk when this returns `Ok`.
    pub fn write(&self, job: JobId, workspace: WorkspaceId, name: &str) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        let mut file = File::create(self.path(job))?;
        file.write_all(format!("{workspace}\n{name}\n").as_bytes())?;
        file.sync_all()?;
        File::open(&self.0)?.sync_all()
    }

    pub fn remove(&self, job: JobId) -> io::Result<()> {
        match fs::remove_file(self.path(job)) {
            Err(missing) if missing.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// The records of all jobs whose removal was not finished.
    pub fn all(&self) -> Vec<(JobId, WorkspaceId, Box<str>)> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(missing) if missing.kind() == ErrorKind::NotFound => return Vec::new(),
            Err(failed) => {
                warn!(error = %ErrorChain(&failed), "cannot list the records of deleted jobs");
                return Vec::new();
            }
        };
        let job = |entry: &fs::DirEntry| {
            entry.file_name().to_str()?.strip_suffix(ENDING)?.parse::<JobId>().ok()
        };
        let found = entries.flatten().filter_map(|entry| Some((job(&entry)?, entry.path())));
        found.filter_map(|(job, path)| self.read(job, &path)).collect()
    }

    fn read(&self, job: JobId, path: &Path) -> Option<(JobId, WorkspaceId, Box<str>)> {
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
        // A truncated record could name another job.
        let known = text
            .strip_suffix('\n')
            .and_then(|whole| whole.split_once('\n'))
            .and_then(|(workspace, name)| Some((job, workspace.parse().ok()?, name.into())));
        match (read, known) {
            (Ok(_), Some(known)) => return Some(known),
            // The server was killed before the delete, or the disk was full.
            (Ok(_), None) => drop(self.remove(job)),
            (Err(failed), _) => {
                warn!(%job, error = %ErrorChain(&failed), "cannot read the record of a deleted job");
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_notes_count() {
        let dir = tempfile::tempdir().expect("creating a temporary folder");
        let notes = Notes::in_folder(dir.path().join("logs"));
        assert_eq!(notes.all(), []);
        let (whole, cut) = (JobId(1), JobId(2));
        for job in [whole, cut] {
            notes.write(job, WorkspaceId(3), "job-10").expect("io");
        }
        let text = fs::read_to_string(notes.path(cut)).expect("io");
        for length in 0..text.len() {
            fs::write(notes.path(cut), &text[..length]).expect("io");
            assert_eq!(notes.all(), [(whole, WorkspaceId(3), "job-10".into())], "{length}");
            assert!(!notes.path(cut).exists());
        }
        notes.remove(whole).expect("io");
        notes.remove(whole).expect("removing it again succeeds");
        assert_eq!(notes.all(), []);
    }
}
