//! What is to be created and removed: the difference between the wanted and the existing nodes.

use muster_providers::joined::protocol::WantedNode;
use muster_sandbox::protocol::Seen;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostAction {
    Make(WantedNode),
    Remove(String),
}

/// `rests` returns true for nodes that must be left alone now, because an action is in progress or has just failed.
pub(crate) fn actions(
    wanted: &[WantedNode],
    (seen, ended): (&[Seen], &[String]),
    rests: impl Fn(&str) -> bool,
) -> Vec<HostAction> {
    let lives = |name: &str| seen.iter().any(|seen| seen.node == name && seen.is_alive);
    let is_wanted = |name: &str| wanted.iter().any(|node| node.name == name);
    let removals = seen.iter().filter(|seen| !is_wanted(&seen.node) && !rests(&seen.node));
    let removals = removals.map(|seen| HostAction::Remove(seen.node.clone()));
    // A node that ended by itself, or with the host, is not created again: the server is notified, and wants another
    // one instead.
    let is_there = |name: &String| lives(name) || ended.contains(name);
    let missing = wanted.iter().filter(|node| !is_there(&node.name) && !rests(&node.name));
    // Removals come first, because they make room for new nodes.
    removals.chain(missing.cloned().map(HostAction::Make)).collect()
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
        Seen { node: name.into(), slot: None, is_alive }
    }

    #[test]
    fn what_is_wanted_is_made_and_what_is_not_is_removed() {
        let all = ["new", "lives", "half", "ended", "busy"].map(wanted);
        let there = [("lives", true), ("half", false), ("ended", false)];
        let there = there.into_iter().chain([("old", true), ("rest", false)]);
        let there: Vec<Seen> = there.map(|(name, is_alive)| seen(name, is_alive)).collect();
        let ended = ["ended", "rest"].map(str::to_owned);
        let actions = actions(&all, (&there, &ended), |name| name == "busy");
        let make = |name: &str| HostAction::Make(wanted(name));
        let remove = |name: &str| HostAction::Remove(name.into());
        assert_eq!(actions, [remove("old"), remove("rest"), make("new"), make("half")]);
    }

    #[test]
    fn there_is_nothing_to_do_where_all_is_as_wanted() {
        assert_eq!(actions(&[wanted("a")], (&[seen("a", true)], &[]), |_| false), []);
        assert_eq!(actions(&[], (&[seen("a", true)], &[]), |_| true), []);
    }
}
