//! The one place of the server that asks what time it is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_core::Wake;
use muster_core::time::{Elapsed, Now, Wall};
use rustix::time::{ClockId, clock_gettime};

pub fn now() -> Now {
    let elapsed = clock_gettime(ClockId::Boottime);
    let elapsed_us = elapsed.tv_sec as u64 * 1_000_000 + elapsed.tv_nsec as u64 / 1_000;
    Now { elapsed: Elapsed(elapsed_us), wall: Wall(unix_us()) }
}

pub fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

pub fn unix_seconds() -> u64 {
    unix_us() / 1_000_000
}

/// How long to sleep until `wake`, but never longer than `longest`.
pub fn until(wake: Wake, longest: Duration) -> Duration {
    let now = now();
    let wall = wake.wall.map(|at| Duration::from_micros((at - now.wall).0));
    let elapsed = wake.elapsed.map(|at| Duration::from_micros((at - now.elapsed).0));
    wall.into_iter().chain(elapsed).fold(longest, Duration::min)
}
