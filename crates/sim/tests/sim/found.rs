//! Bugs that simulations have found in the core, each as the smallest case that shows it.

use std::sync::Arc;

use muster_core::catalogue::Catalogue;
use muster_core::model::{Caller, JobSpec, SpecHash, WorkspaceKey};
use muster_core::refusal::JobField;
use muster_core::time::{Elapsed, Now, Wall};
use muster_core::{
    Change, ClusterPatch, Input, InputResult, JobRequest, RefusalKind, Reply, Settings, World,
    WorldRows, step,
};
use muster_sim::Scenario;

const NOW: Now = Now { elapsed: Elapsed(1_000_000), wall: Wall(1_000_000) };

fn workspace() -> WorkspaceKey {
    WorkspaceKey::new("s", "g", "w")
}

fn caller() -> Caller {
    Caller { object_id: "o".into(), name: "n".into() }
}

/// A World with one cluster that is closed for now, so that jobs wait.
fn world() -> World {
    let catalogue = Arc::new(Catalogue::builtin());
    let mut world = World::rebuild(WorldRows::default(), 1, Settings::default(), catalogue, NOW);
    let wanted = ClusterPatch { nodes_max: Some(0), ..ClusterPatch::default() };
    let inputs = [
        Input::workspace(workspace(), "eastus", caller()),
        Input::PutCluster {
            workspace: workspace(),
            name: "pool".into(),
            wanted: Box::new(wanted),
            by: caller(),
        },
    ];
    assert!(step(&mut world, &inputs, NOW).answers.iter().all(InputResult::is_ok));
    world
}

fn submit(nodes: u32) -> Input {
    let spec = JobSpec { nodes, ..JobSpec::new("pool", "true") };
    Input::SubmitJob(Box::new(JobRequest {
        workspace: workspace(),
        name: "again".into(),
        spec: spec.into(),
        spec_hash: SpecHash::made_up("hash"),
        by: caller(),
        is_archived: None,
        existing: None,
        numbered: <_>::default(),
    }))
}

fn cancel() -> Input {
    Input::CancelJob { workspace: workspace(), name: "again".into(), known: None }
}

/// Rows are read before the step, so they cannot show a job that the same step submits and ends. A second job with that
/// name was mistaken for a new one; the store refused it, and with it the whole batch.
#[test]
fn a_name_is_not_free_again_within_the_step_that_ended_its_job() {
    let output = step(&mut world(), &[submit(1), cancel(), submit(1), cancel()], NOW);
    let submits = |change: &&Change| matches!(change, Change::JobSubmitted { .. });
    assert_eq!(output.changes.iter().filter(submits).count(), 1);
    let [Ok(Reply::JobAccepted { job, is_new: true }), canceled, resubmitted, again] =
        &output.answers[..]
    else {
        panic!("{:?}", output.answers);
    };
    let Ok(Reply::JobAccepted { job: known, is_new: false }) = resubmitted else {
        panic!("{resubmitted:?}");
    };
    assert_eq!(known.id, job.id);
    assert_eq!([canceled, again], [&Ok(Reply::CancelAccepted); 2]);
}

/// A delayed report of an earlier boot was mistaken for a reboot: its job was given to another node while the current
/// boot still ran it. The smallest case is `a_report_of_another_boot_alone_does_not_end_what_a_node_runs` of core's
/// scenarios; this is the seed that showed it.
#[test]
fn a_late_report_of_an_earlier_boot_does_not_make_a_job_run_twice() {
    muster_sim::run(&Scenario::new(373, 8)).unwrap_or_else(|failure| panic!("{failure}"));
}

/// A closed cluster accepts jobs of any size, because it may be opened again; but none can be opened that far.
#[test]
fn a_job_larger_than_any_cluster_is_refused_even_by_a_closed_cluster() {
    let mut world = world();
    let refused = step(&mut world, &[submit(10_001)], NOW).answers.remove(0).unwrap_err();
    assert_eq!((refused.kind, refused.target), (RefusalKind::Invalid, JobField::Nodes.into()));
    assert!(step(&mut world, &[submit(10_000)], NOW).answers[0].is_ok());
}
