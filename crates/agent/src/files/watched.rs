//! Decides when a folder of a running job is worth sending: when it has changed and then stopped changing, or after a
//! few checks if it never does.

use std::time::{Duration, Instant};

use muster_trees::Found;

use super::is_in;

/// How often a folder is checked, and the largest part of the time that sending it may take.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
const SEND_PART: u32 = 4;
/// A folder that keeps changing is taken as it is after this many checks.
const RESTLESS_MAX: u32 = 3;
/// The bytes that may be sent for each second of rest, for folders that others only read. Files that grow without end
/// are sent again and again.
const LOOK_BYTES_PER_SECOND: u64 = 8 << 20;

pub(super) struct Watched {
    pub(super) path: Box<str>,
    /// Whether this is the checkpoint folder.
    is_checkpoint: bool,
    kept: Vec<Found>,
    before: Vec<Found>,
    restless: u32,
    rests_until: Instant,
}

/// How a folder that is due is to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taking {
    /// Everything as of one moment, or nothing.
    Whole,
    /// Each file as far as it goes.
    AsItIs,
}

impl Watched {
    /// Returns the folders that others can read, and the checkpoint, which is saved whole even if it is inside one of
    /// them.
    pub(super) fn all(shown: &[&str], checkpoint: Option<&str>, now: Instant) -> Vec<Watched> {
        let holds = |top: &str| checkpoint.is_some_and(|path| is_in(path, top));
        let tops = shown.iter().map(|top| (*top, holds(top)));
        let own = checkpoint.filter(|path| !shown.iter().any(|top| is_in(path, top)));
        tops.chain(own.map(|path| (path, true)))
            .map(|(path, is_checkpoint)| Watched {
                path: path.into(),
                is_checkpoint,
                kept: Vec::new(),
                before: Vec::new(),
                restless: 0,
                rests_until: now,
            })
            .collect()
    }

    pub(super) fn rests(&self, now: Instant) -> bool {
        now < self.rests_until
    }

    /// Records what is there now. Returns `Some` if the folder is due.
    pub(super) fn see(&mut self, found: Vec<Found>) -> Option<Taking> {
        if found == self.kept {
            self.restless = 0;
            return None;
        }
        let is_settled = found == self.before;
        if !is_settled && self.restless < RESTLESS_MAX {
            (self.before, self.restless) = (found, self.restless + 1);
            return None;
        }
        self.restless = 0;
        Some(if is_settled || self.is_checkpoint { Taking::Whole } else { Taking::AsItIs })
    }

    pub(super) fn is_kept(&mut self, found: Vec<Found>) {
        self.kept = found;
    }

    /// To be called after the folder was sent, successfully or not.
    pub(super) fn rest(&mut self, now: Instant, took: Duration, bytes: u64) {
        let by_bytes = match self.is_checkpoint {
            true => Duration::ZERO,
            false => Duration::from_secs(bytes / LOOK_BYTES_PER_SECOND),
        };
        self.rests_until = now + (took * SEND_PART).max(by_bytes);
    }
}

#[cfg(test)]
mod tests {
    use muster_trees::Folder;

    use super::*;

    fn found(name: &str) -> Vec<Found> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(name), "").unwrap();
        Folder::open(dir.path()).unwrap().list(&[name]).unwrap().files
    }

    fn one(checkpoint: Option<&str>) -> Watched {
        Watched::all(&["outputs"], checkpoint, Instant::now()).remove(0)
    }

    #[test]
    fn what_has_changed_is_due_when_it_has_settled() {
        let (a, b) = (found("a"), found("b"));
        let mut watched = one(None);
        assert_eq!(watched.see(Vec::new()), None, "there is nothing yet");
        assert_eq!(watched.see(a.clone()), None);
        assert_eq!(watched.see(b.clone()), None);
        assert_eq!(watched.see(b.clone()), Some(Taking::Whole));
        watched.is_kept(b.clone());
        assert_eq!(watched.see(b.clone()), None);
        assert_eq!(watched.see(Vec::new()), None);
        assert_eq!(watched.see(Vec::new()), Some(Taking::Whole), "a deletion is a change too");
    }

    #[test]
    fn what_never_settles_is_taken_as_it_is_unless_it_is_a_checkpoint() {
        let looks = ["a", "b", "c", "d"].map(found);
        for (checkpoint, last) in [(None, Taking::AsItIs), (Some("outputs/state"), Taking::Whole)] {
            let mut watched = one(checkpoint);
            let seen: Vec<_> = looks.iter().map(|look| watched.see(look.clone())).collect();
            assert_eq!(seen, [None, None, None, Some(last)], "{checkpoint:?}");
        }
    }

    #[test]
    fn a_checkpoint_elsewhere_is_watched_by_itself() {
        let all = Watched::all(&["outputs", "logs"], Some("outputs-too"), Instant::now());
        let all: Vec<_> = all.iter().map(|one| (&*one.path, one.is_checkpoint)).collect();
        assert_eq!(all, [("outputs", false), ("logs", false), ("outputs-too", true)]);
    }

    #[test]
    fn rest_is_in_proportion() {
        let (mut watched, now) = (one(None), Instant::now());
        watched.rest(now, Duration::from_secs(1), 1 << 30);
        assert!(watched.rests(now + Duration::from_secs(127)));
        assert!(!watched.rests(now + Duration::from_secs(128)));
        watched.rest(now, Duration::from_secs(1), 0);
        assert!(watched.rests(now + Duration::from_millis(3_999)));
        assert!(!watched.rests(now + Duration::from_secs(4)));
    }
}
