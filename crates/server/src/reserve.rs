//! Disk space that only the store can use: a file occupies it until the store needs it.
//!
//! A full disk is often caused by something else. With the reserve, running jobs can still end, and users can still
//! cancel and delete jobs that fill the disk. Nothing else is written while the store uses the reserve ([`OnReserve`]).
//! When the reserve is used up as well, all changes are refused until there is space again.

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

/// The file occupies this fraction of the space that nodes and files leave to the store.
const PART: u64 = 4;
/// The write-ahead log of each of the two stores may take this fraction of it.
const LOG_PART: u64 = 4;
/// With less than this, the next commit may fail, and so may a start.
pub const FREE_BYTES_MIN: u64 = 1 << 20;
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often a start that waits for space checks for it, and how often it logs that.
const TRY_EVERY: Duration = Duration::from_secs(1);
const LOG_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct ReserveFile {
    state_dir: StateDir,
    path: PathBuf,
    used: OnReserve,
}

/// Whether the stores are using the reserve. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct OnReserve(Arc<Seen>);

/// The state of the disk at the last check.
#[derive(Debug, Default)]
struct Seen {
    is_used: AtomicBool,
    free_bytes: AtomicU64,
    /// With this much free space, the reserve is no longer needed.
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

    /// How much space a full disk lacks.
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
                    "the disk is full: until there is space again, only cancels, deletes and reports of nodes are accepted, and no \
                     job is started"
                ),
                false => {
                    tracing::info!("there is space on the disk again: all changes are accepted")
                }
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

    /// Returns when there is enough space for a start. Frees what can be freed, and logs how much is still missing.
    pub async fn wait_for_space(&self) {
        let mut logged_at: Option<Instant> = None;
        loop {
            let own = self.clone();
            let look = move || {
                own.give_up_if_needed();
                own.lacks_space().then(|| own.lack_of_space_message())
            };
            let Ok(Some(words)) = tokio::task::spawn_blocking(look).await else { return };
            if logged_at.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
                tracing::warn!("{words}; the server will start as soon as there is enough space");
                logged_at = Some(Instant::now());
            }
            tokio::time::sleep(TRY_EVERY).await;
        }
    }

    /// How long the write-ahead log of one store may become: both logs together take at most half of the reserve, and
    /// the other half is left for the databases to grow. On a large disk the stores use less by themselves.
    pub fn log_bytes_max(&self) -> u64 {
        let of_disk = |disk: DiskSpace| disk::reserve(disk.bytes) / PART / LOG_PART;
        self.disk().map_or(u64::MAX, of_disk)
    }

    /// Whether a start would fail for lack of space. Allocating it for a moment also detects space that is reserved for
    /// root, quotas, and a lack of inodes. Other errors are left to the start itself, which reports them better.
    pub fn lacks_space(&self) -> bool {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let taken = open(self.state_dir.root(), flags, Mode::RUSR | Mode::WUSR)
            .and_then(|file| fallocate(&file, FallocateFlags::empty(), 0, FREE_BYTES_MIN));
        matches!(taken, Err(Errno::NOSPC | Errno::DQUOT))
    }

    fn lack_of_space_message(&self) -> String {
        let (folder, free) = (self.state_dir.root().display(), self.free_bytes().unwrap_or(0));
        let (free_kib, needed_kib) = (free >> 10, FREE_BYTES_MIN >> 10);
        match needed_kib.saturating_sub(free_kib) {
            0 => format!(
                "the disk is full for this user: a start needs {needed_kib} KiB in {folder}, which cannot be allocated although \
                 {free_kib} KiB are free; free at least {needed_kib} KiB of this user's quota, or some files"
            ),
            missing_kib => format!(
                "the disk is full: {free_kib} KiB are free for {folder}, but a start needs {needed_kib} KiB; free at least \
                 {missing_kib} KiB on that disk"
            ),
        }
    }

    /// Releases the reserve if there is no other space. Call this before the store is opened.
    pub fn use_if_needed(&self) {
        self.give_up_if_needed();
        self.note_use();
    }

    /// If less space is free than the reserve has, the free space is what the reserve released. That remains so until
    /// there is plenty of space.
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

    /// A server that is killed while it creates the file leaves an empty one.
    fn is_held(&self) -> bool {
        self.path.metadata().is_ok_and(|found| found.len() > 0)
    }

    fn give_up_if_needed(&self) {
        if self.free_bytes().is_some_and(|free| free >= FREE_BYTES_MIN) {
            return;
        }
        match std::fs::remove_file(&self.path) {
            Ok(()) => tracing::warn!("the disk is full; the store is now using its reserve"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, "the disk is full, and the reserve could not be released")
            }
        }
        // The disks of ended nodes are always removed; here it happens before there is a helper.
        if self.free_bytes().is_some_and(|free| free < FREE_BYTES_MIN) {
            self.remove_dead_disks();
        }
    }

    /// Allocates the reserve again as soon as possible, until dropped.
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
                tracing::debug!(%error, "the reserve cannot be allocated now");
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
        // Only if there is plenty of space: the reserve must not be what fills the disk.
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
                tracing::warn!(%error, node = %node.display(), "cannot remove the disk of an ended node");
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
    fn it_is_allocated_from_plenty_and_kept_while_there_is_space() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = ReserveFile::of(&StateDir::new(dir.path()));
        let disk = reserve.disk().unwrap();
        let wanted = disk::reserve(disk.bytes) / PART;
        if disk.free_bytes < wanted * PART * 2 {
            return muster_testing::skip_or_fail(
                "there is not enough space for a reserve on this disk",
            );
        }
        reserve.take().unwrap();
        assert_eq!(std::fs::metadata(&reserve.path).unwrap().len(), wanted);
        reserve.use_if_needed();
        assert!(reserve.path.exists(), "the reserve is not needed");
    }
}
