//! Nodes behind walls, made by a real server: their own address, limits and end.

mod support;

use std::path::Path;
use std::process::Command;

use support::walls::{cgroups_of, cluster, processes, ran, wait_until, walled};

#[test]
fn a_node_is_a_place_of_its_own_and_leaves_nothing() {
    let site = walled();
    cluster(&site, "cpu", &["--min-instances", "1"]);
    let seen = ran(
        &site,
        "cpu",
        "look",
        "hostname; hostname -I; ls /; ls /proc | grep -c '^[0-9]'; cat /etc/hostname; \
         touch /usr/muster-was-here /etc/muster-was-here 2>&1; ls /root /home 2>&1; true",
    );
    assert!(seen.contains("cpu-"), "it has its own name: {seen}");
    assert!(seen.contains("100.64.0.2"), "it has its own address: {seen}");
    assert!(!Path::new("/usr/muster-was-here").exists() && seen.contains("Read-only file system"));
    let state = site.state().display().to_string();
    let hidden = ran(&site, "cpu", "hidden", &format!("ls -d {state} /root/* 2>&1; true"));
    assert!(hidden.contains(&format!("cannot access '{state}'")), "{hidden}");
    let helper = processes(&["helper", &state]);
    let line = std::fs::read_to_string(format!("/proc/{}/cmdline", helper[0])).expect("it runs");
    let mut words = line.split('\0').skip_while(|word| *word != "--instance");
    let instance = words.nth(1).expect("it has a name").to_owned();
    assert_eq!(helper.len(), 3, "a helper, its porter, and the first process of a node");

    let delete = site.run(&["compute", "delete", "-n", "cpu", "--yes"]);
    assert_eq!(delete.code, 0, "{}", delete.stderr);
    for folder in ["sandboxes", "relays"] {
        let left: Vec<_> =
            std::fs::read_dir(site.state().join(folder)).expect("it is there").collect();
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
    // A node's first process has the helper's own command line.
    assert_eq!(processes(&["helper", &state]).len(), 2, "of the nodes nothing runs");
    assert_eq!(cgroups_of(&instance), Vec::<std::path::PathBuf>::new());
}

#[test]
fn nodes_of_a_cluster_see_each_other_and_no_others() {
    let site = walled();
    cluster(&site, "one", &["--min-instances", "2"]);
    cluster(&site, "two", &["--min-instances", "1"]);
    // The server of the machine listens on its loopback, and that is another one in here but for the relay.
    let machine = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = machine.local_addr().expect("it listens").port();
    let listen = "exec python3 -m http.server 8765 --bind 0.0.0.0";
    let create = ["job", "create", "--compute", "one", "--command", listen, "-n", "listens"];
    assert_eq!(site.run(&create).code, 0);
    wait_until("the job runs", || site.text(&["job", "show", "-n", "listens"]).contains("Running"));
    let call = |address: &str, port: u16| {
        format!("timeout 2 bash -c 'exec 3<>/dev/tcp/{address}/{port}' && echo reached {address}")
    };
    // Either node of the cluster may have the listening one.
    let near = format!(
        "for i in $(seq 50); do {}; {}; sleep 0.1; done 2>/dev/null | head -1; true",
        call("100.64.0.2", 8765),
        call("100.64.0.3", 8765)
    );
    assert!(ran(&site, "one", "near", &near).contains("reached 100.64.0."));
    let far = format!(
        "({}; {}; {}; {}) 2>/dev/null; true",
        call("100.64.0.2", 8765),
        call("100.64.0.3", 8765),
        call("127.0.0.1", port),
        call("169.254.169.254", 80),
    );
    assert_eq!(ran(&site, "two", "far", &far).trim(), "");
    drop(machine);
}

#[test]
fn nodes_outlive_the_server_and_its_helper() {
    let mut site = walled();
    cluster(&site, "cpu", &["--min-instances", "1"]);
    let before = ran(&site, "cpu", "before", "hostname");
    let long =
        ["job", "create", "--compute", "cpu", "--command", "sleep 3; echo slept", "-n", "long"];
    assert_eq!(site.run(&long).code, 0);
    wait_until("it runs", || site.text(&["job", "show", "-n", "long"]).contains("Running"));
    site.kill();
    site.start_with(&["--isolation", "walls"]);
    wait_until("it ends", || site.text(&["job", "show", "-n", "long"]).contains("Completed"));
    assert_eq!(ran(&site, "cpu", "after", "hostname"), before, "the same node");

    let state = site.state().display().to_string();
    // Of a node's first process the command line is the helper's, and its parent is the helper or nobody.
    let server = site.server_pid();
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok())
            == Some(server)
    };
    let helper: Vec<u32> =
        processes(&["helper", &state]).into_iter().filter(|pid| is_child(pid)).collect();
    let [helper] = helper[..] else { panic!("one helper, not {helper:?}") };
    assert!(Command::new("kill").args(["-9", &helper.to_string()]).status().unwrap().success());
    assert_eq!(ran(&site, "cpu", "still", "hostname"), before, "the same node");
    cluster(&site, "cpu", &["--min-instances", "2"]);
    wait_until("a second node", || {
        site.text(&["compute", "list-nodes", "-n", "cpu"]).matches("\"node_id\"").count() == 2
    });
    assert_eq!(site.run(&["compute", "delete", "-n", "cpu", "--yes"]).code, 0);
}

/// An address of this machine that is not its loopback, if it has one. Nothing is sent.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
fn nodes_get_out_only_where_they_may() {
    let Some(address) = own_address() else {
        return eprintln!("skipped: this machine has no address but its loopback");
    };
    let outside = std::net::TcpListener::bind((address, 0)).expect("a port");
    let port = outside.local_addr().expect("it listens").port();
    let call = format!(
        "timeout 5 bash -c 'exec 3<>/dev/tcp/{address}/{port}' 2>/dev/null && echo reached; \
         timeout 5 bash -c 'exec 3<>/dev/tcp/169.254.169.254/80' 2>/dev/null && echo metadata; true"
    );
    for (flag, wanted) in [("true", "reached"), ("false", "")] {
        let mut site = support::Site::empty();
        site.start_with(&["--isolation", "walls", &format!("--egress={flag}")]);
        cluster(&site, "cpu", &[]);
        assert_eq!(ran(&site, "cpu", "call", &call).trim(), wanted, "egress = {flag}");
        assert_eq!(site.run(&["compute", "delete", "-n", "cpu", "--yes"]).code, 0);
    }
}
