//! While the store takes no writes, nodes keep what they run, and nothing is taken in or decided.

use muster_core::agent::{AttemptPhase, AttemptReport, Report};
use muster_core::ids::Epoch;
use muster_core::model::{Exit, JobPhase, NodePhase};
use muster_core::time::Span;
use muster_core::{Input, Reply, read_only};

use crate::support::Stage;

fn report(boot: &str, held: &[(Epoch, AttemptPhase)]) -> Report {
    let attempts =
        held.iter().map(|(epoch, phase)| AttemptReport::new(*epoch, phase.clone())).collect();
    let floor = held.iter().map(|(epoch, _)| *epoch).max().unwrap_or(Epoch(0));
    Report { boot_id: boot.into(), address: "10.0.0.4".into(), floor, attempts }
}

/// A pool whose one node runs `job`.
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
        assert_eq!(desired.orders.iter().map(|order| order.epoch).collect::<Vec<_>>(), [epoch]);
    }
    // It can be written again: nothing has happened.
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
fn who_would_change_something_has_to_come_again() {
    let (mut stage, node, _) = running();
    stage.submit("next", "pool", 1).expect("accepted");
    stage.settle_effects(|_| true);
    let booting = stage.world.nodes().find(|node| node.phase() == NodePhase::Booting);
    let booting = booting.expect("the second one").name.to_string();
    for (name, boot) in [(booting.as_str(), "boot"), (&node, "another boot"), ("nobody", "boot")] {
        let answer = read_only::renew(&mut stage.world, name, &report(boot, &[]), stage.now);
        assert_eq!(answer, None, "{name}");
    }
    stage.check();
}
