//! Orphans: nodes that a provider runs and the store does not know. They may be newer than a restored backup, have
//! started after their delete, or have survived it.
//!
//! The intent to have a node is on disk before the provider is asked, and is removed only after the provider confirmed
//! that the node is deleted. So a node that is listed but not known is an orphan, however young it is. It gets a grace
//! period only because a listing may be outdated and still show a node that was deleted a moment ago.
//!
//! The caller must list the nodes first, then confirm that it is still the only server, and only then ask here: a
//! server that was replaced does not know the nodes of its successor.

use std::collections::BTreeMap;

use crate::planted::{Bug, is_planted};
use crate::time::{Elapsed, Span};

/// Longer than any listing can be outdated.
const GRACE: Span = Span::seconds(60);

/// The nodes that were listed but not known, and since when.
#[derive(Debug, Clone, Default)]
pub struct OrphanSearch {
    strangers: BTreeMap<Box<str>, Elapsed>,
}

impl OrphanSearch {
    /// The names to delete now. `knows` tells whether World has a node with that name.
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
    fn an_orphan_is_deleted_after_its_grace_and_a_known_node_never() {
        let mut sweep = OrphanSearch::default();
        let listed = ["known".to_owned(), "stranger".to_owned()];
        let mut at = |seconds: u64, listed: &[String]| {
            sweep.orphans(listed, |name| name == "known", Elapsed(seconds * 1_000_000))
        };
        assert!(at(0, &listed).is_empty());
        assert!(at(59, &listed).is_empty());
        assert_eq!(at(60, &listed), ["stranger"]);
        // A listing without the node starts its grace period over.
        assert!(at(70, &listed[..1]).is_empty());
        assert!(at(80, &listed).is_empty());
        assert_eq!(at(140, &listed), ["stranger"]);
    }
}
