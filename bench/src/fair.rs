//! What one tenant has queued, and does, must not slow down another. Measures the other tenant's submissions next to
//! more and more jobs of the first, while the first is quiet and while it submits hundreds per second.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use muster_core::ClusterPatch;
use muster_core::model::{JobSpec, WorkspaceKey};
use muster_wire::{Route, job};

use crate::front::{Target, trusting};
use crate::report::{Report, Samples};
use crate::server::Server;

/// Waiting jobs of the first tenant.
const QUEUED: [u64; 3] = [0, 10_000, 100_000];
const FILLERS: u64 = 16;
const SUBMITS: usize = 500;
/// Submissions of the first tenant per second, on as many connections.
const LOAD: u64 = 500;
const LOADERS: u64 = 16;
/// The time between two submissions of the other tenant while the first is busy.
const PAUSE: Duration = Duration::from_millis(10);
const GROWTH_GOAL: f64 = 1.5;

/// A user who submits to a compute in a workspace.
#[derive(Clone)]
struct Tenant {
    target: Target,
    workspace: WorkspaceKey,
    cluster: &'static str,
}

impl Tenant {
    /// Creates a compute that may not have nodes, so that nothing but the submission is measured.
    async fn settle(owner: &Server, name: &'static str, ca_file: &Path) -> Result<Tenant> {
        let server = owner.tenant(name).await?;
        let workspace = WorkspaceKey::new("bench", "bench", name);
        let wanted = ClusterPatch { nodes_max: Some(0), ..ClusterPatch::default() };
        server.put_cluster_in(&workspace, name, &wanted).await?;
        Ok(Tenant { target: server.target(trusting(ca_file)?)?, workspace, cluster: name })
    }

    /// The path and the body of a submission.
    fn submission(&self, name: &str) -> Result<(String, String)> {
        let route = Route::Job { workspace: self.workspace.clone(), name: name.into() };
        let path = route.url("", &[("api-version", "2025-12-01")]).context("an address")?;
        Ok((path, job::request_json(&JobSpec::new(self.cluster, "true"), &self.workspace)))
    }

    /// One submission after the other.
    fn measure(&self, prefix: &str, pause: Duration) -> Result<Samples> {
        let mut caller = self.target.connect()?;
        let mut samples = Samples::default();
        // The first ones are slower, because caches and connections are cold.
        for number in 0..SUBMITS + 20 {
            let (path, body) = self.submission(&format!("{prefix}-{number}"))?;
            let started = Instant::now();
            caller.put(&path, &body)?;
            if number >= 20 {
                samples.add(started.elapsed());
            }
            std::thread::sleep(pause);
        }
        Ok(samples)
    }

    /// Submits this many as fast as possible.
    fn queue(&self, prefix: &str, jobs: u64) -> Result<()> {
        let next = AtomicU64::new(0);
        let fill = || -> Result<()> {
            let mut caller = self.target.connect()?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= jobs {
                    return Ok(());
                }
                let (path, body) = self.submission(&format!("{prefix}-{number}"))?;
                caller.put(&path, &body)?;
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..FILLERS).map(|_| scope.spawn(fill)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("the thread does not panic"))
        })
    }

    /// `LOAD` submissions per second until told to stop, however long each takes. Returns the number that was reached
    /// per second.
    fn load(&self, prefix: &str, stop: &AtomicBool) -> Result<f64> {
        let started = Instant::now();
        let submit = |loader: u64| -> Result<u64> {
            let mut caller = self.target.connect()?;
            let every = Duration::from_secs(LOADERS) / u32::try_from(LOAD)?;
            let mut done = 0u32;
            while !stop.load(Ordering::Relaxed) {
                let due = started + every * done + every / 16 * u32::try_from(loader)?;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let (path, body) = self.submission(&format!("{prefix}-{loader}-{done}"))?;
                caller.put(&path, &body)?;
                done += 1;
            }
            Ok(u64::from(done))
        };
        let done: Result<u64> = std::thread::scope(|scope| {
            let submit = &submit;
            let threads: Vec<_> =
                (0..LOADERS).map(|loader| scope.spawn(move || submit(loader))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("the thread does not panic"))
                .sum()
        });
        Ok(done? as f64 / started.elapsed().as_secs_f64())
    }
}

pub async fn measure(report: &mut Report, muster: &Path, folder: &Path) -> Result<()> {
    let state_dir = folder.join("fair");
    let server = Server::start(muster.to_owned(), state_dir.clone()).await?;
    let ca_file = state_dir.join("pki/ca.pem");
    let noisy = Tenant::settle(&server, "noisy", &ca_file).await?;
    let quiet = Tenant::settle(&server, "quiet", &ca_file).await?;
    let measured = tokio::task::spawn_blocking(move || compare(&noisy, &quiet)).await?;
    for row in measured? {
        report.goal(&row.what, row.figure, &row.goal, row.is_met);
    }
    server.end().await
}

struct Row {
    what: String,
    figure: String,
    goal: String,
    is_met: bool,
}

fn compare(noisy: &Tenant, quiet: &Tenant) -> Result<Vec<Row>> {
    // The same user in the other tenant's cluster.
    let guest = Tenant { target: quiet.target.clone(), ..noisy.clone() };
    let (mut own, mut shared, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    let mut queued = 0;
    for wanted in QUEUED {
        eprintln!("another tenant's submits with {wanted} jobs queued …");
        noisy.queue(&format!("fill{wanted}"), wanted - queued)?;
        queued = wanted;
        own.push((wanted, quiet.measure(&format!("own{wanted}"), Duration::ZERO)?));
        shared.push((wanted, guest.measure(&format!("shared{wanted}"), Duration::ZERO)?));
        let (loaded, rate) = beside_load(noisy, quiet, wanted)?;
        rows.push(Row {
            what: format!("another tenant's submit, {wanted} queued, {LOAD} submits/s"),
            figure: figure(&loaded),
            goal: format!("{LOAD} submits/s; {rate:.0} were done"),
            is_met: rate >= LOAD as f64 * 0.9,
        });
    }
    let mut all = growth("another tenant's submit", &own);
    all.extend(growth("the same in one cluster", &shared));
    all.extend(rows);
    Ok(all)
}

fn beside_load(noisy: &Tenant, quiet: &Tenant, queued: u64) -> Result<(Samples, f64)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| noisy.load(&format!("load{queued}"), &stop));
        std::thread::sleep(Duration::from_millis(500));
        let measured = quiet.measure(&format!("beside{queued}"), PAUSE);
        stop.store(true, Ordering::Relaxed);
        Ok((measured?, load.join().expect("the thread does not panic")?))
    })
}

/// Each figure next to the first of them.
fn growth(what: &str, measured: &[(u64, Samples)]) -> Vec<Row> {
    let median = |samples: &Samples| samples.percentile(50).as_secs_f64();
    let base = measured.first().map_or(0.0, |(_, samples)| median(samples));
    let row = |(queued, samples): &(u64, Samples)| {
        let growth = median(samples) / base;
        Row {
            what: format!("{what}, {queued} queued"),
            figure: figure(samples),
            goal: format!("{GROWTH_GOAL}× that with none queued; {growth:.2}×"),
            is_met: growth <= GROWTH_GOAL,
        }
    };
    measured.iter().map(row).collect()
}

fn figure(samples: &Samples) -> String {
    let ms = |percent| samples.percentile(percent).as_secs_f64() * 1e3;
    format!("p50 {:.2} ms, p95 {:.2} ms", ms(50), ms(95))
}
