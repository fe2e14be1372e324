//! Array jobs: a parent without nodes, and children that get a record when they start.

use std::sync::Arc;

use muster_core::agent::{AttemptPhase, Desired};
use muster_core::ids::Epoch;
use muster_core::model::{
    ArrayPlan, ChildCounts, Exit, Failure, Job, JobPhase, JobSpec, JobState, NodePhase, SpecHash,
};
use muster_core::time::Span;
use muster_core::why::why;
use muster_core::{Change, Input, InputResult, JobRequest, RefusalKind, Reply};

use crate::support::{Stage, Wants, known_job, request, workspace};

fn plan(indices: &str, concurrency: Option<u32>) -> ArrayPlan {
    ArrayPlan { indices: indices.parse().expect("indices"), concurrency, timeout: None }
}

fn array_request(name: &str, plan: ArrayPlan) -> JobRequest {
    let one = request(name, "cpu", Wants::default());
    let spec = JobSpec { array: Some(Box::new(plan)), ..(*one.spec).clone() };
    JobRequest { spec: Arc::new(spec), spec_hash: SpecHash::made_up(name), ..one }
}

fn submit(stage: &mut Stage, name: &str, plan: ArrayPlan) -> InputResult {
    stage.say(Input::SubmitJob(Box::new(array_request(name, plan))))
}

fn counts(stage: &Stage, name: &str) -> ChildCounts {
    let parent = stage.job(name).expect("a live parent");
    stage.world.tree(parent.id).expect("its children").counts()
}

fn records(stage: &Stage) -> usize {
    stage.log.iter().filter(|change| matches!(change, Change::ChildCreated { .. })).count()
}

