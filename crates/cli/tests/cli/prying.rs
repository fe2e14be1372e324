//! What a job cannot access, tried from inside a real one: the server's state, its node's secrets, and a neighbour on
//! the same node. What it cannot reach over the network is in `nodes`.

use crate::support::sandbox::{processes, sandboxed, wait_until};
use crate::{rootless, support};

/// The number distinguishes its processes from those of the other test here.
fn victim(number: u32) -> String {
    format!(
        "echo only-the-$KNOWS | tee /job/wd/file /tmp/file /dev/shm/file > /dev/null; \
         python3 -c \"$LISTEN\" {number} & while [ ! -e /job/wd/end ]; do sleep 0.0{number}; done"
    )
}

/// On its loopback and by an abstract name, and on every address.
const LISTEN: &str = "LISTEN=import socket, time
inet = [socket.create_server((host, port)) for host, port in [('127.0.0.1', 23456), ('', 23457)]]
unix = socket.socket(socket.AF_UNIX)
unix.bind('\\0only-the-victim-listens')
unix.listen()
time.sleep(600)
";

#[test]
fn a_job_gets_at_nothing_that_is_not_its_own() {
    gets_at_nothing(&sandboxed());
}

/// Without root, nodes have no users of their own, and all jobs are the same user of the machine.
#[test]
fn without_root_a_job_gets_at_nothing_that_is_not_its_own_either() {
    if !rustix::process::geteuid().is_root() {
        return muster_testing::skip_or_fail(
            "not root: the other test runs without privileges already",
        );
    }
    gets_at_nothing(&rootless::started());
}

fn gets_at_nothing(site: &support::Site) {
    let size = ["--size", "Standard_DS2_v2", "--max-instances", "1", "-d", "600"];
    site.text(&[&["compute", "create", "-n", "cpu"][..], &size].concat());
    let half = ["--compute", "cpu", "--cpus", "1", "-o", "none"];
    let number = std::process::id();
    let command = victim(number);
    let victim = ["job", "create", "-n", "victim", "--command", &command];
    let knows = ["--timeout", "600", "--env", "KNOWS=victim-knows", "ALL=only-the-victim-knows"];
    site.text(&[&victim[..], &half, &knows, &[LISTEN]].concat());
    wait_until("it runs", || site.text(&["job", "show", "-n", "victim"]).contains("Running"));
    wait_until("it sleeps", || !processes(&["sleep", &format!("0.0{number}")]).is_empty());
    let is_heard = |pid: &u32| {
        let names = std::fs::read_to_string(format!("/proc/{pid}/net/unix"));
        names.is_ok_and(|names| names.contains("@only-the-victim-listens"))
    };
    wait_until("it listens", || {
        processes(&["python3", "victim-listens", &number.to_string()]).iter().any(is_heard)
    });
    // The process ids on this machine: the agent, what starts its jobs, their first processes, and the neighbour's own.
    let mut pids = processes(&["agent", "--sandboxed", "--node cpu-", &port(site)]);
    assert!(pids.len() >= 3, "{pids:?}");
    pids.extend(processes(&["sh", "-c", "only-the-$KNOWS"]));
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let state = site.state().display().to_string();
    let command = format!("exec python3 -c \"$PRY\" {state} {}", pids.join(" "));
    let pry = ["job", "create", "-n", "pry", "--command", &command, "--stream"];
    let program = concat!("PRY=", include_str!("prying/pry.py"));
    let done = site.run(&[&pry[..], &half[..4], &["--env", program]].concat());
    let text = String::from_utf8(done.stdout).expect("text");
    assert_eq!(done.code, 0, "{text}{}", done.stderr);
    assert_eq!(text.lines().last(), Some("got:[]"), "{text}");

    let victim = site.text(&["job", "show", "-n", "victim"]);
    assert!(victim.contains("Running"), "it was not ended: {victim}");
    assert!(site.text(&["job", "show", "-n", "pry"]).contains("Completed"));
    let nodes = site.json(&["compute", "list-nodes", "-n", "cpu"]);
    assert_eq!(nodes.as_array().map(Vec::len), Some(1), "and they were on one node: {nodes}");
}

/// The server's port, which is in the command lines of its nodes.
fn port(site: &support::Site) -> String {
    let env = site.json(&["env", "--shell", "json"]);
    let all = env.as_object().expect("variables").values().filter_map(|value| value.as_str());
    let ports = all.filter_map(|value| value.strip_prefix("https://localhost:"));
    let port = ports.map(|rest| rest.split('/').next().expect("a first part")).next();
    format!("https://127.0.0.1:{} ", port.expect("an address"))
}
