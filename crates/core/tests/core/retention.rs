//! How long ended jobs are kept, and which of them are removed.

use std::sync::Arc;

use crate::support::{Stage, Wants, known_job, request, workspace};
use muster_core::ids::JobId;
use muster_core::model::{ArrayPlan, Job, JobPhase, JobSpec, LockLevel, Scope, SpecHash};
use muster_core::retention::{Due, JobRetention};
use muster_core::time::{Span, Wall};
use muster_core::{
    Change, ExpiredJobs, GovernanceRequest, Input, JobAction, JobEdit, JobRequest, NewLock, Reply,
};

const DAY_S: u64 = 86_400;
const DAY: Span = Span::seconds(DAY_S);

fn job(stage: &Stage, name: &str) -> Job {
    (*known_job(&stage.log, name).expect("it was submitted").job).clone()
}

fn proposed(jobs: &[Job]) -> Input {
    let (jobs, known) = (jobs.iter().map(|job| job.id).collect(), jobs.to_vec());
    Input::RemoveExpired(Box::new(ExpiredJobs { jobs, known }))
}

/// The names of the jobs that are removed if all of these are proposed.
fn removed(stage: &mut Stage, names: &[&str]) -> Vec<JobId> {
    let jobs: Vec<Job> = names.iter().map(|name| job(stage, name)).collect();
    match stage.say(proposed(&jobs)) {
        Ok(Reply::Removed(removed)) => removed,
        other => panic!("{other:?}"),
    }
}

/// A cluster with one node, on which ended jobs are kept for a day.
fn stage() -> Stage {
    let mut stage = Stage::with_cluster("cpu", 0, 1, 120);
    stage.world.settings.retention = JobRetention { jobs: Some(DAY), logs: None };
    stage
}

/// The node of an earlier job may have to be deleted before this one gets its own.
fn provide_for(stage: &mut Stage, name: &str) {
    for _ in 0..5 {
        if stage.job(name).is_some_and(|job| job.attempt().is_some()) {
            return;
        }
        stage.provide();
    }
    panic!("{name} gets no node");
}

fn run_to_end(stage: &mut Stage, name: &str) {
    stage.submit(name, "cpu", 1).expect("accepted");
    provide_for(stage, name);
    stage.run(name);
    stage.finish(name);
    assert_eq!(stage.phase(name), JobPhase::Completed);
}

#[test]
fn a_job_is_due_when_its_time_has_passed_since_its_end() {
    let mut stage = stage();
    stage.submit("long", "cpu", 1).expect("accepted");
    stage.provide();
    stage.run("long");
    let (live, submitted) = (job(&stage, "long"), stage.now.wall);
    stage.pass_s(100);
    stage.finish("long");
    let (ended, end) = (job(&stage, "long"), stage.now.wall);
    let kept = JobRetention { jobs: Some(DAY), logs: Some(Span::seconds(10)) };
    assert_eq!(kept.job(&ended, end), Due::LaterWithAllThatFollow);
    // Jobs that were submitted later may have ended before this one.
    assert_eq!(kept.job(&ended, submitted + DAY), Due::Later);
    assert_eq!(kept.job(&ended, Wall(end.0 + DAY.0 - 1)), Due::Later);
    assert_eq!(kept.job(&ended, end + DAY), Due::Now);
    assert_eq!(kept.job(&live, end + DAY), Due::Later, "it has not ended");
    assert_eq!(kept.logs(&ended, end + Span::seconds(10)), Due::Now);
    assert_eq!(kept.job(&ended, end + Span::seconds(10)), Due::LaterWithAllThatFollow);
    let for_ever = JobRetention::default();
    assert_eq!(for_ever.job(&ended, Wall(u64::MAX)), Due::LaterWithAllThatFollow);
}

