//! The node's side: merging, the lease, the journal, and messages that arrive late, twice or never.

use muster_core::agent::{
    Action, Assignment, AttemptPhase, Desired, Machine, Record, Signal, Timing,
};
use muster_core::ids::Epoch;
use muster_core::model::{Exit, SpecHash};
use muster_core::time::{Elapsed, Span};

const LEASE: Span = Span::seconds(60);

fn at(seconds: u64) -> Elapsed {
    Elapsed(seconds * 1_000_000)
}

fn machine() -> Machine {
    Machine::new("boot", "10.0.0.4", Timing::default(), at(0))
}

fn assignment(epoch: u64) -> Assignment {
    Assignment {
        share: None,
        epoch: Epoch(epoch),
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
    }
}

fn desired(assignments: &[u64]) -> Desired {
    Desired {
        lease: LEASE,
        assignments: assignments.iter().copied().map(assignment).collect(),
        as_of: Epoch(100),
        floor: Epoch(0),
        acknowledged: Vec::new(),
        end: false,
    }
}

fn signals(actions: &[Action]) -> Vec<Signal> {
    let signal = |action: &Action| match action {
        Action::Signal { signal, .. } => Some(*signal),
        Action::Journal(_)
        | Action::Start(_)
        | Action::Go(_)
        | Action::Notice { .. }
        | Action::Report
        | Action::End => None,
    };
    actions.iter().filter_map(signal).collect()
}

fn running(epoch: u64) -> Machine {
    let mut machine = machine();
    machine.on_desired(&desired(&[epoch]), 1, at(0), at(0));
    machine.on_started(Epoch(epoch), None, at(0));
    machine
}

#[test]
fn an_assignment_is_accepted_once_and_journalled_first() {
    let mut machine = machine();
    let actions = machine.on_desired(&desired(&[7]), 1, at(0), at(0));
    assert_eq!(actions, [Action::Journal(Record::Took(Epoch(7))), Action::Start(assignment(7))]);
    assert_eq!(machine.on_desired(&desired(&[7]), 2, at(1), at(1)), []);
    assert_eq!(machine.report().floor, Epoch(7));
}

#[test]
fn drops_older_epochs_and_late_answers() {
    let mut machine = running(7);
    let actions = machine.on_desired(&desired(&[7, 5]), 3, at(1), at(1));
    assert_eq!(actions, [], "an older epoch is never accepted");
    let late = machine.on_desired(&desired(&[]), 2, at(0), at(2));
    assert_eq!(late, [], "the answer to an older report cannot stop what a newer one assigned");
}

#[test]
fn an_answer_from_before_the_assignment_does_not_stop_it() {
    let mut machine = running(7);
    let early = Desired { as_of: Epoch(7), ..desired(&[]) };
    assert_eq!(machine.on_desired(&early, 2, at(1), at(1)), [], "it knew nothing of 7");
    assert_eq!(signals(&machine.on_desired(&desired(&[]), 3, at(2), at(2))), [Signal::Terminate]);
}

#[test]
fn a_revoked_assignment_can_never_start() {
    let mut machine = machine();
    let revoke = Desired { floor: Epoch(7), ..desired(&[]) };
    let actions = machine.on_desired(&revoke, 2, at(0), at(0));
    assert_eq!(actions, [Action::Journal(Record::Floor(Epoch(7))), Action::Report]);
    assert_eq!(machine.on_desired(&desired(&[7]), 3, at(0), at(0)), []);
}

#[test]
fn an_ending_is_reported_until_it_is_acknowledged() {
    let mut machine = running(7);
    let actions = machine.on_exited(Epoch(7), Exit::Code(0), at(5));
    let ended = Record::Ended { epoch: Epoch(7), exit: Exit::Code(0) };
    assert_eq!(actions, [Action::Journal(ended), Action::Report]);
    for _ in 0..3 {
        assert_eq!(machine.report().attempts[0].phase, AttemptPhase::Ended(Exit::Code(0)));
        machine.on_tick(at(6));
    }
    let acknowledged = Desired { acknowledged: vec![Epoch(7)], ..desired(&[]) };
    let actions = machine.on_desired(&acknowledged, 2, at(7), at(7));
    assert_eq!(actions, [Action::Journal(Record::Forgotten(Epoch(7)))]);
    assert_eq!(machine.report().attempts, []);
}

