//! The core alone: how long decisions take in a large world, and how much memory a waiting job takes.

mod heap;
mod large;
mod seeds;
mod start;
mod traces;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
pub use heap::Counting;
pub use large::name_of;
use large::{Large, Size};
pub use traces::measure as replay;

use crate::report::{Report, Samples};

const SMALL: Size = Size { clusters: 1_000, nodes: 10_000, queued: 10_000 };
const LARGE: Size = Size { clusters: 1_000, nodes: 10_000, queued: 1_000_000 };
const DECISION_GOAL: Duration = Duration::from_millis(1);
const GROWTH_GOAL: f64 = 1.5;

pub fn measure(report: &mut Report, folder: &Path) -> Result<()> {
    seeds::measure(report)?;
    decisions(report);
    weights(report);
    eprintln!("why, with 100,000 jobs waiting …");
    let why = large::why_the_last_waits(100_000);
    report.goal(
        "why, 100,000 jobs waiting",
        millis(why),
        "100 ms",
        why <= Duration::from_millis(100),
    );
    eprintln!("the start of a controller with 100,000 live jobs …");
    let start = start::with_live_jobs(folder, 100_000)?;
    report.goal(
        "start with 100,000 live jobs",
        millis(start),
        "1 s",
        start <= Duration::from_secs(1),
    );
    Ok(())
}

pub fn fill_with_clusters(database: &Path, clusters: u32) -> Result<()> {
    start::fill(database, |commit| large::clusters(clusters, commit))
}

pub fn fill_with_finished(database: &Path, jobs: u32) -> Result<()> {
    start::fill(database, |commit| large::finished_jobs(jobs, commit))
}

/// Measures each kind of decision with few jobs waiting and with many: the second must not be much slower.
fn decisions(report: &mut Report) {
    eprintln!("decisions with {} jobs waiting …", SMALL.queued);
    let few = Large::decisions(SMALL);
    eprintln!("decisions with {} jobs waiting …", LARGE.queued);
    let many = Large::decisions(LARGE);
    let mut worst = (Duration::ZERO, Duration::ZERO);
    let mut show = |what: &str, few: Duration, many: Duration, growth_goal: f64| {
        let growth = many.as_secs_f64() / few.as_secs_f64();
        report.goal(
            &format!("decided, 1,000,000 waiting: {what}"),
            format!("p99 {:.0} µs", many.as_secs_f64() * 1e6),
            &format!("1 ms; 10,000 waiting: {:.0} µs, {growth:.2}×", few.as_secs_f64() * 1e6),
            many <= DECISION_GOAL && growth <= growth_goal,
        );
    };
    for ((what, few), (_, many)) in few.iter().zip(&many) {
        let (few, many) = (few.percentile(99), many.percentile(99));
        worst = (worst.0.max(few), worst.1.max(many));
        show(what, few, many, f64::INFINITY);
    }
    show("the worst of these (goal also: 1.5×)", worst.0, worst.1, GROWTH_GOAL);
}

fn weights(report: &mut Report) {
    eprintln!("the weight of a waiting job …");
    let separate = large::bytes_per_job(100_000, "a-job-of-its-own-with-a-name-from-its-user");
    let task = large::bytes_per_job(100_000, "sweep");
    report.goal("World per separate job", format!("{separate} bytes"), "1,000", separate <= 1_000);
    report.goal("World per task of a sweep", format!("{task} bytes"), "300", task <= 300);
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn timed<T>(samples: &mut Samples, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    samples.add(started.elapsed());
    result
}
