//! Low-priority nodes are evicted: with notice, with time to end, and with the job back in the queue.

use std::sync::Arc;

use crate::support::{self, Stage, Wants, request, user, workspace};
use muster_core::agent::{
    Action, Assignment, AttemptPhase, AttemptReport, Desired, Machine, Report, Signal, Timing,
};
use muster_core::ids::Epoch;
use muster_core::model::{
    AttemptOutcome, Exit, Failure, FailureClass, JobPhase, JobSpec, JobState, NodePhase,
    OnEviction, Priority, SpecHash, Tier,
};
use muster_core::time::{Elapsed, Span};
use muster_core::{Change, ClusterPatch, Input, InputResult, RefusalKind, Reply};

const GRACE: Span = Span::seconds(30);

fn spot(nodes_max: u32) -> Stage {
    let mut stage = Stage::new();
    let wanted = ClusterPatch {
        tier: Some(Tier::LowPriority),
        nodes_max: Some(nodes_max),
        ..ClusterPatch::default()
    };
    stage.put("spot", wanted).expect("a valid cluster");
    stage
}

/// A running job on this many low-priority nodes.
fn running(nodes: u32) -> Stage {
    let mut stage = spot(nodes);
    stage.submit("job", "spot", nodes).expect("accepted");
    stage.provide();
    stage.run("job");
    stage
}

fn name_of(stage: &Stage, rank: usize) -> String {
    let (node, _) = stage.members("job")[rank];
    stage.world.node(node).expect("a member").name.to_string()
}

fn evict(stage: &mut Stage, cluster: &str, node: &str) -> InputResult {
    let (cluster, node) = (cluster.to_owned(), node.to_owned());
    stage.say(Input::EvictNode { workspace: workspace(), cluster, node })
}

/// What the member of this rank is told when it sends this report.
fn says(stage: &mut Stage, rank: usize, phase: AttemptPhase) -> Desired {
    let (name, epoch) = (name_of(stage, rank), stage.members("job")[rank].1);
    stage.report(&name, &[(epoch, phase)])
}

#[test]
fn dedicated_nodes_are_not_evicted() {
    let mut stage = Stage::with_cluster("pool", 1, 1, 60);
    stage.provide();
    let node = stage.world.nodes().next().expect("the minimum").name.to_string();
    let refused = evict(&mut stage, "pool", &node).expect_err("it is dedicated");
    assert_eq!(refused.kind, RefusalKind::Invalid);
    assert!(refused.to_string().contains("low_priority"), "{refused}");
    let refused = evict(&mut stage, "pool", "none").expect_err("no such node");
    assert_eq!(refused.kind, RefusalKind::NotFound);
    assert_eq!(stage.nodes(), [NodePhase::Idle]);
}

#[test]
fn a_node_without_a_job_goes_at_once() {
    let mut stage = running(1);
    stage.finish("job");
    let node = stage.world.nodes().next().expect("idle").name.to_string();
    assert_eq!(evict(&mut stage, "spot", &node), Ok(Reply::Evicting { within: Span::ZERO }));
    assert_eq!(stage.nodes(), [NodePhase::Unusable]);
    let refused = evict(&mut stage, "spot", &node).expect_err("it is already being deleted");
    assert_eq!(refused.kind, RefusalKind::Conflict);
}

#[test]
fn a_job_is_notified_has_its_time_and_waits_again() {
    let mut stage = running(1);
    let node = name_of(&stage, 0);
    for _ in 0..2 {
        assert_eq!(evict(&mut stage, "spot", &node), Ok(Reply::Evicting { within: GRACE }));
    }
    let desired = says(&mut stage, 0, AttemptPhase::Running);
    assert_eq!(desired.assignments[0].evict, Some(GRACE));
    assert!(!desired.end, "not before the job has ended");
    assert_eq!(stage.phase("job"), JobPhase::Running);
    says(&mut stage, 0, AttemptPhase::Evicting);
    says(&mut stage, 0, AttemptPhase::Ended(Exit::Evicted));
    let job = stage.job("job").expect("live");
    assert_eq!((job.phase(), job.attempts, job.losses), (JobPhase::Queued, 1, 0));
    assert_eq!(stage.count(NodePhase::Unusable), 1, "the node is being deleted");
}

