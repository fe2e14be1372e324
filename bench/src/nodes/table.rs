//! Our figures next to every peer's, row by row.

use std::time::Duration;

use super::{Bulk, Crash, Figures, Ours};
use crate::report::Report;

const COLD_GOAL: [Duration; 2] = [Duration::from_millis(150), Duration::from_millis(500)];
const WARM_GOAL: Duration = Duration::from_millis(10);

pub fn fill(report: &mut Report, ours: &Ours, peers: &[Figures]) {
    let is_met = [50, 99].iter().zip(COLD_GOAL).all(|(p, goal)| ours.cold.percentile(*p) <= goal);
    let what = "submit → first line, from zero nodes";
    report.goal(what, ours.cold.to_string(), "p50 150 ms, p99 500 ms", is_met);
    let is_met = ours.warm.percentile(50) <= WARM_GOAL;
    let what = "submit → first line, warm, sandboxed";
    report.goal(what, ours.warm.to_string(), "p50 10 ms", is_met);
    for peer in peers {
        report.latency(what, &ours.warm, peer.name, &peer.warm);
    }
    for (bulk, how) in [
        (&ours.walls, "a sandbox each"),
        (&ours.shared, "one sandbox on their node"),
        (&ours.plain, "no sandbox"),
    ] {
        let what = format!("{} no-op jobs, {how}", bulk.tasks);
        for peer in peers {
            let theirs = format!("{}, {}: {}", peer.name, peer.bulk.tasks, figure(&peer.bulk));
            let speed = per_second(bulk) / per_second(&peer.bulk);
            let cost = cpu_ms(bulk) / cpu_ms(&peer.bulk);
            let ratio = format!("{speed:.2} of its speed, {cost:.1}× its CPU");
            report.beside(&what, figure(bulk), theirs, ratio);
        }
    }
    let what = format!("server killed at half of {} jobs", ours.crash.tasks);
    let is_met = ours.crash.lost == 0 && ours.crash.again == 0;
    report.goal(&what, failure(&ours.crash), "0 lost, 0 run again", is_met);
    for peer in peers {
        if let Some(crash) = &peer.crash {
            let theirs = format!("{}: {}", peer.name, failure(crash));
            report.beside(&what, failure(&ours.crash), theirs, String::new());
        }
    }
}

pub fn figure(bulk: &Bulk) -> String {
    format!("{:.0} per second, {:.2} ms CPU each", per_second(bulk), cpu_ms(bulk))
}

pub fn per_second(bulk: &Bulk) -> f64 {
    bulk.tasks as f64 / bulk.took.as_secs_f64()
}

pub fn cpu_ms(bulk: &Bulk) -> f64 {
    bulk.cpu.as_secs_f64() * 1e3 / bulk.tasks as f64
}

fn failure(crash: &Crash) -> String {
    let Crash { lost, again, over_after, .. } = crash;
    format!("{lost} lost, {again} run again, over {:.1} s after", over_after.as_secs_f64())
}
