//! Space on the disk that only the store can use: a file holds it until the store needs it.
//!
//! A full disk is often somebody else's doing. With the reserve, jobs that run can still end, and people can still cancel
//! and delete what fills the disk. Nothing else is written as long as the store lives on it ([`OnReserve`]). When it is used
//! up as well, all changes are refused until there is space again.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use muster_core::read_only::StoreTrouble;
use muster_sandbox::disk_space::DiskSpace;
use muster_sandbox::identity::Identity;
use muster_sandbox::node::disk;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open};
use rustix::io::Errno;

use crate::state_dir::StateDir;

/// Of what nodes and files leave to the store, this part is kept by the file.
const PART: u64 = 4;
/// The log of each of the two stores may take this part of it.
const LOG_PART: u64 = 4;
/// With less than this the next commit may fail, and a start as well.
pub const FREE_BYTES_MIN: u64 = 1 << 20;
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often a start that waits for space looks for it, and how often it says so.
const TRY_EVERY: Duration = Duration::from_secs(1);
const TELL_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct ReserveFile {
    state_dir: StateDir,
    path: PathBuf,
    used: OnReserve,
}

/// Whether the stores live on the reserve now. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct OnReserve(Arc<Seen>);

/// As of the last look at the disk.
#[derive(Debug, Default)]
struct Seen {
    is_used: AtomicBool,
    free_bytes: AtomicU64,
    /// From here on the reserve is not needed any more.
    plenty_bytes: AtomicU64,
}

impl OnReserve {
    pub fn get(&self) -> bool {
        self.0.is_used.load(Ordering::Relaxed)
    }

    /// Why nothing new is started, if the reserve is the reason.
    pub fn trouble(&self) -> Option<StoreTrouble> {
        self.get().then(|| self.short_of_space())
    }

    /// How short a full disk is.
    pub fn short_of_space(&self) -> StoreTrouble {
        StoreTrouble::ShortOfSpace {
            free_bytes: self.0.free_bytes.load(Ordering::Relaxed),
            needed_bytes: self.0.plenty_bytes.load(Ordering::Relaxed),
        }
    }

    fn note(&self, free_bytes: u64, plenty_bytes: u64) {
        self.0.free_bytes.store(free_bytes, Ordering::Relaxed);
        self.0.plenty_bytes.store(plenty_bytes, Ordering::Relaxed);
    }

    pub fn set(&self, is_so: bool) {
        if self.0.is_used.swap(is_so, Ordering::Relaxed) != is_so {
            match is_so {
                true => tracing::warn!(
                    "the disk is full: until there is space again, only cancels, deletes and reports of nodes are taken, and no \
                     job is started"
                ),
                false => tracing::info!("there is space on the disk again: every change is taken"),
            }
        }
    }
}

impl ReserveFile {
    pub fn of(state_dir: &StateDir) -> ReserveFile {
        ReserveFile {
            state_dir: state_dir.clone(),
            path: state_dir.root().join("reserve"),
            used: OnReserve::default(),
        }
    }

    pub fn used(&self) -> OnReserve {
        self.used.clone()
    }

