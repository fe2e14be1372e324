//! A node's folder, a spawner, and jobs that use both.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use muster_sandbox::job::{Ending, Event, Launch, Limits, Line, Spawner};

/// Far more than anything here takes: an upper bound, not a delay.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Node {
    pub spawner: Spawner,
    pub dir: tempfile::TempDir,
}

pub struct Job {
    pub line: Line,
    pub log: PathBuf,
}

/// The result of a job.
#[derive(Debug)]
pub struct JobResult {
    pub events: Vec<Event>,
    pub log: String,
}

/// Returns `None`, and reports the reason, if sandboxes cannot be created here.
pub fn node() -> Option<Node> {
    let can = Command::new("unshare").args(["--user", "--map-root-user", "true"]).output();
    match can {
        Ok(output) if output.status.success() => {}
        other => {
            muster_testing::skip_or_fail(&format!("no user namespaces here: {other:?}"));
            return None;
        }
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    // The permissions that a provider sets.
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
    std::fs::write(dir.path().join("secret"), "sesame").unwrap();
    Some(Node { spawner: Spawner::start().unwrap(), dir })
}

impl Node {
    pub fn launch(&self, name: &str, command: &str) -> Launch {
        let own_dir = self.dir.path().join("work").join(name);
        for folder in ["wd", "tmp"] {
            std::fs::create_dir_all(own_dir.join(folder)).unwrap();
        }
        let variables = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/job/wd")];
        Launch {
            group: Vec::new(),
            process_count: None,
            command: command.into(),
            variables: variables.map(|(name, value)| (name.into(), value.into())).into(),
            inputs: None,
            own_dir,
            hidden: vec![self.dir.path().to_path_buf()],
            ca_bundle: None,
            gpus: Vec::new(),
            limits: Limits::default(),
            shares_node: false,
        }
    }

    pub fn start(&self, name: &str, command: &str) -> Job {
        self.start_as(name, self.launch(name, command))
    }

    pub fn start_as(&self, name: &str, launch: Launch) -> Job {
        let log = self.dir.path().join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        Job { line: self.spawner.launch(launch, &file, None).unwrap(), log }
    }

    /// Runs a command until it ends.
    pub fn run(&self, name: &str, command: &str) -> JobResult {
        self.start(name, command).outcome()
    }

    /// Runs a command that must succeed, and returns its output.
    pub fn said(&self, name: &str, command: &str) -> String {
        let outcome = self.run(name, command);
        let good = [Event::Started, Event::Ended(Ending::Code(0))];
        assert_eq!(outcome.events, good, "{command}: {}", outcome.log);
        outcome.log
    }
}

impl Job {
    /// Collects all events of the line until it is closed.
    pub fn outcome(&self) -> JobResult {
        let mut events = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.line.next() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert!(
                        Instant::now() < deadline,
                        "the job does not end; {events:?}; {}",
                        self.log()
                    );
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("{error}"),
            }
        }
        JobResult { events, log: self.log() }
    }

    /// Waits for the start. The shell may write its first output before the line reports it.
    pub fn until_started(&self) {
        let mut first = None;
        eventually("it starts", || {
            first = self.line.next().ok().flatten();
            first.is_some()
        });
        assert_eq!(first, Some(Event::Started), "{}", self.log());
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    pub fn until_said(&self, text: &str) {
        eventually(text, || self.log().contains(text));
    }
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Lists processes of the host whose command line contains this text, however deep their namespaces are.
pub fn processes_with(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let is_number = entry.file_name().to_string_lossy().parse::<u32>().is_ok();
        if is_number && line.contains(text) {
            found.push(line);
        }
    }
    found
}

/// Returns a number of seconds that no other process sleeps for.
pub fn odd_seconds(dir: &Path) -> String {
    let name = dir.file_name().unwrap().to_string_lossy();
    let digits: String = name.bytes().map(|byte| format!("{:02}", byte % 100)).collect();
    format!("1000.{digits}")
}

pub fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}
