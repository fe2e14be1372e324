//! Under every lease that can be set, nothing runs on a node any more when its job may be given to another.

use std::sync::Arc;

use crate::support::{Stage, rows};
use muster_core::agent::{
    Action, Assignment, AttemptPhase, AttemptReport, Desired, Machine, Report, Signal, Timing,
};
use muster_core::catalogue::Catalogue;
use muster_core::ids::Epoch;
use muster_core::lease::{LEASE_MAX, LEASE_MIN, held, patience, silence};
use muster_core::model::{JobPhase, NodePhase, SpecHash};
use muster_core::time::{Elapsed, Span};
use muster_core::{Input, Reply, Settings, World, renew_unchanged};

fn every_lease() -> impl Iterator<Item = Span> {
    (LEASE_MIN.as_seconds()..=LEASE_MAX.as_seconds()).map(Span::seconds)
}

fn desired(lease: Span, assignments: Vec<Assignment>) -> Desired {
    let (as_of, floor) = (Epoch(100), Epoch(0));
    Desired { lease, assignments, as_of, floor, acknowledged: Vec::new(), end: false }
}

/// A node that runs a job; its report of second 1000 was answered, and it hears nothing more.
fn alone(lease: Span) -> (Machine, Elapsed) {
    let sent = Elapsed(1_000_000_000);
    let mut machine = Machine::new("boot", "10.0.0.4", Timing::default(), Elapsed(0));
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
        evict: None,
        task: None,
        followers: Vec::new(),
        is_recalled: false,
    };
    machine.on_desired(&desired(lease, vec![assignment]), 1, sent, sent);
    machine.on_started(Epoch(7), None, sent);
    (machine, sent)
}

/// The signals that the machine sends, with their times, until none is left.
fn signals(machine: &mut Machine) -> Vec<(Elapsed, Signal)> {
    let mut sent = Vec::new();
    while !sent.iter().any(|(_, signal)| *signal == Signal::Kill) {
        let now = machine.next_tick();
        sent.extend(machine.on_tick(now).into_iter().filter_map(|action| match action {
            Action::Signal { signal, .. } => Some((now, signal)),
            _ => None,
        }));
    }
    sent
}

#[test]
fn a_process_that_ignores_the_signal_is_killed_before_its_job_may_run_elsewhere() {
    for lease in every_lease() {
        let (mut machine, sent) = alone(lease);
        let [(asked, Signal::Terminate), (killed, Signal::Kill)] = signals(&mut machine)[..] else {
            panic!("first it is asked, then killed");
        };
        // The server counts from when it received that report, or later.
        let (ends, given_on) = (sent + lease, sent + patience(lease));
        let slack = Span(lease.0 / 12);
        assert!(asked + slack <= killed && killed + slack <= ends, "{lease:?}");
        assert!(ends + slack <= given_on, "{lease:?}");
        // Even if a report is as late as possible, the next one arrives before anything is stopped.
        assert!(sent + held(lease) + held(lease) < asked, "{lease:?}");
        assert!(silence(lease) < patience(lease), "its host counts as silent before that");
    }
}

#[test]
fn a_cancelled_job_has_its_time_but_not_beyond_the_lease() {
    let (mut machine, sent) = alone(LEASE_MIN);
    let actions = machine.on_desired(&desired(LEASE_MIN, Vec::new()), 2, sent, sent);
    assert!(actions.contains(&Action::Signal { epoch: Epoch(7), signal: Signal::Terminate }));
    let [(killed, Signal::Kill)] = signals(&mut machine)[..] else { panic!("it was asked before") };
    assert!(killed < sent + LEASE_MIN, "{killed:?}");
}

#[test]
fn an_agent_that_wakes_up_after_its_lease_kills_at_once() {
    let (mut machine, sent) = alone(LEASE_MAX);
    let late = sent + LEASE_MAX;
    let sent: Vec<Signal> = machine
        .on_tick(late)
        .into_iter()
        .filter_map(|action| match action {
            Action::Signal { signal, .. } => Some(signal),
            _ => None,
        })
        .collect();
    assert_eq!(sent, [Signal::Terminate, Signal::Kill]);
}

