//! Runs the same tests as other users: an ordinary user, root of a namespace with one user, and root of one with a
//! range.
//!
//! Only root can become all of them. Any other user already is one of them.

use std::io::Write;
use std::process::{Command, Stdio};

const NESTED: &str = "MUSTER_TEST_NESTED";

/// Adds the arguments that run everything except this module.
fn all_others(command: &mut Command) -> &mut Command {
    command
        .arg(std::env::current_exe().unwrap())
        .args(["--skip", "others::", "--skip", "agent_process", "--test-threads=1"])
        .env(NESTED, "1")
}

fn can_become_others() -> bool {
    let is_root = rustix::process::geteuid().is_root() && std::env::var_os(NESTED).is_none();
    if !is_root || crate::harness::node().is_none() {
        muster_testing::skip_or_fail("only root can run tests as other users");
        return false;
    }
    true
}

fn check(command: &mut Command) {
    let output = all_others(command).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && !said.contains("skipped:"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn as_an_ordinary_user() {
    if can_become_others() {
        check(Command::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups"]));
    }
}

#[test]
fn as_root_of_one_user() {
    if can_become_others() {
        check(Command::new("unshare").args(["--user", "--map-root-user"]));
    }
}

#[test]
fn as_root_of_a_range_of_users() {
    if !can_become_others() {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--keep-caps", "sh", "-c"]);
    command.arg("read go; exec setpriv --reuid=0 --regid=0 --clear-groups \"$0\" \"$@\"");
    let command = all_others(&mut command);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    // It has its namespace once this link differs from ours.
    let namespace = format!("/proc/{}/ns/user", child.id());
    let ours = std::fs::read_link("/proc/self/ns/user").unwrap();
    crate::harness::eventually("its namespace", || std::fs::read_link(&namespace).unwrap() != ours);
    for map in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{}/{map}", child.id()), "0 1700000000 65536").unwrap();
    }
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
