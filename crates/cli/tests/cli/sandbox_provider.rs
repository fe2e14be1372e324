//! Sandboxed nodes pass the checks for every provider, created by the real helper. No server answers them: they only
//! have to exist.

use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use muster_providers::conformance;
use muster_providers::sandboxed::{Machine, Relays, SandboxConfig, SandboxProvider};
use muster_sandbox::identity::Identity;
use muster_sandbox::link::{Helper, Link};
use muster_sandbox::protocol::Server;

/// A folder for each node, in which nothing listens.
struct NoRelays(PathBuf);

impl Relays for NoRelays {
    fn open(&self, node: &str, _: Ipv4Addr) -> io::Result<()> {
        std::fs::create_dir_all(self.0.join(node))
    }

    fn close(&self, node: &str) {
        let _ = std::fs::remove_dir_all(self.0.join(node));
    }
}

#[test]
fn sandboxed_nodes_do_what_every_provider_must() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| dir.path().join(name);
    let ca_file = at("ca.pem");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(&ca_file, made.cert.pem()).expect("it is written");
    let mut command: Vec<OsString> = vec![env!("CARGO_BIN_EXE_muster").into(), "helper".into()];
    for (flag, value) in [
        ("--instance", OsString::from(format!("conformance{}", std::process::id()))),
        ("--nodes", at("sandboxes").into()),
        ("--relays", at("relays").into()),
        ("--logs", at("node-logs").into()),
        ("--binary", env!("CARGO_BIN_EXE_muster").into()),
        ("--ca", ca_file.into()),
    ] {
        command.extend([flag.into(), value]);
    }
    let server = Server { url: "https://127.0.0.1:7443".into(), host: "localhost".into() };
    let (sandboxed, _) = SandboxProvider::start(SandboxConfig {
        link: Link::new(Helper::Started(command), server),
        node_secret: Box::new(|name| format!("secret-of-{name}")),
        relays: Box::new(NoRelays(at("relays"))),
        machine: Machine::this(),
        over_commit: false,
        has_internet: false,
        job_disk_bytes: 1 << 30,
        jobs_share: false,
    })
    .expect("the helper starts");
    let running = |name: &str| {
        let record = Identity::read(&at("sandboxes").join(name).join("init")).expect("readable");
        usize::from(record.is_some_and(|init| init.is_alive()))
    };
    let kill = |name: &str| {
        let record = Identity::read(&at("sandboxes").join(name).join("init")).expect("readable");
        let pid = record.expect("it runs").pid.to_string();
        let sent = std::process::Command::new("kill").args(["-9", &pid]).status();
        assert!(sent.expect("kill runs").success());
    };
    conformance::check(&sandboxed, &running, Some(&kill));
    let left = std::fs::read_dir(at("sandboxes")).expect("it exists").count();
    assert_eq!(left, 0, "nothing of any node is left");
}
