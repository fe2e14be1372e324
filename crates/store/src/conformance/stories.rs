//! Whole histories from the real core, read back after every commit.

use std::collections::BTreeMap;

use muster_core::agent::AttemptPhase;
use muster_core::ids::JobId;
use muster_core::model::{Exit, Job, MemberPhase, NodePhase, WorkspaceKey};
use muster_core::time::Wall;
use muster_core::{Change, Input};

use super::commits::text;
use super::ledger::expected_sums;
use super::stage::{home, put_cluster, report};
use super::{Chance, Database, Stage};
use crate::{JobQuery, LedgerBy, LedgerQuery, LedgerSum, NodeCounts, Revision};

pub fn a_cluster_is_created_and_deleted(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 2);
    stage.submit("one", "cpu", 1);
    stage.submit("two", "cpu", 2);
    check_views(&mut stage);
    stage.pass_s(1);
    stage.provide();
    check_views(&mut stage);
    stage.run("one");
    let nodes = stage.reader.nodes(&home(), "CPU").expect("rows can be read");
    assert_eq!(nodes.iter().filter(|view| view.job.as_deref() == Some("one")).count(), 1);
    stage.pass_s(1);
    stage.finish("one", 0);
    check_views(&mut stage);
    stage.run("two");
    let (workspace, name) = (home(), "two".to_owned());
    stage.say(Input::CancelJob { workspace, name, known: None }).expect("canceling");
    check_views(&mut stage);
    let mut stage = stage.restart();
    stage.members_say("two", &AttemptPhase::Ended(Exit::Stopped));
    check_views(&mut stage);
    let (workspace, name) = (home(), "cpu".to_owned());
    stage.say(Input::DeleteCluster { workspace, name }).expect("deleting");
    check_views(&mut stage);
    stage.provide();
    check_views(&mut stage);
    assert_eq!((stage.world.clusters().count(), stage.world.nodes().count()), (0, 0));
    let rows = stage.store.load().expect("rows can be loaded");
    assert_eq!(
        (rows.clusters, rows.nodes, rows.jobs, rows.effects),
        (vec![], vec![], vec![], vec![])
    );
    assert_eq!(
        stage
            .reader
            .jobs(&home(), &JobQuery::default(), None, 10)
            .expect("rows can be read")
            .items
            .len(),
        2
    );
}

pub fn a_lost_node_puts_its_job_back(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 1);
    stage.submit("one", "cpu", 1);
    stage.provide();
    stage.run("one");
    stage.pass_s(3_600);
    stage.say(Input::Tick).expect("a tick");
    check_views(&mut stage);
    assert_eq!(stage.nodes_that_are(NodePhase::Unusable).len(), 1);
    let mut stage = stage.restart();
    stage.provide();
    stage.provide();
    stage.run("one");
    stage.finish("one", 3);
    check_views(&mut stage);
    let view = stage.reader.job(&home(), "one").expect("rows can be read").expect("the row exists");
    let numbers: Vec<u32> = view.attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 2], "oldest first");
}

/// Random requests and observations in batches of random size, with restarts in between.
pub fn any_history_reads_back_as_it_was_written(database: &dyn Database) {
    let mut chance = Chance(0x5eed);
    let mut stage = Stage::new(database);
    stage.create_workspace(elsewhere());
    let mut most_live = 0;
    for turn in 0..250 {
        if chance.below(40) == 0 {
            stage = stage.restart();
        }
        stage.pass_s(chance.below(50));
        let batch: Vec<Input> =
            (0..=chance.below(6)).map(|_| something(&mut stage, &mut chance)).collect();
        stage.say_all(&batch);
        most_live = most_live.max(stage.world.jobs().len());
        if turn % 10 == 0 {
            check_views(&mut stage);
        }
    }
    check_views(&mut stage);
    let ended = ended_jobs(&stage.log).len();
    assert!(
        ended > 20 && most_live > 5,
        "too little happened: {ended} ended, at most {most_live} live"
    );
    let events = stage.reader.events(Revision(0), usize::MAX).expect("rows can be read");
    let told: Vec<Box<str>> = stage.log.iter().map(text).collect();
    let read: Vec<Box<str>> = events.into_iter().map(|event| event.change).collect();
    assert_eq!(read, told);
}

/// The same inputs at the same time produce the same log, however many share a commit.
pub fn batches_do_not_change_the_log(database: &dyn Database) {
    let mut stage = Stage::new(database);
    let mut inputs = vec![put_cluster(home(), "cpu", 0, 3)];
    for number in 0..20 {
        inputs.push(stage.submission(home(), &format!("job-{number}"), "cpu", 1 + number % 3));
    }
    let mut alone = stage.world.clone();
    stage.say_all(&inputs);
    let mut changes = Vec::new();
    for input in inputs {
        changes.extend(muster_core::step(&mut alone, &[input], stage.now).changes);
    }
    let events = stage.reader.events(Revision(0), 1_000).expect("rows can be read");
    let tail = events.len() - changes.len();
    let read: Vec<Box<str>> = events.into_iter().skip(tail).map(|event| event.change).collect();
    assert_eq!(read, changes.iter().map(text).collect::<Vec<_>>());
}

fn elsewhere() -> WorkspaceKey {
    WorkspaceKey::new("sub-1", "group", "elsewhere")
}

