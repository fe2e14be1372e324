//! The decision chart of an elastic cluster, edge by edge. This is the scenario to read first.
//!
//! One of the documents that Muster follows (S0 in docs/conformance.md) draws the life of a cluster as a flow chart: a
//! job is submitted; if there is an idle node, it runs there; otherwise the cluster grows, unless it is at its maximum;
//! a node without a job is deleted after its idle time, but never below the minimum. Each entry of [`CHART`] sets up
//! the state before one edge of that chart, makes one thing happen, and checks where the edge leads.
//!
//! The chart has sixteen edges. Two more entries cover what it leaves out: how a job leaves the queue, and that the
//! minimum is checked before a node is deleted, not after. A [`Stage`] is a World with a clock that the test moves, and
//! a provider and agents that do what the test tells them. After every input it also checks the invariants.

use crate::support::Stage;
use muster_core::model::{JobPhase, NodePhase};

/// A cluster of 0 to `max` nodes with a job named `first` that runs on one node.
fn busy(max: u32) -> Stage {
    let mut stage = Stage::with_cluster("cpu", 0, max, 120);
    stage.submit("first", "cpu", 1).expect("accepted");
    stage.provide();
    stage.run("first");
    stage
}

/// The same cluster after `first` has ended, with one idle node.
fn idle(max: u32) -> Stage {
    let mut stage = busy(max);
    stage.finish("first");
    assert_eq!(stage.nodes(), [NodePhase::Idle]);
    stage
}

type Check = fn();

