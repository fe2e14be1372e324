//! Short tasks of an array that a node is given together: the server's World and the agent's real state machine.

use std::sync::Arc;

use muster_core::agent::{Action, AttemptPhase, Machine, Report, Timing};
use muster_core::ids::Epoch;
use muster_core::model::{
    ArrayPlan, Category, ChildCounts, Exit, JobPhase, JobSpec, LedgerLine, NodePhase, SpecHash,
};
use muster_core::time::Span;
use muster_core::{Change, Input, JobRequest, Reply};

use crate::support::{Stage, Wants, request};

const TASK: Span = Span::milliseconds(100);

/// A node with its agent, and what runs on it.
struct Node {
    name: String,
    machine: Machine,
    sequence: u64,
    running: Vec<Epoch>,
    started: Vec<String>,
}

impl Node {
    fn of(stage: &Stage) -> Node {
        let node = stage.world.nodes().next().expect("one node");
        let machine = Machine::new("boot", "10.0.0.4", Timing::default(), stage.now.elapsed);
        Node { name: node.name.to_string(), machine, sequence: 0, running: vec![], started: vec![] }
    }

    fn carry_out(&mut self, actions: &[Action], stage: &Stage) {
        for action in actions {
            match action {
                Action::Start(assignment) => {
                    self.started.push(assignment.job_name.to_string());
                    self.running.push(assignment.epoch);
                    let more = self.machine.on_started(assignment.epoch, None, stage.now.elapsed);
                    self.carry_out(&more, stage);
                }
                Action::Signal { epoch, .. } => self.end(*epoch, &Exit::Stopped, stage),
                _ => {}
            }
        }
    }

    fn end(&mut self, epoch: Epoch, exit: &Exit, stage: &Stage) {
        self.running.retain(|running| *running != epoch);
        let actions = self.machine.on_exited(epoch, exit.clone(), stage.now.elapsed);
        self.carry_out(&actions, stage);
    }

    /// Sends a report, and does what the answer says.
    fn exchange(&mut self, stage: &mut Stage) {
        let report = self.machine.report();
        self.send(stage, report);
    }

    fn send(&mut self, stage: &mut Stage, report: Report) {
        self.sequence += 1;
        let sent_at = stage.now.elapsed;
        let answer = stage.say(Input::Report { node: self.name.clone(), report });
        let Ok(Reply::Desired(desired)) = answer else { panic!("{answer:?}") };
        let actions = self.machine.on_desired(&desired, self.sequence, sent_at, stage.now.elapsed);
        self.carry_out(&actions, stage);
    }

    /// The task that runs takes its time and succeeds; the next one may start.
    fn finish(&mut self, stage: &mut Stage) {
        stage.silence(TASK);
        let epoch = self.running[0];
        self.end(epoch, &Exit::Code(0), stage);
    }

    /// Reports until there is nothing new.
    fn settle(&mut self, stage: &mut Stage) {
        for _ in 0..4 {
            self.exchange(stage);
        }
    }
}

fn submit(stage: &mut Stage, name: &str, indices: &str, concurrency: Option<u32>) {
    let plan = ArrayPlan { indices: indices.parse().expect("indices"), concurrency, timeout: None };
    let one = request(name, "pool", Wants::default());
    let spec = JobSpec { array: Some(Box::new(plan)), ..(*one.spec).clone() };
    let request = JobRequest { spec: Arc::new(spec), spec_hash: SpecHash::made_up(name), ..one };
    stage.say(Input::SubmitJob(Box::new(request))).expect("accepted");
}

/// An array on one node, whose first two tasks have shown that they are short, so that a batch follows them.
fn with_batch() -> (Stage, Node) {
    with_batch_of(None)
}

fn with_batch_of(concurrency: Option<u32>) -> (Stage, Node) {
    let mut stage = Stage::with_cluster("pool", 1, 1, 600);
    stage.provide();
    let mut node = Node::of(&stage);
    node.settle(&mut stage);
    submit(&mut stage, "sweep", "0-99", concurrency);
    node.settle(&mut stage);
    for _ in 0..2 {
        node.finish(&mut stage);
        node.settle(&mut stage);
    }
    (stage, node)
}