#[test]
fn an_unwanted_attempt_is_asked_to_stop_and_then_killed() {
    let mut machine = running(7);
    let actions = machine.on_desired(&desired(&[]), 2, at(1), at(1));
    assert_eq!(signals(&actions), [Signal::Terminate]);
    assert_eq!(machine.next_tick(), at(11));
    assert_eq!(machine.on_tick(at(10)), []);
    assert_eq!(signals(&machine.on_tick(at(11))), [Signal::Kill]);
    assert_eq!(machine.on_tick(at(12)), [], "once is enough");
    machine.on_exited(Epoch(7), Exit::Code(0), at(12));
    assert_eq!(
        machine.report().attempts[0].phase,
        AttemptPhase::Ended(Exit::Stopped),
        "whatever its exit code is, it did not finish by itself"
    );
}

#[test]
fn a_stop_during_preparation_reaches_the_later_process() {
    let mut machine = machine();
    machine.on_desired(&desired(&[7]), 1, at(0), at(0));
    machine.on_desired(&desired(&[]), 2, at(1), at(1));
    let actions = machine.on_started(Epoch(7), None, at(2));
    assert_eq!(signals(&actions), [Signal::Terminate]);
}

#[test]
fn stops_before_its_lease_ends_counted_from_when_it_asked() {
    let mut machine = running(7);
    machine.on_desired(&desired(&[7]), 2, at(10), at(40));
    assert_eq!(machine.next_tick(), at(10 + 60 - 15));
    assert_eq!(machine.on_tick(at(54)), []);
    assert_eq!(signals(&machine.on_tick(at(55))), [Signal::Terminate]);
    assert_eq!(signals(&machine.on_tick(at(65))), [Signal::Kill], "before 70, when the lease ends");
    let late = machine.on_desired(&desired(&[8]), 3, at(1), at(66));
    assert_eq!(late, [], "an answer whose lease is over starts nothing");
}

#[test]
fn ends_itself_when_alone_but_never_with_something_running() {
    let mut machine = running(7);
    let is_end = |actions: &[Action]| actions.contains(&Action::End);
    assert!(!is_end(&machine.on_tick(at(200))), "it still runs");
    assert!(is_end(&machine.on_exited(Epoch(7), Exit::Signal(9), at(201))));
    let mut machine = self::machine();
    assert_eq!(machine.next_tick(), at(60));
    assert!(is_end(&machine.on_tick(at(60))), "no answer ever arrived");
    let mut machine = running(7);
    let end = Desired { end: true, ..desired(&[]) };
    assert!(!is_end(&machine.on_desired(&end, 2, at(1), at(1))));
    assert!(is_end(&machine.on_exited(Epoch(7), Exit::Code(1), at(2))));
}

#[test]
fn a_timeout_is_distinguished_from_other_stops() {
    let mut machine = machine();
    machine.on_desired(&desired(&[7]), 1, at(0), at(0));
    machine.on_started(Epoch(7), Some(Span::seconds(5)), at(0));
    assert_eq!(machine.next_tick(), at(5));
    assert_eq!(signals(&machine.on_tick(at(5))), [Signal::Terminate]);
    machine.on_exited(Epoch(7), Exit::Signal(15), at(6));
    assert_eq!(machine.report().attempts[0].phase, AttemptPhase::Ended(Exit::TimedOut));
}

#[test]
fn a_restarted_agent_owes_what_it_journalled() {
    let records = [
        Record::Took(Epoch(3)),
        Record::Ended { epoch: Epoch(3), exit: Exit::Code(0) },
        Record::Forgotten(Epoch(3)),
        Record::Took(Epoch(5)),
        Record::Ended { epoch: Epoch(5), exit: Exit::Code(4) },
        Record::Took(Epoch(7)),
        Record::Floor(Epoch(9)),
    ];
    let report = machine().recover(&records).report();
    assert_eq!(report.floor, Epoch(9));
    let phases: Vec<_> =
        report.attempts.iter().map(|attempt| (attempt.epoch, attempt.phase.clone())).collect();
    assert_eq!(
        phases,
        [
            (Epoch(5), AttemptPhase::Ended(Exit::Code(4))),
            (Epoch(7), AttemptPhase::Ended(Exit::Stopped)),
        ]
    );
}

#[test]
fn keeping_what_a_job_left_is_not_its_own_time() {
    for is_over in [false, true] {
        let mut machine = machine();
        machine.on_desired(&desired(&[7]), 1, at(0), at(0));
        machine.on_started(Epoch(7), Some(Span::seconds(10)), at(0));
        if is_over {
            machine.on_ending(Epoch(7));
        }
        let told = signals(&machine.on_tick(at(11)));
        assert_eq!(told.is_empty(), is_over, "{told:?}");
        machine.on_exited(Epoch(7), Exit::Code(0), at(12));
        let exit = if is_over { Exit::Code(0) } else { Exit::TimedOut };
        assert_eq!(machine.report().attempts[0].phase, AttemptPhase::Ended(exit));
    }
}
