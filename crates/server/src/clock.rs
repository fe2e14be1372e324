//! The only place in the server that reads the clock.
//!
//! The server's time never goes back and never stands still. When the machine's clock is set back, the server continues
//! from where it was, using the monotonic clock: tokens that were signed before remain valid for exactly as long as
//! intended. To make this hold across a restart, the time is written to disk before anything is signed ([`stamp`]), in
//! addition to the time of every commit ([`not_before`]). If the clock was years ahead by mistake, the server stays
//! years ahead; expiry times in responses are therefore converted to the machine's clock, which clients can see
//! ([`to_wall_clock`]).
//!
//! Leases do not depend on any of this, because they use [`Elapsed`]. Nor do certificates: clients check them with
//! their own clocks, and the server uses the machine's clock for them.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_core::time::{Elapsed, Now, Wall};
use muster_core::{ErrorChain, Wake};
use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

use crate::pki::files;

/// How far the recorded time may lag behind the signed one; less than the clock skew that tokens tolerate.
const RECORD_EVERY_S: u64 = 30;
/// The year 2100. A later time must be damaged.
const LATEST_S: u64 = 4_102_444_800;
/// Smaller corrections, such as those of a time service, are not reported.
const REPORTED_FROM: Duration = Duration::from_secs(60);

/// When the machine was started, in microseconds since 1970, according to the latest time that its clock ever showed.
static STARTED_US: AtomicU64 = AtomicU64::new(0);
/// In seconds since 1970.
static RECORDED_S: AtomicU64 = AtomicU64::new(0);
static RECORD: OnceLock<PathBuf> = OnceLock::new();

pub fn now() -> Now {
    Now { wall: Wall(unix_us()), elapsed: Elapsed(elapsed_us()) }
}

pub fn unix_us() -> u64 {
    // In this order, so that a thread that is delayed in between does not set the clock ahead.
    let (wall, elapsed) = (wall_us(), elapsed_us());
    let started = wall.saturating_sub(elapsed);
    STARTED_US.fetch_max(started, Ordering::Relaxed).max(started).saturating_add(elapsed)
}

pub fn unix_seconds() -> u64 {
    unix_us() / 1_000_000
}

/// Ensures that the server's time is later than this.
pub fn not_before(at: Wall) {
    STARTED_US.fetch_max(at.0.saturating_sub(elapsed_us()), Ordering::Relaxed);
}

/// Continues from the time that an earlier server recorded in this file, and records the time there from now on.
/// Returns by how much the machine's clock has been set back since, if it was.
pub fn record_in(path: &Path) -> Option<Duration> {
    let text = files::read(path, files::FILE_BYTES_MAX).ok().flatten();
    let recorded: Option<u64> = text.as_deref().and_then(parse);
    if text.is_some() && recorded.is_none() {
        warn!(file = %path.display(), "the file does not contain a time; writing it again");
    }
    let recorded_us = recorded.unwrap_or(0).saturating_mul(1_000_000);
    let behind = Duration::from_micros(recorded_us.saturating_sub(wall_us()));
    not_before(Wall(recorded_us));
    RECORDED_S.store(recorded.unwrap_or(0), Ordering::Relaxed);
    let _ = RECORD.set(path.to_owned());
    Some(behind).filter(|behind| *behind > REPORTED_FROM)
}

fn parse(text: &[u8]) -> Option<u64> {
    let seconds: u64 = std::str::from_utf8(text).ok()?.trim_end().parse().ok()?;
    (seconds < LATEST_S).then_some(seconds)
}

/// The time in seconds, for something that is about to be signed. It is recorded on disk.
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
        // This matters only if the clock is set back, and only after a restart.
        warn!(error = %ErrorChain(&failed), "cannot record the time");
    }
    now
}

/// Converts a time of the server to the machine's clock.
pub fn to_wall_clock(unix_s: u64) -> u64 {
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

    /// A single test, because the time is global to the process.
    #[test]
    fn time_goes_on_from_what_was_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock");
        assert_eq!(record_in(&path), None, "nothing is recorded before the first start");
        let first = stamp();
        let read = || parse(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(read(), first);
        assert_eq!(stamp() / 10, first / 10);
        assert_eq!(read(), first, "the time is not recorded at every call");

        // Acts as if the clock had been set back by two hours in the meantime.
        let later = first + 7_200;
        std::fs::write(&path, format!("{later}\n")).unwrap();
        let back = record_in(&path).expect("the difference is reported");
        assert!(back.as_secs() > 7_100, "{back:?}");
        assert!((later..later + 60).contains(&unix_seconds()));
        let told = to_wall_clock(later + 100);
        assert!((first + 95..first + 160).contains(&told), "{told} {first}");
        let before = unix_us();
        std::thread::sleep(Duration::from_millis(20));
        assert!(unix_us() >= before + 20_000, "the time does not stand still");

        not_before(Wall((later + 1_000) * 1_000_000));
        assert!(unix_seconds() >= later + 1_000);
        for damaged in ["soon", "18000000000", "18446744073709551615"] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(record_in(&path), None, "{damaged} is not a time");
        }
        assert!(unix_seconds() >= later + 1_000);
    }
}
