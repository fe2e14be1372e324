//! Nodes without a server: they end by themselves, and the next start finds only what it deletes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Site;
use crate::support::sandbox::{cgroups_of, cluster, processes, ran, wait_until};

const FLAGS: [&str; 4] = ["--isolation", "sandbox", "--lease-seconds", "6"];

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The helper of this server, and the name in its cgroups.
fn helper(site: &Site) -> (u32, String) {
    let state = site.state().display().to_string();
    let is_its = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        parent.and_then(|parent| parent.parse().ok()) == Some(site.server_pid())
    };
    let helper = processes(&["helper", &state]).into_iter().find(is_its).expect("it has one");
    let line = std::fs::read_to_string(format!("/proc/{helper}/cmdline")).expect("it runs");
    let mut words = line.split('\0').skip_while(|word| *word != "--instance");
    (helper, words.nth(1).expect("it has a name").to_owned())
}

/// The devices of the network that all nodes are connected to.
fn interfaces(helper: u32) -> Vec<String> {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{helper}/ns/net")).args(["cat", "/proc/self/net/dev"]);
    let text = String::from_utf8(command.output().expect("nsenter is installed").stdout);
    let text = text.expect("text");
    let names = text.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// Takes 16 s: nodes end themselves some time after their lease, which is the shortest possible.
#[test]
fn nodes_without_a_server_end_and_the_next_start_leaves_nothing_of_them() {
    if !rustix::process::geteuid().is_root() {
        return muster_testing::skip_or_fail("not root: only root can look at all that a node has");
    }
    let mut site = Site::empty();
    site.start_with(&FLAGS);
    cluster(&site, "cpu", &["--size", "Standard_DS1_v2"]);
    ran(&site, "cpu", "one", "true");
    let (first, instance) = helper(&site);
    let nodes = entries(&site.state().join("sandboxes"));
    let record = std::fs::read_to_string(nodes[0].join("init")).expect("it runs");
    let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
    let init = format!("/proc/{}/ns/pid", record["pid"]);
    let namespace = std::fs::read_link(&init).expect("it runs");
    assert!(interfaces(first).len() > 2, "its cable and its bridge: {:?}", interfaces(first));
    assert!(!cgroups_of(&instance).is_empty());

    site.kill();
    wait_until("its first process has ended", || {
        std::fs::read_link(&init).ok().as_ref() != Some(&namespace)
    });
    assert_eq!(entries(&site.state().join("sandboxes")), nodes, "there was no server to delete it");

    site.start_with(&FLAGS);
    let (second, again) = helper(&site);
    assert_eq!(again, instance);
    let state = site.state().display().to_string();
    wait_until("nothing of the node is left", || {
        let folders = ["sandboxes", "relays"].map(|folder| entries(&site.state().join(folder)));
        let is_listed = site.text(&["compute", "list-nodes", "-n", "cpu"]).contains("node_id");
        folders.iter().all(Vec::is_empty) && !is_listed
    });
    assert_eq!(cgroups_of(&instance), Vec::<PathBuf>::new());
    assert_eq!(interfaces(second), ["lo"]);
    // The helper and its slirp process.
    assert_eq!(processes(&["helper", &state]).len(), 2);
    assert_eq!(processes(&["agent", "--sandboxed", &state]), Vec::<u32>::new());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("it exists");
    assert!(!mounts.contains(&state), "{mounts}");
    // And it works as before.
    ran(&site, "cpu", "two", "true");
}
