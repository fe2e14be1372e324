//! A provider finds that a node is dead: its job gets another attempt at once, and the cluster does not wait for it.

use crate::support::Stage;
use muster_core::model::{Category, JobPhase, NodeFailure, NodePhase, Trouble};
use muster_core::time::Span;
use muster_core::{Change, EffectKind, Input};

fn only_node(stage: &Stage) -> String {
    let mut names = stage.world.nodes().map(|node| node.name.to_string());
    let name = names.next().expect("a node");
    assert_eq!(names.next(), None, "only one");
    name
}

fn ended(stage: &mut Stage, node: &str) {
    stage.say(Input::NodeEnded { node: node.to_owned() }).expect("noted");
}

/// The failures that the delete calls in the outbox carry along.
fn failures(stage: &Stage) -> Vec<Option<NodeFailure>> {
    let failure = |kind: &EffectKind| match kind {
        EffectKind::DeleteNode { failure, .. } => Some(failure.as_deref().cloned()),
        EffectKind::CreateNode(_) => None,
    };
    stage.world.effects().filter_map(|effect| failure(&effect.kind)).collect()
}

#[test]
fn the_job_of_a_dead_node_does_not_wait_for_its_lease() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 120);
    stage.submit("job", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("job");
    let first = only_node(&stage);
    ended(&mut stage, &first);
    assert_eq!(stage.phase("job"), JobPhase::Queued);
    assert_eq!(stage.nodes(), [NodePhase::Unusable]);
    let [Some(failure)] = &failures(&stage)[..] else { panic!("its failure is known") };
    assert_eq!(
        (&failure.why, failure.was, &*failure.cluster_name),
        (&Trouble::Ended, NodePhase::Leased, "pool")
    );
    assert_eq!(failure.jobs.iter().map(|job| &*job.name).collect::<Vec<_>>(), ["job"]);
    ended(&mut stage, &first);
    stage.provide();
    stage.provide();
    stage.run("job");
    assert_eq!(stage.phase("job"), JobPhase::Running);
    assert_ne!(only_node(&stage), first);
}

#[test]
fn a_node_that_dies_while_it_comes_up_is_not_waited_for() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 120);
    stage.submit("job", "pool", 1).expect("accepted");
    let first = only_node(&stage);
    ended(&mut stage, &first);
    assert_eq!(stage.nodes(), [NodePhase::Requested], "the create call has not been answered yet");
    stage.settle_effects(|_| true);
    assert_eq!(stage.nodes(), [NodePhase::Booting]);
    ended(&mut stage, &first);
    assert_eq!(stage.nodes(), [NodePhase::Unusable]);
    stage.provide();
    assert_eq!(stage.nodes(), [], "a cluster whose node died does not retry at once");
    stage.pass_s(60);
    stage.provide();
    assert_eq!(stage.phase("job"), JobPhase::Starting);
}

#[test]
fn the_end_of_a_node_that_was_to_end_says_nothing() {
    let mut stage = Stage::with_cluster("pool", 1, 1, 120);
    stage.provide();
    stage.put_cluster("pool", 0, 1, 0).expect("changed");
    stage.pass_s(1);
    assert_eq!(stage.nodes(), [NodePhase::Leaving]);
    assert_eq!(failures(&stage), [None], "it did not fail");
    let leaving = only_node(&stage);
    ended(&mut stage, &leaving);
    assert_eq!(stage.nodes(), [NodePhase::Leaving]);
    ended(&mut stage, "unknown");
}

/// The server was down when the node ended. A node costs money until it is deleted, whatever has died on it: its ledger
/// lines continue until then, without a gap, and not beyond.
#[test]
fn a_node_that_ended_while_the_server_was_down_is_billed_until_it_is_deleted() {
    let mut stage = Stage::with_cluster("pool", 1, 1, 120);
    stage.provide();
    let node = only_node(&stage);
    let made = stage.world.node_by_name(&node).and_then(|node| node.meter).expect("it is billed");
    stage.silence(Span::seconds(20));
    ended(&mut stage, &node);
    stage.silence(Span::seconds(2));
    stage.settle_effects(|kind| matches!(kind, EffectKind::DeleteNode { .. }));
    let deleted_at = stage.now.wall;
    stage.pass_s(60);
    let id = stage.log.iter().find_map(|change| match change {
        Change::NodeChanged { node: found, .. } if *found.name == *node => Some(found.id),
        _ => None,
    });
    let lines = stage.log.iter().filter_map(|change| match change {
        Change::LedgerPosted(line) if Some(line.node) == id => Some(line),
        _ => None,
    });
    let lines: Vec<_> = lines.map(|line| (line.category, line.from, line.to)).collect();
    let [.., (Category::Floor, from, found_at), (Category::Unusable, lost_at, to)] = lines[..]
    else {
        panic!("{lines:?}")
    };
    assert!(made.since <= from && found_at == lost_at, "{lines:?}");
    assert_eq!((to, to - found_at), (deleted_at, Span::seconds(2)), "{lines:?}");
}
