//! The clock for leases. It advances while the host sleeps, and cannot be set.

use muster_core::time::Elapsed;
use rustix::time::{ClockId, clock_gettime};

pub(crate) fn now() -> Elapsed {
    let time = clock_gettime(ClockId::Boottime);
    // Time since boot is never negative.
    let micros = time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000;
    Elapsed(micros)
}
