//! Followers of the event log: what a hundred of them cost the server, and those who submit jobs, next to none.

use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use muster_core::model::{JobSpec, WorkspaceKey};
use muster_wire::{Route, job};

use super::load::{Target, trusting};
use super::{bench, cpu_time};
use crate::report::{Report, Samples};
use crate::server::Server;

const FOLLOWERS: usize = 100;
/// One user may follow 32 streams.
const USERS: usize = 4;
const SUBMITS: u32 = 500;
/// The time between two submissions.
const EVERY: Duration = Duration::from_millis(10);
/// Each round measures without followers, then with them.
const ROUNDS: u32 = 3;
/// How long no event must arrive until all have arrived.
const QUIET: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(30);
const LATENCY_GOAL: f64 = 1.5;

pub async fn measure(report: &mut Report, muster: &Path, folder: &Path) -> Result<()> {
    let state_dir = folder.join("followers");
    let server = Server::start(muster.to_owned(), state_dir.clone()).await?;
    server.put_cluster("followed", 0, 0, 0).await?;
    let tls = trusting(&state_dir.join("pki/ca.pem"))?;
    let mut users = Vec::new();
    for user in 0..USERS {
        let user = server.tenant(&format!("follower{user}")).await?;
        users.push(user.target(tls.clone())?);
    }
    let stage = Stage {
        pid: server.pid().context("the server runs")?,
        submitter: server.target(tls)?,
        users,
        workspace: bench(),
    };
    let (alone, followed) = tokio::task::spawn_blocking(move || stage.measure()).await??;
    fill(report, &alone, &followed);
    server.end().await
}

fn fill(report: &mut Report, alone: &Seen, followed: &Seen) {
    let median = |seen: &Seen| seen.latency.percentile(50).as_secs_f64();
    let ratio = median(followed) / median(alone);
    let what = format!("submit, {FOLLOWERS} followers of the events");
    report.latency(&what, &followed.latency, "no followers", &alone.latency);
    let goal = format!("p50 {LATENCY_GOAL}× that without followers");
    report.goal(&what, format!("{ratio:.2}×"), &goal, ratio <= LATENCY_GOAL);
    let cpu = |seen: &Seen| seen.cpu.as_secs_f64() * 1e3 / f64::from(seen.submits);
    let what = format!("the server's CPU for a submit, {FOLLOWERS} followers");
    let beside = format!("no followers: {:.2} ms", cpu(alone));
    let times = format!("{:.1}× as much", cpu(followed) / cpu(alone));
    report.beside(&what, format!("{:.2} ms", cpu(followed)), beside, times);
    let extra = followed.cpu.saturating_sub(alone.cpu).as_secs_f64() * 1e6;
    let each = extra / followed.delivered.max(1) as f64;
    let what = "the server's CPU for an event to a follower";
    report.beside(what, format!("{each:.1} µs"), String::new(), String::new());
    let late = format!("{:.0} ms", followed.late.as_secs_f64() * 1e3);
    let what = format!("last submit answered → last event, {FOLLOWERS} followers");
    report.beside(&what, late, String::new(), String::new());
}

/// What was measured in all rounds.
#[derive(Default)]
struct Seen {
    latency: Samples,
    submits: u32,
    cpu: Duration,
    /// Events, counted at every follower.
    delivered: u64,
    /// The longest time from the end of the last submission to the arrival of the last event.
    late: Duration,
}

struct Stage {
    pid: u32,
    submitter: Target,
    users: Vec<Target>,
    workspace: WorkspaceKey,
}

impl Stage {
    fn measure(&self) -> Result<(Seen, Seen)> {
        let (mut alone, mut followed) = (Seen::default(), Seen::default());
        // The first submissions are slower, because caches and connections are cold.
        self.round("cold", &[], &mut Seen::default())?;
        for round in 1..=ROUNDS {
            eprintln!("submits with 0 and {FOLLOWERS} followers, round {round} of {ROUNDS} …");
            self.round(&format!("alone{round}"), &[], &mut alone)?;
            let path = Route::Events(self.workspace.clone());
            let path = path.url("", &[("api-version", "2025-12-01")]).context("an address")?;
            let users = self.users.iter().cycle().take(FOLLOWERS);
            let followers: Result<Vec<_>> =
                users.map(|user| Follower::start(user, &path)).collect();
            self.round(&format!("followed{round}"), &followers?, &mut followed)?;
        }
        Ok((alone, followed))
    }