    /// Returns when there is enough space for a start. Frees what can be freed, and says how much is still missing.
    pub async fn wait_for_space(&self) {
        let mut told: Option<Instant> = None;
        loop {
            let own = self.clone();
            let look = move || {
                own.give_up_if_needed();
                own.lacks_space().then(|| own.words_of_lack())
            };
            let Ok(Some(words)) = tokio::task::spawn_blocking(look).await else { return };
            if told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
                tracing::warn!("{words}; the server starts as soon as there is enough");
                told = Some(Instant::now());
            }
            tokio::time::sleep(TRY_EVERY).await;
        }
    }

    /// How long the log of one store may become: both logs together take at most half of what the reserve has, and the other
    /// half is left for the databases to grow. On a large disk the stores keep to less by themselves.
    pub fn log_bytes_max(&self) -> u64 {
        let of_disk = |disk: DiskSpace| disk::reserve(disk.bytes) / PART / LOG_PART;
        self.disk().map_or(u64::MAX, of_disk)
    }

    /// Whether a start would fail for want of space. Taking it for a moment also shows what root may use, quotas, and files
    /// that cannot be made. Any other fault is left to the start itself, which knows what to say.
    pub fn lacks_space(&self) -> bool {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let taken = open(self.state_dir.root(), flags, Mode::RUSR | Mode::WUSR)
            .and_then(|file| fallocate(&file, FallocateFlags::empty(), 0, FREE_BYTES_MIN));
        matches!(taken, Err(Errno::NOSPC | Errno::DQUOT))
    }

    fn words_of_lack(&self) -> String {
        let (folder, free) = (self.state_dir.root().display(), self.free_bytes().unwrap_or(0));
        let (free_kib, needed_kib) = (free >> 10, FREE_BYTES_MIN >> 10);
        match needed_kib.saturating_sub(free_kib) {
            0 => format!(
                "the disk is full for this user: a start needs {needed_kib} KiB in {folder}, which cannot be taken although \
                 {free_kib} KiB are free; free at least {needed_kib} KiB of this user's quota, or some files"
            ),
            missing_kib => format!(
                "the disk is full: {free_kib} KiB are free for {folder}, and a start needs {needed_kib} KiB; free at least \
                 {missing_kib} KiB on that disk"
            ),
        }
    }

    /// Gives the space back if there is no other. Call it before the store is opened.
    pub fn use_if_needed(&self) {
        self.give_up_if_needed();
        self.note_use();
    }

    /// With less free space than the reserve has, what is free is what it gave up. That stays so until there is plenty.
    fn note_use(&self) {
        let Ok(disk) = self.disk() else { return };
        let bytes = disk::reserve(disk.bytes) / PART;
        let plenty = bytes.saturating_mul(PART);
        self.used.note(disk.free_bytes, plenty);
        if self.is_held() || disk.free_bytes >= plenty {
            self.used.set(false);
        } else if disk.free_bytes < bytes.saturating_add(FREE_BYTES_MIN) {
            self.used.set(true);
        }
    }

    /// An empty file is left when the server is killed while it makes it.
    fn is_held(&self) -> bool {
        self.path.metadata().is_ok_and(|found| found.len() > 0)
    }

    fn give_up_if_needed(&self) {
        if self.free_bytes().is_some_and(|free| free >= FREE_BYTES_MIN) {
            return;
        }
        match std::fs::remove_file(&self.path) {
            Ok(()) => tracing::warn!("the disk is full; the store uses its reserve now"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, "the disk is full, and the reserve stays taken"),
        }
        // What was left by nodes that have ended goes anyway; here it goes before there is a helper.
        if self.free_bytes().is_some_and(|free| free < FREE_BYTES_MIN) {
            self.remove_dead_disks();
        }
    }

    /// Takes the space again as soon as it can be had, until dropped.
    pub async fn keep(self) {
        loop {
            let own = self.clone();
            let look = move || {
                own.use_if_needed();
                let taken = own.take();
                own.note_use();
                taken
            };
            let taken = tokio::task::spawn_blocking(look).await;
            if let Ok(Err(error)) = taken {
                tracing::debug!(%error, "no reserve can be taken now");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn take(&self) -> io::Result<()> {
        if self.is_held() {
            return Ok(());
        }
        let disk = self.disk()?;
        let bytes = disk::reserve(disk.bytes) / PART;
        // Only from plenty: it must not be what fills the disk.
        if bytes == 0 || disk.free_bytes < bytes.saturating_mul(PART) {
            return Ok(());
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)?;
        let taken = fallocate(&file, FallocateFlags::empty(), 0, bytes);
        if taken.is_err() {
            let _ = std::fs::remove_file(&self.path);
        }
        Ok(taken?)
    }

    fn remove_dead_disks(&self) {
        let nodes = std::fs::read_dir(self.state_dir.sandboxes()).into_iter().flatten().flatten();
        for node in nodes.map(|entry| entry.path()) {
            let init = Identity::read(&node.join("init")).ok().flatten();
            if init.is_some_and(|init| init.has_surely_ended())
                && let Err(error) = disk::remove(&node)
            {
                tracing::warn!(%error, node = %node.display(), "a dead node's disk stays");
            }
        }
    }

    fn disk(&self) -> io::Result<DiskSpace> {
        DiskSpace::of(self.state_dir.root())
    }

    fn free_bytes(&self) -> Option<u64> {
        self.disk().ok().map(|disk| disk.free_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_taken_from_plenty_and_stays_while_there_is_space() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = ReserveFile::of(&StateDir::new(dir.path()));
        let disk = reserve.disk().unwrap();
        let wanted = disk::reserve(disk.bytes) / PART;
        if disk.free_bytes < wanted * PART * 2 {
            return muster_testing::skip_or_fail("there is not enough space for a reserve here");
        }
        reserve.take().unwrap();
        assert_eq!(std::fs::metadata(&reserve.path).unwrap().len(), wanted);
        reserve.use_if_needed();
        assert!(reserve.path.exists(), "nobody needs it");
    }
}
