//! Other machines: each a network namespace with one cable to this one, and a host agent in it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::sandbox::{self, wait_until};
use super::{Done, Site, done, ends, signal};

/// Short enough that tests do not wait for a minute, and long enough that a busy machine renews it in time.
const LEASE_S: &str = "12";

static MADE: AtomicU32 = AtomicU32::new(0);

/// A server on one end of a cable, and the machine on the other. The server is dropped first.
pub struct Pair {
    lease_s: &'static str,
    pub site: Site,
    pub machine: Machine,
}

impl Pair {
    pub fn start() -> Pair {
        Pair::start_with(LEASE_S)
    }

    fn start_with(lease_s: &'static str) -> Pair {
        let mut pair = Pair { lease_s, site: Site::empty(), machine: Machine::new() };
        pair.serve();
        pair
    }

    /// Starts the server on the port that it had.
    pub fn serve(&mut self) {
        let listen = format!("{}:0", self.machine.server_ip());
        let sandbox = ["--trusted-users", "--isolation", "sandbox"];
        self.site.start_on(&listen, &[&sandbox[..], &["--lease-seconds", self.lease_s]].concat());
    }

    /// With the machine as host `box`.
    pub fn joined() -> Pair {
        Pair::joined_with(LEASE_S)
    }

    /// With a lease that no test waits for.
    pub fn joined_patiently() -> Pair {
        Pair::joined_with("60")
    }

    fn joined_with(lease_s: &'static str) -> Pair {
        let mut pair = Pair::start_with(lease_s);
        let token = pair.token();
        pair.machine.join(&pair.site, &["--token", &token, "--name", "box"]);
        pair
    }

    pub fn token(&self) -> String {
        self.site.text(&["host", "token", "-o", "tsv", "--query", "token"]).trim().to_owned()
    }
}

impl Pair {
    /// The server's response to a request to act for a node of host `box`.
    pub fn calls_for(&self, node: &str, key: &str) -> String {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--insecure", "--http1.1", "--max-time", "5", "-o", "/dev/null"]);
        for header in [
            "x-muster-host: box".to_owned(),
            format!("authorization: Bearer {key}"),
            format!("x-muster-node: {node}"),
            "connection: upgrade".to_owned(),
            "upgrade: muster-relay".to_owned(),
        ] {
            curl.args(["-H", &header]);
        }
        // A connection that is accepted stays open until one side ends it.
        curl.args(["-w", "%{http_code}"]).arg(format!("{}/host/v1/relay", self.site.url()));
        String::from_utf8(curl.output().expect("curl is installed").stdout).expect("a number")
    }
}

impl Drop for Pair {
    /// A server that ends deletes its nodes, so the machines have to be there.
    fn drop(&mut self) {
        to_all("-CONT", &self.machine.processes());
        self.machine.heal();
    }
}

pub struct Machine {
    /// The prefix of the names of its cable's ends.
    name: String,
    /// Its network exists as long as this process runs.
    holder: Child,
    /// The network of the cable: 10.231.x.y with two addresses.
    network: [u8; 2],
    folder: tempfile::TempDir,
    host_agent: Option<Child>,
}

/// The direction in which nothing arrives any more. The senders do not notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    FromMachine,
    ToMachine,
    BothWays,
}

impl Machine {
    pub fn new() -> Machine {
        let pid = std::process::id();
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let at = (pid.wrapping_mul(4) + number) % (256 * 64);
        let network = [(at / 64) as u8, (at % 64 * 4) as u8];
        let holder = Command::new("unshare").args(["--net", "sleep", "1800"]).spawn();
        let machine = Machine {
            name: format!("mt{pid}-{number}"),
            network,
            holder: holder.expect("unshare is installed"),
            folder: tempfile::tempdir().expect("a temporary folder"),
            host_agent: None,
        };
        let own = std::fs::read_link("/proc/self/ns/net").expect("namespaces");
        wait_until("it has a network of its own", || {
            std::fs::read_link(machine.namespace()).is_ok_and(|theirs| theirs != own)
        });
        let (here, there, holder) =
            (machine.here(), machine.there(), machine.holder.id().to_string());
        ip(&["link", "add", &here, "type", "veth", "peer", "name", &there, "netns", &holder]);
        ip(&["addr", "add", &format!("{}/30", machine.server_ip()), "dev", &here]);
        ip(&["link", "set", &here, "up"]);
        machine.ip_there(&["addr", "add", &format!("{}/30", machine.ip()), "dev", &there]);
        machine.ip_there(&["link", "set", "lo", "up"]);
        machine.ip_there(&["link", "set", &there, "up"]);
        machine
    }

    fn namespace(&self) -> String {
        format!("/proc/{}/ns/net", self.holder.id())
    }

