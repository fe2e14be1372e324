//! A network namespace for peers that listen on every address.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::keep::Kept;

/// The host name resolves to the loopback address, and without a second address names are not looked up at all.
const SET_UP: &str = "hostname localhost && ip link set lo up && ip address add 192.0.2.1/32 dev lo \
                      && exec sleep 86400";
const START: Duration = Duration::from_secs(10);

pub struct Network {
    holder: Kept,
}

impl Network {
    pub fn make() -> Result<Network> {
        ensure!(rustix::process::geteuid().is_root(), "a network of its own needs root");
        let words = ["unshare", "--net", "--uts", "/bin/sh", "-c", SET_UP].map(str::to_owned);
        let holder = Kept::start(&words, |command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        })?;
        let mut network = Network { holder };
        let started = Instant::now();
        while !network.is_ready() {
            ensure!(network.holder.is_up(), "a network namespace could not be created");
            ensure!(started.elapsed() < START, "its network did not become ready");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(network)
    }

    /// The process is no longer the shell that set it up.
    fn is_ready(&self) -> bool {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.holder.pid));
        name.is_ok_and(|name| name.trim() == "sleep")
    }

    /// The command that enters the namespace.
    pub fn inside(&self, command: impl IntoIterator<Item = String>) -> Vec<String> {
        let pid = self.holder.pid.to_string();
        let enter = ["nsenter", "--target", &pid, "--net", "--uts", "--"].map(str::to_owned);
        enter.into_iter().chain(command).collect()
    }
}
