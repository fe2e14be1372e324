//! How much of the server's disk is left. What jobs and clients bring (files, blobs, logs) is refused before it takes the
//! last of it: without some room the server could not write down what happens.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_sandbox::disk_space::DiskSpace;
use muster_sandbox::node::disk;

#[derive(Debug, Clone)]
pub struct Room {
    dir: PathBuf,
    /// What stays free, by the size of the disk.
    reserve: KeptFree,
    /// What counts as taken although it is free: nodes that are limited by quotas may still write it.
    promised: fn(&Path) -> u64,
    /// That, and when it was asked for: it costs a walk through all quotas, and every append to a log wants it.
    known: Arc<Mutex<Option<(Instant, u64)>>>,
}

/// For so long it counts as unchanged.
const KNOWN_FOR: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
enum KeptFree {
    OfDisk,
    #[cfg(test)]
    Fixed(u64),
}

#[derive(Debug, thiserror::Error)]
pub enum NoRoom {
    #[error(
        "the server's disk is full: {free} bytes are free, and {reserve} are kept; free some, or send less"
    )]
    Full { free: u64, reserve: u64 },
    #[error("cannot tell how much of the server's disk is free")]
    Io(#[source] io::Error),
}

/// How much of the reserve may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing of it.
    Usual,
    /// The last lines of a log, once, which say what is missing: all but an eighth.
    LastLines,
}

impl Room {
    /// Of the disk that this folder is on.
    pub fn of(dir: PathBuf) -> Room {
        Room {
            dir,
            reserve: KeptFree::OfDisk,
            promised: disk::promised_by_quotas,
            known: Arc::default(),
        }
    }

    /// The same with another reserve.
    #[cfg(test)]
    pub fn with_reserve(dir: PathBuf, reserve_bytes: u64) -> Room {
        Room {
            dir,
            reserve: KeptFree::Fixed(reserve_bytes),
            promised: |_| 0,
            known: Arc::default(),
        }
    }

    /// Whether so many bytes more can be taken.
    pub fn check(&self, wanted: u64, kind: Kind) -> Result<(), NoRoom> {
        let (free, reserve) = self.free_and_reserve(kind)?;
        match free >= wanted.saturating_add(reserve) {
            true => Ok(()),
            false => Err(NoRoom::Full { free, reserve }),
        }
    }

    /// How many of these bytes can be taken: at least one, of at least one.
    pub fn fits(&self, wanted: u64, kind: Kind) -> Result<u64, NoRoom> {
        let (free, reserve) = self.free_and_reserve(kind)?;
        match free.saturating_sub(reserve).min(wanted) {
            0 if wanted > 0 => Err(NoRoom::Full { free, reserve }),
            fits => Ok(fits),
        }
    }

    fn free_and_reserve(&self, kind: Kind) -> Result<(u64, u64), NoRoom> {
        let DiskSpace { free_bytes: free, bytes, .. } =
            DiskSpace::of(&self.dir).map_err(NoRoom::Io)?;
        let free = free.saturating_sub(self.promised());
        let reserve = self.reserve(bytes);
        let reserve = match kind {
            Kind::Usual => reserve,
            Kind::LastLines => reserve / 8,
        };
        Ok((free, reserve))
    }

    fn promised(&self) -> u64 {
        // Held meanwhile: the others wait for the answer instead of asking, too.
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

    fn reserve(&self, disk_bytes: u64) -> u64 {
        match self.reserve {
            KeptFree::OfDisk => disk::reserve(disk_bytes),
            #[cfg(test)]
            KeptFree::Fixed(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_small_disk_keeps_a_small_reserve() {
        let room = Room::of("/".into());
        for (disk, reserve) in [(256 << 20, 16 << 20), (4 << 30, 256 << 20), (1 << 40, 512 << 20)] {
            assert_eq!(room.reserve(disk), reserve);
        }
    }

    #[test]
    fn what_nodes_were_promised_is_not_free() {
        let room = Room::with_reserve("/".into(), 0);
        room.check(1, Kind::Usual).expect("there is room");
        let promised = Room { promised: |_| u64::MAX, known: Arc::default(), ..room };
        assert!(matches!(promised.check(1, Kind::Usual), Err(NoRoom::Full { free: 0, .. })));
        assert!(promised.fits(1, Kind::LastLines).is_err());
    }

    #[test]
    fn what_nodes_were_promised_is_asked_for_once_a_second() {
        static ASKED: AtomicU64 = AtomicU64::new(0);
        let asked = |_: &Path| ASKED.fetch_add(1, Ordering::Relaxed);
        let room = Room { promised: asked, ..Room::with_reserve("/".into(), 0) };
        let began = Instant::now();
        for _ in 0..100 {
            room.clone().check(0, Kind::Usual).expect("there is room");
        }
        assert!(ASKED.load(Ordering::Relaxed) <= 1 + began.elapsed().as_secs());
        let before = ASKED.load(Ordering::Relaxed);
        *room.known.lock().expect("no panic") =
            Instant::now().checked_sub(KNOWN_FOR).map(|at| (at, 0));
        room.check(0, Kind::Usual).expect("there is room");
        assert_eq!(ASKED.load(Ordering::Relaxed), before + 1, "it may have changed");
    }

    #[test]
    fn last_lines_may_use_most_of_the_reserve_and_others_take_what_is_left() {
        let free = |room: &Room| match room.check(u64::MAX, Kind::Usual) {
            Err(NoRoom::Full { free, .. }) => free,
            other => panic!("{other:?}"),
        };
        let some = free(&Room::with_reserve("/".into(), 0));
        let room = Room::with_reserve("/".into(), some + some / 2);
        assert!(matches!(room.check(1, Kind::Usual), Err(NoRoom::Full { .. })));
        assert!(room.check(1, Kind::LastLines).is_ok());
        assert!(matches!(room.fits(7, Kind::Usual), Err(NoRoom::Full { .. })));
        assert_eq!(room.fits(7, Kind::LastLines).expect("there is room"), 7);
        assert_eq!(room.fits(0, Kind::Usual).expect("nothing needs no room"), 0);
        let all = Room::with_reserve("/".into(), 0);
        assert!(all.fits(u64::MAX, Kind::Usual).expect("a part fits") < u64::MAX);
    }
}
