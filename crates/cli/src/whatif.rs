//! `muster whatif`: what past jobs would have cost, and how long they would have waited, with other settings.

mod plot;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use muster_core::limits::CLUSTER_NODES_MAX;
use muster_core::model;
use muster_core::time::Span;
use muster_core::{Change, DEFAULT_VM_SIZE};
use muster_sim::replay::{self, Figures, Setting, SettingError, Trace};
use serde::Serialize;

use crate::failure::{CliResult, Failure, printable, quoted};
use crate::output::{self, PrintForPeople};
use crate::values;

const HEADER: [&str; 15] = [
    "Max nodes",
    "Idle s",
    "Queue mean s",
    "p50",
    "p95",
    "p99",
    "Cold %",
    "Billed h",
    "Busy h",
    "Idle h",
    "Boot h",
    "Idle %",
    "Idle+boot h",
    "Optimum h",
    "USD",
];
/// Far more rows than a person reads; a longer list is a mistake.
const SETTINGS_MAX: usize = 1_000;
/// The trace is read into memory at once; the largest public traces have a few tens of megabytes.
const TRACE_BYTES_MAX: u64 = 2 << 30;
/// How many submissions advance the progress bar at once: it is shared between threads.
const PROGRESS_STEP: u64 = 1_024;

/// Show what past jobs would have cost, and how long they would have waited, with other settings
///
/// The trace is a CSV file with the header submit_s,duration_s,nodes,gpus_per_node,user,group and one row per job,
/// sorted by submit_s; gpus_per_node, user and group are optional. Its jobs go through the same decisions as on a
/// server, once for each setting, in virtual time. The queue time of a job is from its submission until it has all its
/// nodes; "cold" jobs are those that had to wait at all. Next to the idle and boot hours is their theoretical minimum,
/// if no job ever waited and the future were known.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Read-only: no request is sent to a server; only the --plot file is written."
)]
pub struct Args {
    /// CSV file with the jobs
    #[arg(long, value_name = "FILE.csv")]
    trace: PathBuf,
    /// Maximum numbers of nodes to try [default: as many as the jobs would use if none ever waited]
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',', value_parser = values::at_least_one,
          allow_negative_numbers = true)]
    max_nodes: Vec<u32>,
    /// Idle times to try, in seconds
    #[arg(long, value_name = "SECONDS,…", value_delimiter = ',', value_parser = values::seconds,
          allow_negative_numbers = true, default_value = "0,60,120,300,600,1800")]
    idle: Vec<Span>,
    /// Start time of a node, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds,
          allow_negative_numbers = true, default_value = "180")]
    boot: Span,
    /// When to start nodes for queued jobs
    #[arg(long, value_enum, default_value_t = ScaleUp::Immediate)]
    scale_up: ScaleUp,
    /// Share the cluster fairly between the users of the trace, as a server does, instead of running jobs in the order
    /// of their arrival
    #[arg(long)]
    fair_share: bool,
    /// VM size, for the price
    #[arg(long, value_name = "SIZE", default_value = DEFAULT_VM_SIZE)]
    size: String,
    #[command(flatten)]
    print: PrintForPeople,
    /// Save a plot of cost against waiting time to this SVG file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScaleUp {
    /// At once, for every queued job
    Immediate,
    /// Only if no node is expected to be free before a new one could start
    Predictive,
}

impl ScaleUp {
    fn of_replay(self) -> model::ScaleUp {
        match self {
            ScaleUp::Immediate => model::ScaleUp::Immediate,
            ScaleUp::Predictive => model::ScaleUp::Predictive,
        }
    }
}

/// One row of the result.
#[derive(Debug, Clone, Serialize)]
struct Row {
    idle_s: u64,
    max_nodes: u32,
    boot_s: u64,
    jobs: usize,
    queue_mean_s: f64,
    queue_p50_s: f64,
    queue_p95_s: f64,
    queue_p99_s: f64,
    cold_share: f64,
    billed_node_h: f64,
    busy_node_h: f64,
    idle_node_h: f64,
    boot_node_h: f64,
    idle_share: f64,
    /// The cost of all billed time, in dollars.
    cost: f64,
    /// The minimum of idle and boot hours together, without any waiting.
    optimum_node_h: f64,
}

pub fn run(args: &Args) -> CliResult {
    let trace = read(&args.trace)?;
    let settings = settings(args, &trace)?;
    let rows = try_all(&trace, &settings)?;
    if let Some(path) = &args.plot {
        let drawing = plot::draw(&points(&rows), &args.size);
        std::fs::write(path, drawing).map_err(|why| {
            let path = quoted(&path.to_string_lossy());
            Failure::error(format!("--plot: cannot write {path}: {why}"))
                .hint("choose a file in a folder that exists and is writable")
        })?;
    }
    args.print
        .show(&rows, || output::table(&HEADER, rows.iter().map(cells).collect(), "no settings"))
}

fn read(path: &Path) -> CliResult<Trace> {
    let shown = quoted(&path.to_string_lossy());
    let cannot = |why: std::io::Error| match why.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::not_found(format!("--trace: there is no file {shown}; give a CSV file"))
        }
        _ => Failure::error(format!("--trace: cannot read {shown}: {why}")),
    };
    let length = std::fs::metadata(path).map_err(cannot)?.len();
    if length > TRACE_BYTES_MAX {
        return Err(Failure::refused(format!(
            "--trace: {shown} has {length} bytes; the limit is {TRACE_BYTES_MAX}, so split it into several files"
        )));
    }
    let bytes = std::fs::read(path).map_err(cannot)?;
    Trace::parse(&bytes).map_err(|why| Failure::refused(format!("--trace: {shown}: {why}")))
}