fn last_record(stage: &Stage, name: &str) -> Arc<Job> {
    let found = stage.log.iter().rev().find_map(|change| match change {
        Change::JobChanged { job, .. } | Change::ChildCreated { job, .. } if &*job.name == name => {
            Some(Arc::clone(job))
        }
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no job {name}"))
}

/// An array on `nodes` nodes that are up.
fn stage_with(nodes: u32, plan: ArrayPlan) -> Stage {
    let mut stage = Stage::with_cluster("cpu", 0, nodes, 120);
    submit(&mut stage, "sweep", plan).expect("accepted");
    stage.provide();
    stage
}

#[test]
fn an_array_of_ten_thousand_tasks_is_one_record_until_they_start() {
    let stage = stage_with(2, plan("0-9999", None));
    assert_eq!(records(&stage), 2, "only the tasks that have nodes");
    let expected = ChildCounts { waiting: 9_998, live: 2, ..ChildCounts::default() };
    assert_eq!(counts(&stage, "sweep"), expected);
    assert_eq!(stage.starting(), ["sweep_0", "sweep_1"]);
    assert_eq!(stage.phase("sweep"), JobPhase::Running);
    assert_eq!(stage.phase("sweep_9999"), JobPhase::Queued);
}

#[test]
fn tasks_run_in_order_and_the_parent_completes_after_the_last() {
    let mut stage = stage_with(1, plan("3,5-9:2", None));
    for task in ["sweep_3", "sweep_5", "sweep_7", "sweep_9"] {
        assert_eq!(stage.starting(), [task]);
        assert_eq!(stage.phase("sweep"), JobPhase::Running);
        stage.run(task);
        stage.pass_s(10);
        stage.finish(task);
        assert_eq!(stage.phase(task), JobPhase::Completed);
    }
    assert_eq!(stage.phase("sweep"), JobPhase::Completed);
    let ends = stage.log.iter().filter(|change| {
        matches!(change, Change::JobChanged { job, .. } if &*job.name == "sweep" && job.phase().is_terminal())
    });
    assert_eq!(ends.count(), 1, "a parent ends once");
}

#[test]
fn a_task_knows_its_index_and_its_array() {
    let mut stage = stage_with(1, plan("4-6", None));
    let node = stage.world.nodes().next().expect("one node").name.to_string();
    let Desired { assignments, .. } = stage.report(&node, &[]);
    let task = assignments[0].task.as_deref().expect("a task of an array");
    assert_eq!((&*task.array, task.index, task.count), ("sweep", 4, 3));
    assert_eq!(&*assignments[0].job_name, "sweep_4");
}

#[test]
fn the_limit_holds_back_tasks_and_nodes() {
    let mut stage = Stage::with_cluster("cpu", 0, 10, 120);
    submit(&mut stage, "sweep", plan("0-99", Some(3))).expect("accepted");
    assert_eq!(stage.count(NodePhase::Requested), 3, "no nodes for tasks that may not run");
    stage.provide();
    assert_eq!(counts(&stage, "sweep").live, 3);
    let held = stage.job("sweep").expect("live").child_at(3).expect("a fourth task");
    let reasons: Vec<_> = why(&stage.world, held).iter().map(|reason| reason.code()).collect();
    assert_eq!(reasons, ["ArrayLimit"]);
    stage.run("sweep_1");
    stage.finish("sweep_1");
    assert_eq!(counts(&stage, "sweep").live, 3, "the next one started");
    assert_eq!(stage.starting(), ["sweep_0", "sweep_2", "sweep_3"]);
}

#[test]
fn a_waiting_array_has_a_reason() {
    let mut stage = Stage::with_cluster("cpu", 0, 0, 120);
    submit(&mut stage, "sweep", plan("0-9", None)).expect("accepted");
    let parent = stage.job("sweep").expect("live").id;
    let codes = |job| why(&stage.world, job).iter().map(|reason| reason.code()).collect::<Vec<_>>();
    assert_eq!(codes(parent), ["MaximumTooLow"]);
    let last = stage.job("sweep").and_then(|job| job.child_at(9)).expect("a tenth task");
    assert_eq!(codes(last), ["MaximumTooLow"]);
}

#[test]
fn canceling_an_array_reaches_every_task() {
    let mut stage = stage_with(2, plan("0-9999", None));
    stage.run("sweep_0");
    stage.cancel("sweep").expect("accepted");
    assert_eq!(stage.phase("sweep"), JobPhase::CancelRequested);
    assert_eq!(counts(&stage, "sweep").live, 2);
    assert_eq!(records(&stage), 2, "the others need no record to be canceled");
    stage.cancel("sweep").expect("canceling again does no harm");
    for task in ["sweep_0", "sweep_1"] {
        stage.members_say(task, AttemptPhase::Ended(Exit::Stopped));
        assert_eq!(stage.phase(task), JobPhase::Canceled);
    }
    assert_eq!(stage.phase("sweep"), JobPhase::Canceled);
    assert_eq!(stage.count(NodePhase::Idle), 2, "no task starts any more");
}

#[test]
fn an_array_that_has_not_started_is_canceled_at_once() {
    let mut stage = Stage::with_cluster("cpu", 0, 0, 120);
    submit(&mut stage, "sweep", plan("0-9", Some(2))).expect("accepted");
    stage.cancel("sweep").expect("accepted");
    assert_eq!(stage.phase("sweep"), JobPhase::Canceled);
    assert_eq!(stage.world.jobs().len(), 0);
}

#[test]
fn one_task_can_be_canceled_alone() {
    let mut stage = stage_with(1, plan("0-2", None));
    stage.cancel("sweep_1").expect("accepted");
    assert_eq!(stage.phase("sweep_1"), JobPhase::Canceled);
    for task in ["sweep_0", "sweep_2"] {
        stage.run(task);
        stage.finish(task);
    }
    assert_eq!(stage.phase("sweep"), JobPhase::Completed);
}

#[test]
fn an_array_whose_tasks_were_all_canceled_one_by_one_is_canceled() {
    let mut stage = Stage::with_cluster("cpu", 0, 0, 120);
    submit(&mut stage, "sweep", plan("0-1", None)).expect("accepted");
    for task in ["sweep_1", "sweep_0"] {
        stage.cancel(task).expect("accepted");
    }
    assert_eq!(stage.phase("sweep"), JobPhase::Canceled);
}

#[test]
fn a_failed_task_fails_the_array_when_all_have_ended() {
    let mut stage = stage_with(1, plan("0-2", None));
    for (task, code) in [("sweep_0", 0), ("sweep_1", 3), ("sweep_2", 0)] {
        stage.run(task);
        stage.members_say(task, AttemptPhase::Ended(Exit::Code(code)));
    }
    let parent = last_record(&stage, "sweep");
    let JobState::Failed { why, .. } = &parent.state else { panic!("{:?}", parent.state) };
    assert_eq!(**why, Failure::Children { failed: 1, of: 3, first: "sweep_1".into() });
}

#[test]
fn an_evicted_task_returns_to_the_queue_and_keeps_its_place_under_the_limit() {
    let mut stage = stage_with(1, plan("0-9", Some(1)));
    stage.run("sweep_0");
    let node = stage.world.nodes().next().expect("one node").name.to_string();
    stage.say(Input::NodeEnded { node }).expect("noted");
    assert_eq!(stage.phase("sweep_0"), JobPhase::Queued);
    assert_eq!(counts(&stage, "sweep").live, 1);
    stage.provide();
    stage.provide();
    assert_eq!(stage.starting(), ["sweep_0"], "it runs again before the others start");
}

#[test]
fn the_time_limit_of_an_array_ends_all_tasks() {
    let limited = ArrayPlan { timeout: Some(Span::seconds(100)), ..plan("0-9", None) };
    let mut stage = stage_with(2, limited);
    stage.run("sweep_0");
    stage.run("sweep_1");
    stage.pass_s(90);
    stage.finish("sweep_0");
    stage.run("sweep_2");
    stage.pass_s(20);
    for task in ["sweep_1", "sweep_2"] {
        stage.members_say(task, AttemptPhase::Ended(Exit::Stopped));
    }
    let parent = last_record(&stage, "sweep");
    let JobState::Failed { why, .. } = &parent.state else { panic!("{:?}", parent.state) };
    assert_eq!(**why, Failure::TreeTimedOut);
}

#[test]
fn deleting_the_cluster_cancels_its_arrays() {
    let mut stage = stage_with(1, plan("0-99", None));
    stage.run("sweep_0");
    let (key, name) = (workspace(), "cpu".to_owned());
    stage.say(Input::DeleteCluster { workspace: key, name }).expect("accepted");
    stage.members_say("sweep_0", AttemptPhase::Ended(Exit::Stopped));
    assert_eq!(stage.phase("sweep"), JobPhase::Canceled);
    stage.settle_effects(|_| true);
    assert_eq!(stage.world.clusters().len(), 0);
}

#[test]
fn names_of_tasks_are_taken() {
    let mut stage = stage_with(1, plan("0-9", None));
    let refused = stage.submit("SWEEP_7", "cpu", 1).expect_err("the name of a task");
    assert_eq!(refused.kind, RefusalKind::Conflict);
    stage.submit("sweep_10", "cpu", 1).expect("not a task of the array");
    let numbered = [3].into();
    let taken = JobRequest { numbered, ..array_request("other", plan("0-9", None)) };
    let refused = stage.say(Input::SubmitJob(Box::new(taken))).expect_err("a task's name is taken");
    assert!(refused.to_string().contains("'other_3'"), "{refused}");
}

#[test]
fn a_task_is_changed_and_deleted_with_its_array() {
    let mut stage = stage_with(1, plan("0", None));
    stage.run("sweep_0");
    stage.finish("sweep_0");
    let parent = known_job(&stage.log, "sweep").expect("a row");
    let child = parent.job.child(parent.job.child_at(0).expect("one task")).expect("a child");
    let known = muster_core::KnownJob { job: Arc::new(child), ..parent.clone() };
    let edit = |name: &str, known| {
        Input::EditJob(Box::new(muster_core::JobEdit {
            workspace: workspace(),
            name: name.into(),
            action: muster_core::JobAction::Delete,
            known: Some(known),
        }))
    };
    let refused = stage.say(edit("sweep_0", known)).expect_err("only with its array");
    assert!(refused.to_string().contains("job 'sweep'"), "{refused}");
    assert_eq!(stage.say(edit("sweep", parent)), Ok(Reply::Noted));
    let gone = stage.log.iter().rev().find_map(|change| match change {
        Change::JobGone { job, last, .. } => Some(last.0 - job.0),
        _ => None,
    });
    assert_eq!(gone, Some(1), "its children are deleted with it");
}

#[test]
fn arrays_count_towards_the_limit_of_waiting_jobs() {
    let mut stage = Stage::with_cluster("cpu", 0, 0, 120);
    stage.world.settings.queued_per_principal_max = 10;
    let refused = submit(&mut stage, "wide", plan("0-10", None)).expect_err("11 tasks");
    assert_eq!(refused.kind, RefusalKind::Full);
    submit(&mut stage, "narrow", plan("0-999", Some(4))).expect("at most 4 at once");
    submit(&mut stage, "more", plan("0-5", None)).expect("6 more");
    stage.submit("one", "cpu", 1).expect_err("10 wait");
}

#[test]
fn a_report_about_an_old_epoch_changes_no_task() {
    let mut stage = stage_with(1, plan("0-1", None));
    let node = stage.world.nodes().next().expect("one node").name.to_string();
    let old = stage.members("sweep_0")[0].1;
    stage.run("sweep_0");
    stage.finish("sweep_0");
    stage.report(&node, &[(old, AttemptPhase::Ended(Exit::Code(7)))]);
    assert_eq!(stage.phase("sweep_0"), JobPhase::Completed);
    assert!(stage.members("sweep_1")[0].1 > Epoch(old.0));
}
