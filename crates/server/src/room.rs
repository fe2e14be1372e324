//! The space that is left on the server's disk. Files, blobs and logs from jobs and clients are refused before they
//! take the last of it: without some room, the server could not record what happens. Clients are refused first, so that
//! uploads of some users do not take the space for the files that jobs of others leave.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_sandbox::disk_space::DiskSpace;
use muster_sandbox::node::disk;

#[derive(Debug, Clone)]
pub struct Room {
    dir: PathBuf,
    /// The space that is kept free, depending on the size of the disk.
    kept: Kept,
    /// Space that counts as used although it is free, because nodes that are limited by quotas may still write to it.
    promised: fn(&Path) -> u64,
    /// This value, and when it was determined: it costs a walk through all quotas, and every append to a log needs it.
    known: Arc<Mutex<Option<(Instant, u64)>>>,
}

/// How long the value is used before it is determined again.
const KNOWN_FOR: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
enum Kept {
    OfDisk,
    #[cfg(test)]
    Fixed {
        store: u64,
        jobs: u64,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum NoRoom {
    #[error(
        "the server's disk is full: {free} bytes are free, and {kept} are reserved for {whom}; free some space, or send less"
    )]
    Full { free: u64, kept: u64, whom: &'static str },
    #[error("cannot determine how much of the server's disk is free")]
    Io(#[source] io::Error),
}

/// The kind of data, which decides how much of the disk is kept free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Data from clients: blobs, code, and everything that is sent to a signed address. The space for the store and for
    /// jobs is kept free.
    Upload,
    /// Data of a job that nodes send: the files that it leaves, and logs. The space for the store is kept free.
    OfJob,
    /// The last lines of a log, once, which say what is missing. An eighth of the space for the store is kept free.
    LastLines,
}

impl Room {
    /// The space on the disk that contains this folder.
    pub fn of(dir: PathBuf) -> Room {
        Room { dir, kept: Kept::OfDisk, promised: disk::promised_by_quotas, known: Arc::default() }
    }

    /// The same with another reserve for the store, and none for jobs.
    #[cfg(test)]
    pub fn with_reserve(dir: PathBuf, store: u64) -> Room {
        Room::keeping(dir, store, 0)
    }

    #[cfg(test)]
    pub fn keeping(dir: PathBuf, store: u64, jobs: u64) -> Room {
        Room { dir, kept: Kept::Fixed { store, jobs }, promised: |_| 0, known: Arc::default() }
    }

    /// Checks whether there is room for this many bytes.
    pub fn check(&self, wanted: u64, kind: Kind) -> Result<(), NoRoom> {
        let (free, kept) = self.free_and_kept(kind)?;
        match free >= wanted.saturating_add(kept) {
            true => Ok(()),
            false => Err(full(free, kept, kind)),
        }
    }

    /// How many of these bytes there is room for. If there is no room for any, that is an error.
    pub fn fits(&self, wanted: u64, kind: Kind) -> Result<u64, NoRoom> {
        let (free, kept) = self.free_and_kept(kind)?;
        match free.saturating_sub(kept).min(wanted) {
            0 if wanted > 0 => Err(full(free, kept, kind)),
            fits => Ok(fits),
        }
    }

    fn free_and_kept(&self, kind: Kind) -> Result<(u64, u64), NoRoom> {
        let DiskSpace { free_bytes: free, bytes, .. } =
            DiskSpace::of(&self.dir).map_err(NoRoom::Io)?;
        let free = free.saturating_sub(self.promised());
        Ok((free, self.kept(bytes, kind)))
    }

    fn promised(&self) -> u64 {
        // The lock is held meanwhile, so that other threads wait for the result instead of determining it as well.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Some((at, bytes)) if at.elapsed() < KNOWN_FOR => bytes,
            Some(_) | None => {
                let bytes = (self.promised)(&self.dir);
                *known = Some((Instant::now(), bytes));
                bytes
            }
        }
    }

    fn kept(&self, disk_bytes: u64, kind: Kind) -> u64 {
        let (store, jobs) = match self.kept {
            Kept::OfDisk => (disk::reserve(disk_bytes), disk::kept_for_jobs(disk_bytes)),
            #[cfg(test)]
            Kept::Fixed { store, jobs } => (store, jobs),
        };
        match kind {
            Kind::Upload => store.saturating_add(jobs),
            Kind::OfJob => store,
            Kind::LastLines => store / 8,
        }
    }
}

