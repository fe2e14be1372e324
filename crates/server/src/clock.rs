//! The one place of the server that asks what time it is.
//!
//! Its time never goes back, and never stands still. When the machine's clock is set back, the server goes on counting from
//! where it was, by the clock that counts since the machine was started: what was signed before is still good, and
//! ends as many seconds later as it was made for, no earlier and no later. So that this holds beyond a restart, the time is
//! on disk before anything is signed ([`stamp`]), beside that of every commit ([`not_before`]). A clock that
//! was years ahead by mistake leaves the server years ahead; whoever is told when something ends is told so by the
//! clock that they can see ([`on_the_wall`]).
//!
//! Leases do not depend on any of this: they run on [`Elapsed`]. Nor do certificates: clients check them by their own
//! clock, and so do we.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_core::time::{Elapsed, Now, Wall};
use muster_core::{ErrorChain, Wake};
use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

use crate::pki::files;

/// How far what is on disk may be behind what is signed: less than what tokens leave to differing clocks.
const RECORD_EVERY_S: u64 = 30;
/// The year 2100: whatever says that it is later is damaged.
const LATEST_S: u64 = 4_102_444_800;
/// What a clock is set back by while it is kept right.
const TOLD_FROM: Duration = Duration::from_secs(60);

/// When the machine was started, in microseconds since 1970, by the latest that its clock was ever seen to say.
static STARTED_US: AtomicU64 = AtomicU64::new(0);
/// In seconds since 1970.
static RECORDED_S: AtomicU64 = AtomicU64::new(0);
static RECORD: OnceLock<PathBuf> = OnceLock::new();

pub fn now() -> Now {
    Now { wall: Wall(unix_us()), elapsed: Elapsed(elapsed_us()) }
}

pub fn unix_us() -> u64 {
    // In this order: a thread that is held up in between does not set the clock ahead.
    let (wall, elapsed) = (wall_us(), elapsed_us());
    let started = wall.saturating_sub(elapsed);
    STARTED_US.fetch_max(started, Ordering::Relaxed).max(started).saturating_add(elapsed)
}

pub fn unix_seconds() -> u64 {
    unix_us() / 1_000_000
}

/// From now on it is later than that.
pub fn not_before(at: Wall) {
    STARTED_US.fetch_max(at.0.saturating_sub(elapsed_us()), Ordering::Relaxed);
}

/// Goes on from what an earlier server has recorded in this file, and records there. Says by how much the machine's clock was
/// set back since, if it was.
pub fn record_in(path: &Path) -> Option<Duration> {
    let text = files::read(path, files::FILE_BYTES_MAX).ok().flatten();
    let recorded: Option<u64> = text.as_deref().and_then(parse);
    if text.is_some() && recorded.is_none() {
        warn!(file = %path.display(), "it does not hold a time; it is written anew");
    }
    let recorded_us = recorded.unwrap_or(0).saturating_mul(1_000_000);
    let behind = Duration::from_micros(recorded_us.saturating_sub(wall_us()));
    not_before(Wall(recorded_us));
    RECORDED_S.store(recorded.unwrap_or(0), Ordering::Relaxed);
    let _ = RECORD.set(path.to_owned());
    Some(behind).filter(|behind| *behind > TOLD_FROM)
}

fn parse(text: &[u8]) -> Option<u64> {
    let seconds: u64 = std::str::from_utf8(text).ok()?.trim_end().parse().ok()?;
    (seconds < LATEST_S).then_some(seconds)
}

/// The time in seconds, for what is about to be signed. It is on disk.
pub fn stamp() -> u64 {
    let now = unix_seconds();
    let last = RECORDED_S.load(Ordering::Relaxed);
    let is_due = now >= last.saturating_add(RECORD_EVERY_S);
    let is_ours =
        || RECORDED_S.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if let Some(path) = RECORD.get()
        && is_due
        && is_ours()
        && let Err(failed) = files::write(path, format!("{now}\n").as_bytes(), files::PRIVATE)
    {
        // Only a clock that is set back makes a difference, and only after a restart.
        warn!(error = %ErrorChain(&failed), "the time could not be recorded");
    }
    now
}

/// A time of ours, as the machine's clock will say it.
pub fn on_the_wall(unix_s: u64) -> u64 {
    let ahead_us = unix_us().saturating_sub(wall_us());
    unix_s.saturating_sub(ahead_us / 1_000_000)
}

fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn elapsed_us() -> u64 {
    let elapsed = clock_gettime(ClockId::Boottime);
    elapsed.tv_sec as u64 * 1_000_000 + elapsed.tv_nsec as u64 / 1_000
}

/// How long to sleep until `wake`, but never longer than `longest`.
pub fn until(wake: Wake, longest: Duration) -> Duration {
    let now = now();
    let wall = wake.wall.map(|at| Duration::from_micros((at - now.wall).0));
    let elapsed = wake.elapsed.map(|at| Duration::from_micros((at - now.elapsed).0));
    wall.into_iter().chain(elapsed).fold(longest, Duration::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, as the time is the process's.
    #[test]
    fn time_goes_on_from_what_was_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock");
        assert_eq!(record_in(&path), None, "a first start");
        let first = stamp();
        let read = || parse(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(read(), first);
        assert_eq!(stamp() / 10, first / 10);
        assert_eq!(read(), first, "not every time");

        // As if the clock had been set back by two hours since.
        let later = first + 7_200;
        std::fs::write(&path, format!("{later}\n")).unwrap();
        let back = record_in(&path).expect("it is told");
        assert!(back.as_secs() > 7_100, "{back:?}");
        assert!((later..later + 60).contains(&unix_seconds()));
        let told = on_the_wall(later + 100);
        assert!((first + 95..first + 160).contains(&told), "{told} {first}");
        let before = unix_us();
        std::thread::sleep(Duration::from_millis(20));
        assert!(unix_us() >= before + 20_000, "it does not stand still");

        not_before(Wall((later + 1_000) * 1_000_000));
        assert!(unix_seconds() >= later + 1_000);
        for damaged in ["soon", "18000000000", "18446744073709551615"] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(record_in(&path), None, "{damaged} is no time");
        }
        assert!(unix_seconds() >= later + 1_000);
    }
}
