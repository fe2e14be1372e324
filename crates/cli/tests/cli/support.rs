//! A real server in a temporary folder, and the real binary as its client.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod machines;
pub mod sandbox;
pub mod storm;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(30);

/// Variables of the user who runs the tests that would lead commands elsewhere.
const STRAY: [&str; 55] = [
    "MUSTER_OVER_COMMIT",
    "MUSTER_CLUSTER_NAMES",
    "MUSTER_REGIONS",
    "MUSTER_DEDICATED_CORES",
    "MUSTER_FAMILY_CORES",
    "MUSTER_LOW_PRIORITY_CORES",
    "MUSTER_URL",
    "MUSTER_API_KEY",
    "MUSTER_CA_FILE",
    "MUSTER_RESOURCE_GROUP",
    "MUSTER_WORKSPACE_NAME",
    "MUSTER_SUBSCRIPTION",
    "MUSTER_LOCATION",
    "AZURE_DEFAULTS_GROUP",
    "AZURE_DEFAULTS_WORKSPACE",
    "AZURE_DEFAULTS_LOCATION",
    "AZURE_SUBSCRIPTION_ID",
    "AZUREML_ARM_RESOURCEGROUP",
    "AZUREML_ARM_WORKSPACE_NAME",
    "AZUREML_ARM_SUBSCRIPTION",
    "CI_RESOURCE_GROUP",
    "CI_WORKSPACE",
    "MUSTER_LOG",
    "MUSTER_LOG_FORMAT",
    "MUSTER_LOG_FILE",
    "MUSTER_LOG_MAX_MB",
    "MUSTER_LOG_MAX_FILES",
    "MUSTER_CONFIG",
    "MUSTER_LISTEN",
    "MUSTER_PUBLIC_HOST",
    "MUSTER_TRUSTED_USERS",
    "MUSTER_PRICES",
    "MUSTER_DRAIN_SECONDS",
    "MUSTER_METRICS_LISTEN",
    "MUSTER_FILES_PORT",
    "MUSTER_TLS_CERT",
    "MUSTER_TLS_KEY",
    "MUSTER_ISOLATION",
    "MUSTER_USER",
    "MUSTER_HELPER_SOCKET",
    "SUDO_UID",
    "MUSTER_NODE_FOLDERS",
    "MUSTER_EGRESS",
    "MUSTER_JOB_DISK_GB",
    "MUSTER_JOIN_TOKEN",
    "MUSTER_EVICTION_GRACE_SECONDS",
    "MUSTER_LEASE_SECONDS",
    "XDG_STATE_HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "ALL_PROXY",
    "https_proxy",
    "http_proxy",
    "all_proxy",
    "no_proxy",
];

/// Creates the cluster that most tests use.
pub const CLUSTER: [&str; 10] =
    ["compute", "create", "-n", "cpu", "--max-instances", "2", "-d", "60", "--tags", "team=blue"];

