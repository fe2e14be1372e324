//! Job logs: files named by the server's own ids, one per attempt and rank. They are appended to by the node that holds
//! the attempt's live epoch, as long as the disk has room beyond its reserve and the workspace has not used up its
//! share. Bytes that are acknowledged are on disk, with the name of their file.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use muster_core::agent::{LAST_LOG_BYTES_MAX, LOG_BYTES_MAX};
use muster_core::ids::{Epoch, JobId};

use crate::blobs::{BlobError, KeyedLock, Reserved};
use crate::room::{self, NoRoom, Room};

/// The maximum size of the response to one read.
const READ_BYTES_MAX: u64 = 8 << 20;
/// How many logs are remembered as given up; if there are more, the earliest are forgotten.
const GIVEN_UP_MAX: usize = 10_000;
/// How many logs are remembered as having their names on disk. If there are more, all are forgotten, and each is synced
/// once more.
const NAMED_MAX: usize = 100_000;

#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error(transparent)]
    NoShare(BlobError),
    #[error("this attempt has ended, and its job may be deleted")]
    Over,
    #[error("the log could not be written")]
    Io(#[from] io::Error),
}

impl AppendError {
    /// Whether there is no space left.
    pub fn is_full(&self) -> bool {
        match self {
            AppendError::NoRoom(NoRoom::Full { .. }) => true,
            AppendError::NoRoom(NoRoom::Io(_)) | AppendError::Over => false,
            AppendError::NoShare(why) => matches!(why, BlobError::ShareUsed { .. }),
            AppendError::Io(why) => {
                matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
        }
    }
}

/// Identifies a log by its attempt and member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogKey {
    pub job: JobId,
    pub epoch: Epoch,
    pub rank: usize,
}

pub struct Logs {
    dir: PathBuf,
    room: Room,
    /// Locks for logs that are being written to. Each has its own lock, because a write waits for the disk, and others
    /// should not wait for that.
    busy: KeyedLock<LogKey>,
    /// Locks for jobs while a file is opened for a live attempt, or while their logs are removed, so that a late append
    /// does not create them again. The disk may be slow, and other jobs do not wait for that.
    opening: KeyedLock<JobId>,
    /// Logs whose names are known to be on disk.
    named: Mutex<BTreeSet<LogKey>>,
    /// Logs that have received their last lines.
    given_up: Mutex<BTreeSet<LogKey>>,
    #[cfg(test)]
    synced: Mutex<Vec<PathBuf>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A part of a log, and the current length of the whole log.
pub struct Piece {
    pub bytes: Vec<u8>,
    pub from: u64,
    pub total: u64,
}

impl Logs {
    pub fn new(dir: PathBuf) -> Logs {
        Logs {
            room: Room::of(dir.clone()),
            dir,
            busy: KeyedLock::default(),
            opening: KeyedLock::default(),
            named: Mutex::default(),
            given_up: Mutex::default(),
            #[cfg(test)]
            synced: Mutex::default(),
        }
    }

    fn folder(&self, job: JobId) -> PathBuf {
        self.dir.join(job.to_string())
    }

    fn path(&self, LogKey { job, epoch, rank }: LogKey) -> PathBuf {
        self.folder(job).join(format!("{epoch}.{rank}.log"))
    }

    /// Appends `bytes` that belong at `offset`, and returns the new length. Bytes that exist already are left alone,
    /// and bytes that would leave a gap are not accepted: the sender continues from the returned length. New bytes are
    /// reserved first; if not all of them fit, the part that fits is accepted. Last lines are accepted completely or
    /// not at all. Nothing is accepted when the attempt is no longer live.
    pub async fn append(
        self: &Arc<Self>,
        log: LogKey,
        (offset, is_last): (u64, bool),
        bytes: Bytes,
        is_live: impl FnOnce() -> bool + Send + 'static,
        reserve: impl Fn(u64, room::Kind) -> Result<Reserved, BlobError> + Send + 'static,
    ) -> Result<u64, AppendError> {
        let (turn, logs) = (self.busy.turn(log).await, self.clone());
        let written = tokio::task::spawn_blocking(move || {
            // Held until the end, even if the caller no longer waits for the result.
            let _turn = turn;
            logs.write(log, (offset, is_last), &bytes, is_live, reserve)
        });
        written.await.unwrap_or_else(|panicked| Err(io::Error::other(panicked).into()))
    }

