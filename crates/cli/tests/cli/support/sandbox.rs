//! Servers whose nodes are sandboxed, and what runs on them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use muster_sandbox::identity::Identity;

use super::Site;

/// How the log of a job begins on a node that lacks something.
pub const NOT_ENFORCED: &str = "muster: not enforced on this node: ";
const PATIENCE: Duration = Duration::from_secs(60);

pub fn sandboxed() -> Site {
    let mut site = Site::empty();
    site.start_with(&["--isolation", "sandbox"]);
    site
}

/// The output of a job that must succeed, without the line about what this machine does not enforce.
pub fn ran(site: &Site, cluster: &str, name: &str, command: &str) -> String {
    let job = ["job", "create", "--compute", cluster, "--command", command, "-n", name, "--stream"];
    let done = site.run(&job);
    let text = String::from_utf8(done.stdout).expect("text");
    assert_eq!(done.code, 0, "{name}: {text}{}", done.stderr);
    match text.split_once('\n') {
        Some((first, rest)) if first.starts_with(NOT_ENFORCED) => rest.to_owned(),
        _ => text,
    }
}

pub fn cluster(site: &Site, name: &str, more: &[&str]) {
    let create = ["compute", "create", "-n", name, "--max-instances", "2", "-d", "600"];
    let done = site.run(&[&create[..], more].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The folders of the nodes here, and everything next to them.
pub fn nodes_in(sandboxes: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(sandboxes).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The first process of the node in this folder.
pub fn init_of(node: &Path) -> Option<u32> {
    Identity::read(&node.join("init")).ok()?.filter(Identity::is_alive).map(|init| init.pid)
}

/// The files of a living node, as this machine sees them. Its disk is mounted in the node alone.
pub fn home_of(node: &Path) -> Option<PathBuf> {
    Some(format!("/proc/{}/root/node", init_of(node)?).into())
}

/// The working folders on these nodes.
pub fn works_in(sandboxes: &Path) -> Vec<PathBuf> {
    let homes = nodes_in(sandboxes).into_iter().filter_map(|node| home_of(&node));
    let own = homes.flat_map(|home| nodes_in(&home.join("work")));
    own.map(|own| own.join("wd")).collect()
}

/// The working folders on this server's nodes.
pub fn works(site: &Site) -> Vec<PathBuf> {
    works_in(&site.state().join("sandboxes"))
}

/// Processes of this machine whose command line has all of these words.
pub fn processes(words: &[&str]) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_all = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        words.iter().all(|word| line.contains(word))
    };
    pids.filter(has_all).collect()
}

/// The cgroups of the nodes of this server, wherever the machine has them.
pub fn cgroups_of(instance: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new("/sys/fs/cgroup").to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let is_ours = entry.file_name().to_string_lossy().contains(instance);
                let has_nodes = || {
                    std::fs::read_dir(entry.path()).is_ok_and(|inner| {
                        inner
                            .flatten()
                            .any(|e| e.file_name().to_string_lossy().starts_with("node-"))
                    })
                };
                if is_ours && has_nodes() {
                    found.push(entry.path());
                }
                folders.push(entry.path());
            }
        }
    }
    found
}
