//! The blob storage: files in and out beside a plain copy and beside nginx, its memory while gigabytes go through, and jobs
//! that azure-ai-ml submits.

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
use crate::report::Report;
use crate::server::Server;
use files::{Large, Place, Small};

/// Of the large file, in MB.
const LARGE_MB: (&str, u64) = ("MUSTER_BENCH_STORAGE_MB", 1_024);
const SMALL_FILES: (&str, u64) = ("MUSTER_BENCH_STORAGE_FILES", 2_000);
/// What goes through while the server's memory is looked at, in MB.
const THROUGH_MB: (&str, u64) = ("MUSTER_BENCH_STORAGE_THROUGH_MB", 5_120);
const SMALL_BYTES: usize = 10_000;
const MB: u64 = 1 << 20;

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
    let ours = Place { port, tls: tls.clone(), path, query };
    let like = server.target(tls.clone())?;
    let nginx = Nginx::for_uploads(&folder.join("nginx"), &state_dir.join("pki"), &like)?;
    let theirs = nginx.as_ref().map(|nginx| Place {
        port: nginx.target.port,
        tls,
        path: String::new(),
        query: String::new(),
    });

    let megabytes = number(LARGE_MB, 16, 100_000)?;
    eprintln!("a file of {megabytes} MB, in and out …");
    let large = Large::new(folder, megabytes * MB)?;
    // What is written first pays for the disk's own warming up.
    large.copy()?;
    let copy = large.copy()?;
    let up = large.upload(&ours)?;
    let up_theirs = theirs.as_ref().map(|theirs| large.upload_whole(theirs)).transpose()?;
    speeds(report, "a large file in, in blocks", large.bytes, up, copy, up_theirs);
    let down = large.download(&ours)?;
    let down_theirs = theirs.as_ref().map(|theirs| large.download(theirs)).transpose()?;
    speeds(report, "the same out", large.bytes, down, copy, down_theirs);
    large.remove()?;

    let files = number(SMALL_FILES, 10, 1_000_000)?;
    eprintln!("{files} files of {SMALL_BYTES} bytes, in and out …");
    let small = Small::new(folder, files, SMALL_BYTES)?;
    let copy = small.copy()?;
    let up = small.upload(&ours)?;
    let up_theirs = theirs.as_ref().map(|theirs| small.upload(theirs)).transpose()?;
    counts(report, "small files in", files, up, copy, up_theirs);
    let down = small.download(&ours)?;
    let down_theirs = theirs.as_ref().map(|theirs| small.download(theirs)).transpose()?;
    counts(report, "the same out", files, down, copy, down_theirs);
    drop(nginx);

    let through = number(THROUGH_MB, 64, 1_000_000)?;
    eprintln!("{through} MB through the server …");
    memory(report, server.pid().context("it runs")?, &ours, folder, through * MB)?;
    server.end().await?;
    fs::remove_dir_all(folder)?;
    Ok(())
}

/// A number that a variable may set.
pub fn number((variable, usual): (&str, u64), least: u64, most: u64) -> Result<u64> {
    let Ok(text) = std::env::var(variable) else { return Ok(usual) };
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.with_context(|| format!("{variable} is {text:?}; give a number from {least} to {most}"))
}

fn speeds(
    report: &mut Report,
    what: &str,
    bytes: u64,
    ours: Duration,
    copy: Duration,
    theirs: Option<Duration>,
) {
    let speed = |took: Duration| format!("{:.0} MB/s", bytes as f64 / 1e6 / took.as_secs_f64());
    beside(report, what, speed, ours, copy, theirs);
}

fn counts(
    report: &mut Report,
    what: &str,
    files: u64,
    ours: Duration,
    copy: Duration,
    theirs: Option<Duration>,
) {
    let rate = |took: Duration| format!("{:.0} per second", files as f64 / took.as_secs_f64());
    beside(report, what, rate, ours, copy, theirs);
}

fn beside(
    report: &mut Report,
    what: &str,
    say: impl Fn(Duration) -> String,
    ours: Duration,
    copy: Duration,
    theirs: Option<Duration>,
) {
    let ratio = copy.as_secs_f64() / ours.as_secs_f64();
    let goal = format!("70 % of a copy + fsync ({}; here {:.0} %)", say(copy), 100.0 * ratio);
    let peer = theirs.map(|theirs| (say(theirs), theirs.as_secs_f64() / ours.as_secs_f64()));
    report.peer(what, say(ours), &goal, ratio >= COPY_GOAL, peer);
}

/// How much more memory the server has at most while so many bytes go in and out than it had before.
fn memory(report: &mut Report, pid: u32, place: &Place, folder: &Path, bytes: u64) -> Result<()> {
    const PIECE: u64 = 128 * MB;
    let large = Large::new(folder, PIECE.min(bytes))?;
    // What is kept ready for the first requests is not what grows.
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
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: f64 =
        resident.and_then(|text| text.trim().strip_suffix(" kB")).context("no VmRSS")?.parse()?;
    Ok(kilobytes * 1024.0 / 1e6)
}
