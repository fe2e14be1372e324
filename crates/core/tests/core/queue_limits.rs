//! How many jobs of one user, and in one workspace, may wait.

use muster_core::model::{JobPhase, WorkspaceKey};
use muster_core::{ClusterPatch, Input, InputResult, JobRequest, RefusalKind, Reply};

use crate::support::{Stage, Wants, request, user, workspace};

fn closed() -> Stage {
    // A cluster that may not have any nodes, so its jobs wait.
    let mut stage = Stage::with_cluster("pool", 0, 0, 60);
    stage.world.settings.queued_per_principal_max = 3;
    stage.world.settings.queued_per_workspace_max = 5;
    stage
}

fn submit(stage: &mut Stage, by: &str, name: &str) -> InputResult {
    let wanted = JobRequest { by: user(by), ..request(name, "pool", Wants::default()) };
    stage.say(Input::SubmitJob(Box::new(wanted)))
}

fn refused(answer: InputResult) -> (RefusalKind, String) {
    let refused = answer.expect_err("refused");
    (refused.kind, refused.to_string())
}

#[test]
fn one_users_waiting_jobs_are_limited_and_others_are_not_held_back() {
    let mut stage = closed();
    for number in 0..3 {
        submit(&mut stage, "ada", &format!("a{number}")).expect("within the limit");
    }
    let before = stage.log.len();
    let (kind, message) = refused(submit(&mut stage, "ada", "a3"));
    assert_eq!(kind, RefusalKind::Full);
    assert!(message.contains("3 jobs of 'ada'") && message.contains("queued-jobs-per-user"));
    assert_eq!(stage.log.len(), before, "nothing was changed");
    // The same submit again is not a new job.
    let again = submit(&mut stage, "ada", "a2").expect("it is there");
    assert!(matches!(again, Reply::JobAccepted { is_new: false, .. }));
    submit(&mut stage, "bob", "b0").expect("another user");
    // A canceled job makes room.
    let cancel = Input::CancelJob { workspace: workspace(), name: "a0".into(), known: None };
    stage.say(cancel).expect("cancelled");
    submit(&mut stage, "ada", "a3").expect("there is room again");
}

#[test]
fn one_workspaces_waiting_jobs_are_limited_and_others_are_not_held_back() {
    let mut stage = closed();
    for number in 0..5 {
        submit(&mut stage, &format!("u{number}"), &format!("j{number}")).expect("within the limit");
    }
    let (kind, message) = refused(submit(&mut stage, "late", "j5"));
    assert_eq!(kind, RefusalKind::Full);
    assert!(message.contains("5 jobs") && message.contains("queued-jobs-per-workspace"));
    let other = WorkspaceKey::new("sub", "group", "other");
    stage.say(Input::workspace(other.clone(), "eastus", user("late"))).expect("made");
    let wanted = Box::new(ClusterPatch { nodes_max: Some(0), ..ClusterPatch::default() });
    let name = "theirs".to_owned();
    let put = Input::PutCluster { workspace: other.clone(), name, wanted, by: user("late") };
    stage.say(put).expect("made");
    let wanted = request("j5", "theirs", Wants::default());
    let wanted = JobRequest { workspace: other, by: user("late"), ..wanted };
    stage.say(Input::SubmitJob(Box::new(wanted))).expect("in another workspace");
}

#[test]
fn what_has_started_waits_no_more() {
    let mut stage = Stage::with_cluster("pool", 1, 1, 60);
    stage.world.settings.queued_per_principal_max = 1;
    stage.provide();
    stage.report_all();
    submit(&mut stage, "ada", "first").expect("it starts at once");
    assert_eq!(stage.job("first").map(|job| job.phase()), Some(JobPhase::Starting));
    submit(&mut stage, "ada", "second").expect("it waits alone");
    assert_eq!(refused(submit(&mut stage, "ada", "third")).0, RefusalKind::Full);
}
