//! The server as azure-ai-ml sees it: jobs from many of its processes at once, how soon the first line appears, and the
//! cost of an environment that is already built.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::number;
use crate::report::{Report, Samples};
use crate::server::Server;

const JOBS: (&str, u64) = ("MUSTER_BENCH_SDK_JOBS", 1_000);
const RUNS: (&str, u64) = ("MUSTER_BENCH_SDK_RUNS", 20);
const PROCESSES: u64 = 8;
const PROGRAM: &str = include_str!("sdk.py");
/// Where `make` installs the clients.
const PYTHON: &str = ".venv/bin/python";
const FIRST_LINE_GOAL: Duration = Duration::from_millis(500);
const WARM_GOAL_MS: f64 = 50.0;

pub async fn measure(report: &mut Report, muster: &Path, folder: &Path) -> Result<()> {
    if !Path::new(PYTHON).exists() {
        report.left_out("azure-ai-ml", "there is no .venv that contains it: run `make test` once");
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    let program = folder.join("sdk.py");
    std::fs::write(&program, PROGRAM)?;
    let (jobs, runs) = (number(JOBS, PROCESSES, 100_000)?, number(RUNS, 1, 1_000)?);
    let server = Server::start_kept(muster, folder.join("state"), &[]).await?;
    let clients = Clients { muster: muster.to_owned(), program, state_dir: folder.join("state") };

    eprintln!("{jobs} jobs of {PROCESSES} processes with azure-ai-ml …");
    server.put_cluster("queue", 0, 0, 0).await?;
    let took = clients.submit(jobs)?;
    let found = server.jobs("sdk-").await?.len() as u64;
    let figure =
        format!("{:.1} per second, {} lost", jobs as f64 / took.as_secs_f64(), jobs - found);
    let what = format!("{jobs} submits of {PROCESSES} azure-ai-ml processes");
    report.goal(&what, figure, "none lost", found == jobs);

    eprintln!("submit to first line with azure-ai-ml, {runs} times …");
    server.put_cluster("zero", 0, 1, 0).await?;
    let first = clients.measured("first", runs)?.of("first");
    let is_met = first.percentile(50) <= FIRST_LINE_GOAL;
    report.goal("azure-ai-ml: submit → first line, from zero", first.to_string(), "500 ms", is_met);
    server.delete_cluster("zero").await?;

    server.put_cluster("warm", 1, 1, 0).await?;
    server.wait_for_nodes("warm", 1).await?;
    match clients.measured("warm", runs) {
        Ok(seen) => {
            let (plain, warm) = (seen.of("plain"), seen.of("warm"));
            let milliseconds = |samples: &Samples| samples.percentile(50).as_secs_f64() * 1e3;
            let more = milliseconds(&warm) - milliseconds(&plain);
            let figure = format!("{warm}, without one {plain}: {more:.1} ms more");
            report.goal("an environment that is there", figure, "50 ms", more <= WARM_GOAL_MS);
        }
        Err(why) => report.left_out("an environment that is there", &format!("{why:#}")),
    }
    server.delete_cluster("warm").await?;
    server.end().await
}

struct Clients {
    muster: PathBuf,
    program: PathBuf,
    state_dir: PathBuf,
}

/// Lines with a name and milliseconds.
struct Seen(Vec<(String, f64)>);

impl Seen {
    fn of(&self, what: &str) -> Samples {
        let mut samples = Samples::default();
        for (_, milliseconds) in self.0.iter().filter(|(name, _)| name == what) {
            samples.add(Duration::from_secs_f64(milliseconds.max(0.0) / 1e3));
        }
        samples
    }
}

struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Lets the process begin.
    fn go(&mut self) -> Result<()> {
        let input = self.child.stdin.as_mut().context("standard input is piped")?;
        Ok(input.write_all(b"go\n")?)
    }

    fn end(mut self) -> Result<Vec<String>> {
        let lines = self.lines.by_ref().collect::<Result<_, _>>()?;
        let status = self.child.wait()?;
        ensure!(status.success(), "azure-ai-ml's process ended with {status}");
        Ok(lines)
    }
}

impl Clients {
    fn start(&self, words: &[&str]) -> Result<Process> {
        let mut child = Command::new(PYTHON)
            .arg(&self.program)
            .args([&self.muster, &self.state_dir])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines =
            BufReader::new(child.stdout.take().context("standard output is piped")?).lines();
        let first = lines.next().transpose()?;
        let process = Process { child, lines };
        ensure!(first.as_deref() == Some("ready"), "azure-ai-ml did not start: {first:?}");
        Ok(process)
    }

    /// All processes begin when all of them are ready.
    fn submit(&self, jobs: u64) -> Result<Duration> {
        let mut processes = Vec::new();
        for process in 0..PROCESSES {
            let share = jobs / PROCESSES + u64::from(process < jobs % PROCESSES);
            let (prefix, share) = (format!("sdk-{process}"), share.to_string());
            processes.push(self.start(&["submit", &prefix, &share])?);
        }
        let started = Instant::now();
        processes.iter_mut().try_for_each(Process::go)?;
        for process in processes {
            process.end()?;
        }
        Ok(started.elapsed())
    }

    fn measured(&self, what: &str, runs: u64) -> Result<Seen> {
        let mut process = self.start(&[what, &runs.to_string()])?;
        process.go()?;
        let read = |line: &String| {
            let (name, number) = line.split_once(' ')?;
            Some((name.to_owned(), number.parse().ok()?))
        };
        Ok(Seen(process.end()?.iter().filter_map(read).collect()))
    }
}
