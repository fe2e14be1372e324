//! With exact predictions, the first job that has to wait is never delayed by later ones, whatever arrives after it;
//! and without any predictions, no multi-node job waits for ever.

use std::collections::BTreeMap;

use crate::support::{Stage, Wants, user};
use muster_core::model::Priority;
use muster_core::time::{Span, Wall};
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Ask {
    after_s: u64,
    /// The user whose runs always take this long.
    minutes: u64,
    nodes: u32,
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let ask = (0..300u64, 1..6u64, prop_oneof![4 => 1..2u32, 2 => 2..3u32, 1 => 3..5u32]);
    let ask = ask.prop_map(|(after_s, minutes, nodes)| {
        // Wide jobs all belong to one user and are urgent, so no other job comes before the first of them.
        let minutes = if nodes > 2 { WIDE_MINUTES } else { minutes };
        Ask { after_s, minutes, nodes }
    });
    prop::collection::vec(ask, 5..40)
}

const NODES: u32 = 4;
const WIDE_MINUTES: u64 = 6;

/// A cluster of four nodes that are always running, on which every user has run a job before, so predictions are exact.
fn stage() -> Stage {
    let mut stage = Stage::with_cluster("pool", NODES, NODES, 60);
    stage.provide();
    for minutes in 1..=WIDE_MINUTES {
        for run in 0..2 {
            let job = format!("lesson-{minutes}-{run}");
            stage
                .submit_as(user(&minutes.to_string()), &job, "pool", Wants::default())
                .expect("accepted");
            stage.run(&job);
            stage.pass_s(60 * minutes);
            stage.finish(&job);
        }
    }
    stage
}

/// The running jobs, by when they end.
#[derive(Default)]
struct Running(BTreeMap<(Wall, String), ()>);

impl Running {
    /// Starts the jobs that were granted just now.
    fn take_on(&mut self, stage: &mut Stage, asks: &[Ask]) {
        let started = stage.starting();
        for job in started {
            let number: usize = job.parse().expect("named by its number");
            stage.run(&job);
            let end = stage.now.wall + Span::seconds(60 * asks[number].minutes);
            self.0.insert((end, job), ());
        }
    }

    fn next_end(&self) -> Option<Wall> {
        self.0.keys().next().map(|(end, _)| *end)
    }
}

/// When the head of the queue could start at the latest if no later job ever started.
fn promised(stage: &Stage, running: &Running, nodes: u32) -> Wall {
    let mut free =
        stage.world.clusters().next().and_then(|cluster| stage.world.cluster_index(cluster.id));
    let mut free = free.take().map_or(0, |index| index.idle.len() as u32);
    let mut at = stage.now.wall;
    for (end, job) in running.0.keys() {
        if free >= nodes {
            break;
        }
        at = *end;
        free += stage.job(job).map_or(0, |job| job.nodes);
    }
    at
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_reserved_job_is_never_delayed_with_exact_predictions(asks in asks()) {
        let mut stage = stage();
        let mut running = Running::default();
        let mut promises: BTreeMap<String, Wall> = BTreeMap::new();
        let mut next = 0;
        let mut due = stage.now.wall;
        while next < asks.len() || stage.world.jobs().len() > 0 {
            let arrival = asks.get(next).map(|_| due);
            let at = arrival.into_iter().chain(running.next_end()).min().expect("something goes on");
            stage.pass(at - stage.now.wall);
            // A job that ends at this moment ends before anything else happens.
            while running.next_end().is_some_and(|end| end <= stage.now.wall) {
                let ((_, job), ()) = running.0.pop_first().expect("just seen");
                stage.finish(&job);
                running.take_on(&mut stage, &asks);
            }
            while next < asks.len() && due <= stage.now.wall {
                let Ask { minutes, nodes, .. } = asks[next];
                let priority = if nodes > 2 { Priority::High } else { Priority::Medium };
                let wants = Wants { nodes, priority, ..Wants::default() };
                stage.submit_as(user(&minutes.to_string()), &next.to_string(), "pool", wants).expect("accepted");
                running.take_on(&mut stage, &asks);
                next += 1;
                due = asks.get(next).map_or(due, |ask| stage.now.wall + Span::seconds(ask.after_s));
            }
            let cluster = stage.world.clusters().next().expect("one").id;
            let head = stage.world.cluster_index(cluster).expect("one").queue.candidates().next();
            let head = head.and_then(|head| stage.world.job(head.job)).map(|job| (job.name.to_string(), job.nodes));
            promises.retain(|job, _| head.as_ref().is_some_and(|(head, _)| head == job));
            if let Some((job, nodes)) = head.filter(|(_, nodes)| *nodes > 2) {
                let latest = promised(&stage, &running, nodes);
                let first = *promises.entry(job.clone()).or_insert(latest);
                prop_assert!(latest <= first, "{job} was to start at {first:?}, now at {latest:?}");
                prop_assert!(stage.now.wall < first, "{job} was to start at {first:?}, it is {:?}", stage.now.wall);
            }
        }
    }
}

/// A stream of small jobs that would never leave four nodes free at once does not starve the job that needs all four,
/// even though it is not known how long any job takes.
#[test]
fn a_gang_is_not_starved_by_a_stream_of_small_jobs() {
    let mut stage = Stage::with_cluster("pool", 4, 4, 60);
    stage.provide();
    let mut number = 0;
    let mut ends: Vec<(u64, String)> = Vec::new();
    for minute in 0..24 * 60u64 {
        if minute == 30 {
            let wants = Wants { nodes: 4, ..Wants::default() };
            stage.submit_as(user("gang"), "gang", "pool", wants).expect("accepted");
        }
        for _ in 0..2 {
            number += 1;
            let by = user(&format!("small{}", number % 3));
            stage
                .submit_as(by, &format!("small-{number}"), "pool", Wants::default())
                .expect("accepted");
        }
        let started = stage.starting();
        for job in started {
            if job == "gang" {
                return;
            }
            stage.run(&job);
            ends.push((minute + 3 + number % 5, job));
        }
        stage.silence(Span::seconds(60));
        stage.report_all();
        let (over, going): (Vec<_>, Vec<_>) = ends.into_iter().partition(|(at, _)| *at <= minute);
        ends = going;
        for (_, job) in over {
            stage.finish(&job);
        }
    }
    panic!("it waited for a day");
}
