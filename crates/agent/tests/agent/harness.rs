//! One agent, one server, and functions to wait for what they do.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use muster_agent::home::Home;
use muster_agent::{AgentConfig, AgentError};
use muster_core::agent::{Assignment, AttemptPhase, Timing};
use muster_core::ids::Epoch;
use muster_core::model::{Exit, JobSpec, SpecHash};
use muster_core::time::Span;
use tokio::task::JoinHandle;

use crate::server::{Book, NODE, SECRET, Server};

pub const PROCESS_VARIABLE: &str = "MUSTER_TEST_AGENT";
/// Makes that agent run its jobs in sandboxes.
pub const SANDBOX_VARIABLE: &str = "MUSTER_TEST_SANDBOX";
/// Far more than anything here takes: an upper bound, not a delay.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn timing() -> Timing {
    Timing {
        // Shorter than any lease.
        lease: Span::ZERO,
        stop_grace: Span::milliseconds(300),
        lease_margin: Span::milliseconds(500),
        alone_max: Span::milliseconds(500),
    }
}

pub struct Harness {
    pub server: Server,
    pub home: Home,
    ca_file: PathBuf,
    _dir: tempfile::TempDir,
}

impl Harness {
    pub async fn new() -> Harness {
        let mut harness = Harness::without_server().await;
        harness.server.start().await;
        harness
    }

    pub async fn without_server() -> Harness {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join(NODE));
        std::fs::create_dir(home.dir()).unwrap();
        std::fs::write(home.secret(), format!("{SECRET}\n")).unwrap();
        let ca_file = dir.path().join("ca.pem");
        let server = Server::new(&ca_file).await;
        Harness { server, home, ca_file, _dir: dir }
    }

    pub fn config(&self) -> AgentConfig {
        AgentConfig {
            node: NODE.into(),
            dir: self.home.dir().into(),
            server: self.server.url(),
            ca_file: self.ca_file.clone(),
            ca_bundle: None,
            hidden: Vec::new(),
            environments: None,
            disk_bytes: None,
            log_bytes: muster_core::agent::LOG_BYTES_MAX,
            full_server: muster_agent::FullServer::default(),
            jobs_share: false,
            not_enforced: Vec::new(),
            why_no_internet: None,
            secret_file: None,
            relay: None,
            address: None,
            gpu_slots: 0,
            gpus: Vec::new(),
        }
    }

    /// Runs an agent in this process.
    pub fn agent(&self) -> JoinHandle<Result<(), AgentError>> {
        self.agent_with(timing())
    }

    pub fn agent_with(&self, timing: Timing) -> JoinHandle<Result<(), AgentError>> {
        tokio::spawn(muster_agent::run_with_timing(self.config(), None, timing))
    }

    /// Runs an agent in a separate process.
    pub fn agent_process(&self) -> Child {
        self.agent_command().spawn().unwrap()
    }

    pub fn agent_command(&self) -> Command {
        let AgentConfig { node, dir, server, ca_file, .. } = self.config();
        let config = [node, dir.display().to_string(), server, ca_file.display().to_string()];
        let log = std::fs::File::create(self.home.agent_log()).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "agent_process", "--nocapture", "--test-threads=1"])
            .env(PROCESS_VARIABLE, config.join("\n"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command
    }

    /// Assigns a job in place of all others.
    pub fn assignment(&self, epoch: u64, command: &str) -> Epoch {
        self.assign_with(epoch, spec(command))
    }

    pub fn assign_with(&self, epoch: u64, spec: JobSpec) -> Epoch {
        let epoch = Epoch(epoch);
        self.server.change(|book| {
            book.specs.insert(SpecHash::made_up(&epoch.to_string()).to_string(), spec);
            book.assignments = vec![Assignment {
                epoch,
                job_name: "a-job".into(),
                attempt: 2,
                spec: SpecHash::made_up(&epoch.to_string()),
                rank: 0,
                nodes: 1,
                go: true,
                share: None,
                addresses: Vec::new(),
                evict: None,
                task: None,
                followers: Vec::new(),
                is_recalled: false,
            }];
        });
        epoch
    }

    /// Waits until the server has seen enough.
    pub async fn until<T>(&self, what: &str, mut seen: impl FnMut(&Book) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(value) = seen(&self.server.look()) {
                return value;
            }
            assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn until_log_has(&self, epoch: Epoch, text: &str) {
        let has = |book: &Book| {
            book.logs.get(&epoch).map(|log| String::from_utf8_lossy(log).contains(text))
        };
        self.until(text, |book| has(book).filter(|has| *has)).await;
    }

    /// Returns how the attempt ended, according to the first report that contains it.
    pub async fn ending(&self, epoch: Epoch) -> Exit {
        self.until("an ending", |book| endings(book, epoch).into_iter().next()).await
    }

    pub fn log(&self, epoch: Epoch) -> String {
        let book = self.server.look();
        String::from_utf8(book.logs.get(&epoch).cloned().unwrap_or_default()).unwrap()
    }
}

pub fn spec(command: &str) -> JobSpec {
    JobSpec::new("pool", command)
}

/// Lists every report of an ending.
pub fn endings(book: &Book, epoch: Epoch) -> Vec<Exit> {
    let attempts = book.reports.iter().flat_map(|report| &report.attempts);
    attempts
        .filter(|attempt| attempt.epoch == epoch)
        .filter_map(|attempt| match &attempt.phase {
            AttemptPhase::Ended(exit) => Some(exit.clone()),
            AttemptPhase::Preparing
            | AttemptPhase::Ready
            | AttemptPhase::Running
            | AttemptPhase::Evicting => None,
        })
        .collect()
}

pub fn is_running(book: &Book, epoch: Epoch) -> bool {
    let mut attempts = book.reports.iter().flat_map(|report| &report.attempts);
    attempts.any(|attempt| attempt.epoch == epoch && attempt.phase == AttemptPhase::Running)
}

/// Waits until a condition holds.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for the end of the agent.
pub async fn end_of(agent: JoinHandle<Result<(), AgentError>>) {
    tokio::time::timeout(PATIENCE, agent).await.expect("the agent ends").unwrap().unwrap();
}

pub fn is_alive(pid: &str) -> bool {
    let identity = muster_agent::identity::Identity::of(pid.trim().parse().unwrap());
    identity.unwrap().is_some()
}

pub fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