#[test]
fn a_silent_node_is_lost_after_its_own_lease() {
    let mut stage = Stage::new();
    stage.world.settings.lease = LEASE_MIN;
    stage.put_cluster("pool", 0, 1, 120).expect("a valid cluster");
    stage.submit("job", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("job");
    stage.silence(Span(patience(LEASE_MIN).0 - 1));
    stage.say(Input::Tick).expect("a tick");
    assert_eq!(stage.phase("job"), JobPhase::Running);
    stage.silence(Span(1));
    stage.say(Input::Tick).expect("a tick");
    assert_eq!(stage.phase("job"), JobPhase::Queued);
    assert_eq!(stage.nodes(), [NodePhase::Unusable]);
}

#[test]
fn a_shorter_lease_does_not_shorten_what_was_promised_before() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 120);
    stage.submit("job", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("job");
    // A report was just answered with a lease of a minute; then the server restarts with another setting.
    let settings = Settings { lease: LEASE_MIN, ..Settings::default() };
    let catalogue = Arc::new(Catalogue::builtin());
    stage.world = World::rebuild(rows(&stage.log), 2, settings, catalogue, stage.now);
    // Its report arrives, but it is unknown whether it receives the answer.
    stage.silence(Span::seconds(1));
    stage.run("job");
    stage.silence(Span(patience(LEASE_MAX).0 - 1_000_001));
    stage.say(Input::Tick).expect("a tick");
    assert_eq!(stage.phase("job"), JobPhase::Running, "its agent may still hold the old lease");
    stage.silence(Span(1));
    stage.say(Input::Tick).expect("a tick");
    assert_eq!(stage.phase("job"), JobPhase::Queued);
}

/// Otherwise the server would step and check its store for every poll of every idle node.
#[test]
fn a_report_with_nothing_new_is_a_renewal_and_any_other_needs_a_step() {
    let mut stage = Stage::with_cluster("pool", 1, 1, 600);
    stage.provide();
    stage.report_all();
    let node = stage.world.nodes().next().expect("one node").clone();
    let report = |attempts: &[(Epoch, AttemptPhase)]| Report {
        boot_id: node.boot_id.as_ref().into(),
        address: node.address.as_ref().into(),
        floor: attempts.iter().map(|(epoch, _)| *epoch).max().unwrap_or(Epoch(0)),
        attempts: attempts
            .iter()
            .map(|(epoch, phase)| AttemptReport::new(*epoch, phase.clone()))
            .collect(),
        waiting: Vec::new(),
    };
    let renew = |stage: &mut Stage, report: &Report| {
        renew_unchanged(&mut stage.world, &node.name, report, stage.now)
    };

    stage.silence(Span::seconds(10));
    let answer = renew(&mut stage, &report(&[]));
    assert!(matches!(answer, Some(Reply::Desired(desired)) if !desired.end));
    assert_eq!(stage.world.last_renewal(node.id), Some(stage.now.elapsed));
    let rebooted = Report { boot_id: "another".into(), ..report(&[]) };
    assert_eq!(renew(&mut stage, &rebooted), None, "a reboot");

    stage.submit("job", "pool", 1).expect("accepted");
    assert_eq!(renew(&mut stage, &report(&[])), None, "there is an assignment");
    let epoch = stage.members("job")[0].1;
    assert!(renew(&mut stage, &report(&[(epoch, AttemptPhase::Preparing)])).is_some());
    assert_eq!(renew(&mut stage, &report(&[(epoch, AttemptPhase::Running)])), None, "it runs");
    stage.report(&node.name, &[(epoch, AttemptPhase::Running)]);
    assert!(renew(&mut stage, &report(&[(epoch, AttemptPhase::Running)])).is_some());
    let ended = AttemptPhase::Ended(muster_core::model::Exit::Code(0));
    assert_eq!(renew(&mut stage, &report(&[(epoch, ended)])), None, "it has ended");
    stage.cancel("job").expect("accepted");
    let running = report(&[(epoch, AttemptPhase::Running)]);
    assert_eq!(renew(&mut stage, &running), None, "it has to stop");
}
