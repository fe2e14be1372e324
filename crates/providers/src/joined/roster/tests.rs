use muster_core::ids::{ClusterId, NodeId};
use muster_core::model::{Capacity, NodeState, Tier, Trouble};
use muster_core::time::Wall;

use super::super::protocol::{HostReport, VERSION};
use super::*;

fn box_() -> HostName {
    HostName::new("box").expect("a name")
}

fn node(name: &str, state: NodeState) -> Node {
    Node {
        id: NodeId(1),
        name: name.into(),
        cluster: ClusterId(7),
        host: box_(),
        vm_size: "Standard_DS1_v2".into(),
        capacity: Capacity { gpus: 0, vcpus: 1, memory_mb: 3584 },
        tier: Tier::Dedicated,
        price_micro_usd_per_hour: 0,
        requested_at: Wall(0),
        state,
        boot_id: "".into(),
        address: "".into(),
        evict_at: None,
        meter: None,
    }
}

fn report(following: Option<Stamp>, sequence: u64, nodes: &[(&str, bool)]) -> SyncRequest {
    let held = |(name, is_alive): &(&str, bool)| HeldNode {
        name: (*name).to_owned(),
        is_alive: *is_alive,
        has_ended: false,
        trouble: None,
    };
    let capacity = Capacity { gpus: 0, vcpus: 4, memory_mb: 8192 };
    let nodes = nodes.iter().map(held).collect();
    let report = HostReport {
        following,
        capacity,
        not_enforced: Vec::new(),
        nodes,
        environments: Vec::new(),
    };
    SyncRequest { version: VERSION, generation: 1, sequence, wait_ms: 0, report }
}

const SILENCE_MAX: Duration = Duration::from_secs(40);

/// Creates a roster with one host and its wanted node `pool-1`.
fn roster() -> Roster {
    let roster = Roster::new(5, SILENCE_MAX);
    roster.reset([node("pool-1", NodeState::Requested)].iter());
    roster
}

fn names(roster: &Roster) -> Vec<String> {
    roster.wanted(&box_()).1.iter().map(|request| request.name.to_string()).collect()
}

#[test]
fn a_list_has_what_is_wanted_and_a_new_number_whenever_it_changes() {
    let roster = roster();
    let news = roster.news_of(&box_());
    let (first, _) = roster.wanted(&box_());
    roster.update(&node("pool-1", NodeState::Booting));
    assert_eq!((names(&roster), roster.wanted(&box_()).0), (vec!["pool-1".to_owned()], first));
    assert!(!news.has_changed().expect("the sender exists"));
    roster.update(&node("pool-2", NodeState::Requested));
    assert!(news.has_changed().expect("the sender exists"));
    assert_eq!(roster.wanted(&box_()).0, Stamp { run: 5, count: first.count + 1 });
    roster.update(&node("pool-1", NodeState::Unusable { why: Trouble::LeaseExpired }));
    assert_eq!(names(&roster), ["pool-2"]);
    assert_eq!(roster.home_of("pool-1"), Some(box_()), "it has still to be deleted there");
    assert_eq!(roster.held(), ["pool-1", "pool-2"], "no report says otherwise");
    roster.update(&node("pool-1", NodeState::Gone));
    assert_eq!(roster.home_of("pool-1"), None);
}

#[test]
fn a_node_is_made_when_its_host_says_that_it_lives() {
    let roster = roster();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| roster.wait_made(&box_(), "pool-1"));
        roster.hear(&box_(), &report(None, 1, &[("pool-1", false)]), Instant::now());
        assert!(!waits.is_finished());
        roster.hear(&box_(), &report(None, 2, &[("pool-1", true)]), Instant::now());
        assert!(waits.join().expect("no panic").is_ok());
    });
    let mut failed = report(None, 3, &[("pool-1", false)]);
    failed.report.nodes[0].trouble = Some("no room".into());
    roster.hear(&box_(), &failed, Instant::now());
    let refused = roster.wait_made(&box_(), "pool-1").expect_err("the host reports it").to_string();
    assert_eq!(refused, "host box has trouble with node pool-1: no room");
    roster.update(&node("pool-1", NodeState::Leaving));
    assert!(roster.wait_made(&box_(), "pool-1").is_ok(), "an unwanted node is not waited for");
}

#[test]
fn what_a_host_does_not_enforce_is_what_it_reported_last() {
    let roster = roster();
    assert_eq!(roster.not_enforced(&box_()), [""; 0], "it has not reported yet");
    let mut weak = report(None, 1, &[]);
    weak.report.not_enforced = vec!["memory (no cgroups)".into()];
    roster.hear(&box_(), &weak, Instant::now());
    assert_eq!(roster.not_enforced(&box_()), ["memory (no cgroups)"]);
    roster.hear(&box_(), &report(None, 2, &[]), Instant::now());
    assert_eq!(roster.not_enforced(&box_()), [""; 0]);
}

#[test]
fn a_node_that_was_made_and_has_ended_is_reported_by_its_own_host_only() {
    let roster = roster();
    let mut ended = report(None, 1, &[("pool-1", false), ("pool-9", false)]);
    ended.report.nodes.iter_mut().for_each(|node| node.has_ended = true);
    let other = HostName::new("other").expect("a name");
    roster.hear(&other, &ended, Instant::now());
    assert_eq!(roster.ended(), [""; 0], "it is not on that host");
    roster.hear(&box_(), &ended, Instant::now());
    assert_eq!(roster.ended(), ["pool-1"], "the other node is unknown");
    assert!(roster.wait_made(&box_(), "pool-1").is_ok(), "it was created");
    roster.update(&node("pool-1", NodeState::Gone));
    assert_eq!(roster.ended(), [""; 0]);
}

#[test]
fn a_node_is_gone_only_when_its_host_knows_that_it_should_be() {
    let roster = roster();
    let (old, _) = roster.wanted(&box_());
    roster.update(&node("pool-1", NodeState::Leaving));
    let (new, _) = roster.wanted(&box_());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| roster.wait_gone(&box_(), "pool-1"));
        // According to the old list, the node may be about to be created.
        roster.hear(&box_(), &report(Some(old), 1, &[]), Instant::now());
        roster.hear(&box_(), &report(Some(Stamp { run: 4, count: 99 }), 2, &[]), Instant::now());
        roster.hear(&box_(), &report(Some(new), 3, &[("pool-1", false)]), Instant::now());
        // An older report that arrives late is ignored.
        roster.hear(&box_(), &report(Some(new), 1, &[]), Instant::now());
        assert!(!waits.is_finished());
        roster.hear(&box_(), &report(Some(new), 4, &[]), Instant::now());
        assert!(waits.join().expect("no panic").is_ok());
    });
}

#[test]
fn nothing_is_known_of_a_silent_host() {
    let roster = roster();
    let long_ago =
        Instant::now().checked_sub(SILENCE_MAX).expect("the host has been up for longer");
    roster.hear(&box_(), &report(None, 1, &[("pool-1", true), ("pool-0", true)]), long_ago);
    let refused = roster.wait_gone(&box_(), "pool-1").expect_err("it is silent");
    assert!(matches!(refused, HostError::Silent { .. }), "{refused}");
    assert_eq!(roster.held(), ["pool-1"], "it counts as existing");
    assert_eq!(roster.home_of("pool-0"), None, "only our own records count");
    assert!(roster.is_silent(&box_(), Instant::now()));
    roster.meet(&box_(), Instant::now());
    assert!(!roster.is_silent(&box_(), Instant::now()), "it joined again");
}