    fn inside(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace()));
        command
    }

    fn ip_there(&self, arguments: &[&str]) {
        run(self.inside().arg("ip").args(arguments));
    }

    fn here(&self) -> String {
        format!("{}a", self.name)
    }

    fn there(&self) -> String {
        format!("{}b", self.name)
    }

    fn address(&self, last: u8) -> String {
        let [x, y] = self.network;
        format!("10.231.{x}.{}", y + last)
    }

    pub fn server_ip(&self) -> String {
        self.address(1)
    }

    fn ip(&self) -> String {
        self.address(2)
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("host")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// `muster agent --join` on this machine.
    fn command(&self, site: &Site, state: &Path, more: &[&str]) -> Command {
        let url = site.url();
        let state = state.to_str().expect("plain");
        let agent = ["agent", "--join", &url, "--state", state];
        let muster = site.command(&[&agent[..], more].concat());
        let mut command = self.inside();
        command.arg(muster.get_program());
        for (name, value) in muster.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(muster.get_args()).stdin(Stdio::null());
        command
    }

    /// Waits until it is a host.
    pub fn join(&mut self, site: &Site, more: &[&str]) {
        let log = File::create(self.log()).expect("io");
        let mut command = self.command(site, &self.state(), more);
        self.host_agent = Some(command.stderr(log).spawn().expect("nsenter is installed"));
        wait_until("it joins", || self.says("this host joined"));
    }

    /// How joining ends from a folder where it must fail.
    pub fn fails_to_join(&self, site: &Site, more: &[&str]) -> Done {
        let state = self.folder.path().join("other");
        done(self.command(site, &state, more).output().expect("nsenter is installed"))
    }

    pub fn says(&self, words: &str) -> bool {
        std::fs::read_to_string(self.log()).is_ok_and(|log| log.contains(words))
    }

    /// Stops the host agent as its owner would; the nodes are kept.
    pub fn stop(&mut self) {
        let mut host_agent = self.host_agent.take().expect("it was started");
        signal("-TERM", &host_agent);
        assert!(ends(&mut host_agent), "it does not end");
        assert!(host_agent.wait().expect("a child of ours").success());
    }

    /// The exit code of a host agent that ends by itself.
    pub fn ended(&mut self) -> i32 {
        let mut host_agent = self.host_agent.take().expect("it was started");
        assert!(ends(&mut host_agent), "it does not end");
        host_agent.wait().expect("a child of ours").code().expect("not killed")
    }

    /// The nodes that have a folder here.
    pub fn nodes(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.state().join("sandboxes")).into_iter().flatten();
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// The first process of a node.
    pub fn init_of(&self, node: &str) -> Option<u32> {
        sandbox::init_of(&self.state().join("sandboxes").join(node))
    }

    /// The folder in which the only job on this machine runs.
    pub fn work(&self) -> PathBuf {
        let mut works = sandbox::works_in(&self.state().join("sandboxes"));
        works.pop().expect("it runs")
    }

    /// The host agent, its nodes, and everything that they started.
    pub fn processes(&self) -> Vec<u32> {
        let mut found: Vec<u32> = self.host_agent.iter().map(Child::id).collect();
        found.extend(self.nodes().iter().filter_map(|node| self.init_of(node)));
        let parents = parents();
        let mut at = 0;
        while at < found.len() {
            let children = parents.iter().filter(|(_, parent)| *parent == found[at]);
            let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
            found.extend(
                children.into_iter().filter(|pid| !found.contains(pid)).collect::<Vec<_>>(),
            );
            at += 1;
        }
        found
    }

    /// Switches the machine off.
    pub fn kill(&mut self) {
        to_all("-KILL", &self.processes());
        if let Some(mut host_agent) = self.host_agent.take() {
            host_agent.wait().expect("it was killed");
        }
    }

    pub fn cut(&self, cut: Cut) {
        let nowhere = "02:00:00:00:00:07";
        let (server, here, there) = (self.server_ip(), self.here(), self.there());
        let to = ["lladdr", nowhere, "nud", "permanent"];
        if cut != Cut::ToMachine {
            self.ip_there(&[&["neigh", "replace", &server, "dev", &there][..], &to].concat());
        }
        if cut != Cut::FromMachine {
            ip(&[&["neigh", "replace", &self.ip(), "dev", &here][..], &to].concat());
        }
    }

    pub fn heal(&self) {
        let (server, here, there) = (self.server_ip(), self.here(), self.there());
        // If nothing was cut, there is nothing to undo.
        let _ = self.inside().args(["ip", "neigh", "del", &server, "dev", &there]).output();
        let _ = Command::new("ip").args(["neigh", "del", &self.ip(), "dev", &here]).output();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn ip(arguments: &[&str]) {
    run(Command::new("ip").args(arguments));
}

fn run(command: &mut Command) {
    let done = command.output().expect("it exists");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

pub fn to_all(signal: &str, pids: &[u32]) {
    if !pids.is_empty() {
        // A process that has just ended is not among them.
        let pids = pids.iter().map(u32::to_string);
        let _ = Command::new("kill").arg(signal).args(pids).stderr(Stdio::null()).status();
    }
}

/// Every process, with its parent.
fn parents() -> Vec<(u32, u32)> {
    let entries = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // After the name, which may contain anything, come the state and the parent.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Some((pid, parent))
    })
    .collect()
}
