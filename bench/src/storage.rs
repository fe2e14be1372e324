//! The blob storage: files in and out next to a plain copy and next to nginx, its memory while gigabytes are
//! transferred, and jobs that azure-ai-ml submits.

mod files;
mod line;
mod sdk;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::front::{Nginx, trusting};
use crate::nodes::keep;
use crate::report::Report;
use crate::server::Server;
use files::{FileStore, Large, Small};

/// The size of the large file, in MB.
const LARGE_MB: (&str, u64) = ("MUSTER_BENCH_STORAGE_MB", 1_024);
const ROUNDS: (&str, u64) = ("MUSTER_BENCH_STORAGE_ROUNDS", 5);
const SMALL_FILES: (&str, u64) = ("MUSTER_BENCH_STORAGE_FILES", 2_000);
/// How much is transferred while the server's memory is watched, in MB.
const THROUGH_MB: (&str, u64) = ("MUSTER_BENCH_STORAGE_THROUGH_MB", 5_120);
const SMALL_BYTES: usize = 10_000;
const MB: u64 = 1 << 20;

const REST: Duration = Duration::from_secs(3);
const COPY_GOAL: f64 = 0.7;
const GROWTH_GOAL_MB: f64 = 64.0;

pub async fn measure(report: &mut Report, muster: &Path, folder: &Path) -> Result<()> {
    bytes(report, muster, &folder.join("storage")).await?;
    sdk::measure(report, muster, &folder.join("sdk")).await
}

async fn bytes(report: &mut Report, muster: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let state_dir = folder.join("state");
    let server = Server::start(muster.to_owned(), state_dir.clone()).await?;
    let (port, path, query) = server.container("workspaceblobstore").await?;
    let tls = trusting(&state_dir.join("pki/ca.pem"))?;
    let ours = FileStore { port, tls: tls.clone(), path, query };
    let like = server.target(tls.clone())?;
    let nginx = Nginx::for_uploads(&folder.join("nginx"), &state_dir.join("pki"), &like)?;
    let theirs = nginx.as_ref().map(|nginx| FileStore {
        port: nginx.target.port,
        tls,
        path: String::new(),
        query: String::new(),
    });

    large_file(report, folder, &ours, theirs.as_ref())?;
    small_files(report, folder, &ours, theirs.as_ref())?;
    drop(nginx);

    let through = number(THROUGH_MB, 64, 1_000_000)?;
    eprintln!("{through} MB through the server …");
    memory(report, server.pid().context("the server runs")?, &ours, folder, through * MB)?;
    server.end().await?;
    fs::remove_dir_all(folder)?;
    Ok(())
}

/// The times of each method, round by round: disks and virtual machines fluctuate, and the median of several rounds
/// less so.
#[derive(Default)]
struct Times {
    copy: Vec<Duration>,
    /// The fastest copy that is possible.
    copy_fast: Vec<Duration>,
    up: Vec<Duration>,
    down: Vec<Duration>,
    /// The same from files that are not in the page cache.
    copy_cold: Vec<Duration>,
    down_cold: Vec<Duration>,
    /// nginx does not sync files to disk.
    up_theirs: Vec<Duration>,
    down_theirs: Vec<Duration>,
}

impl Times {
    /// Both directions, each next to the copy and next to nginx.
    fn tell(
        &self,
        report: &mut Report,
        [way_in, internet]: [&str; 2],
        say: impl Fn(Duration) -> String + Copy,
    ) -> Result<()> {
        let (copy, fast) = (middle(&self.copy)?, middle(&self.copy_fast).ok());
        for (what, ours, theirs) in
            [(way_in, &self.up, &self.up_theirs), (internet, &self.down, &self.down_theirs)]
        {
            let (ours, theirs) = (middle(ours)?, middle(theirs).ok());
            let (goal, is_met) = of_copy(say, ours, copy, fast);
            let ratio = |theirs: Duration| theirs.as_secs_f64() / ours.as_secs_f64();
            let peer = theirs.map(|theirs| (say(theirs), ratio(theirs)));
            report.peer(what, say(ours), &goal, is_met, peer);
        }
        Ok(())
    }
}

/// Waits until no files are on their way to the disk any more, and removes what is left of earlier rounds: a virtual
/// machine returns free memory to its host, and has to ask for it again.
fn at_rest(measure: impl FnOnce() -> Result<Duration>) -> Result<Duration> {
    rustix::fs::sync();
    std::thread::sleep(REST);
    measure()
}

fn middle(times: &[Duration]) -> Result<Duration> {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().context("nothing was measured")
}