fn given(stage: &Stage) -> usize {
    let parent = stage.job("sweep").expect("a live parent").id;
    stage.world.tree(parent).expect("its children").given().len()
}

fn counts(stage: &Stage) -> ChildCounts {
    let parent = stage.job("sweep").expect("a live parent").id;
    stage.world.tree(parent).expect("its children").counts()
}

fn ledger(stage: &Stage) -> Vec<&LedgerLine> {
    let lines = stage.log.iter().filter_map(|change| match change {
        Change::LedgerPosted(line) => Some(line),
        _ => None,
    });
    lines.collect()
}

#[test]
fn short_tasks_are_granted_in_batches_and_start_without_asking() {
    let (mut stage, mut node) = with_batch();
    // About two seconds of tasks that take 100 ms each.
    assert_eq!(given(&stage), 19);
    assert_eq!(node.started, ["sweep_0", "sweep_1", "sweep_2"]);
    let before = stage.log.len();
    for _ in 0..10 {
        node.finish(&mut stage);
    }
    assert_eq!(stage.log.len(), before, "nothing was reported yet");
    assert_eq!(node.started.last().map(String::as_str), Some("sweep_12"));
    node.exchange(&mut stage);
    let expected = ChildCounts { waiting: 87, live: 1, completed: 12, ..ChildCounts::default() };
    assert_eq!(counts(&stage), expected);
    assert_eq!(stage.phase("sweep_12"), JobPhase::Running);
    assert_eq!(given(&stage), 9);
    let nodes = stage.log[before..].iter();
    let nodes = nodes.filter(|change| matches!(change, Change::NodeChanged { .. })).count();
    assert_eq!(nodes, 1, "one change of the node for ten tasks");
}

#[test]
fn the_times_and_costs_of_a_batch_are_those_that_the_node_measured() {
    let (mut stage, mut node) = with_batch();
    let before = ledger(&stage).len();
    let began = stage.now.wall;
    for _ in 0..5 {
        node.finish(&mut stage);
    }
    stage.silence(Span::milliseconds(30));
    node.exchange(&mut stage);
    let all = ledger(&stage);
    let mut at = began;
    for line in &all[before..] {
        assert_eq!((line.from, line.category == Category::Idle), (at, false), "{line:?}");
        at = line.to;
    }
    assert_eq!(at, began + Span(5 * TASK.0));
    assert_eq!(all.len() - before, 5);
    // The last one began when the one before it had ended, not when that was reported.
    let live = stage.job("sweep_7").and_then(|job| job.attempt()).expect("it runs");
    assert_eq!(live.granted_at, at);
}

#[test]
fn a_whole_array_ends_with_every_task_done_once() {
    let (mut stage, mut node) = with_batch();
    let mut reports = 0;
    while !node.running.is_empty() {
        node.finish(&mut stage);
        if (stage.now.wall.0 / TASK.0).is_multiple_of(4) || node.running.is_empty() {
            node.settle(&mut stage);
            reports += 1;
        }
    }
    assert!(reports < 60, "{reports}");
    assert_eq!(stage.phase("sweep"), JobPhase::Completed);
    let mut started = node.started.clone();
    started.sort();
    started.dedup();
    assert_eq!((started.len(), node.started.len()), (100, 100));
    assert_eq!(stage.count(NodePhase::Idle), 1);
}

#[test]
fn a_task_that_fails_does_not_hold_up_those_after_it() {
    let (mut stage, mut node) = with_batch();
    node.finish(&mut stage);
    let epoch = node.running[0];
    node.end(epoch, &Exit::Code(3), &stage);
    node.finish(&mut stage);
    node.settle(&mut stage);
    let phases = ["sweep_2", "sweep_3", "sweep_4", "sweep_5"].map(|name| stage.phase(name));
    use JobPhase::{Completed, Failed, Running};
    assert_eq!(phases, [Completed, Failed, Completed, Running]);
}

