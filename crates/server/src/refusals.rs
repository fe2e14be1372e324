//! Decides which refusals go into the activity log: all of them, unless a caller floods it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How many refusals of one caller are recorded in a row. A person does not reach this, but a faulty program could fill
/// the disk with the same line.
const BURST: u32 = 600;
/// After that, this many per second.
const REFILL_PER_S: u32 = 1;
/// The longest message that is stored.
const MESSAGE_CHARS_MAX: usize = 1_000;

#[derive(Default)]
pub struct Refusals {
    /// By object id, so at most as many as there are users.
    callers: Mutex<BTreeMap<Box<str>, Allowance>>,
    /// How many were not recorded since the last one that was.
    missing: AtomicU64,
}

struct Allowance {
    left: u32,
    /// When it was last refilled, in seconds since 1970.
    at: u64,
    is_told: bool,
}

impl Refusals {
    /// Counts a request that could not be recorded. The first of a series is logged in the server's own log.
    pub fn missed(&self, why: &dyn std::fmt::Display) {
        if self.missing.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(%why, "requests cannot be written to the activity log for now and are only counted");
        }
    }

    /// Notes that requests can be recorded again.
    pub fn written(&self) {
        let missing = self.missing.swap(0, Ordering::Relaxed);
        if missing > 0 {
            tracing::warn!(
                missing,
                "some requests are missing from the activity log, because it could not be written for a while"
            );
        }
    }

    /// Whether this refusal should be recorded. The first of a series that should not is logged in the server's own
    /// log.
    pub fn admit(&self, object_id: &str, unix_s: u64) -> bool {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Allowance { left: BURST, at: unix_s, is_told: false };
        let caller = callers.entry(object_id.into()).or_insert_with(fresh);
        let passed = u32::try_from(unix_s.saturating_sub(caller.at)).unwrap_or(u32::MAX);
        caller.left = caller.left.saturating_add(passed.saturating_mul(REFILL_PER_S)).min(BURST);
        caller.at = caller.at.max(unix_s);
        if caller.left > 0 {
            caller.left -= 1;
            caller.is_told &= caller.left == 0;
            return true;
        }
        if !caller.is_told {
            caller.is_told = true;
            tracing::warn!(
                caller = object_id,
                "refused more than {BURST} times; only {REFILL_PER_S} refusal per second of this caller is written to \
                 the activity log for now"
            );
        }
        false
    }
}

/// Shortens a message to the length that is stored.
pub fn shorten(message: &str) -> Box<str> {
    message.chars().take(MESSAGE_CHARS_MAX).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_off_for_its_caller_and_for_a_while() {
        let refusals = Refusals::default();
        let noted = |at| (0..1_000).filter(|_| refusals.admit("mallory", at)).count();
        assert_eq!(noted(1_000), BURST as usize);
        assert!(refusals.admit("ada", 1_000), "other callers are not affected");
        assert_eq!(noted(1_007), 7);
        assert_eq!(noted(1_003), 0, "a clock that is set back refills nothing");
        assert_eq!(noted(9_000), BURST as usize);
    }
}