    /// The caller holds the lock of the log.
    fn write(
        &self,
        log: LogKey,
        (offset, is_last): (u64, bool),
        bytes: &[u8],
        is_live: impl FnOnce() -> bool,
        reserve: impl Fn(u64, room::Kind) -> Result<Reserved, BlobError>,
    ) -> Result<u64, AppendError> {
        let mut file = self.open(log, is_live)?;
        let length = file.metadata()?.len();
        let known = length.checked_sub(offset).map(|it| usize::try_from(it).unwrap_or(usize::MAX));
        let fresh = known.and_then(|known| bytes.get(known..));
        let Some(fresh) = fresh.filter(|fresh| !fresh.is_empty()) else {
            // The server that wrote this may have been killed before it was on disk.
            self.sync(log, &file)?;
            return Ok(length);
        };
        let room = usize::try_from(LOG_BYTES_MAX.saturating_sub(length)).unwrap_or(usize::MAX);
        let fresh = &fresh[..fresh.len().min(room)];
        let is_last = is_last && fresh.len() <= LAST_LOG_BYTES_MAX && self.give_up(log);
        let (fresh, reserved) = match is_last {
            true => {
                let bytes = fresh.len() as u64;
                let kind = room::Kind::LastLines;
                let taken = self.room.check(bytes, kind).map_err(AppendError::from);
                let taken = taken
                    .and_then(|()| reserve(bytes, kind).map_err(AppendError::NoShare))
                    .inspect_err(|_| self.take_up(log))?;
                (fresh, taken)
            }
            false => self.part_that_fits(fresh, reserve)?,
        };
        let written = file.write_all(fresh);
        // After a failed write, some of the bytes may have been written.
        let now = file.metadata().map_or(length + fresh.len() as u64, |about| about.len());
        reserved.settle(now.saturating_sub(length));
        if written.is_err() && is_last {
            self.take_up(log);
        }
        written?;
        // The node deletes its copy once the job's end is on disk, so this must be on disk before.
        self.sync(log, &file)?;
        Ok(length + fresh.len() as u64)
    }

    fn open(&self, log: LogKey, is_live: impl FnOnce() -> bool) -> Result<File, AppendError> {
        let _opening = self.opening.wait(log.job);
        if !is_live() {
            return Err(AppendError::Over);
        }
        fs::create_dir_all(self.folder(log.job))?;
        Ok(OpenOptions::new().append(true).create(true).open(self.path(log))?)
    }

    /// Syncs the contents of a log, and at first also its name and its folders.
    fn sync(&self, log: LogKey, file: &File) -> io::Result<()> {
        file.sync_data()?;
        self.note_synced(&self.path(log));
        if lock(&self.named).contains(&log) {
            return Ok(());
        }
        let above = self.dir.parent().map(Path::to_owned);
        for folder in [self.folder(log.job), self.dir.clone()].into_iter().chain(above) {
            match File::open(&folder) {
                // The job was deleted in the meantime.
                Err(missing) if missing.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?.sync_all()?,
            }
            self.note_synced(&folder);
        }
        let mut named = lock(&self.named);
        if named.len() >= NAMED_MAX {
            named.clear();
        }
        named.insert(log);
        Ok(())
    }

    #[cfg(test)]
    fn note_synced(&self, path: &Path) {
        lock(&self.synced).push(path.to_owned());
    }

    #[cfg(not(test))]
    fn note_synced(&self, _path: &Path) {}