/// A cluster of two nodes on which `names` have run and were evicted, in this order.
fn returned(names: &[(&str, &str, Priority)]) -> Stage {
    let mut stage = spot(2);
    for (name, by, priority) in names {
        let wants = Wants { priority: *priority, ..Wants::default() };
        stage.submit_as(user(by), name, "spot", wants).expect("accepted");
    }
    stage.provide();
    for (name, _, _) in names {
        stage.run(name);
        let (node, epoch) = stage.members(name)[0];
        let node = stage.world.node(node).expect("a member").name.to_string();
        evict(&mut stage, "spot", &node).expect("it is low priority");
        stage.report(&node, &[(epoch, AttemptPhase::Ended(Exit::Evicted))]);
        assert_eq!(stage.phase(name), JobPhase::Queued);
    }
    stage
}

/// The jobs in the order in which they start on a single node.
fn served(stage: &mut Stage, jobs: usize) -> Vec<String> {
    let one = ClusterPatch { nodes_max: Some(1), ..ClusterPatch::default() };
    stage.patch("spot", one).expect("a valid maximum");
    let mut served = Vec::new();
    for _ in 0..jobs {
        while stage.starting().is_empty() {
            stage.provide();
        }
        let name = stage.starting().remove(0);
        stage.run(&name);
        stage.finish(&name);
        served.push(name);
    }
    served
}

#[test]
fn an_evicted_job_goes_first_of_its_priority_whatever_its_user_has_used() {
    // By then, Ann has used more than any other user.
    let mut stage = returned(&[("a1", "ann", Priority::Medium), ("a2", "ann", Priority::Medium)]);
    for (name, by, priority) in [
        ("b1", "bob", Priority::Medium),
        ("b2", "bob", Priority::High),
        ("a3", "ann", Priority::Medium),
    ] {
        let wants = Wants { priority, ..Wants::default() };
        stage.submit_as(user(by), name, "spot", wants).expect("accepted");
    }
    assert_eq!(served(&mut stage, 5), ["b2", "a1", "a2", "b1", "a3"]);
}

#[test]
fn evicted_jobs_keep_the_order_of_their_arrival() {
    let jobs = [("a1", "ann", Priority::Medium), ("b1", "bob", Priority::Medium)];
    let mut stage = returned(&jobs);
    let mut turned = returned(&[jobs[1], jobs[0]]);
    assert_eq!(served(&mut stage, 2), ["a1", "b1"]);
    assert_eq!(served(&mut turned, 2), ["b1", "a1"]);
}

#[test]
fn a_lost_node_puts_its_job_back_to_where_it_stood() {
    let mut stage = spot(1);
    stage.submit_as(user("ann"), "a1", "spot", Wants::default()).expect("accepted");
    stage.provide();
    stage.run("a1");
    stage.submit_as(user("bob"), "b1", "spot", Wants::default()).expect("accepted");
    stage.silence(Span::seconds(600));
    stage.say(Input::Tick).expect("a tick");
    assert!(!stage.job("a1").expect("live").is_returned);
    assert_eq!(served(&mut stage, 2), ["b1", "a1"], "bob has used less");
}

#[test]
fn every_attempt_has_its_own_lines_in_the_ledger() {
    let mut stage = running(1);
    stage.pass_s(60);
    let node = name_of(&stage, 0);
    evict(&mut stage, "spot", &node).expect("it is low priority");
    says(&mut stage, 0, AttemptPhase::Ended(Exit::Evicted));
    stage.provide();
    stage.provide();
    stage.run("job");
    stage.pass_s(60);
    stage.finish("job");
    assert_eq!(stage.phase("job"), JobPhase::Completed);
    let lines = stage.log.iter().filter_map(|change| match change {
        Change::LedgerPosted(line) => line.served.map(|served| (served.epoch, line.outcome)),
        _ => None,
    });
    let mut lines: Vec<(Epoch, AttemptOutcome)> = lines.collect();
    lines.sort_unstable_by_key(|(epoch, _)| *epoch);
    lines.dedup();
    let outcomes: Vec<AttemptOutcome> = lines.into_iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(outcomes, [AttemptOutcome::Evicted, AttemptOutcome::Succeeded]);
}

