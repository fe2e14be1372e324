//! Tests the local provider with agents that behave well and agents that do not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use muster_agent::home::Home;
use muster_agent::identity::Identity;
use muster_agent::kin;
use muster_core::ids::Epoch;
use muster_providers::conformance::{self, request};
use muster_providers::{CreateError, Local, LocalConfig, Provider};

struct Machine {
    dir: tempfile::TempDir,
    local: Local,
}

impl Machine {
    fn with_agent(script: &str) -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let local = Local::new(LocalConfig {
            nodes_dir: dir.path().join("nodes"),
            agent_binary: Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/providers/agents")
                .join(script),
            server_url: "https://127.0.0.1:1".into(),
            ca_file: dir.path().join("ca.pem"),
            environments: None,
            node_secret: Box::new(|name| format!("secret of {name}")),
        });
        Machine { dir, local: local.with_stop_grace(Duration::from_millis(300)) }
    }

    fn home(&self, name: &str) -> Home {
        Home::new(self.dir.path().join("nodes").join(name))
    }

    fn processes(&self, name: &str) -> Vec<Identity> {
        kin::of_node(name, &self.home(name)).unwrap()
    }

    /// Only agents lead a session here; their children do not.
    fn agents(&self, name: &str) -> usize {
        let leads = |process: &Identity| session_of(process.pid) == Some(process.pid);
        self.processes(name).iter().filter(|process| leads(process)).count()
    }

    fn kept_log(&self, name: &str) -> String {
        let path = self.dir.path().join("node-logs").join(format!("{name}.log"));
        std::fs::read_to_string(path).unwrap()
    }

    fn agent(&self, name: &str) -> Identity {
        Identity::read(&self.home(name).agent_pid()).unwrap().unwrap()
    }
}

impl Drop for Machine {
    /// Ensures that a failed test leaves nothing running either.
    fn drop(&mut self) {
        for name in self.local.list().unwrap_or_default() {
            let _ = self.local.delete(&name);
        }
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn session_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(3)?.parse().ok()
}

#[test]
fn it_conforms() {
    let machine = Machine::with_agent("lives.sh");
    conformance::check(&machine.local, &|name| machine.agents(name), None);
}

#[test]
fn it_conforms_with_agents_that_do_not_leave() {
    let machine = Machine::with_agent("ignores-term.sh");
    conformance::check(&machine.local, &|name| machine.agents(name), None);
}

#[test]
fn an_agent_is_started_with_what_it_needs_and_no_more() {
    let machine = Machine::with_agent("lives.sh");
    machine.local.create(&request("pool-1")).unwrap();
    let home = machine.home("pool-1");
    let read = |name: &str| std::fs::read_to_string(home.dir().join(name)).unwrap_or_default();
    eventually("the agent looks around", || !read("descriptors").is_empty());
    let dir = home.dir().display().to_string();
    let ca_file = machine.dir.path().join("ca.pem");
    let arguments = format!(
        "agent --node pool-1 --dir {dir} --server https://127.0.0.1:1 --ca {}\n",
        ca_file.display()
    );
    assert_eq!(read("arguments"), arguments);
    let environment = read("environment");
    let environment: BTreeMap<_, _> =
        environment.lines().filter_map(|line| line.split_once('=')).collect();
    assert_eq!(environment["MUSTER_NODE"], "pool-1");
    assert_eq!(environment["MUSTER_NODE_DIR"], dir);
    let allowed = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "RUST_LOG", "RUST_BACKTRACE"];
    let own = ["MUSTER_NODE", "MUSTER_NODE_DIR", "PWD", "OLDPWD", "SHLVL", "_"];
    for name in environment.keys() {
        assert!(allowed.contains(name) || own.contains(name), "{name} was inherited");
    }
    // The three standard descriptors, the one by which `ls` reads the folder, and perhaps the shell's script.
    let count = read("descriptors").lines().count();
    assert!((4..=5).contains(&count), "{}", read("descriptors"));
    assert_eq!(read("secret"), "secret of pool-1");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home.dir()), 0o700);
    assert_eq!(mode(&home.secret()), 0o600);
    let agent = machine.agent("pool-1");
    assert_eq!(session_of(agent.pid), Some(agent.pid));
    machine.local.delete("pool-1").unwrap();
    assert!(!agent.is_alive());
}

#[test]
fn an_agent_that_ends_is_collected_and_its_log_is_kept() {
    let machine = Machine::with_agent("exits.sh");
    machine.local.create(&request("pool-1")).unwrap();
    let log = machine.home("pool-1").agent_log();
    eventually("it writes to its log", || {
        std::fs::read_to_string(&log).unwrap().contains("no work")
    });
    eventually("it ends", || machine.processes("pool-1").is_empty());
    let agent = Identity::read(&machine.home("pool-1").agent_pid()).unwrap();
    if let Some(agent) = agent {
        let of_proc = format!("/proc/{}", agent.pid);
        eventually("no zombie is left", || !Path::new(&of_proc).exists());
    }
    // Something of the node is left, so it is listed until it is deleted.
    assert_eq!(machine.local.list().unwrap(), ["pool-1"]);
    // The same request again starts another agent, not a second node.
    machine.local.create(&request("pool-1")).unwrap();
    eventually("it ends", || machine.processes("pool-1").is_empty());
    machine.local.delete("pool-1").unwrap();
    assert_eq!(machine.local.list().unwrap(), Vec::<String>::new());
    assert_eq!(machine.kept_log("pool-1"), "no work today\nno work today\n");
}