fn full(free: u64, kept: u64, kind: Kind) -> NoRoom {
    let whom = match kind {
        Kind::Upload => "the server's store and the files of jobs",
        Kind::OfJob | Kind::LastLines => "the server's store",
    };
    NoRoom::Full { free, kept, whom }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_small_disk_keeps_a_small_part() {
        let room = Room::of("/".into());
        for (disk, store, uploads) in [
            (256 << 20, 16 << 20, 32 << 20),
            (4 << 30, 256 << 20, 512 << 20),
            (64 << 30, 512 << 20, (2 << 30) + (512 << 20)),
            (1 << 40, 512 << 20, (2 << 30) + (512 << 20)),
        ] {
            assert_eq!(room.kept(disk, Kind::OfJob), store);
            assert_eq!(room.kept(disk, Kind::Upload), uploads);
        }
    }

    /// Otherwise, uploads of some users would take the space in which the jobs of others leave their files.
    #[test]
    fn uploads_are_refused_where_files_of_jobs_are_still_accepted() {
        let room = Room::keeping("/".into(), 0, u64::MAX);
        let refused = room.check(1, Kind::Upload).expect_err("the space is for jobs");
        let words = refused.to_string();
        for part in
            ["bytes are free", "reserved for the server's store and the files of jobs", "free some"]
        {
            assert!(words.contains(part), "{words}");
        }
        room.check(1, Kind::OfJob).expect("there is room");
        assert_eq!(room.fits(7, Kind::OfJob).expect("there is room"), 7);
    }

    #[test]
    fn space_promised_to_nodes_is_not_free() {
        let room = Room::with_reserve("/".into(), 0);
        room.check(1, Kind::OfJob).expect("there is room");
        let promised = Room { promised: |_| u64::MAX, known: Arc::default(), ..room };
        assert!(matches!(promised.check(1, Kind::OfJob), Err(NoRoom::Full { free: 0, .. })));
        assert!(promised.fits(1, Kind::LastLines).is_err());
    }

    #[test]
    fn space_promised_to_nodes_is_determined_once_a_second() {
        static ASKED: AtomicU64 = AtomicU64::new(0);
        let asked = |_: &Path| ASKED.fetch_add(1, Ordering::Relaxed);
        let room = Room { promised: asked, ..Room::with_reserve("/".into(), 0) };
        let began = Instant::now();
        for _ in 0..100 {
            room.clone().check(0, Kind::OfJob).expect("there is room");
        }
        assert!(ASKED.load(Ordering::Relaxed) <= 1 + began.elapsed().as_secs());
        let before = ASKED.load(Ordering::Relaxed);
        *room.known.lock().expect("no panic") =
            Instant::now().checked_sub(KNOWN_FOR).map(|at| (at, 0));
        room.check(0, Kind::OfJob).expect("there is room");
        assert_eq!(ASKED.load(Ordering::Relaxed), before + 1, "the value may have changed");
    }

    #[test]
    fn last_lines_may_use_most_of_the_reserve_and_others_take_what_is_left() {
        let free = |room: &Room| match room.check(u64::MAX, Kind::OfJob) {
            Err(NoRoom::Full { free, .. }) => free,
            other => panic!("{other:?}"),
        };
        let some = free(&Room::with_reserve("/".into(), 0));
        let room = Room::with_reserve("/".into(), some + some / 2);
        assert!(matches!(room.check(1, Kind::OfJob), Err(NoRoom::Full { .. })));
        assert!(room.check(1, Kind::LastLines).is_ok());
        assert!(matches!(room.fits(7, Kind::OfJob), Err(NoRoom::Full { .. })));
        assert_eq!(room.fits(7, Kind::LastLines).expect("there is room"), 7);
        assert_eq!(room.fits(0, Kind::OfJob).expect("zero bytes need no room"), 0);
        let all = Room::with_reserve("/".into(), 0);
        assert!(all.fits(u64::MAX, Kind::OfJob).expect("a part fits") < u64::MAX);
    }
}