#[test]
fn no_other_job_starts_on_a_node_that_is_being_evicted() {
    let mut stage = spot(1);
    let share = muster_core::model::ShareRequest { vcpus: Some(1), ..<_>::default() };
    let wants = Wants { share, ..Wants::default() };
    stage.submit_as(support::someone(), "job", "spot", wants).expect("accepted");
    stage.provide();
    stage.run("job");
    let node = name_of(&stage, 0);
    evict(&mut stage, "spot", &node).expect("it is low priority");
    stage.submit_as(support::someone(), "next", "spot", wants).expect("accepted");
    assert_eq!(stage.phase("next"), JobPhase::Queued);
}

#[test]
fn a_job_that_ends_well_in_time_is_done_and_its_node_leaves() {
    let mut stage = running(1);
    let node = name_of(&stage, 0);
    evict(&mut stage, "spot", &node).expect("it is low priority");
    stage.finish("job");
    assert_eq!(stage.phase("job"), JobPhase::Completed);
    assert_eq!(stage.nodes(), [NodePhase::Unusable]);
}

#[test]
fn what_has_not_started_never_does() {
    let mut stage = spot(1);
    stage.submit("job", "spot", 1).expect("accepted");
    stage.provide();
    let node = name_of(&stage, 0);
    evict(&mut stage, "spot", &node).expect("it is low priority");
    assert_eq!(says(&mut stage, 0, AttemptPhase::Preparing).assignments, []);
    says(&mut stage, 0, AttemptPhase::Ended(Exit::Stopped));
    assert_eq!(stage.phase("job"), JobPhase::Queued);
    assert_eq!(stage.job("job").expect("live").losses, 0);
}

