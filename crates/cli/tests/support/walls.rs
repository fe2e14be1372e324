//! Servers whose nodes are behind walls, and what runs on them.

use std::time::{Duration, Instant};

use super::Site;

const PATIENCE: Duration = Duration::from_secs(60);

pub fn walled() -> Site {
    let mut site = Site::empty();
    site.start_with(&["--isolation", "walls"]);
    site
}

/// The output of a job that must succeed.
pub fn ran(site: &Site, cluster: &str, name: &str, command: &str) -> String {
    let job = ["job", "create", "--compute", cluster, "--command", command, "-n", name, "--stream"];
    let done = site.run(&job);
    let text = String::from_utf8(done.stdout).expect("text");
    assert_eq!(done.code, 0, "{name}: {text}{}", done.stderr);
    text
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