/// Combines every maximum with every idle time. The maximum comes first, because it matters most.
fn settings(args: &Args, trace: &Trace) -> CliResult<Vec<Setting>> {
    let mut max_nodes = args.max_nodes.clone();
    if max_nodes.is_empty() {
        max_nodes.push(replay::peak(trace).min(CLUSTER_NODES_MAX));
    }
    max_nodes.sort_unstable();
    max_nodes.dedup();
    let mut idle = args.idle.clone();
    idle.sort_unstable();
    idle.dedup();
    let count = max_nodes.len() * idle.len();
    if count > SETTINGS_MAX {
        return Err(Failure::refused(format!(
            "--max-nodes and --idle result in {count} combinations; the limit is {SETTINGS_MAX}, so give fewer"
        )));
    }
    let setting = |max_nodes, idle| Setting {
        max_nodes,
        idle,
        boot: args.boot,
        scale_up: args.scale_up.of_replay(),
        fair_share: args.fair_share,
        vm_size: args.size.as_str().into(),
    };
    Ok(max_nodes.iter().flat_map(|max| idle.iter().map(|idle| setting(*max, *idle))).collect())
}

/// Tries the settings in parallel on all cores. The rows are in the order of the settings.
fn try_all(trace: &Trace, settings: &[Setting]) -> CliResult<Vec<Row>> {
    let bar = progress(trace.jobs().len() * settings.len());
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![None; settings.len()]);
    let work = || {
        while let Some(setting) = settings.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = try_one(trace, setting, &bar);
            let failed = result.is_err();
            let place = settings.iter().position(|other| other == setting);
            let mut results = results.lock().expect("no thread panics while holding it");
            results[place.expect("one of them")] = Some(result);
            if failed {
                // A problem with one setting is often a problem with all.
                next.store(settings.len(), Ordering::Relaxed);
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(settings.len()) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let results = results.into_inner().expect("all threads have ended");
    let figures: Result<Vec<Figures>, SettingError> = results.into_iter().flatten().collect();
    let figures = figures.map_err(refused)?;
    Ok(settings.iter().zip(&figures).map(|(setting, figures)| row(setting, figures)).collect())
}

fn try_one(trace: &Trace, setting: &Setting, bar: &ProgressBar) -> Result<Figures, SettingError> {
    let mut submitted = 0;
    replay::replay_watching(trace, setting, |_, change| {
        if let Change::JobSubmitted { .. } = change {
            submitted += 1;
            if submitted % PROGRESS_STEP == 0 {
                bar.inc(PROGRESS_STEP);
            }
        }
    })
}

/// Shown on a terminal only, on standard error.
fn progress(jobs: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} % of {len} jobs, {eta} left");
    ProgressBar::new(jobs as u64).with_style(style.expect("a valid template"))
}

fn refused(why: SettingError) -> Failure {
    let flag = match &why {
        SettingError::JobTooLarge { .. } | SettingError::TooManyNodes { .. } => "--max-nodes",
        SettingError::IdleTooLong { .. } => "--idle",
        SettingError::BootTooLong { .. } => "--boot",
        // This is the only reason for which the core refuses a setting.
        SettingError::Refused(_) => "--size",
    };
    let text = match &why {
        SettingError::Refused(refused) => muster_wire::spelling::message(&refused.words()),
        other => other.to_string(),
    };
    Failure::refused(format!("{flag}: {}", printable(&text)))
}

fn row(setting: &Setting, figures: &Figures) -> Row {
    Row {
        idle_s: setting.idle.as_seconds(),
        max_nodes: setting.max_nodes,
        boot_s: setting.boot.as_seconds(),
        jobs: figures.jobs,
        queue_mean_s: figures.queue_mean_s(),
        queue_p50_s: seconds(figures.queue_p50),
        queue_p95_s: seconds(figures.queue_p95),
        queue_p99_s: seconds(figures.queue_p99),
        cold_share: figures.cold_share(),
        billed_node_h: hours(figures.billed()),
        busy_node_h: hours(figures.busy),
        idle_node_h: hours(figures.idle),
        boot_node_h: hours(figures.boot),
        idle_share: figures.idle_share(),
        cost: figures.micro_usd as f64 / 1e6,
        optimum_node_h: hours(figures.optimum),
    }
}

fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1e6
}

fn hours(span: Span) -> f64 {
    span.0 as f64 / 3.6e9
}

fn cells(row: &Row) -> Vec<String> {
    vec![
        row.max_nodes.to_string(),
        row.idle_s.to_string(),
        format!("{:.1}", row.queue_mean_s),
        format!("{:.0}", row.queue_p50_s),
        format!("{:.0}", row.queue_p95_s),
        format!("{:.0}", row.queue_p99_s),
        format!("{:.1}", 100.0 * row.cold_share),
        format!("{:.1}", row.billed_node_h),
        format!("{:.1}", row.busy_node_h),
        format!("{:.1}", row.idle_node_h),
        format!("{:.1}", row.boot_node_h),
        format!("{:.1}", 100.0 * row.idle_share),
        format!("{:.1}", row.idle_node_h + row.boot_node_h),
        format!("{:.1}", row.optimum_node_h),
        format!("{:.2}", row.cost),
    ]
}

fn points(rows: &[Row]) -> Vec<plot::Point> {
    let point = |row: &Row| {
        // All hours have the same price, so the cost of the optimum follows from this one.
        let price = if row.billed_node_h > 0.0 { row.cost / row.billed_node_h } else { 0.0 };
        plot::Point {
            max_nodes: row.max_nodes,
            idle_s: row.idle_s,
            wait_s: row.queue_mean_s,
            usd: row.cost,
            optimum_usd: (row.busy_node_h + row.optimum_node_h) * price,
        }
    };
    rows.iter().map(point).collect()
}
