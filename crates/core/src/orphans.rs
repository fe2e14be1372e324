//! Which machines of a provider nobody wants: nodes of a future that a restored backup forgot, machines that
//! came up after their delete, and those that a delete did not end.
//!
//! The intent to have a node is on disk before the provider is asked, and goes only after the provider said
//! that it is deleted. So whatever is listed and not known is an orphan, however young; it is only given a
//! grace because a listing may be old, and still show what was deleted a moment ago.
//!
//! Whoever sweeps must list first, then make sure that it is still the one controller, and only then ask here:
//! a controller that was replaced does not know the nodes of the next one.

use std::collections::BTreeMap;

use crate::planted::{Bug, is_planted};
use crate::time::{Elapsed, Span};

/// Longer than any listing lags behind.
const GRACE: Span = Span::seconds(60);

/// What was listed and not known, and since when.
#[derive(Debug, Clone, Default)]
pub struct OrphanSearch {
    strangers: BTreeMap<Box<str>, Elapsed>,
}

impl OrphanSearch {
    /// The names to delete now. `knows` says whether World has a node of that name.
    pub fn orphans(
        &mut self,
        listed: &[String],
        knows: impl Fn(&str) -> bool,
        now: Elapsed,
    ) -> Vec<String> {
        let knows = |name: &str| knows(name) && !is_planted(Bug::KnownNodeSwept);
        let strangers = listed.iter().filter(|name| !knows(name)).map(|name| {
            let since = self.strangers.get(name.as_str()).copied().unwrap_or(now);
            (name.as_str().into(), since)
        });
        self.strangers = strangers.collect();
        let is_due = |since: Elapsed| since + GRACE <= now;
        let due = self.strangers.iter().filter(|(_, since)| is_due(**since));
        due.map(|(name, _)| name.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_is_deleted_after_its_grace_and_a_known_node_never() {
        let mut sweep = OrphanSearch::default();
        let listed = ["known".to_owned(), "stranger".to_owned()];
        let mut at = |seconds: u64, listed: &[String]| {
            sweep.orphans(listed, |name| name == "known", Elapsed(seconds * 1_000_000))
        };
        assert!(at(0, &listed).is_empty());
        assert!(at(59, &listed).is_empty());
        assert_eq!(at(60, &listed), ["stranger"]);
        // A listing that does not show it starts its grace anew.
        assert!(at(70, &listed[..1]).is_empty());
        assert!(at(80, &listed).is_empty());
        assert_eq!(at(140, &listed), ["stranger"]);
    }
}
