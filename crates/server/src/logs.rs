//! Job logs: bytes in files named by our own ids, one per attempt and rank, appended by the node that holds
//! the attempt's live epoch, as long as the disk has room beyond its reserve and the workspace has some of its share left.
//! What is acknowledged is on disk, with the name of its file.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use muster_core::agent::LOG_BYTES_MAX;
use muster_core::ids::{Epoch, JobId};

use crate::blobs::{BlobError, InTurn, Reserved};
use crate::room::{self, NoRoom, Room};

/// Of one request to read.
const READ_BYTES_MAX: u64 = 8 << 20;
/// So much is taken for longer, once for each log: what a node says when it has to give up the rest.
const LAST_BYTES_MAX: usize = 4 << 10;
/// Logs that are known to have been given up; an earlier one is forgotten when there are more.
const GIVEN_UP_MAX: usize = 10_000;
/// Of logs whose names are known to be on disk. When there are more, all are forgotten, and each is synced once more.
const NAMED_MAX: usize = 100_000;

#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error(transparent)]
    NoShare(BlobError),
    #[error("this attempt is over, and its job may be deleted")]
    Over,
    #[error("a log could not be written")]
    Io(#[from] io::Error),
}

impl AppendError {
    /// Whether it is for want of space.
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

/// Which log: of an attempt, and of one of its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogKey {
    pub job: JobId,
    pub epoch: Epoch,
    pub rank: usize,
}

pub struct Logs {
    dir: PathBuf,
    room: Room,
    /// Those that are being written to. Each has a lock of its own: to write one waits for the disk, and others do not wait
    /// for that.
    busy: InTurn<LogKey>,
    /// Held while a file is opened for a live attempt, and while the logs of a job are removed: a late append does not make
    /// them again.
    opening: Mutex<()>,
    /// Logs whose names are on disk, as far as this server has made sure.
    named: Mutex<BTreeSet<LogKey>>,
    /// Those that have their last lines.
    given_up: Mutex<BTreeSet<LogKey>>,
    #[cfg(test)]
    synced: Mutex<Vec<PathBuf>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Part of a log, and how long the whole is now.
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
            busy: InTurn::default(),
            opening: Mutex::default(),
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

