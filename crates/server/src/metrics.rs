//! The metrics that the server exposes to Prometheus; every series is defined in this folder.
//!
//! Counters follow the changes of each commit, after it. Gauges are read from World when the page is requested, cluster
//! by cluster and never job by job. Labels are clusters, regions, live nodes with their jobs, and fixed words, so a
//! caller cannot add a label value without creating a cluster. The text is written here rather than by a registry,
//! because half of it is read from World at that moment, and a registry would have to be emptied and filled each time.

mod counts;
mod histogram;
mod present;
mod text;
mod usage;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::{Change, World};
use muster_environments::store::Builds;

use crate::usage::MeasuredNode;
use counts::{Counts, Requests};
pub use present::Present;
use text::Text;

/// The events since the process started.
#[derive(Default)]
pub struct Metrics {
    counts: Mutex<Counts>,
    requests: Mutex<Requests>,
}

impl Metrics {
    /// Starts again from a newly built World; counters keep their values.
    pub fn reset(&self, world: &World) {
        lock(&self.counts).reset(world);
    }

    /// Applies the changes of a commit.
    pub fn publish(&self, world: &World, changes: &[Change]) {
        let mut counts = lock(&self.counts);
        for change in changes {
            counts.take(world, change, changes);
        }
    }

    pub fn request(&self, method: &'static str, route: &str, status: u16, took: Duration) {
        lock(&self.requests).take(method, route, status, took);
    }

    /// The whole page in Prometheus' text format.
    pub fn page(&self, present: &Present, nodes: &[MeasuredNode], builds: Builds) -> String {
        let mut text = Text::default();
        present.write(&mut text);
        usage::write(&mut text, nodes, present);
        environments(&mut text, builds);
        lock(&self.counts).write(&mut text, present);
        lock(&self.requests).write(&mut text);
        process(&mut text);
        text.into_page()
    }
}

/// Builds on this machine; joined hosts do not report theirs.
fn environments(text: &mut Text, builds: Builds) {
    let name = "muster_environment_builds_total";
    text.family(name, "counter", "Builds of Python environments, successful or failed.");
    text.sample(name, &[("outcome", "built")], builds.built);
    text.sample(name, &[("outcome", "failed")], builds.failed);
    let name = "muster_environment_builds_running";
    text.family(name, "gauge", "Builds of Python environments that are running or waiting.");
    text.sample(name, &[], builds.running);
    let name = "muster_environment_build_seconds_total";
    text.family(name, "counter", "Total duration of finished builds.");
    text.sample(name, &[], builds.took.as_secs_f64());
}

fn process(text: &mut Text) {
    text.family("muster_build_info", "gauge", "Always 1; the version is in the label.");
    text.sample("muster_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    if let Some(bytes) = resident_bytes() {
        text.family("process_resident_memory_bytes", "gauge", "Resident memory of this process.");
        text.sample("process_resident_memory_bytes", &[], bytes);
    }
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A count that a panic left half-done is off by one, which is better than no counts.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