#[test]
fn a_job_may_ask_to_fail_instead() {
    let mut stage = spot(1);
    let mut asked = request("job", "spot", Wants::default());
    let spec = JobSpec { on_eviction: OnEviction::Fail, ..JobSpec::clone(&asked.spec) };
    asked.spec = Arc::new(spec);
    stage.say(Input::SubmitJob(Box::new(asked))).expect("accepted");
    stage.provide();
    stage.run("job");
    let (id, _) = stage.members("job")[0];
    let node = name_of(&stage, 0);
    evict(&mut stage, "spot", &node).expect("it is low priority");
    says(&mut stage, 0, AttemptPhase::Ended(Exit::Evicted));
    let ended = stage.log.iter().rev().find_map(|change| match change {
        Change::JobChanged { job, .. } => Some(job.state.clone()),
        _ => None,
    });
    let Some(JobState::Failed { why, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!(*why, Failure::Evicted { node: id });
    assert_eq!(why.class(), FailureClass::Node);
}

#[test]
fn every_member_of_a_gang_is_notified_and_none_loses_its_time() {
    let mut stage = running(2);
    let node = name_of(&stage, 1);
    evict(&mut stage, "spot", &node).expect("it is low priority");
    for rank in 0..2 {
        let desired = says(&mut stage, rank, AttemptPhase::Running);
        assert_eq!(desired.assignments[0].evict, Some(GRACE), "rank {rank}");
    }
    says(&mut stage, 1, AttemptPhase::Ended(Exit::Evicted));
    let desired = says(&mut stage, 0, AttemptPhase::Evicting);
    assert_eq!(desired.assignments[0].evict, Some(GRACE), "it may still save its checkpoint");
    says(&mut stage, 0, AttemptPhase::Ended(Exit::Evicted));
    assert_eq!(stage.phase("job"), JobPhase::Queued);
    assert_eq!((stage.count(NodePhase::Idle), stage.count(NodePhase::Unusable)), (1, 1));
}

#[test]
fn a_node_that_falls_silent_under_notice_counts_as_evicted() {
    let mut stage = running(1);
    let node = name_of(&stage, 0);
    evict(&mut stage, "spot", &node).expect("it is low priority");
    stage.silence(Span::seconds(120));
    stage.say(Input::Tick).expect("a tick");
    assert_eq!(stage.phase("job"), JobPhase::Queued);
    assert_eq!(stage.job("job").expect("live").losses, 0);
}

#[test]
fn two_nodes_that_fall_silent_together_leave_once_each() {
    let mut stage = running(2);
    // The noticed node is given up last: the attempt is over with the first one, and then the noticed node is evicted.
    let rank = usize::from(stage.members("job")[0].0 < stage.members("job")[1].0);
    let noticed = name_of(&stage, rank);
    evict(&mut stage, "spot", &noticed).expect("it is low priority");
    says(&mut stage, rank, AttemptPhase::Ended(Exit::Code(0)));
    stage.silence(Span::seconds(120));
    stage.say(Input::Tick).expect("a tick");
    assert_eq!(stage.count(NodePhase::Unusable), 2);
    assert_eq!(stage.phase("job"), JobPhase::Queued);
}

#[test]
fn a_node_that_restarts_under_notice_leaves_once() {
    let mut stage = running(1);
    let (node, (_, epoch)) = (name_of(&stage, 0), stage.members("job")[0]);
    evict(&mut stage, "spot", &node).expect("it is low priority");
    let attempts = vec![AttemptReport::new(epoch, AttemptPhase::Ended(Exit::Stopped))];
    let (boot_id, address) = ("another".into(), "10.0.0.4".into());
    let report = Report { boot_id, address, floor: epoch, attempts, waiting: Vec::new() };
    stage.say(Input::Report { node, report }).expect("noted");
    assert_eq!(stage.nodes()[0], NodePhase::Unusable);
    let job = stage.job("job").expect("live");
    assert_eq!((job.phase(), job.losses), (JobPhase::Queued, 0));
}

// The node's side.

fn at(seconds: u64) -> Elapsed {
    Elapsed(seconds * 1_000_000)
}

fn desired(evict: Option<Span>) -> Desired {
    let assignment = Assignment {
        share: None,
        epoch: Epoch(7),
        job_name: "job".into(),
        attempt: 1,
        spec: SpecHash::made_up("hash"),
        rank: 0,
        nodes: 1,
        go: true,
        addresses: Vec::new(),
        evict,
        task: None,
        followers: Vec::new(),
        is_recalled: false,
    };
    Desired {
        lease: Span::seconds(60),
        assignments: vec![assignment],
        as_of: Epoch(100),
        floor: Epoch(0),
        acknowledged: Vec::new(),
        end: false,
    }
}

/// A node whose job was notified at 10 s.
fn notified() -> Machine {
    let mut machine = Machine::new("boot", "10.0.0.4", Timing::default(), at(0));
    machine.on_desired(&desired(None), 1, at(0), at(0));
    machine.on_started(Epoch(7), None, at(0));
    let epoch = Epoch(7);
    let actions = machine.on_desired(&desired(Some(GRACE)), 2, at(10), at(10));
    let expected = [
        Action::Notice { epoch, within: GRACE },
        Action::Signal { epoch, signal: Signal::Terminate },
        Action::Report,
    ];
    assert_eq!(actions, expected);
    assert_eq!(machine.report().attempts[0].phase, AttemptPhase::Evicting);
    assert_eq!(machine.on_desired(&desired(Some(GRACE)), 3, at(11), at(11)), [], "notified once");
    machine
}

#[test]
fn what_runs_is_asked_to_end_and_killed_when_its_time_is_over() {
    let mut machine = notified();
    assert_eq!(machine.on_tick(at(39)), []);
    let kill = Action::Signal { epoch: Epoch(7), signal: Signal::Kill };
    assert_eq!(machine.on_tick(at(40)), [kill]);
    machine.on_exited(Epoch(7), Exit::Signal(9), at(40));
    assert_eq!(machine.report().attempts[0].phase, AttemptPhase::Ended(Exit::Evicted));
    let mut machine = notified();
    machine.on_exited(Epoch(7), Exit::Code(0), at(20));
    assert_eq!(machine.report().attempts[0].phase, AttemptPhase::Ended(Exit::Code(0)));
}

#[test]
fn nothing_runs_when_the_lease_is_over_whatever_time_was_given() {
    let mut machine = Machine::new("boot", "10.0.0.4", Timing::default(), at(0));
    machine.on_desired(&desired(None), 1, at(0), at(0));
    machine.on_started(Epoch(7), None, at(0));
    machine.on_desired(&desired(Some(Span::seconds(300))), 2, at(10), at(10));
    assert_eq!(machine.next_tick(), at(10 + 60 - 15), "it acts again when the lease runs out");
    assert_eq!(machine.on_tick(at(55)), []);
    assert_eq!(machine.next_tick(), at(65));
    let kill = Action::Signal { epoch: Epoch(7), signal: Signal::Kill };
    assert_eq!(machine.on_tick(at(65)), [kill], "before 70, when the lease ends");
}