    /// Appends `bytes` that belong at `offset`, and says how much there is now. What is there already is left
    /// alone, and what would leave a gap is not taken: the sender goes on from the answer. What is new is reserved first, and
    /// of what does not fit the part that does is taken. Last lines are taken whole or not at all.
    /// Nothing is taken when the attempt is not live any more.
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
            // Also when nobody waits for the answer any more.
            let _turn = turn;
            logs.write(log, (offset, is_last), &bytes, is_live, reserve)
        });
        written.await.unwrap_or_else(|panicked| Err(io::Error::other(panicked).into()))
    }

    /// Of a log that nobody else writes to.
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
            // Whoever wrote this may have been killed before it was on disk.
            self.sync(log, &file)?;
            return Ok(length);
        };
        let room = usize::try_from(LOG_BYTES_MAX.saturating_sub(length)).unwrap_or(usize::MAX);
        let fresh = &fresh[..fresh.len().min(room)];
        let is_last = is_last && fresh.len() <= LAST_BYTES_MAX && self.give_up(log);
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
        // Of what could not be written, a part may have been.
        let now = file.metadata().map_or(length + fresh.len() as u64, |about| about.len());
        reserved.settle(now.saturating_sub(length));
        written?;
        // The node forgets its copy once the job's end is on disk, so this must be there before.
        self.sync(log, &file)?;
        Ok(length + fresh.len() as u64)
    }

    fn open(&self, log: LogKey, is_live: impl FnOnce() -> bool) -> Result<File, AppendError> {
        let _opening = lock(&self.opening);
        if !is_live() {
            return Err(AppendError::Over);
        }
        fs::create_dir_all(self.folder(log.job))?;
        Ok(OpenOptions::new().append(true).create(true).open(self.path(log))?)
    }

    /// What is in a log, and at first its name and those of the folders that it is in.
    fn sync(&self, log: LogKey, file: &File) -> io::Result<()> {
        file.sync_data()?;
        self.note_synced(&self.path(log));
        if lock(&self.named).contains(&log) {
            return Ok(());
        }
        let above = self.dir.parent().map(Path::to_owned);
        for folder in [self.folder(log.job), self.dir.clone()].into_iter().chain(above) {
            match File::open(&folder) {
                // Its job was deleted meanwhile.
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

    /// The beginning of these bytes that there is room for, and the room.
    fn part_that_fits<'b>(
        &self,
        bytes: &'b [u8],
        reserve: impl Fn(u64, room::Kind) -> Result<Reserved, BlobError>,
    ) -> Result<(&'b [u8], Reserved), AppendError> {
        let kind = room::Kind::Usual;
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

    /// Whether a log gets its last lines now, which it does once.
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

    /// Of all attempts of a job; says how many bytes they had. One that has none is as good as removed.
    pub fn remove(&self, job: JobId) -> io::Result<u64> {
        let _opening = lock(&self.opening);
        let folder = self.folder(job);
        let bytes = bytes_in(&folder)?;
        lock(&self.named).retain(|log| log.job != job);
        match fs::remove_dir_all(folder) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(0),
            result => result.map(|()| bytes),
        }
    }

    /// Those of all jobs that are gone; says of how many.
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

    /// How many bytes the logs of these jobs have.
    pub fn bytes_of(&self, jobs: &BTreeSet<JobId>) -> io::Result<u64> {
        let mut bytes = 0;
        // Most jobs may have none.
        for entry in entries(&self.dir)? {
            let job = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if job.is_some_and(|job| jobs.contains(&job)) {
                bytes += bytes_in(&entry.path())?;
            }
        }
        Ok(bytes)
    }

    /// From `from` on, as much as one answer carries. A log that does not exist yet is empty.
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
    // One that goes meanwhile has none.
    let bytes = |entry: &fs::DirEntry| entry.metadata().map_or(0, |about| about.len());
    Ok(entries(folder)?.iter().map(bytes).sum())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use muster_core::ids::WorkspaceId;

    use super::*;
    use crate::blobs::Blobs;

    const LOG: LogKey = LogKey { job: JobId(1), epoch: Epoch(2), rank: 0 };
    const HERE: WorkspaceId = WorkspaceId(1);

    fn blobs(dir: &Path, share_max: Option<u64>) -> Arc<Blobs> {
        Arc::new(Blobs::new(dir.join("blobs"), None, share_max).unwrap())
    }

    fn with_reserve(dir: &Path, bytes: u64) -> Arc<Logs> {
        let room = Room::with_reserve(dir.to_owned(), bytes);
        Arc::new(Logs { room, ..Logs::new(dir.join("logs")) })
    }

    async fn append(
        (logs, blobs): (&Arc<Logs>, &Arc<Blobs>),
        log: LogKey,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, AppendError> {
        append_as((logs, blobs), log, offset, bytes, false).await
    }

    async fn append_as(
        (logs, blobs): (&Arc<Logs>, &Arc<Blobs>),
        log: LogKey,
        offset: u64,
        bytes: &[u8],
        is_last: bool,
    ) -> Result<u64, AppendError> {
        let blobs = blobs.clone();
        blobs.measured(HERE).await.expect("it can be measured");
        let reserve = move |bytes, kind| blobs.reserve_for_log(HERE, bytes, kind);
        let bytes = Bytes::copy_from_slice(bytes);
        logs.append(log, (offset, is_last), bytes, || true, reserve).await
    }

    #[tokio::test]
    async fn what_there_is_no_room_for_is_refused_and_the_rest_is_taken_later() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let blobs = blobs(dir.path(), None);
        let full = with_reserve(dir.path(), u64::MAX);
        let refused = append((&full, &blobs), LOG, 0, b"hello").await.expect_err("no room");
        assert!(refused.is_full(), "{refused}");
        assert!(refused.to_string().contains("the server's disk is full"), "{refused}");
        assert_eq!(full.read(LOG, 0).expect("io").total, 0);
        let logs = with_reserve(dir.path(), 0);
        assert_eq!(append((&logs, &blobs), LOG, 0, b"hello").await.expect("there is room"), 5);
        // What is there already needs none.
        assert_eq!(append((&full, &blobs), LOG, 0, b"hello").await.expect("it is there"), 5);
    }

    #[tokio::test]
    async fn appends_once_whatever_is_sent_twice() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (logs, blobs) = (with_reserve(dir.path(), 0), blobs(dir.path(), None));
        let append = async |offset, bytes: &[u8]| {
            append((&logs, &blobs), LOG, offset, bytes).await.expect("io")
        };
        assert_eq!(append(0, b"hello ").await, 6);
        assert_eq!(append(0, b"hello ").await, 6, "the same again");
        assert_eq!(append(3, b"lo world").await, 11, "overlapping");
        assert_eq!(append(20, b"gap").await, 11, "a gap is not taken");
        let piece = logs.read(LOG, 6).expect("io");
        assert_eq!((piece.bytes.as_slice(), piece.total), (b"world".as_slice(), 11));
        assert_eq!(logs.read(LogKey { rank: 1, ..LOG }, 0).expect("io").total, 0);
        assert!(logs.busy.is_idle());
    }

    /// The node forgets what is acknowledged.
    #[tokio::test]
    async fn what_is_acknowledged_is_on_disk_with_its_name() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (logs, blobs) = (with_reserve(dir.path(), 0), blobs(dir.path(), None));
        let synced = |logs: &Logs| std::mem::take(&mut *lock(&logs.synced));
        let whole = |logs: &Logs| {
            vec![logs.path(LOG), logs.folder(LOG.job), logs.dir.clone(), dir.path().into()]
        };
        assert_eq!(append((&logs, &blobs), LOG, 0, b"hello").await.expect("io"), 5);
        assert_eq!(synced(&logs), whole(&logs));
        assert_eq!(append((&logs, &blobs), LOG, 5, b" world").await.expect("io"), 11);
        assert_eq!(synced(&logs), [logs.path(LOG)], "its name is there");
        // A server that was killed before it was on disk leaves the rest to the next.
        let logs = with_reserve(dir.path(), 0);
        assert_eq!(append((&logs, &blobs), LOG, 0, b"hello").await.expect("io"), 11);
        assert_eq!(synced(&logs), whole(&logs));
        assert_eq!(append((&logs, &blobs), LOG, 50, b"gap").await.expect("io"), 11);
        assert_eq!(synced(&logs), [logs.path(LOG)]);
    }

    #[tokio::test]
    async fn an_append_that_comes_after_the_delete_of_its_job_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (logs, blobs) = (with_reserve(dir.path(), 0), blobs(dir.path(), None));
        assert_eq!(append((&logs, &blobs), LOG, 0, b"hello").await.expect("io"), 5);
        // It came while the attempt was live, and waits for the one before it.
        let is_live = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let (asked, own) = (is_live.clone(), blobs.clone());
        let first = logs.busy.turn(LOG).await;
        let late = logs.append(
            LOG,
            (5, false),
            Bytes::from_static(b" again"),
            move || asked.load(std::sync::atomic::Ordering::Relaxed),
            move |bytes, kind| own.reserve_for_log(HERE, bytes, kind),
        );
        let mut late = Box::pin(late);
        assert!(late.as_mut().now_or_never().is_none(), "it waits");
        is_live.store(false, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(logs.remove(LOG.job).expect("io"), 5);
        drop(first);
        let refused = late.await.expect_err("its job is deleted");
        assert!(matches!(refused, AppendError::Over), "{refused}");
        assert!(!logs.folder(LOG.job).exists());
    }

    #[tokio::test]
    async fn only_logs_of_jobs_that_are_gone_are_removed() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (logs, blobs) = (with_reserve(dir.path(), 0), blobs(dir.path(), None));
        let other = LogKey { job: JobId(7), ..LOG };
        for log in [LOG, other] {
            assert_eq!(append((&logs, &blobs), log, 0, b"hello").await.expect("io"), 5);
        }
        fs::create_dir(dir.path().join("logs/else")).expect("io");
        let unknown = logs.remove_if(|_| Err(io::Error::other("it cannot be looked up")));
        assert!(unknown.is_err());
        assert_eq!(logs.remove_if(|job| Ok(job == LOG.job)).expect("io"), 1);
        assert_eq!([LOG, other].map(|log| logs.read(log, 0).expect("io").total), [0, 5]);
        assert!(dir.path().join("logs/else").exists(), "it is not ours");
    }

    #[tokio::test]
    async fn a_log_that_is_being_written_holds_up_no_other() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (logs, blobs) = (with_reserve(dir.path(), 0), blobs(dir.path(), None));
        let slow = logs.busy.turn(LOG).await;
        // With one lock for all this would wait for ever.
        let other = LogKey { job: JobId(7), ..LOG };
        assert_eq!(append((&logs, &blobs), other, 0, b"other").await.expect("io"), 5);
        assert!(append((&logs, &blobs), LOG, 0, b"same").now_or_never().is_none(), "it waits");
        let next = logs.busy.turn(LOG);
        drop(slow);
        drop(next.await);
        assert_eq!(append((&logs, &blobs), LOG, 0, b"same").await.expect("io"), 4);
        assert!(logs.busy.is_idle(), "nothing is left of who wrote, or gave up");
    }

    /// After a restart the workspace is measured, and nodes send what they could not send meanwhile.
    #[tokio::test]
    async fn a_log_is_taken_while_its_workspace_is_measured() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (logs, files) = (with_reserve(dir.path(), 0), blobs(dir.path(), Some(100)));
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let (may_go_on, own) = (std::sync::Mutex::new(may_go_on), logs.clone());
        files.count_also(move |_| {
            may_go_on.lock().expect("one measures").recv().expect("it goes on");
            own.bytes_of(&[LOG.job].into()).map_err(BlobError::Io)
        });
        files.measure_soon(HERE);
        let reserving = files.clone();
        let reserve = move |bytes, kind| reserving.reserve_for_log(HERE, bytes, kind);
        let appended =
            logs.append(LOG, (0, false), Bytes::from_static(b"said meanwhile"), || true, reserve);
        let appended = tokio::time::timeout(std::time::Duration::from_secs(5), appended).await;
        assert_eq!(appended.expect("it does not wait").expect("io"), 14);
        go_on.send(()).expect("it waits");
        files.measured(HERE).await.expect("io");
        // What came while logs were being measured may count twice, so there is room for 72 bytes or 86.
        let taken = append((&logs, &files), LOG, 14, &[b'x'; 100]).await.expect("a part fits");
        assert!(matches!(taken, 86 | 100), "{taken}");
        let more = append((&logs, &files), LOG, taken, b"x").await.expect_err("too much");
        assert!(more.is_full(), "{more}");
    }

    #[tokio::test]
    async fn logs_are_part_of_what_their_workspace_has() {
        const SHARE: u64 = 64 << 10;
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (logs, files) = (with_reserve(dir.path(), 0), blobs(dir.path(), Some(SHARE)));
        let large = vec![b'x'; 60 << 10];
        assert_eq!(append((&logs, &files), LOG, 0, &large).await.expect("it fits"), 60 << 10);
        assert!(files.check_share(HERE, 5 << 10).is_err(), "files have what logs leave");
        files.check_share(HERE, 4 << 10).expect("there is as much");
        // Of what does not fit a part is taken, and then no more, however little it is.
        let taken = append((&logs, &files), LOG, 60 << 10, &large).await.expect("a part fits");
        assert_eq!(taken, SHARE);
        for rest in [&large[..], &large[..1]] {
            let refused = append((&logs, &files), LOG, SHARE, rest).await.expect_err("full");
            assert!(refused.is_full() && refused.to_string().contains("workspace-storage-gb"));
        }
        // What says why the rest is missing may exceed it, once for each log.
        let last = async |log, offset| append_as((&logs, &files), log, offset, &[b'y'; 512], true);
        let too_much = append_as((&logs, &files), LOG, SHARE, &large[..5 << 10], true).await;
        assert!(too_much.expect_err("these are no last lines").is_full());
        assert_eq!(last(LOG, SHARE).await.await.expect("there is room"), SHARE + 512);
        assert_eq!(last(LOG, SHARE).await.await.expect("sent again"), SHARE + 512);
        assert!(last(LOG, SHARE + 512).await.await.expect_err("it had them").is_full());
        let other = LogKey { rank: 1, ..LOG };
        assert_eq!(last(other, 0).await.await.expect("there is room"), 512);
        let third = LogKey { rank: 2, ..LOG };
        assert!(last(third, 0).await.await.expect_err("a 64th of the share").is_full());

        // A server that starts counts what it finds, and what goes counts no more.
        let files = blobs(dir.path(), Some(SHARE));
        let own = logs.clone();
        files.count_also(move |_| own.bytes_of(&[LOG.job].into()).map_err(BlobError::Io));
        assert!(files.check_share(HERE, 1).is_err());
        assert_eq!(logs.bytes_of(&[JobId(7)].into()).expect("io"), 0);
        files.removing(HERE, || logs.remove(LOG.job)).expect("io");
        files.check_share(HERE, SHARE).expect("all of it is free");
        assert_eq!(logs.remove(LOG.job).expect("io"), 0);
    }
}
