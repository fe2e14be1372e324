//! Hosts that do not report for a while.

use crate::support::Stage;
use muster_core::model::{Capacity, HostName, NodePhase};
use muster_core::{HostRequest, Input};

/// Room for two nodes of the default size.
const CAPACITY: Capacity = Capacity { gpus: 0, vcpus: 8, memory_mb: 28_672 };

fn host() -> HostName {
    HostName::new("box").expect("a name")
}

fn say(stage: &mut Stage, request: HostRequest) {
    stage.say(Input::ChangeHosts(Box::new(request))).expect("a valid request");
}

fn is_silent(stage: &Stage) -> bool {
    stage.world.hosts().host(&host()).expect("it joined").is_silent
}

fn on_box(stage: &Stage) -> usize {
    stage.world.nodes().filter(|node| node.host == host()).count()
}

#[test]
fn a_silent_host_gets_nothing_new_until_it_reports() {
    let mut stage = Stage::with_cluster("pool", 0, 4, 600);
    stage.join_host("box", CAPACITY);
    stage.submit("runs", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("runs");
    say(&mut stage, HostRequest::Silent { name: host() });
    assert!(is_silent(&stage));
    stage.submit("next", "pool", 1).expect("accepted");
    assert_eq!(
        (stage.world.nodes().count(), on_box(&stage)),
        (2, 1),
        "the next is created elsewhere"
    );
    assert_eq!(stage.count(NodePhase::Leased), 1, "the job there continues");
    stage.provide();
    stage.run("next");
    say(&mut stage, HostRequest::Seen { name: host(), capacity: CAPACITY });
    assert!(!is_silent(&stage));
    stage.submit("last", "pool", 1).expect("accepted");
    assert_eq!(on_box(&stage), 2, "it is used again");
}

#[test]
fn the_servers_own_host_is_never_silent() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 600);
    let local = HostName::local();
    say(&mut stage, HostRequest::Seen { name: local.clone(), capacity: CAPACITY });
    say(&mut stage, HostRequest::Silent { name: local });
    stage.submit("runs", "pool", 1).expect("accepted");
    assert_eq!(stage.world.nodes().count(), 1);
}

#[test]
fn a_job_that_waits_for_a_silent_host_starts_when_it_reports() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 600);
    stage.world.settings.over_commit = false;
    stage.join_host("box", CAPACITY);
    say(&mut stage, HostRequest::Silent { name: host() });
    stage.submit("waits", "pool", 1).expect("accepted");
    assert_eq!(stage.world.nodes().count(), 0);
    say(&mut stage, HostRequest::Seen { name: host(), capacity: CAPACITY });
    assert_eq!(on_box(&stage), 1);
}