const CHART: [(&str, Check); 18] = [
    ("submit → has idle nodes?", || {
        let mut stage = Stage::with_cluster("cpu", 0, 1, 120);
        assert_eq!(stage.nodes(), [], "nothing runs before there is work");
        stage.submit("job", "cpu", 1).expect("accepted");
        assert_eq!(stage.phase("job"), JobPhase::Queued);
    }),
    ("idle nodes: yes → use an existing node", || {
        let mut stage = idle(4);
        stage.submit("second", "cpu", 1).expect("accepted");
        assert_eq!(stage.phase("second"), JobPhase::Starting);
        assert_eq!(stage.nodes(), [NodePhase::Leased], "no second node was created");
    }),
    ("idle nodes: no → fewer than the maximum?", || {
        let mut stage = busy(2);
        stage.submit("second", "cpu", 1).expect("accepted");
        assert_eq!(stage.count(NodePhase::Requested), 1);
    }),
    ("fewer than the maximum: yes → provision a node", || {
        let mut stage = busy(4);
        stage.submit("wide", "cpu", 3).expect("accepted");
        assert_eq!(stage.count(NodePhase::Requested), 3);
    }),
    ("fewer than the maximum: no → the job waits", || {
        let mut stage = busy(1);
        stage.submit("second", "cpu", 1).expect("accepted");
        assert_eq!(stage.nodes(), [NodePhase::Leased]);
        assert_eq!(stage.phase("second"), JobPhase::Queued);
    }),
    ("provisioned → run", || {
        let mut stage = Stage::with_cluster("cpu", 0, 1, 120);
        stage.submit("job", "cpu", 1).expect("accepted");
        stage.provide();
        assert_eq!(stage.phase("job"), JobPhase::Starting);
        stage.run("job");
        assert_eq!(stage.phase("job"), JobPhase::Running);
    }),
    ("existing node → run", || {
        let mut stage = idle(1);
        stage.submit("second", "cpu", 1).expect("accepted");
        stage.run("second");
        assert_eq!(stage.phase("second"), JobPhase::Running);
    }),
    ("run → more jobs waiting?", || {
        let mut stage = busy(1);
        stage.finish("first");
        assert_eq!(stage.phase("first"), JobPhase::Completed);
    }),
    ("more waiting: yes → run the next", || {
        let mut stage = busy(1);
        stage.submit("second", "cpu", 1).expect("accepted");
        stage.submit("third", "cpu", 1).expect("accepted");
        stage.finish("first");
        assert_eq!(stage.phase("second"), JobPhase::Starting, "jobs start in the order of arrival");
        assert_eq!(stage.phase("third"), JobPhase::Queued);
    }),
    ("more waiting: no → start the idle timer", || {
        let mut stage = busy(1);
        stage.finish("first");
        stage.pass_s(119);
        assert_eq!(stage.nodes(), [NodePhase::Idle]);
    }),
    ("idle timer → timeout reached?", || {
        let mut stage = idle(1);
        stage.pass_s(60);
        stage.pass_s(59);
        assert_eq!(stage.nodes(), [NodePhase::Idle]);
    }),
    ("timeout: yes → scale the node down", || {
        let mut stage = idle(1);
        stage.pass_s(120);
        assert_eq!(stage.nodes(), [NodePhase::Leaving]);
        stage.provide();
        assert_eq!(stage.nodes(), []);
    }),
    ("timeout: no, a new job arrives → run", || {
        let mut stage = idle(1);
        stage.pass_s(119);
        stage.submit("second", "cpu", 1).expect("accepted");
        stage.pass_s(10);
        assert_eq!(stage.nodes(), [NodePhase::Leased], "the timer does not end a job");
    }),
    ("scaled down → more than the minimum?", || {
        let mut stage = Stage::with_cluster("cpu", 1, 3, 120);
        stage.submit("wide", "cpu", 3).expect("accepted");
        stage.provide();
        stage.run("wide");
        stage.finish("wide");
        stage.pass_s(120);
        assert_eq!(stage.count(NodePhase::Leaving), 2);
    }),
    ("more than the minimum: yes → the timer continues", || {
        let mut stage = Stage::with_cluster("cpu", 0, 2, 120);
        stage.submit("early", "cpu", 1).expect("accepted");
        stage.submit("late", "cpu", 1).expect("accepted");
        stage.provide();
        stage.run("early");
        stage.run("late");
        stage.finish("early");
        stage.pass_s(50);
        stage.finish("late");
        stage.pass_s(70);
        assert_eq!((stage.count(NodePhase::Leaving), stage.count(NodePhase::Idle)), (1, 1));
        stage.pass_s(50);
        assert_eq!(stage.count(NodePhase::Leaving), 2);
    }),
    ("more than the minimum: no → at the minimum", || {
        let mut stage = Stage::with_cluster("cpu", 1, 3, 120);
        stage.provide();
        stage.pass_s(3_600);
        assert_eq!(stage.nodes(), [NodePhase::Idle]);
    }),
    ("the minimum is checked before scaling down", || {
        let mut stage = Stage::with_cluster("cpu", 2, 4, 0);
        stage.provide();
        assert_eq!(stage.nodes(), [NodePhase::Idle, NodePhase::Idle]);
        stage.pass_s(1);
        assert_eq!(stage.nodes(), [NodePhase::Idle, NodePhase::Idle]);
    }),
    ("the queue has an exit: a freed node, a raised maximum, a cancel", || {
        let mut stage = busy(1);
        stage.submit("second", "cpu", 1).expect("accepted");
        stage.submit("third", "cpu", 1).expect("accepted");
        stage.submit("fourth", "cpu", 1).expect("accepted");
        stage.finish("first");
        assert_eq!(stage.phase("second"), JobPhase::Starting);
        stage.put_cluster("cpu", 0, 2, 120).expect("raised");
        assert_eq!(stage.count(NodePhase::Requested), 1);
        stage.provide();
        assert_eq!(stage.phase("third"), JobPhase::Starting);
        stage.cancel("fourth").expect("canceled");
        assert_eq!(stage.phase("fourth"), JobPhase::Canceled);
    }),
];

#[test]
fn every_edge_holds() {
    for (edge, check) in CHART {
        println!("edge: {edge}"); // A failing test prints this, so it is clear which edge broke.
        check();
    }
}
