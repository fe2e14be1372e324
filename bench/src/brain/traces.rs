//! Trace replay: how many jobs a second the whole of the core decides about, from submit to end.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use muster_core::model::ScaleUp;
use muster_core::time::Span;
use muster_sim::replay::{Setting, Trace, peak, replay};

use crate::report::Report;

const GOAL: f64 = 100_000.0;
/// Short enough to be quick, long enough to measure.
const ROUNDS: u32 = 3;

/// Our own small trace, and real ones where they are at hand.
pub fn measure(report: &mut Report) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = vec![root.join("examples/trace.csv")];
    if let Ok(folder) = std::fs::read_dir(root.join("../shared/traces")) {
        files.extend(folder.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    let (mut jobs, mut seconds) = (0.0, 0.0);
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
        for _ in 0..ROUNDS {
            let started = Instant::now();
            let figures = replay(&trace, &setting)?;
            let took = started.elapsed().as_secs_f64();
            eprintln!("  {:.0} jobs per second", figures.jobs as f64 / took);
            jobs += figures.jobs as f64;
            seconds += took;
        }
    }
    let rate = jobs / seconds;
    report.goal(
        "trace replay, one core",
        format!("{rate:.0} jobs per second"),
        "100,000",
        rate >= GOAL,
    );
    Ok(())
}