#[test]
fn a_batch_is_recalled_when_a_task_takes_long() {
    let (mut stage, mut node) = with_batch();
    stage.silence(stage.world.settings.batch);
    stage.say(Input::Tick).expect("a tick");
    assert_eq!(given(&stage), 19, "until the node has returned them");
    node.exchange(&mut stage);
    assert_eq!(given(&stage), 19);
    node.exchange(&mut stage);
    assert_eq!(given(&stage), 0);
    assert_eq!(counts(&stage).waiting, 97);
    // It starts nothing by itself any more.
    let started = node.started.len();
    let epoch = node.running[0];
    node.end(epoch, &Exit::Code(0), &stage);
    assert_eq!((node.started.len(), node.running.len()), (started, 0));
    node.settle(&mut stage);
    assert_eq!(node.started.last().map(String::as_str), Some("sweep_3"));
}

#[test]
fn tasks_that_ran_before_the_node_heard_of_the_recall_count() {
    let (mut stage, mut node) = with_batch();
    stage.silence(stage.world.settings.batch);
    stage.say(Input::Tick).expect("a tick");
    node.finish(&mut stage);
    node.finish(&mut stage);
    node.settle(&mut stage);
    assert_eq!(counts(&stage).completed, 4);
    assert_eq!(stage.phase("sweep_4"), JobPhase::Running);
    let mut started = node.started.clone();
    started.dedup();
    assert_eq!(started, node.started);
}

/// Those with a limit are in the queue only as far as the limit allows, in their order.
#[test]
fn tasks_of_an_array_with_a_limit_return_to_their_old_places() {
    let (mut stage, mut node) = with_batch_of(Some(8));
    assert!(given(&stage) > 0);
    stage.silence(stage.world.settings.batch);
    stage.say(Input::Tick).expect("a tick");
    node.settle(&mut stage);
    let parent = stage.job("sweep").expect("live");
    let tree = stage.world.tree(parent.id).expect("its children");
    assert_eq!((tree.given().len(), tree.queued().len()), (0, 7));
    assert_eq!(tree.queued().first(), parent.child_at(3));
}

/// The answer to a report can be older than what the node has begun since.
#[test]
fn a_recall_does_not_stop_a_task_that_has_begun() {
    let (mut stage, mut node) = with_batch();
    let before = node.machine.report();
    stage.silence(stage.world.settings.batch);
    stage.say(Input::Tick).expect("a tick");
    node.finish(&mut stage);
    let running = node.running.clone();
    node.send(&mut stage, before);
    assert_eq!(node.running, running, "it goes on");
    node.finish(&mut stage);
    node.settle(&mut stage);
    assert_eq!((counts(&stage).completed, counts(&stage).failed), (4, 0));
    let mut started = node.started.clone();
    started.dedup();
    assert_eq!(started, node.started, "none started twice");
}

#[test]
fn a_lost_node_returns_the_tasks_that_it_was_given() {
    let (mut stage, mut node) = with_batch();
    node.finish(&mut stage);
    stage.say(Input::NodeEnded { node: node.name.clone() }).expect("noted");
    assert_eq!((given(&stage), counts(&stage).waiting, counts(&stage).live), (0, 97, 1));
    // It had ended, but no report says so: it runs again, alone, because it may be what killed the node.
    assert_eq!(stage.phase("sweep_2"), JobPhase::Queued);
    // The first time the old node is deleted.
    stage.provide();
    stage.provide();
    let parent = stage.job("sweep").expect("live").id;
    assert_eq!(stage.starting(), ["sweep_2"]);
    assert!(stage.world.tree(parent).is_some_and(|tree| tree.given().is_empty()));
}

