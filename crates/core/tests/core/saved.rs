//! The files for a job's next attempt are accepted only from the holder of its live epoch.

use crate::support::{Stage, Wants, request};
use muster_core::agent::AttemptPhase;
use muster_core::ids::Epoch;
use muster_core::model::{
    Carrying, Exit, FailureClass, JobPhase, JobSpec, JobState, SavedTree, TreeId,
};
use muster_core::time::Span;
use muster_core::{Change, Input, InputResult, RefusalKind, Reply, SaveRequest};

fn save(stage: &mut Stage, node: &str, epoch: Epoch, word: &str) -> InputResult {
    let (node, tree) = (node.to_owned(), TreeId::made_up(word));
    stage.say(Input::SaveTree(Box::new(SaveRequest {
        node,
        epoch,
        tree,
        files: 2,
        bytes: 7,
        is_final: true,
    })))
}

fn saved(stage: &Stage) -> Vec<&SavedTree> {
    let of = |change: &'_ Change| matches!(change, Change::TreeSaved(_));
    let all = stage.log.iter().filter(|change| of(change));
    all.filter_map(|change| match change {
        Change::TreeSaved(saved) => Some(saved),
        _ => None,
    })
    .collect()
}

#[test]
fn each_member_of_the_live_attempt_keeps_its_own() {
    let mut stage = Stage::with_cluster("pool", 0, 2, 60);
    stage.submit("job", "pool", 2).expect("accepted");
    stage.provide();
    let members = stage.members("job");
    for (rank, (node, epoch)) in (0..).zip(&members) {
        let node = stage.world.node(*node).expect("a member").name.to_string();
        assert_eq!(save(&mut stage, &node, *epoch, &format!("of {rank}")), Ok(Reply::Noted));
    }
    let job = stage.job("job").expect("live").id;
    let kept: Vec<_> = saved(&stage).iter().map(|s| (s.job, s.rank, s.attempt)).collect();
    assert_eq!(kept, [(job, 0, 1), (job, 1, 1)]);
}

#[test]
fn an_attempt_that_was_given_up_saves_nothing_more() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("job", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("job");
    let (node, old) = stage.members("job")[0];
    let zombie = stage.world.node(node).expect("a member").name.to_string();
    assert_eq!(save(&mut stage, &zombie, old, "in time"), Ok(Reply::Noted));
    stage.silence(Span::seconds(600));
    stage.say(Input::Tick).expect("a tick");
    assert_eq!(stage.phase("job"), JobPhase::Queued);
    let refused = save(&mut stage, &zombie, old, "too late").expect_err("it was given up");
    assert_eq!(refused.kind, RefusalKind::Conflict);
    while stage.starting().is_empty() {
        stage.provide();
    }
    let (node, live) = stage.members("job")[0];
    let next = stage.world.node(node).expect("a member").name.to_string();
    for (node, epoch) in [(&zombie, old), (&zombie, live), (&next, old), (&next, Epoch(live.0 + 1))]
    {
        assert!(save(&mut stage, node, epoch, "stolen").is_err(), "{node} {epoch}");
    }
    assert_eq!(save(&mut stage, &next, live, "next"), Ok(Reply::Noted));
    let attempts: Vec<u32> = saved(&stage).iter().map(|saved| saved.attempt).collect();
    assert_eq!(attempts, [1, 2]);
    stage.run("job");
    stage.finish("job");
    assert!(save(&mut stage, &next, live, "after its end").is_err());
}

#[test]
fn files_that_cannot_be_brought_or_kept_are_a_failure_of_their_own() {
    for doing in [Carrying::Fetch, Carrying::Save] {
        let mut stage = Stage::with_cluster("pool", 0, 1, 60);
        stage.submit("job", "pool", 1).expect("accepted");
        stage.provide();
        let exit = Exit::Data { doing, message: "the disk is full".into() };
        stage.members_say("job", AttemptPhase::Ended(exit));
        let job = stage.log.iter().rev().find_map(|change| match change {
            Change::JobChanged { job, .. } => Some(job),
            _ => None,
        });
        let JobState::Failed { why, .. } = &job.expect("it changed").state else {
            panic!("{job:?}")
        };
        assert_eq!(why.class(), FailureClass::Data);
    }
}

#[test]
fn a_checkpoint_folder_is_below_the_working_folder() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    for (folder, is_good) in [("checkpoints", true), ("../x", false), ("/x", false), ("", false)] {
        let name = format!("job{}", folder.len());
        let mut asked = request(&name, "pool", Wants::default());
        let checkpoint = Some(folder.into());
        asked.spec = JobSpec { checkpoint, ..JobSpec::clone(&asked.spec) }.into();
        let answer = stage.say(Input::SubmitJob(Box::new(asked)));
        assert_eq!(answer.is_ok(), is_good, "{folder:?}: {answer:?}");
    }
}
