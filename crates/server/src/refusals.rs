//! Which refusals go into the activity log: every one, as long as nobody floods it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Of one caller at a time. A person does not get near it; a program that goes wrong would fill the disk with
/// the same line.
const BURST: u32 = 600;
/// After that, one in a second.
const REFILL_PER_S: u32 = 1;
/// The longest message that is kept.
const MESSAGE_CHARS_MAX: usize = 1_000;

#[derive(Default)]
pub struct Refusals {
    /// By object id: as many as there are users, at most.
    callers: Mutex<BTreeMap<Box<str>, Allowance>>,
    /// Since the last that was written down.
    missing: AtomicU64,
}

struct Allowance {
    left: u32,
    /// When it was last filled up, in seconds since 1970.
    at: u64,
    is_told: bool,
}

impl Refusals {
    /// One could not be written down. The first of many gets a line in the server's own log.
    pub fn missed(&self, why: &dyn std::fmt::Display) {
        if self.missing.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(%why, "refusals are counted and not written to the activity log for now");
        }
    }

    /// One was written down again.
    pub fn written(&self) {
        let missing = self.missing.swap(0, Ordering::Relaxed);
        if missing > 0 {
            tracing::warn!(
                missing,
                "refusals are missing in the activity log, which could not be written for a while"
            );
        }
    }

    /// Whether this one is to be noted. The first of many that is not gets a line in the server's own log.
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
                "refused more than {BURST} times; only {REFILL_PER_S} refusal a second of this caller is in \
                 the activity log for now"
            );
        }
        false
    }
}

/// A message as it is kept.
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
        assert!(refusals.admit("ada", 1_000), "others are not held back");
        assert_eq!(noted(1_007), 7);
        assert_eq!(noted(1_003), 0, "a clock that goes back fills up nothing");
        assert_eq!(noted(9_000), BURST as usize);
    }
}