fn something(stage: &mut Stage<'_>, chance: &mut Chance) -> Input {
    const CLUSTERS: [&str; 3] = ["cpu", "gpu", "Big-one"];
    let workspace = if chance.below(4) == 0 { elsewhere() } else { home() };
    let cluster = CLUSTERS[chance.below(3) as usize];
    let job = format!("job-{}", chance.below(300));
    match chance.below(20) {
        0 => {
            let most = chance.below(5) as u32;
            put_cluster(workspace, cluster, chance.below(2).min(u64::from(most)) as u32, most)
        }
        1 if chance.below(4) == 0 => Input::DeleteCluster { workspace, name: cluster.to_owned() },
        2 => {
            let known = stage.store.find_job(&workspace, &job).expect("rows can be read");
            Input::CancelJob { workspace, name: job, known: known.map(Box::new) }
        }
        3..=7 => stage.submission(workspace, &job, cluster, 1 + chance.below(3) as u32),
        8..=11 => {
            let effects: Vec<_> = stage.world.effects().map(|effect| effect.id).collect();
            let Some(effect) = chance.one_of(&effects) else { return Input::Tick };
            let result = if chance.below(8) == 0 { Err("no room".to_owned()) } else { Ok(()) };
            Input::EffectDone { effect: *effect, result }
        }
        _ => some_report(stage, chance),
    }
}

fn some_report(stage: &Stage<'_>, chance: &mut Chance) -> Input {
    let nodes: Vec<_> = stage.world.nodes().collect();
    let Some(node) = chance.one_of(&nodes) else { return Input::Tick };
    let leased = node.leases().first().and_then(|lease| stage.world.job(lease.job));
    let attempt = leased.and_then(Job::attempt);
    let attempt = attempt.and_then(|attempt| {
        let member = attempt.members.iter().find(|member| member.node == node.id)?;
        let phase = match &member.phase {
            _ if attempt.verdict.is_some() => AttemptPhase::Ended(Exit::Stopped),
            MemberPhase::Ordered | MemberPhase::Ready => AttemptPhase::Running,
            MemberPhase::Running if chance.below(3) == 0 => AttemptPhase::Running,
            MemberPhase::Running => AttemptPhase::Ended(Exit::Code(chance.below(3) as i32 / 2)),
            MemberPhase::Exited(exit) => AttemptPhase::Ended(exit.clone()),
            MemberPhase::Lost => AttemptPhase::Ended(Exit::Stopped),
        };
        Some((attempt.epoch, phase))
    });
    report(&node.name, attempt)
}

/// The final state of every job that is no longer in World.
fn ended_jobs(log: &[Change]) -> BTreeMap<JobId, &Job> {
    let ended = log.iter().filter_map(|change| match change {
        Change::JobChanged { job, .. } if job.phase().is_terminal() => Some((job.id, &**job)),
        _ => None,
    });
    ended.collect()
}

/// Compares what readers see with World, and with the log for jobs that World no longer has.
fn check_views(stage: &mut Stage<'_>) {
    for cluster in stage.world.clusters() {
        let index = stage.world.cluster_index(cluster.id).expect("every cluster has one");
        let workspace = stage.world.workspace_by_id(cluster.workspace).expect("the row exists");
        let name = cluster.name.as_str();
        let view = stage
            .reader
            .cluster(&workspace.key, name)
            .expect("rows can be read")
            .expect("the row exists");
        assert_eq!(&view.cluster, cluster);
        let mut counts = NodeCounts::default();
        let nodes = stage.reader.nodes(&workspace.key, name).expect("rows can be read");
        for view in &nodes {
            assert_eq!(stage.world.node(view.node.id), Some(&view.node));
            let lease = view.node.leases().first();
            let job = lease.and_then(|lease| stage.world.job(lease.job));
            assert_eq!(view.job, job.map(|job| job.name.clone()));
            match view.node.phase() {
                NodePhase::Requested | NodePhase::Booting => counts.preparing += 1,
                NodePhase::Idle => counts.idle += 1,
                NodePhase::Leased => counts.running += 1,
                NodePhase::Unusable => counts.unusable += 1,
                NodePhase::Leaving => counts.leaving += 1,
                NodePhase::Gone => panic!("{} is gone", view.node.name),
            }
        }
        assert_eq!((nodes.len(), view.counts), (index.existing() as usize, counts));
    }
    let live: BTreeMap<JobId, &Job> = stage.world.jobs().map(|job| (job.id, job)).collect();
    for (id, job) in ended_jobs(&stage.log).into_iter().chain(live) {
        assert_eq!(stage.reader.job_by_id(id).expect("rows can be read").as_ref(), Some(job));
    }
    let now = stage.now.wall;
    let total = |sums: &[LedgerSum]| sums.iter().map(|sum| sum.node_us).sum::<u64>();
    let middle = Wall(u64::midpoint(Stage::START.0, now.0));
    for by in [LedgerBy::Cluster, LedgerBy::User, LedgerBy::Tag("owner".into())] {
        for since in [None, Some(middle)] {
            let query = LedgerQuery { by: by.clone(), since, now };
            let mut sums = stage.reader.ledger_by(&home(), &query).expect("rows can be read");
            sums.extend(stage.reader.ledger_by(&elsewhere(), &query).expect("rows can be read"));
            assert_eq!(total(&sums), total(&expected_sums(stage, &query)), "{query:?}");
        }
    }
}
