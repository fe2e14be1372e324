//! What is to be made and removed: the difference between what is wanted and what is there.

use muster_providers::joined::protocol::WantedNode;
use muster_sandbox::protocol::Seen;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Deed {
    Make(WantedNode),
    Remove(String),
}

/// `rests` says of which nodes nothing may be done now: something is being done, or went wrong a moment ago.
pub(crate) fn deeds(
    wanted: &[WantedNode],
    seen: &[Seen],
    rests: impl Fn(&str) -> bool,
) -> Vec<Deed> {
    let lives = |name: &str| seen.iter().any(|seen| seen.node == name && seen.is_alive);
    let is_wanted = |name: &str| wanted.iter().any(|node| node.name == name);
    let removals = seen.iter().filter(|seen| !is_wanted(&seen.node) && !rests(&seen.node));
    let removals = removals.map(|seen| Deed::Remove(seen.node.clone()));
    // One that ended by itself, or with the machine, is made once more: that it is another is seen at its first word.
    let missing = wanted.iter().filter(|node| !lives(&node.name) && !rests(&node.name));
    // What goes makes room for what comes.
    removals.chain(missing.cloned().map(Deed::Make)).collect()
}

#[cfg(test)]
mod tests {
    use muster_core::ids::ClusterId;
    use muster_core::model::Capacity;

    use super::*;

    fn wanted(name: &str) -> WantedNode {
        WantedNode {
            name: name.into(),
            cluster: ClusterId(1),
            capacity: Capacity { gpus: 0, vcpus: 1, memory_mb: 1024 },
            secret: "s".into(),
        }
    }

    fn seen(name: &str, is_alive: bool) -> Seen {
        Seen { node: name.into(), place: None, is_alive }
    }

    #[test]
    fn what_is_wanted_is_made_and_what_is_not_is_removed() {
        let all = [wanted("new"), wanted("lives"), wanted("ended"), wanted("busy")];
        let there =
            [seen("lives", true), seen("ended", false), seen("old", true), seen("rest", false)];
        let deeds = deeds(&all, &there, |name| name == "busy");
        let make = |name: &str| Deed::Make(wanted(name));
        let remove = |name: &str| Deed::Remove(name.into());
        assert_eq!(deeds, [remove("old"), remove("rest"), make("new"), make("ended")]);
    }

    #[test]
    fn there_is_nothing_to_do_where_all_is_as_wanted() {
        assert_eq!(deeds(&[wanted("a")], &[seen("a", true)], |_| false), []);
        assert_eq!(deeds(&[], &[seen("a", true)], |_| true), []);
    }
}
