//! Trace replay: how many jobs per second the whole core decides about, from submission to end.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use muster_core::model::ScaleUp;
use muster_core::time::Span;
use muster_sim::replay::{Setting, Trace, peak, replay};

use crate::report::Report;

const GOAL: f64 = 100_000.0;
/// Above this number of nodes per job, nodes are counted instead of jobs, because each is started and ended separately.
const WIDE: f64 = 4.0;
/// The best of these runs counts, because other work on the machine should not.
const ROUNDS: u32 = 3;

/// Our own small trace, and real ones where they are available.
pub fn measure(report: &mut Report) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = vec![root.join("examples/trace.csv")];
    if let Ok(folder) = std::fs::read_dir(root.join("../shared/traces")) {
        files.extend(folder.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    let (mut narrow, mut wide) = (Sum::default(), Sum::default());
    for file in files.iter().filter(|file| file.exists()) {
        eprintln!("replaying {} …", file.file_name().unwrap_or_default().to_string_lossy());
        let trace = Trace::parse(&std::fs::read(file)?)?;
        let setting = Setting {
            max_nodes: peak(&trace),
            idle: Span::seconds(120),
            boot: Span::seconds(180),
            scale_up: ScaleUp::Immediate,
            fair_share: false,
            vm_size: "Standard_DS3_v2".into(),
        };
        let starts: f64 = trace.jobs().iter().map(|job| f64::from(job.nodes)).sum();
        let jobs = trace.jobs().len() as f64;
        let sum = if starts > WIDE * jobs { &mut wide } else { &mut narrow };
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let started = Instant::now();
            replay(&trace, &setting)?;
            best = best.min(started.elapsed().as_secs_f64());
        }
        eprintln!("  {:.0} jobs per second", jobs / best);
        sum.add(jobs, starts, best);
    }
    let rate = narrow.jobs / narrow.seconds;
    let measured = format!("{rate:.0} jobs per second");
    report.goal("trace replay, one core", measured, "100,000", rate >= GOAL);
    if wide.jobs > 0.0 {
        let rate = wide.starts / wide.seconds;
        let jobs = wide.jobs / wide.seconds;
        let measured = format!("{rate:.0} starts on a node per second, {jobs:.0} jobs");
        report.goal("the same, jobs of many nodes", measured, "100,000", rate >= GOAL);
    }
    Ok(())
}

/// The jobs, the nodes that they were started on, and how long that took.
#[derive(Default)]
struct Sum {
    jobs: f64,
    starts: f64,
    seconds: f64,
}

impl Sum {
    fn add(&mut self, jobs: f64, starts: f64, seconds: f64) {
        self.jobs += jobs;
        self.starts += starts;
        self.seconds += seconds;
    }
}
