//! While the store cannot be written to, nodes keep running their jobs, and nothing is accepted or decided.

use muster_core::agent::{AttemptPhase, AttemptReport, Report};
use muster_core::ids::Epoch;
use muster_core::model::{Exit, JobPhase, NodePhase};
use muster_core::read_only::StoreTrouble;
use muster_core::time::Span;
use muster_core::why::{self, Reason};
use muster_core::{Input, Reply, read_only};

use crate::support::Stage;

fn report(boot: &str, held: &[(Epoch, AttemptPhase)]) -> Report {
    let attempts =
        held.iter().map(|(epoch, phase)| AttemptReport::new(*epoch, phase.clone())).collect();
    let floor = held.iter().map(|(epoch, _)| *epoch).max().unwrap_or(Epoch(0));
    Report {
        boot_id: boot.into(),
        address: "10.0.0.4".into(),
        floor,
        attempts,
        waiting: Vec::new(),
    }
}

/// A cluster whose only node runs `job`.
fn running() -> (Stage, String, Epoch) {
    let mut stage = Stage::with_cluster("pool", 0, 2, 60);
    stage.submit("job", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("job");
    let (node, epoch) = stage.members("job")[0];
    let name = stage.world.node(node).expect("a member").name.to_string();
    (stage, name, epoch)
}

#[test]
fn a_node_keeps_its_lease_however_long_it_takes() {
    let (mut stage, node, epoch) = running();
    for _ in 0..20 {
        stage.silence(Span::seconds(30));
        let running = report("boot", &[(epoch, AttemptPhase::Running)]);
        let renewed = read_only::renew(&mut stage.world, &node, &running, stage.now);
        let Some(Reply::Desired(desired)) = renewed else { panic!("{renewed:?}") };
        assert!(!desired.end);
        assert_eq!(
            desired.assignments.iter().map(|assignment| assignment.epoch).collect::<Vec<_>>(),
            [epoch]
        );
    }
    // The store can be written to again, and nothing has happened.
    stage.say(Input::Tick).expect("a tick");
    assert_eq!(stage.phase("job"), JobPhase::Running);
    assert_eq!(stage.nodes(), [NodePhase::Leased]);
}

#[test]
fn an_end_is_not_acknowledged_before_it_is_on_disk() {
    let (mut stage, node, epoch) = running();
    let ended = report("boot", &[(epoch, AttemptPhase::Ended(Exit::Code(0)))]);
    let renewed = read_only::renew(&mut stage.world, &node, &ended, stage.now);
    let Some(Reply::Desired(desired)) = renewed else { panic!("{renewed:?}") };
    assert_eq!(desired.acknowledged, []);
    assert_eq!(stage.phase("job"), JobPhase::Running, "it is not known yet");
    stage.check();
    stage.finish("job");
    assert_eq!(stage.phase("job"), JobPhase::Completed);
}

#[test]
fn a_report_that_would_change_something_has_to_be_repeated() {
    let (mut stage, node, _) = running();
    stage.submit("next", "pool", 1).expect("accepted");
    stage.settle_effects(|_| true);
    let booting = stage.world.nodes().find(|node| node.phase() == NodePhase::Booting);
    let booting = booting.expect("the second one").name.to_string();
    for (name, boot) in [(booting.as_str(), "boot"), (&node, "another boot"), ("unknown", "boot")] {
        let answer = read_only::renew(&mut stage.world, name, &report(boot, &[]), stage.now);
        assert_eq!(answer, None, "{name}");
    }
    stage.check();
}

const SHORT: StoreTrouble =
    StoreTrouble::ShortOfSpace { free_bytes: 3 << 20, needed_bytes: (32 << 20) - 1 };

#[test]
fn while_the_store_is_short_of_space_nothing_new_is_started() {
    let mut stage = Stage::with_cluster("pool", 0, 2, 60);
    stage.submit("runs", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("runs");
    stage.world.set_store_trouble(Some(SHORT));
    stage.submit("waits", "pool", 1).expect("it was accepted before");
    assert_eq!(stage.nodes(), [NodePhase::Leased], "no node is created for it");
    // The running job continues to its end, and its node remains free.
    stage.finish("runs");
    assert_eq!(stage.phase("runs"), JobPhase::Completed);
    assert_eq!((stage.phase("waits"), stage.nodes()), (JobPhase::Queued, vec![NodePhase::Idle]));
    stage.check();

    let reasons = why::why(&stage.world, stage.job("waits").expect("it waits").id);
    assert_eq!(reasons, [Reason::Store(SHORT)], "nothing else keeps it from its free node");
    assert_eq!(
        reasons[0].to_string(),
        "the server's disk is full: 3 MiB are free, and nothing new is started until 32 MiB are free; delete data that is \
         not needed, or free space on it; to check the server's host"
    );
    let figures = reasons[0].figures();
    assert_eq!((figures.value, figures.needed), (3, 32));
    let cluster = stage.job("waits").expect("it waits").cluster;
    assert_eq!(why::why_cluster(&stage.world, cluster), [Reason::Store(SHORT)]);

    stage.world.set_store_trouble(None);
    stage.say(Input::Tick).expect("a tick");
    assert_ne!(stage.phase("waits"), JobPhase::Queued, "it starts at once");
    stage.check();
}

#[test]
fn a_minimum_is_filled_when_the_store_can_write_again() {
    for trouble in [SHORT, StoreTrouble::ReadOnly, StoreTrouble::Failing] {
        let mut stage = Stage::new();
        stage.world.set_store_trouble(Some(trouble));
        stage.put_cluster("warm", 1, 2, 60).expect("it was accepted before");
        assert_eq!(stage.nodes(), []);
        let cluster = stage.world.clusters().next().expect("one").id;
        assert_eq!(why::why_cluster(&stage.world, cluster)[0], Reason::Store(trouble));
        stage.world.set_store_trouble(None);
        stage.say(Input::Tick).expect("a tick");
        assert_eq!(stage.nodes(), [NodePhase::Requested]);
        let reasons = why::why_cluster(&stage.world, cluster);
        assert!(!reasons.contains(&Reason::Store(trouble)), "{reasons:?}");
    }
}
