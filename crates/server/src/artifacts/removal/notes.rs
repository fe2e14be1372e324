//! Records on disk of the jobs that are being deleted: `logs/JOB.deleted` contains the job's workspace, its name and the
//! indices of its children, if it has any. The record is written before the delete, and removed when nothing of the job is left. A server reads them at start to
//! finish the work of an earlier one.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use muster_core::ErrorChain;
use muster_core::ids::{JobId, WorkspaceId};
use muster_core::model::{ArrayIndices, parent_and_index};
use tracing::warn;

const ENDING: &str = ".deleted";
/// More than a workspace's id, a job's name and its indices need.
const BYTES_MAX: u64 = 16 << 10;

/// A job that is being deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted {
    pub workspace: WorkspaceId,
    pub name: Box<str>,
    /// The indices of the tasks of an array, which are deleted with it.
    pub tasks: Option<ArrayIndices>,
}

impl Deleted {
    /// The job and its children, with their names.
    pub fn jobs(&self, job: JobId) -> impl Iterator<Item = (JobId, Box<str>)> {
        let child = move |(position, index): (u64, u32)| {
            (JobId(job.0 + 1 + position), format!("{}_{index}", self.name).into())
        };
        let indices = self.tasks.iter().flat_map(|tasks| {
            (0..tasks.len()).filter_map(|position| Some((position.into(), tasks.at(position)?)))
        });
        std::iter::once((job, self.name.clone())).chain(indices.map(child))
    }

    /// Whether the job or one of its children has this name.
    pub fn has_name(&self, name: &str) -> bool {
        let is_child = |(parent, index): (&str, u32)| {
            let tasks = self.tasks.as_ref().and_then(|tasks| tasks.position_of(index));
            parent.eq_ignore_ascii_case(&self.name) && tasks.is_some()
        };
        self.name.eq_ignore_ascii_case(name) || parent_and_index(name).is_some_and(is_child)
    }
}

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
    pub fn write(&self, job: JobId, deleted: &Deleted) -> io::Result<()> {
        let Deleted { workspace, name, tasks } = deleted;
        let tasks = tasks.as_ref().map(|tasks| format!(" {tasks}")).unwrap_or_default();
        fs::create_dir_all(&self.0)?;
        let mut file = File::create(self.path(job))?;
        file.write_all(format!("{workspace}\n{name}{tasks}\n").as_bytes())?;
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
    pub fn all(&self) -> Vec<(JobId, Deleted)> {
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

    fn read(&self, job: JobId, path: &Path) -> Option<(JobId, Deleted)> {
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
        // A truncated record could name another job.
        let known = text.strip_suffix('\n').and_then(|whole| whole.split_once('\n')).and_then(
            |(workspace, name)| {
                let (name, tasks) = match name.split_once(' ') {
                    Some((name, tasks)) => (name, Some(tasks.parse().ok()?)),
                    None => (name, None),
                };
                let workspace = workspace.parse().ok()?;
                Some((job, Deleted { workspace, name: name.into(), tasks }))
            },
        );
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
        let tasks = Some("4-6:2".parse().expect("indices"));
        let deleted = Deleted { workspace: WorkspaceId(3), name: "job-10".into(), tasks };
        for job in [whole, cut] {
            notes.write(job, &deleted).expect("io");
        }
        let text = fs::read_to_string(notes.path(cut)).expect("io");
        for length in 0..text.len() {
            fs::write(notes.path(cut), &text[..length]).expect("io");
            assert_eq!(notes.all(), [(whole, deleted.clone())], "{length}");
            assert!(!notes.path(cut).exists());
        }
        let jobs: Vec<_> = deleted.jobs(whole).collect();
        assert_eq!(jobs[1..], [(JobId(2), "job-10_4".into()), (JobId(3), "job-10_6".into())]);
        let names = ["JOB-10", "job-10_6", "job-10_5"].map(|name| deleted.has_name(name));
        assert_eq!(names, [true, true, false]);
        notes.remove(whole).expect("io");
        notes.remove(whole).expect("removing it again succeeds");
        assert_eq!(notes.all(), []);
    }
}
