//! A server that root starts for another user: it has no privileges, and its nodes have complete sandboxes.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Site;
use crate::support::sandbox::{cluster, processes, ran, wait_until};

/// A UID that is unused on most machines; it needs no name.
const USER: u32 = 12_345;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn field(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
    line.split_whitespace().next().unwrap_or_default().to_owned()
}

fn serving(site: &Site) -> u32 {
    let text = std::fs::read_to_string(site.state().join("connection.json")).expect("it is ready");
    let connection: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    u32::try_from(connection["pid"].as_u64().expect("a pid")).expect("a small number")
}

fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.expect("kill is installed").success());
}

/// All entries of a folder, whatever their owner.
fn all_below(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(all_below(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all
}

#[test]
fn a_server_that_root_starts_runs_as_another_user() {
    if !is_root() {
        return muster_testing::skip_or_fail(
            "not root: only root can start a server for another user",
        );
    }
    let mut site = Site::empty_of(USER);
    let flags = ["--isolation", "sandbox", "--user", &USER.to_string()];
    site.start_with(&flags);
    let (launcher, server) = (site.server_pid(), serving(&site));
    assert_eq!(field(launcher, "Uid:"), "0");
    assert_eq!(field(server, "Uid:"), USER.to_string());
    for kind in ["CapEff:", "CapPrm:"] {
        assert_eq!(field(server, kind), "0000000000000000", "{kind}");
    }
    let socket = PathBuf::from(format!("/run/muster-helper-{launcher}.sock"));
    let door = std::fs::metadata(&socket).expect("the launcher listens");
    assert_eq!((door.uid(), door.permissions().mode() & 0o777), (USER, 0o600));

    // Root creates the sandboxes, so users and limits are available, too.
    cluster(&site, "cpu", &["--min-instances", "1"]);
    let before = ran(&site, "cpu", "before", "hostname");
    for path in all_below(&site.state()) {
        let owner = std::fs::symlink_metadata(&path).expect("it exists").uid();
        assert_eq!(owner, USER, "{}", path.display());
    }

    let state = site.state().display().to_string();
    let helpers = || {
        let all = processes(&["helper", "--owner", &state]);
        let is_child = |pid: &u32| field(*pid, "PPid:") == launcher.to_string();
        all.into_iter().filter(is_child).collect::<Vec<u32>>()
    };
    let [helper] = helpers()[..] else { panic!("one helper, not {:?}", helpers()) };
    let line = std::fs::read_to_string(format!("/proc/{helper}/cmdline")).expect("it runs");
    let mut words = line.split('\0').skip_while(|word| *word != "--nodes");
    let nodes = PathBuf::from(words.nth(1).expect("it has a folder"));
    kill(helper);
    // A helper is needed only to create and delete nodes.
    assert_eq!(site.run(&["compute", "update", "-n", "cpu", "--min-instances", "2"]).code, 0);
    wait_until("a second node", || std::fs::read_dir(&nodes).is_ok_and(|all| all.count() == 2));
    assert_eq!(helpers().len(), 1, "there is still one helper");

    kill(server);
    let mut ended = site.take_server();
    assert_eq!(ended.wait().expect("a child of ours").code(), Some(1), "it ends with its server");
    assert!(!socket.exists());
    site.start_with(&flags);
    let command = "hostname";
    let after: Vec<String> =
        (0..2).map(|n| ran(&site, "cpu", &format!("after-{n}"), command)).collect();
    assert!(after.contains(&before), "a node of before: {after:?}, {before}");

    // Killing the launcher also stops the server.
    let (server, left) = (serving(&site), format!("/run/muster-helper-{}.sock", site.server_pid()));
    site.kill();
    wait_until("the server leaves", || !Path::new(&format!("/proc/{server}")).exists());
    site.start_with(&flags);
    assert!(!Path::new(&left).exists(), "the next start deletes what a killed launcher left");
    assert_eq!(site.run(&["compute", "delete", "-n", "cpu", "--yes"]).code, 0);
    assert_eq!(std::fs::read_dir(&nodes).expect("it exists").count(), 0);
    std::fs::remove_dir_all(nodes.parent().expect("ours")).expect("nothing runs there");
}

#[test]
fn the_state_directory_must_be_the_servers_own() {
    if !is_root() {
        return muster_testing::skip_or_fail(
            "not root: only root can start a server for another user",
        );
    }
    let site = Site::empty();
    std::fs::create_dir(site.state()).expect("root's own");
    let refused = site.run(&["up", "--listen", "127.0.0.1:0", "--user", &USER.to_string()]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("belongs to user 0") && refused.stderr.contains("chown -R"));
    let unknown = site.run(&["up", "--listen", "127.0.0.1:0", "--user", "no-such-user"]);
    assert_eq!(unknown.code, 2, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("there is no user 'no-such-user'"), "{}", unknown.stderr);
}