/// Runs `test` again in a new process with its own namespaces, after the shell commands in `setup`. The environment variable
/// `inside` tells the test that it is the inner run.
pub fn run_apart(test: &str, setup: &str, inside: &str) {
    let script = format!("{setup}; \"$0\" \"$@\"; exit $?");
    let mut child = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
        // The shell waits for orphaned processes, as the first process of a machine does.
        .args(["sh", "-c", &script])
        .arg(std::env::current_exe().expect("it has a file"))
        .args(["--exact", test, "--nocapture"])
        .env(inside, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare is installed");
    let mut passed = false;
    // Line by line, so that a test that hangs has shown how far it came.
    for line in BufReader::new(child.stdout.take().expect("it is piped")).lines() {
        let line = line.expect("text");
        passed |= line.contains("1 passed");
        println!("{line}");
    }
    // With a misspelt name no test runs, and the program still succeeds.
    assert!(child.wait().expect("it ran").success() && passed, "its output is above");
}

pub struct Site {
    folder: tempfile::TempDir,
    server: Option<Child>,
    /// The user who owns the server, if not the one who runs the tests.
    owner: Option<u32>,
}

/// How a command ended.
pub struct Done {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Site {
    /// A folder in which no server was ever started.
    pub fn empty() -> Site {
        Site { folder: tempfile::tempdir().expect("a temporary folder"), server: None, owner: None }
    }

    /// For a server of another user. Root's commands then act for that user, as with `sudo`.
    pub fn empty_of(owner: u32) -> Site {
        let mut site = Site::empty();
        site.owner = Some(owner);
        std::os::unix::fs::chown(site.folder(), Some(owner), Some(owner)).expect("root may");
        site
    }

    pub fn start() -> Site {
        let mut site = Site::empty();
        site.up();
        site
    }

    /// With nodes that are plain processes: their jobs can write to this machine.
    pub fn start_plain() -> Site {
        let mut site = Site::empty();
        site.start_with(&["--isolation", "none"]);
        site
    }

    /// With `up` and these flags.
    pub fn start_with(&mut self, flags: &[&str]) {
        self.start_on("127.0.0.1:0", flags);
    }

    pub fn start_on(&mut self, listen: &str, flags: &[&str]) {
        let command = [&["up", "--listen", listen][..], flags].concat();
        self.server = Some(ready(&mut self.command(&command)));
    }

    /// With this command, which may run the server through another program.
    pub fn start_by(&mut self, mut command: Command) {
        self.server = Some(ready(&mut command));
    }

    /// With `up` or `serve` and these flags; all its output goes into the file that is returned.
    pub fn start_heard(&mut self, how: &str, flags: &[&str]) -> PathBuf {
        let command = self.command(&[&[how, "--listen", "127.0.0.1:0"][..], flags].concat());
        self.start_heard_by(command)
    }

    pub fn start_heard_by(&mut self, mut command: Command) -> PathBuf {
        let said = self.folder.path().join("said");
        let file = std::fs::File::create(&said).expect("our own folder");
        self.server = Some(ready_saying(&mut command, file.into()));
        said
    }

    /// The address that the server listens on.
    pub fn url(&self) -> String {
        let text = std::fs::read_to_string(self.state().join("connection.json")).expect("it runs");
        let connection: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        connection["url"].as_str().expect("text").to_owned()
    }

    pub fn server_pid(&self) -> u32 {
        self.server.as_ref().expect("it was started").id()
    }

    pub fn up(&mut self) {
        self.start_as("up");
    }

    /// With `up` or `serve`.
    pub fn start_as(&mut self, how: &str) {
        let mut command = self.command(&[how, "--listen", "127.0.0.1:0"]);
        self.server = Some(ready(&mut command));
    }

    /// The server, for a test that ends it in its own way.
    pub fn take_server(&mut self) -> Child {
        self.server.take().expect("it was started")
    }

    /// A server that a test has started in its own way.
    pub fn adopt(&mut self, server: Child) {
        self.server = Some(server);
    }

    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().expect("it runs");
            server.wait().expect("it was killed");
        }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub fn config(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        for name in STRAY {
            command.env_remove(name);
        }
        command.env("MUSTER_STATE_DIR", self.state()).env("MUSTER_CONFIG_DIR", self.config());
        if let Some(owner) = self.owner {
            command.env("SUDO_UID", owner.to_string());
        }
        command.args(arguments).stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Done {
        done(self.command(arguments).output().expect("the binary runs"))
    }

    /// The output of a command that must succeed.
    pub fn text(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        assert_eq!(done.code, 0, "muster {arguments:?}: {}", done.stderr);
        String::from_utf8(done.stdout).expect("text")
    }

    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.text(arguments)).expect("JSON")
    }

    /// Polls a job until it is in the wanted state.
    pub fn wait_for_job(&self, name: &str, is_wanted: impl Fn(&serde_json::Value) -> bool) {
        let started = Instant::now();
        loop {
            let job = self.json(&["job", "show", "-n", name]);
            if is_wanted(&job) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{job}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Site {
    /// Nodes outlive their server, so the clusters are deleted first.
    fn drop(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        let listed = done(self.command(&["compute", "list"]).output().expect("the binary runs"));
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        for cluster in listed.as_array().into_iter().flatten() {
            let name = cluster["name"].as_str().unwrap_or_default();
            let mut delete = self.command(&["compute", "delete", "--yes", "-n", name]);
            let mut delete = delete.stdout(Stdio::null()).spawn().expect("the binary runs");
            // A server whose disk is still full cannot delete anything, so this gives up after a while.
            if !ends(&mut delete) {
                let _ = delete.kill();
            }
            let _ = delete.wait();
        }
        if server.try_wait().expect("a child of ours").is_none() {
            signal("-TERM", &server);
        }
        if !ends(&mut server) {
            let _ = server.kill();
        }
        // A debug build checks at its end that its memory matches its rows.
        let status = server.wait().expect("a child of ours");
        assert!(status.success() || std::thread::panicking(), "the server ended with {status}");
    }
}

/// Starts a server and waits until it reports that it is ready.
pub fn ready(command: &mut Command) -> Child {
    ready_saying(command, Stdio::null())
}

/// Its other output goes to `to`.
pub fn ready_saying(command: &mut Command, to: Stdio) -> Child {
    let mut child = command.stdout(Stdio::piped()).stderr(to).spawn().expect("the binary starts");
    let mut first = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut first).expect("a line");
    assert!(first.starts_with("ready https://"), "{first:?}");
    child
}

pub fn signal(signal: &str, child: &Child) {
    let sent = Command::new("kill").arg(signal).arg(child.id().to_string()).status();
    assert!(sent.expect("kill runs").success());
}

/// Whether it ends by itself, soon.
pub fn ends(child: &mut Child) -> bool {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if child.try_wait().expect("a child of ours").is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

pub fn done(output: Output) -> Done {
    Done {
        code: output.status.code().unwrap_or(-1),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).expect("messages are text"),
    }
}

/// The text without the lines that differ from run to run.
pub fn settled(text: &str) -> String {
    let differs = |line: &&str| line.contains("created_on") || line.contains("created_at");
    text.lines().filter(|line| !differs(line)).map(|line| format!("{line}\n")).collect()
}