    /// The first part of these bytes that there is room for, with its reservation.
    fn part_that_fits<'b>(
        &self,
        bytes: &'b [u8],
        reserve: impl Fn(u64, room::Kind) -> Result<Reserved, BlobError>,
    ) -> Result<(&'b [u8], Reserved), AppendError> {
        let kind = room::Kind::OfJob;
        let mut fits = self.room.fits(bytes.len() as u64, kind)?;
        let reserved = match reserve(fits, kind) {
            Err(BlobError::ShareUsed { used, limit, .. }) if used < limit => {
                fits = fits.min(limit - used);
                reserve(fits, kind)
            }
            reserved => reserved,
        };
        let part = usize::try_from(fits).unwrap_or(usize::MAX).min(bytes.len());
        Ok((&bytes[..part], reserved.map_err(AppendError::NoShare)?))
    }

    /// Whether a log may receive its last lines now, which happens only once.
    fn give_up(&self, log: LogKey) -> bool {
        let mut given_up = lock(&self.given_up);
        let is_new = given_up.insert(log);
        if given_up.len() > GIVEN_UP_MAX {
            given_up.pop_first();
        }
        is_new
    }

    fn take_up(&self, log: LogKey) {
        lock(&self.given_up).remove(&log);
    }

    /// Removes the logs of all attempts of a job, and returns how many bytes they had. A job without logs is not an
    /// error. The calling thread may block.
    pub fn remove(&self, job: JobId) -> io::Result<u64> {
        let _opening = self.opening.wait(job);
        let folder = self.folder(job);
        let bytes = bytes_in(&folder)?;
        lock(&self.named).retain(|log| log.job != job);
        match fs::remove_dir_all(folder) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(0),
            result => result.map(|()| bytes),
        }
    }

    /// The jobs that have logs, in the order in which they were submitted.
    pub fn jobs(&self) -> io::Result<Vec<JobId>> {
        let entries = entries(&self.dir)?.into_iter();
        let jobs = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut jobs: Vec<JobId> = jobs.collect();
        jobs.sort_unstable();
        Ok(jobs)
    }

    /// Removes the logs of all jobs for which `is_gone` is true, and returns the number of jobs.
    pub fn remove_if(&self, is_gone: impl Fn(JobId) -> io::Result<bool>) -> io::Result<u64> {
        let mut jobs = 0;
        for entry in entries(&self.dir)? {
            let job = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(job) = job
                && is_gone(job)?
            {
                self.remove(job)?;
                jobs += 1;
            }
        }
        Ok(jobs)
    }

    /// The number of bytes in all logs, and the number of jobs that have some.
    pub fn size(&self) -> io::Result<(u64, u64)> {
        let (mut bytes, mut jobs) = (0, 0);
        for job in self.jobs()? {
            bytes += bytes_in(&self.folder(job))?;
            jobs += 1;
        }
        Ok((bytes, jobs))
    }

    /// The number of bytes in the logs of these jobs.
    pub fn bytes_of(&self, jobs: &BTreeSet<JobId>) -> io::Result<u64> {
        let mut bytes = 0;
        // Lists the folder, because most jobs may have no logs.
        for entry in entries(&self.dir)? {
            let job = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if job.is_some_and(|job| jobs.contains(&job)) {
                bytes += bytes_in(&entry.path())?;
            }
        }
        Ok(bytes)
    }

    /// Reads from `from`, as much as one response carries. A log that does not exist yet is empty.
    pub fn read(&self, log: LogKey, from: u64) -> io::Result<Piece> {
        let mut file = match File::open(self.path(log)) {
            Ok(file) => file,
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
                return Ok(Piece { bytes: Vec::new(), from, total: 0 });
            }
            Err(other) => return Err(other),
        };
        let total = file.metadata()?.len();
        let mut bytes = Vec::new();
        if from < total {
            file.seek(SeekFrom::Start(from))?;
            file.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
        }
        Ok(Piece { bytes, from, total })
    }
}

fn entries(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(folder) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        found => found?.collect(),
    }
}

fn bytes_in(folder: &Path) -> io::Result<u64> {
    // A file that is deleted in the meantime has no bytes.
    let bytes = |entry: &fs::DirEntry| entry.metadata().map_or(0, |about| about.len());
    Ok(entries(folder)?.iter().map(bytes).sum())
}

#[cfg(test)]
mod tests;