#[test]
fn an_agent_is_known_again_after_the_server_restarted() {
    let mut machine = Machine::with_agent("lives.sh");
    machine.local.create(&request("pool-1")).unwrap();
    let agent = machine.agent("pool-1");
    let dir = machine.dir.path().to_path_buf();
    machine.local = Local::new(LocalConfig {
        nodes_dir: dir.join("nodes"),
        agent_binary: "/nowhere/muster".into(),
        server_url: String::new(),
        ca_file: dir.join("ca.pem"),
        environments: None,
        node_secret: Box::new(|_| String::new()),
    });
    assert_eq!(machine.local.list().unwrap(), ["pool-1"]);
    machine.local.create(&request("pool-1")).unwrap();
    assert_eq!(machine.agent("pool-1"), agent);
    // Also without its record, or its whole folder, once it has written everything there.
    let last = machine.home("pool-1").dir().join("descriptors");
    eventually("it is settled", || std::fs::metadata(&last).is_ok_and(|file| file.len() > 0));
    std::fs::remove_file(machine.home("pool-1").agent_pid()).unwrap();
    std::fs::remove_dir_all(machine.home("pool-1").dir()).unwrap();
    assert_eq!(machine.local.list().unwrap(), ["pool-1"]);
    machine.local.delete("pool-1").unwrap();
    assert!(!agent.is_alive());
}

#[test]
fn what_an_agent_leaves_behind_is_ended() {
    let machine = Machine::with_agent("leaves-children.sh");
    machine.local.create(&request("pool-1")).unwrap();
    let log = machine.home("pool-1").agent_log();
    eventually("it is running", || std::fs::read_to_string(&log).unwrap().contains("up"));
    eventually("its children too", || machine.processes("pool-1").len() >= 3);
    let all = machine.processes("pool-1");
    machine.local.delete("pool-1").unwrap();
    assert_eq!(all.iter().filter(|process| process.is_alive()).count(), 0);
}

/// Starts a process that has nothing of the node in its environment.
fn stranger(dir: &Path) -> Child {
    let mut command = Command::new("sleep");
    command.arg("1000").env_clear().env("PATH", "/usr/bin:/bin").current_dir(dir);
    // SAFETY: one system call between fork and exec.
    unsafe { command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) };
    command.spawn().unwrap()
}

#[test]
fn a_job_that_wiped_its_environment_is_ended_and_a_stranger_is_not() {
    let machine = Machine::with_agent("lives.sh");
    machine.local.create(&request("pool-1")).unwrap();
    let home = machine.home("pool-1");
    std::fs::create_dir(home.jobs()).unwrap();
    let mut job = stranger(home.dir());
    let identity = Identity::of(job.id()).unwrap().unwrap();
    identity.write(&home.job_pid(Epoch(1))).unwrap();
    // One process that has the folder open, and one that was given a dead job's PID.
    let mut onlooker = stranger(home.dir());
    let mut heir = stranger(machine.dir.path());
    let heir_identity = Identity::of(heir.id()).unwrap().unwrap();
    let dead = Identity { start_ticks: heir_identity.start_ticks - 1, ..heir_identity };
    dead.write(&home.job_pid(Epoch(2))).unwrap();
    machine.local.delete("pool-1").unwrap();
    assert!(job.try_wait().unwrap().is_some());
    for survivor in [&mut onlooker, &mut heir] {
        assert!(survivor.try_wait().unwrap().is_none());
        survivor.kill().unwrap();
        survivor.wait().unwrap();
    }
}

#[test]
fn a_pid_that_was_given_out_again_is_not_signalled() {
    let machine = Machine::with_agent("exits.sh");
    machine.local.create(&request("pool-1")).unwrap();
    eventually("it ends", || machine.processes("pool-1").is_empty());
    let mut heir = stranger(machine.dir.path());
    let identity = Identity::of(heir.id()).unwrap().unwrap();
    let dead = Identity { start_ticks: identity.start_ticks - 1, ..identity };
    dead.write(&machine.home("pool-1").agent_pid()).unwrap();
    machine.local.delete("pool-1").unwrap();
    assert!(heir.try_wait().unwrap().is_none());
    heir.kill().unwrap();
    heir.wait().unwrap();
}

#[test]
fn a_missing_program_is_reported() {
    let machine = Machine::with_agent("no-such-script.sh");
    let error = machine.local.create(&request("pool-1")).unwrap_err();
    assert!(matches!(&error, CreateError::Start { node, .. } if node == "pool-1"), "{error}");
    machine.local.delete("pool-1").unwrap();
    assert_eq!(machine.local.list().unwrap(), Vec::<String>::new());
}
