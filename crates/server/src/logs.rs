//! Job logs: bytes in files named by our own ids, one per attempt and rank, appended by the node that holds
//! the attempt's live epoch, as long as the disk has room beyond its reserve.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use muster_core::agent::LOG_BYTES_MAX;
use muster_core::ids::{Epoch, JobId};

use crate::room::{self, NoRoom, Room};

/// Of one request to read.
const READ_BYTES_MAX: u64 = 8 << 20;
/// So little is taken for longer: what a node says when it has to give up the rest of a log.
const SMALL_BYTES_MAX: usize = 4 << 10;

#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error("a log could not be written")]
    Io(#[from] io::Error),
}

impl AppendError {
    /// Whether it is for want of space.
    pub fn is_full(&self) -> bool {
        match self {
            AppendError::NoRoom(NoRoom::Full { .. }) => true,
            AppendError::NoRoom(NoRoom::Io(_)) => false,
            AppendError::Io(why) => {
                matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
        }
    }
}

pub struct Logs {
    dir: PathBuf,
    room: Room,
    /// Appends are rare and short: one lock for all is simpler than one each.
    append: Mutex<()>,
}

/// Part of a log, and how long the whole is now.
pub struct Piece {
    pub bytes: Vec<u8>,
    pub from: u64,
    pub total: u64,
}

impl Logs {
    pub fn new(dir: PathBuf) -> Logs {
        Logs { room: Room::of(dir.clone()), dir, append: Mutex::new(()) }
    }

    fn path(&self, job: JobId, epoch: Epoch, rank: usize) -> PathBuf {
        self.dir.join(job.to_string()).join(format!("{epoch}.{rank}.log"))
    }

    /// Appends `bytes` that belong at `offset`, and says how much there is now. What is there already is left
    /// alone, and what would leave a gap is not taken: the sender goes on from the answer.
    pub fn append(
        &self,
        job: JobId,
        epoch: Epoch,
        rank: usize,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, AppendError> {
        let _one_at_a_time = self.append.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path(job, epoch, rank);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
        let length = file.metadata()?.len();
        if offset > length {
            return Ok(length);
        }
        let known = usize::try_from(length - offset).unwrap_or(usize::MAX);
        let Some(fresh) = bytes.get(known..).filter(|fresh| !fresh.is_empty()) else {
            return Ok(length);
        };
        let room = usize::try_from(LOG_BYTES_MAX.saturating_sub(length)).unwrap_or(usize::MAX);
        let fresh = &fresh[..fresh.len().min(room)];
        let is_small = fresh.len() <= SMALL_BYTES_MAX;
        let kind = if is_small { room::Kind::Small } else { room::Kind::Usual };
        self.room.check(fresh.len() as u64, kind)?;
        file.write_all(fresh)?;
        // The node forgets its copy once the job's end is on disk, so this must be there before.
        file.sync_data()?;
        Ok(length + fresh.len() as u64)
    }

    /// Of all attempts of a job. One that has none is as good as removed.
    pub fn remove(&self, job: JobId) -> io::Result<()> {
        match std::fs::remove_dir_all(self.dir.join(job.to_string())) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// From `from` on, as much as one answer carries. A log that does not exist yet is empty.
    pub fn read(&self, job: JobId, epoch: Epoch, rank: usize, from: u64) -> io::Result<Piece> {
        let mut file = match File::open(self.path(job, epoch, rank)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_room_for_is_refused_and_the_rest_is_taken_later() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let own = dir.path().to_owned();
        let full =
            Logs { room: Room::with_reserve(own.clone(), u64::MAX), ..Logs::new(own.clone()) };
        let (job, epoch) = (JobId(1), Epoch(2));
        let refused = full.append(job, epoch, 0, 0, b"hello").expect_err("there is no room");
        assert!(refused.is_full(), "{refused}");
        assert!(refused.to_string().contains("the server's disk is full"), "{refused}");
        assert_eq!(full.read(job, epoch, 0, 0).expect("io").total, 0);
        let logs = Logs { room: Room::with_reserve(own.clone(), 0), ..Logs::new(own) };
        assert_eq!(logs.append(job, epoch, 0, 0, b"hello").expect("there is room"), 5);
        // What is there already needs none.
        assert_eq!(full.append(job, epoch, 0, 0, b"hello").expect("it is there"), 5);
    }

    #[test]
    fn appends_once_whatever_is_sent_twice() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let logs = Logs::new(dir.path().to_owned());
        let (job, epoch) = (JobId(1), Epoch(2));
        let append = |offset, bytes: &[u8]| logs.append(job, epoch, 0, offset, bytes).expect("io");
        assert_eq!(append(0, b"hello "), 6);
        assert_eq!(append(0, b"hello "), 6, "the same again");
        assert_eq!(append(3, b"lo world"), 11, "overlapping");
        assert_eq!(append(20, b"gap"), 11, "a gap is not taken");
        let piece = logs.read(job, epoch, 0, 6).expect("io");
        assert_eq!((piece.bytes.as_slice(), piece.total), (b"world".as_slice(), 11));
        assert_eq!(logs.read(job, epoch, 1, 0).expect("io").total, 0);
    }
}