#[test]
fn only_what_is_due_is_removed_and_only_once() {
    let mut stage = stage();
    run_to_end(&mut stage, "old");
    stage.pass_s(DAY_S - 10);
    run_to_end(&mut stage, "young");
    stage.submit("waiting", "cpu", 1).expect("accepted");
    assert_eq!(removed(&mut stage, &["old", "young", "waiting"]), []);
    stage.pass_s(20);
    let old = job(&stage, "old");
    assert_eq!(removed(&mut stage, &["old", "young", "waiting"]), [old.id]);
    let gone = |change: &&Change| matches!(change, Change::JobGone { .. });
    assert_eq!(stage.log.iter().filter(gone).count(), 1);
    stage.check();
    // Without a limit, nothing is removed.
    stage.world.settings.retention = JobRetention::default();
    stage.silence(Span::seconds(1_000 * DAY_S));
    assert_eq!(removed(&mut stage, &["young"]), []);
}

/// The rows were read before any of this happened.
#[test]
fn a_job_that_a_user_deletes_in_the_same_step_is_not_removed_again() {
    let mut stage = stage();
    run_to_end(&mut stage, "old");
    stage.pass_s(2 * DAY_S);
    let (old, known) = (job(&stage, "old"), known_job(&stage.log, "old"));
    let action = JobAction::Delete;
    let edit = JobEdit { workspace: workspace(), name: "old".into(), action, known };
    let both = [
        proposed(std::slice::from_ref(&old)),
        Input::EditJob(Box::new(edit)),
        proposed(std::slice::from_ref(&old)),
    ];
    let output = muster_core::step(&mut stage.world, &both, stage.now);
    let expected =
        [Ok(Reply::Removed(vec![old.id])), Ok(Reply::NothingToDelete), Ok(Reply::Removed(vec![]))];
    assert_eq!(output.answers[..3], expected);
}

#[test]
fn a_lock_protects_ended_jobs() {
    let mut stage = stage();
    run_to_end(&mut stage, "old");
    stage.pass_s(2 * DAY_S);
    let scope = Scope::workspace(&workspace());
    let (name, level) = ("keep".into(), LockLevel::CanNotDelete);
    let lock = NewLock { name, scope: scope.clone(), level, notes: None };
    let put = GovernanceRequest::PutLock(lock);
    stage.say(Input::ChangeGovernance(Box::new(put))).expect("locked");
    assert_eq!(removed(&mut stage, &["old"]), []);
    let unlock = GovernanceRequest::DeleteLock { scope, name: "keep".into() };
    stage.say(Input::ChangeGovernance(Box::new(unlock))).expect("unlocked");
    assert_eq!(removed(&mut stage, &["old"]).len(), 1);
}

#[test]
fn a_tree_is_removed_as_one_after_its_last_child_has_ended() {
    let mut stage = stage();
    let one = request("sweep", "cpu", Wants::default());
    let indices = "0-1".parse().expect("indices");
    let plan = ArrayPlan { indices, concurrency: None, timeout: None };
    let spec = Arc::new(JobSpec { array: Some(Box::new(plan)), ..(*one.spec).clone() });
    let array = JobRequest { spec, spec_hash: SpecHash::made_up("sweep"), ..one };
    stage.say(Input::SubmitJob(Box::new(array))).expect("accepted");
    stage.provide();
    stage.run("sweep_0");
    stage.finish("sweep_0");
    let parent = job(&stage, "sweep");
    let first = parent.child(parent.child_at(0).expect("two tasks")).expect("a child");
    stage.pass_s(2 * DAY_S);
    // The first task ended long ago, but its array has not ended.
    let ended = Job { state: job_state(stage.now.wall), ..first };
    let kept = stage.world.settings.retention;
    assert_eq!(kept.job(&ended, stage.now.wall + DAY + DAY), Due::Later, "only with its parent");
    assert_eq!(removed(&mut stage, &["sweep"]), []);
    provide_for(&mut stage, "sweep_1");
    stage.run("sweep_1");
    stage.finish("sweep_1");
    assert_eq!(removed(&mut stage, &["sweep"]), [], "its time has only begun");
    stage.pass_s(DAY_S);
    assert_eq!(removed(&mut stage, &["sweep"]), [parent.id]);
    let gone = stage.log.iter().find_map(|change| match change {
        Change::JobGone { job, last, .. } => Some((*job, *last)),
        _ => None,
    });
    assert_eq!(gone, Some((parent.id, parent.last_id())));
}

fn job_state(at: Wall) -> muster_core::model::JobState {
    muster_core::model::JobState::Completed { at }
}