fn large_file(
    report: &mut Report,
    folder: &Path,
    ours: &FileStore,
    theirs: Option<&FileStore>,
) -> Result<()> {
    let (megabytes, rounds) = (number(LARGE_MB, 16, 100_000)?, number(ROUNDS, 1, 1_000)?);
    eprintln!("a file of {megabytes} MB, in and out, {rounds} times …");
    let large = Large::new(folder, megabytes * MB)?;
    // The first write is slower, while the disk warms up.
    large.copy()?;
    let mut times = Times::default();
    for _ in 0..rounds {
        times.copy.push(at_rest(|| large.copy())?);
        // Into the memory that the last round has just freed.
        times.copy_fast.push(large.copy()?);
        times.up.push(at_rest(|| large.upload(ours))?);
        times.down_cold.push(at_rest(|| large.download(ours))?);
        times.down.push(at_rest(|| large.download(ours))?);
        if let Some(theirs) = theirs {
            times.up_theirs.push(at_rest(|| large.upload_whole(theirs))?);
            times.down_theirs.push(at_rest(|| large.download(theirs))?);
        }
        // Memory that was just freed is at hand, which makes this the fastest copy.
        large.forget()?;
        times.copy_cold.push(large.copy()?);
    }
    let speed =
        |took: Duration| format!("{:.0} MB/s", large.bytes as f64 / 1e6 / took.as_secs_f64());
    let (down, copy) = (middle(&times.down_cold)?, middle(&times.copy_cold)?);
    times.tell(report, ["a large file in, in blocks", "the same out, from memory"], speed)?;
    let (goal, is_met) = of_copy(speed, down, copy, None);
    report.goal("the same out, from disk", speed(down), &goal, is_met);
    large.remove()
}

fn small_files(
    report: &mut Report,
    folder: &Path,
    ours: &FileStore,
    theirs: Option<&FileStore>,
) -> Result<()> {
    let (files, rounds) = (number(SMALL_FILES, 10, 1_000_000)?, number(ROUNDS, 1, 1_000)?);
    eprintln!("{files} files of {SMALL_BYTES} bytes, in and out, {rounds} times …");
    let mut times = Times::default();
    for round in 0..rounds {
        let small = Small::new(folder, round, files, SMALL_BYTES)?;
        times.copy.push(at_rest(|| small.copy())?);
        times.copy_fast.push(at_rest(|| small.copy_fast())?);
        times.up.push(at_rest(|| small.upload(ours))?);
        times.down.push(at_rest(|| small.download(ours, "ours"))?);
        if let Some(theirs) = theirs {
            times.up_theirs.push(at_rest(|| small.upload(theirs))?);
            times.down_theirs.push(at_rest(|| small.download(theirs, "theirs"))?);
        }
    }
    let rate = |took: Duration| format!("{:.0} per second", files as f64 / took.as_secs_f64());
    times.tell(report, ["small files in", "the same out"], rate)
}

/// A number that an environment variable may override.
pub fn number((variable, usual): (&str, u64), least: u64, most: u64) -> Result<u64> {
    let Ok(text) = std::env::var(variable) else { return Ok(usual) };
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.with_context(|| format!("{variable} is {text:?}; give a number from {least} to {most}"))
}

/// The goal, how close the figure is, and whether it is met, compared with the fastest copy if there are two.
fn of_copy(
    say: impl Fn(Duration) -> String,
    ours: Duration,
    copy: Duration,
    fast: Option<Duration>,
) -> (String, bool) {
    let ratio = |copy: Duration| copy.as_secs_f64() / ours.as_secs_f64();
    let beside = |copy: Duration| format!("({}; here {:.0} %)", say(copy), 100.0 * ratio(copy));
    let plain = fast.map(|_| format!("; of a plain one {}", beside(copy)));
    let fastest = fast.unwrap_or(copy);
    let goal = format!(
        "70 % of the fastest copy + fsync {}{}",
        beside(fastest),
        plain.unwrap_or_default()
    );
    (goal, ratio(fastest) >= COPY_GOAL)
}

/// How much more memory the server has at most, compared with before, while this many bytes are transferred in and out.
fn memory(
    report: &mut Report,
    pid: u32,
    place: &FileStore,
    folder: &Path,
    bytes: u64,
) -> Result<()> {
    const PIECE: u64 = 128 * MB;
    let large = Large::new(folder, PIECE.min(bytes))?;
    // Buffers for the first requests are not counted as growth.
    large.upload(place)?;
    large.download(place)?;
    let before = resident_mb(pid)?;
    let (is_over, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let watch = {
        let (is_over, most) = (is_over.clone(), most.clone());
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let now = resident_mb(pid).unwrap_or(0.0) as u64;
                most.fetch_max(now, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        })
    };
    let mut through = 0;
    let mut done = Ok(());
    while through < bytes && done.is_ok() {
        done = large.upload(place).and_then(|_| large.download(place)).map(drop);
        through += 2 * large.bytes;
    }
    is_over.store(true, Ordering::Relaxed);
    let _ = watch.join();
    done?;
    let most = most.load(Ordering::Relaxed) as f64;
    let figure = format!("{before:.0} MB before, {most:.0} MB at most");
    let what = format!("memory while {} MB go through", bytes / MB);
    report.goal(&what, figure, "64 MB more", most - before <= GROWTH_GOAL_MB);
    Ok(())
}

fn resident_mb(pid: u32) -> Result<f64> {
    Ok(keep::resident(pid)? as f64 / 1e6)
}