    /// Submits jobs at a steady rate, and waits until every follower knows about them.
    fn round(&self, prefix: &str, followers: &[Follower], seen: &mut Seen) -> Result<()> {
        let mut caller = self.submitter.connect()?;
        let (before, started) = (cpu_time(self.pid)?, Instant::now());
        for number in 0..SUBMITS {
            let due = started + EVERY * number;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let name = format!("{prefix}-{number}").into();
            let route = Route::Job { workspace: self.workspace.clone(), name };
            let path = route.url("", &[("api-version", "2025-12-01")]).context("an address")?;
            let body = job::request_json(&JobSpec::new("followed", "true"), &self.workspace);
            let sent = Instant::now();
            caller.put(&path, &body)?;
            seen.latency.add(sent.elapsed());
        }
        let submitted = Instant::now();
        let delivered = wait_for_events(followers)?;
        let last = followers.iter().map(Follower::last_at).max();
        let late = last.map_or(Duration::ZERO, |at| at.saturating_duration_since(submitted));
        seen.cpu += cpu_time(self.pid)?.saturating_sub(before);
        seen.late = seen.late.max(late);
        seen.delivered += delivered;
        seen.submits += SUBMITS;
        Ok(())
    }
}

/// Waits until nothing more arrives, and checks that every follower has received the same number of events. Returns the
/// sum.
fn wait_for_events(followers: &[Follower]) -> Result<u64> {
    let (started, mut seen, mut seen_at) = (Instant::now(), 0, Instant::now());
    loop {
        let counts: Vec<u64> = followers.iter().map(Follower::events).collect();
        let total: u64 = counts.iter().sum();
        if total != seen {
            (seen, seen_at) = (total, Instant::now());
        }
        if seen_at.elapsed() > QUIET {
            let is_same = counts.windows(2).all(|two| two[0] == two[1]);
            let is_enough = counts.iter().all(|count| *count >= u64::from(SUBMITS));
            ensure!(is_same && is_enough, "not every follower received every event: {counts:?}");
            return Ok(total);
        }
        ensure!(started.elapsed() < PATIENCE, "events still arrive after the last submission");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[derive(Default)]
struct Received {
    events: AtomicU64,
    /// When the last of them arrived, in microseconds after the start.
    last_us: AtomicU64,
}

/// A stream of events on a connection of its own, which a thread reads.
struct Follower {
    started: Instant,
    received: Arc<Received>,
    socket: TcpStream,
    reader: Option<JoinHandle<()>>,
}

impl Follower {
    fn start(user: &Target, path: &str) -> Result<Follower> {
        let mut caller = user.connect()?;
        caller.follow(path)?;
        let socket = caller.socket()?;
        let (received, started) = (Arc::new(Received::default()), Instant::now());
        let counter = received.clone();
        let reader = std::thread::spawn(move || {
            let mut newest = Vec::new();
            // It ends when the connection is closed, below.
            while caller.read_on(&mut newest).is_ok() {
                let events = count_events(&mut newest);
                if events > 0 {
                    let now_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
                    counter.last_us.store(now_us, Ordering::Relaxed);
                    counter.events.fetch_add(events, Ordering::Relaxed);
                }
            }
        });
        Ok(Follower { started, received, socket, reader: Some(reader) })
    }

    fn events(&self) -> u64 {
        self.received.events.load(Ordering::Relaxed)
    }

    fn last_at(&self) -> Instant {
        self.started + Duration::from_micros(self.received.last_us.load(Ordering::Relaxed))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It may have been closed by the server.
        let _ = self.socket.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Counts the events in what has arrived, and keeps what may be the beginning of another.
fn count_events(newest: &mut Vec<u8>) -> u64 {
    const DATA: &[u8] = b"\ndata: ";
    let events = newest.windows(DATA.len()).filter(|window| *window == DATA).count();
    newest.drain(..newest.len().saturating_sub(DATA.len() - 1));
    events as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_once_wherever_they_are_cut() {
        let stream = b"event: job\nid: 1\ndata: {}\n\nid: 1\n: heartbeat\n\nid: 2\ndata: {}\n\n";
        for cut in 0..stream.len() {
            let mut newest = stream[..cut].to_vec();
            let before = count_events(&mut newest);
            newest.extend_from_slice(&stream[cut..]);
            assert_eq!(before + count_events(&mut newest), 2, "cut at {cut}");
        }
    }
}
