//! Multi-node jobs: all members start together or none does, and all know the addresses of the others.

use crate::support::{self, Stage, Wants, request, someone};
use muster_core::Change;
use muster_core::agent::{
    Action, Assignment, AttemptPhase, AttemptReport, Desired, Machine, Report, Signal, Timing,
    master_port,
};
use muster_core::ids::Epoch;
use muster_core::model::{Exit, Failure, JobPhase, JobState, ShareRequest, SpecHash};
use muster_core::time::{Elapsed, Span};
use muster_core::{Input, Reply, World, WorldRows, step};

/// A job on two nodes with different addresses, which have been granted.
fn granted() -> Stage {
    let mut stage = Stage::with_cluster("pool", 0, 2, 120);
    stage.submit("gang", "pool", 2).expect("accepted");
    stage.settle_effects(|_| true);
    let names: Vec<String> = stage.world.nodes().map(|node| node.name.to_string()).collect();
    for (number, name) in names.iter().enumerate() {
        let address = format!("10.0.0.{}", 4 + number).into();
        let boot_id = "boot".into();
        let report =
            Report { boot_id, address, floor: Epoch(0), attempts: Vec::new(), waiting: Vec::new() };
        stage.say(Input::Report { node: name.clone(), report }).expect("welcome");
    }
    assert_eq!(stage.phase("gang"), JobPhase::Starting);
    stage
}

fn member(stage: &Stage, rank: usize) -> (String, Epoch) {
    let (node, epoch) = stage.members("gang")[rank];
    (stage.world.node(node).expect("a member").name.to_string(), epoch)
}

/// What the member of this rank is told when it sends this report.
fn says(stage: &mut Stage, rank: usize, phase: AttemptPhase) -> Desired {
    let (name, epoch) = member(stage, rank);
    stage.report(&name, &[(epoch, phase)])
}

#[test]
fn an_assignment_has_all_addresses_until_it_is_prepared() {
    let mut stage = granted();
    let (name, _) = member(&stage, 1);
    let addresses: Vec<String> = stage
        .members("gang")
        .iter()
        .map(|(node, _)| stage.world.node(*node).expect("a member").address.to_string())
        .collect();
    assert_eq!(addresses.len(), 2);
    assert_ne!(addresses[0], addresses[1]);
    let assignment = stage.report(&name, &[]).assignments.remove(0);
    let told: Vec<String> = assignment.addresses.iter().map(ToString::to_string).collect();
    assert_eq!((told, assignment.rank, assignment.go), (addresses, 1, false));
    let assignment = says(&mut stage, 1, AttemptPhase::Ready).assignments.remove(0);
    assert_eq!(assignment.addresses, [], "it knows them already");
}

#[test]
fn no_member_starts_before_all_are_ready() {
    let mut stage = granted();
    assert!(!says(&mut stage, 0, AttemptPhase::Ready).assignments[0].go);
    assert!(!says(&mut stage, 1, AttemptPhase::Preparing).assignments[0].go);
    assert!(says(&mut stage, 1, AttemptPhase::Ready).assignments[0].go);
    let first = says(&mut stage, 0, AttemptPhase::Ready);
    assert!(first.assignments[0].go);
    let (_, epoch) = member(&stage, 0);
    let attempts = vec![AttemptReport::new(epoch, AttemptPhase::Ready)];
    let report = Report {
        boot_id: "b".into(),
        address: "a".into(),
        floor: epoch,
        attempts,
        waiting: Vec::new(),
    };
    assert!(first.is_news_to(&report), "its long poll comes back");
    stage.run("gang");
    assert_eq!(stage.phase("gang"), JobPhase::Running);
}

#[test]
fn a_member_that_is_done_early_does_not_hold_back_the_others() {
    let mut stage = granted();
    says(&mut stage, 0, AttemptPhase::Ready);
    says(&mut stage, 1, AttemptPhase::Ready);
    says(&mut stage, 0, AttemptPhase::Ended(Exit::Code(0)));
    assert!(says(&mut stage, 1, AttemptPhase::Ready).assignments[0].go);
    says(&mut stage, 1, AttemptPhase::Ended(Exit::Code(0)));
    assert_eq!(stage.phase("gang"), JobPhase::Completed);
}

#[test]
fn a_single_node_starts_without_waiting_for_go() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 120);
    stage.submit("alone", "pool", 1).expect("accepted");
    stage.settle_effects(|_| true);
    let name = stage.world.nodes().next().expect("asked for").name.to_string();
    let assignment = stage.report(&name, &[]).assignments.remove(0);
    assert!(assignment.go, "together with the assignment, without another round trip");
    assert_eq!(assignment.addresses, []);
}

#[test]
fn if_one_member_cannot_be_prepared_none_starts_and_the_job_fails() {
    let mut stage = granted();
    says(&mut stage, 0, AttemptPhase::Ready);
    let message = "no such image".into();
    says(&mut stage, 1, AttemptPhase::Ended(Exit::NotStarted { message }));
    let desired = says(&mut stage, 0, AttemptPhase::Ready);
    assert_eq!(desired.assignments, [], "it has to stop instead of starting");
    let (failing, _) = stage.members("gang")[1];
    says(&mut stage, 0, AttemptPhase::Ended(Exit::Stopped));
    let ended = stage.log.iter().rev().find_map(|change| match change {
        Change::JobChanged { job, .. } => Some(job.state.clone()),
        _ => None,
    });
    let Some(JobState::Failed { why, .. }) = ended else { panic!("{ended:?}") };
    let Failure::Exit { node, rank, .. } = *why else { panic!("{why:?}") };
    assert_eq!((node, rank), (failing, 1), "the reason names the member and its node");
}

