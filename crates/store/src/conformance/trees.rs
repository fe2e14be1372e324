//! The files of jobs, and nodes that are evicted.

use std::sync::Arc;

use muster_core::agent::AttemptPhase;
use muster_core::ids::WorkspaceId;
use muster_core::model::{Exit, JobSpec, NodePhase, Tier, TreeId};
use muster_core::{ClusterPatch, Input, SaveRequest};

use super::stage::{home, put_cluster, report, someone};
use super::{Database, Stage};

pub fn trees_of_jobs_read_back(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 1);
    let (code, first, second) =
        (TreeId::made_up("code"), TreeId::made_up("first"), TreeId::made_up("second"));
    let Input::SubmitJob(mut request) = stage.submission(home(), "job", "cpu", 1) else {
        unreachable!("a submission is one")
    };
    request.spec = Arc::new(JobSpec { code: Some(code), ..JobSpec::new("cpu", "true") });
    stage.say(Input::SubmitJob(request)).expect("a job");
    stage.provide();
    let job = stage.live_job("job").expect("live").clone();
    let workspace = job.workspace;
    assert_eq!(stage.reader.saved_trees(job.id).expect("rows can be read"), []);
    assert_eq!(stage.reader.job_ids(workspace).expect("rows can be read"), [job.id]);
    assert_eq!(stage.reader.job_ids(WorkspaceId(workspace.0 + 1)).expect("rows can be read"), []);
    assert_eq!(stage.reader.wanted_trees().expect("rows can be read"), [(workspace, code)]);
    let epoch = job.attempt().expect("it has a node").epoch;
    let node = stage.nodes_that_are(NodePhase::Leased).remove(0);
    for tree in [first, second] {
        let request =
            SaveRequest { node: node.clone(), epoch, tree, files: 1, bytes: 2, is_final: true };
        stage.say(Input::SaveTree(Box::new(request))).expect("it is live");
    }
    let saved = stage.reader.saved_trees(job.id).expect("rows can be read");
    let kept: Vec<_> = saved.iter().map(|saved| (saved.rank, saved.attempt, saved.tree)).collect();
    assert_eq!(kept, [(0, 1, second)], "the last save counts");
    let mut wanted = vec![(workspace, code), (workspace, second)];
    wanted.sort_by_key(|(_, tree)| tree.to_string());
    assert_eq!(stage.reader.wanted_trees().expect("rows can be read"), wanted);
    stage.run("job");
    stage.finish("job", 0);
    assert_eq!(
        stage.reader.saved_trees(job.id).expect("rows can be read"),
        saved,
        "it is kept after the job"
    );
}

pub fn evicted_nodes_are_counted_separately(database: &dyn Database) {
    let mut stage = Stage::new(database);
    let Input::PutCluster { mut wanted, .. } = put_cluster(home(), "spot", 0, 2) else {
        unreachable!("a cluster is put")
    };
    *wanted = ClusterPatch { tier: Some(Tier::LowPriority), ..*wanted };
    let (workspace, name, by) = (home(), "spot".to_owned(), someone());
    stage.say(Input::PutCluster { workspace, name, wanted, by }).expect("a cluster");
    for job in ["one", "two"] {
        stage.submit(job, "spot", 1);
    }
    stage.provide();
    for job in ["one", "two"] {
        stage.run(job);
    }
    let counts = |stage: &mut Stage<'_>| {
        let found = stage
            .reader
            .cluster(&home(), "spot")
            .expect("rows can be read")
            .expect("the row exists");
        (found.counts.running, found.counts.preempted, found.counts.unusable)
    };
    assert_eq!(counts(&mut stage), (2, 0, 0));
    let node = stage.nodes_that_are(NodePhase::Leased).remove(0);
    let evict =
        Input::EvictNode { workspace: home(), cluster: "spot".to_owned(), node: node.clone() };
    stage.say(evict).expect("it is low priority");
    assert_eq!(counts(&mut stage), (1, 1, 0), "the eviction is announced");
    let is_on = |job: &&str| {
        let live = stage.live_job(job).and_then(|job| job.attempt());
        let member = live.and_then(|attempt| stage.world.node(attempt.members[0].node));
        member.is_some_and(|member| *member.name == *node)
    };
    let job = ["one", "two"].into_iter().find(is_on).expect("one of them is on it");
    let attempt = stage.live_job(job).and_then(|job| job.attempt()).expect("it runs").epoch;
    let ended = report(&node, Some((attempt, AttemptPhase::Ended(Exit::Evicted))));
    stage.say(ended).expect("a report");
    assert!(stage.live_job(job).is_some_and(|job| job.is_returned));
    let (running, preempted, unusable) = counts(&mut stage);
    assert_eq!((running, preempted, unusable), (1, 1, 0), "evicted, not broken");
}
