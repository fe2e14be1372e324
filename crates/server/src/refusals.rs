//! Which refusals go into the activity log: every one, as long as nobody floods it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Of one caller within one minute. A person does not get near it; a program that goes wrong would fill the
/// disk with the same line.
const NOTED_PER_MINUTE: u32 = 60;
/// The longest message that is kept.
const MESSAGE_CHARS_MAX: usize = 1_000;

#[derive(Default)]
pub struct Refusals {
    /// By object id: the minute, and how many there were in it. As many as there are users, at most.
    counts: Mutex<BTreeMap<Box<str>, (u64, u32)>>,
}

impl Refusals {
    /// Whether this one is to be noted. The first that is not gets a line in the server's own log.
    pub fn admit(&self, object_id: &str, unix_s: u64) -> bool {
        let minute = unix_s / 60;
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = counts.entry(object_id.into()).or_insert((minute, 0));
        if *since != minute {
            (*since, *count) = (minute, 0);
        }
        *count = count.saturating_add(1);
        if *count == NOTED_PER_MINUTE + 1 {
            tracing::warn!(
                caller = object_id,
                "more than {NOTED_PER_MINUTE} refusals within a minute; the rest of them is not in the \
                 activity log"
            );
        }
        *count <= NOTED_PER_MINUTE
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
    fn a_flood_is_cut_off_for_its_caller_and_its_minute_only() {
        let refusals = Refusals::default();
        let noted = (0..1_000).filter(|_| refusals.admit("mallory", 600)).count();
        assert_eq!(noted, NOTED_PER_MINUTE as usize);
        assert!(refusals.admit("ada", 600));
        assert!(refusals.admit("mallory", 660));
    }
}