#[test]
fn if_one_member_is_lost_before_all_are_ready_none_starts_and_the_job_waits_again() {
    let mut stage = granted();
    says(&mut stage, 0, AttemptPhase::Ready);
    let (lost, _) = member(&stage, 1);
    stage.say(Input::NodeEvicted { node: lost }).expect("noted");
    let desired = says(&mut stage, 0, AttemptPhase::Ready);
    assert_eq!(desired.assignments, []);
    says(&mut stage, 0, AttemptPhase::Ended(Exit::Stopped));
    assert_eq!(stage.phase("gang"), JobPhase::Queued);
    assert_eq!(stage.job("gang").expect("live").attempts, 1);
}

#[test]
fn attempts_with_rank_0_on_one_node_never_share_a_port() {
    assert_eq!(master_port(Epoch(7)), master_port(Epoch(10_007)));
    let mut stage = Stage::with_cluster("pool", 0, 1, 120);
    let share = ShareRequest { vcpus: Some(1), ..ShareRequest::default() };
    let wants = Wants { share, ..Wants::default() };
    stage.submit_as(someone(), "first", "pool", wants).expect("accepted");
    stage.provide();
    let (_, first) = stage.members("first")[0];
    // After this many numbers, the job's ID is the last one before an epoch with the same port.
    let rows = WorldRows { next_sequence: first.0 + 9_999, ..support::rows(&stage.log) };
    let World { settings, catalogue, .. } = stage.world.clone();
    stage.world = World::rebuild(rows, 1, settings, catalogue, stage.now);
    let later = request("second", "pool", wants);
    step(&mut stage.world, &[Input::SubmitJob(Box::new(later))], stage.now);
    let (_, second) = stage.members("second")[0];
    assert_eq!(second, Epoch(first.0 + 10_001), "one was skipped");
}

// The node's side.

fn at(seconds: u64) -> Elapsed {
    Elapsed(seconds * 1_000_000)
}

fn assignment(go: bool) -> Assignment {
    Assignment {
        share: None,
        epoch: Epoch(7),
        job_name: "gang".into(),
        attempt: 1,
        spec: SpecHash::made_up("hash"),
        rank: 0,
        nodes: 2,
        go,
        addresses: vec!["10.0.0.4".into(), "10.0.0.5".into()],
        evict: None,
        task: None,
        followers: Vec::new(),
        is_recalled: false,
    }
}

fn desired(assignments: Vec<Assignment>) -> Desired {
    Desired {
        lease: Span::seconds(60),
        assignments,
        as_of: Epoch(100),
        floor: Epoch(0),
        acknowledged: Vec::new(),
        end: false,
    }
}

/// A node that has prepared its member and waits.
fn ready() -> Machine {
    let mut machine = Machine::new("boot", "10.0.0.4", Timing::default(), at(0));
    let actions = machine.on_desired(&desired(vec![assignment(false)]), 1, at(0), at(0));
    assert!(actions.contains(&Action::Start(assignment(false))));
    assert_eq!(machine.on_prepared(Epoch(7)), [Action::Report]);
    assert_eq!(machine.report().attempts[0].phase, AttemptPhase::Ready);
    machine
}

#[test]
fn a_ready_member_starts_once_when_go_is_set() {
    let mut machine = ready();
    assert_eq!(machine.on_desired(&desired(vec![assignment(false)]), 2, at(1), at(1)), []);
    let go = machine.on_desired(&desired(vec![assignment(true)]), 3, at(2), at(2));
    assert_eq!(go, [Action::Go(Epoch(7))]);
    assert_eq!(machine.on_desired(&desired(vec![assignment(true)]), 4, at(3), at(3)), []);
    machine.on_started(Epoch(7), None, at(4));
    assert_eq!(machine.report().attempts[0].phase, AttemptPhase::Running);
}

#[test]
fn a_ready_member_that_is_unwanted_never_starts() {
    let mut machine = ready();
    let actions = machine.on_desired(&desired(Vec::new()), 2, at(1), at(1));
    let stop = Action::Signal { epoch: Epoch(7), signal: Signal::Terminate };
    assert_eq!(actions, [stop]);
    let go = machine.on_desired(&desired(vec![assignment(true)]), 3, at(2), at(2));
    assert_eq!(go, [], "it was asked to stop");
    let mut machine = ready();
    assert_eq!(machine.on_tick(at(45)).len(), 1, "its lease runs out");
    let late = machine.on_desired(&desired(vec![assignment(true)]), 2, at(0), at(46));
    assert_eq!(late, []);
}

#[test]
fn an_assignment_without_the_go_field_starts_at_once() {
    let text = r#"{"epoch":7,"job_name":"gang","attempt":1,"spec":"SPEC","rank":0,"nodes":2}"#;
    let spec = serde_json::to_string(&SpecHash::made_up("hash")).expect("plain");
    let assignment: Assignment =
        serde_json::from_str(&text.replace("\"SPEC\"", &spec)).expect("readable");
    assert!(assignment.go);
    assert_eq!(assignment.addresses, []);
}

#[test]
fn the_answer_to_the_last_ready_report_sets_go() {
    let mut stage = granted();
    says(&mut stage, 0, AttemptPhase::Ready);
    let (name, epoch) = member(&stage, 1);
    let attempts = vec![AttemptReport::new(epoch, AttemptPhase::Ready)];
    let report = Report {
        boot_id: "boot".into(),
        address: "10.0.0.5".into(),
        floor: epoch,
        attempts,
        waiting: Vec::new(),
    };
    let answer = stage.say(Input::Report { node: name, report });
    let Ok(Reply::Desired(desired)) = answer else { panic!("{answer:?}") };
    assert!(desired.assignments[0].go);
}