#[test]
fn one_task_of_a_batch_is_canceled_without_losing_the_others() {
    let (mut stage, mut node) = with_batch();
    stage.cancel("sweep_5").expect("accepted");
    assert_eq!(stage.phase("sweep_5"), JobPhase::CancelRequested);
    node.settle(&mut stage);
    assert_eq!(stage.phase("sweep_5"), JobPhase::Canceled);
    assert_eq!(given(&stage), 0, "the others wait again");
    while !node.running.is_empty() {
        node.finish(&mut stage);
        node.settle(&mut stage);
    }
    assert!(!node.started.contains(&"sweep_5".to_owned()));
    assert_eq!(node.started.len(), 99);
    assert_eq!(stage.phase("sweep"), JobPhase::Completed);
}

#[test]
fn a_task_that_ends_before_its_cancel_arrives_has_completed() {
    let (mut stage, mut node) = with_batch();
    stage.cancel("sweep_3").expect("accepted");
    node.finish(&mut stage);
    node.finish(&mut stage);
    node.settle(&mut stage);
    assert_eq!(stage.phase("sweep_3"), JobPhase::Completed);
    assert_eq!(stage.phase("sweep_4"), JobPhase::Running);
}

#[test]
fn canceling_the_array_reaches_the_tasks_that_a_node_was_given() {
    let (mut stage, mut node) = with_batch();
    stage.cancel("sweep").expect("accepted");
    // These started before the node heard of it.
    node.finish(&mut stage);
    node.finish(&mut stage);
    node.settle(&mut stage);
    assert_eq!(stage.phase("sweep_2"), JobPhase::Completed);
    assert_eq!(stage.phase("sweep_3"), JobPhase::Completed);
    assert_eq!(stage.phase("sweep_4"), JobPhase::Canceled);
    assert_eq!(stage.phase("sweep"), JobPhase::Canceled);
    assert_eq!(stage.count(NodePhase::Idle), 1);
}

#[test]
fn another_users_job_gets_its_turn_soon() {
    let (mut stage, mut node) = with_batch();
    let mut other = request("other", "pool", Wants::default());
    other.by.object_id = "another".into();
    stage.say(Input::SubmitJob(Box::new(other))).expect("accepted");
    node.settle(&mut stage);
    assert_eq!(given(&stage), 0);
    node.finish(&mut stage);
    node.settle(&mut stage);
    assert_eq!(node.started.last().map(String::as_str), Some("other"));
}

#[test]
fn an_evicted_node_starts_nothing_more() {
    let (mut stage, mut node) = with_batch();
    let name = node.name.clone();
    stage.say(Input::NodeEvicted { node: name }).expect("noted");
    assert_eq!(given(&stage), 0, "an evicted node is gone at once");
    node.exchange(&mut stage);
    assert!(node.running.is_empty());
    assert_eq!(counts(&stage).waiting, 97);
}

/// An agent of an earlier version ignores what follows an assignment.
#[test]
fn an_old_agent_gets_one_task_after_the_other() {
    let (mut stage, node) = with_batch();
    let epoch = node.running[0];
    let ended = AttemptPhase::Ended(Exit::Code(0));
    let desired = stage.report(&node.name, &[(epoch, ended)]);
    let next = &desired.assignments[0];
    assert_eq!((&*next.job_name, next.epoch), ("sweep_3", Epoch(epoch.0 + 1)));
    assert_eq!(stage.phase("sweep_3"), JobPhase::Starting);
}

#[test]
fn a_restarted_agent_returns_what_it_did_not_begin() {
    let (mut stage, mut node) = with_batch();
    let floor = node.machine.report().floor;
    let epoch = node.running[0];
    let records =
        [muster_core::agent::Record::Floor(floor), muster_core::agent::Record::Took(epoch)];
    let machine = Machine::new("boot", "10.0.0.4", Timing::default(), stage.now.elapsed);
    node.machine = machine.recover(&records);
    node.running.clear();
    node.settle(&mut stage);
    assert_eq!(stage.phase("sweep_2"), JobPhase::Running, "its second attempt");
    assert_eq!((counts(&stage).waiting, counts(&stage).live), (97, 1));
}
