//! Sandboxed nodes that a real server creates: their own address, limits and end.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support;
use crate::support::sandbox::{cgroups_of, cluster, processes, ran, sandboxed, wait_until};

#[test]
fn a_node_is_a_place_of_its_own_and_leaves_nothing() {
    let site = sandboxed();
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
    assert_eq!(helper.len(), 3, "a helper, its slirp process, and the first process of a node");

    let delete = site.run(&["compute", "delete", "-n", "cpu", "--yes"]);
    assert_eq!(delete.code, 0, "{}", delete.stderr);
    for folder in ["sandboxes", "relays"] {
        let left: Vec<_> =
            std::fs::read_dir(site.state().join(folder)).expect("it exists").collect();
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
    // A node's first process has the helper's own command line.
    assert_eq!(processes(&["helper", &state]).len(), 2, "nothing of the nodes is running");
    assert_eq!(cgroups_of(&instance), Vec::<std::path::PathBuf>::new());
}

#[test]
fn nodes_of_a_cluster_see_each_other_and_no_others() {
    let site = sandboxed();
    cluster(&site, "one", &["--min-instances", "2"]);
    cluster(&site, "two", &["--min-instances", "1"]);
    // The server listens on the machine's loopback, which is not the node's: only the relay leads there.
    let machine = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = machine.local_addr().expect("it listens").port();
    let listen = "exec python3 -m http.server 8765 --bind 0.0.0.0";
    let create = ["job", "create", "--compute", "one", "--command", listen, "-n", "listens"];
    assert_eq!(site.run(&create).code, 0);
    wait_until("the job runs", || site.text(&["job", "show", "-n", "listens"]).contains("Running"));
    let call = |address: &str, port: u16| {
        format!("timeout 2 bash -c 'exec 3<>/dev/tcp/{address}/{port}' && echo reached {address}")
    };
    // Either node of the cluster may have the listening job.
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
    let mut site = sandboxed();
    cluster(&site, "cpu", &["--min-instances", "1"]);
    let before = ran(&site, "cpu", "before", "hostname");
    let long =
        ["job", "create", "--compute", "cpu", "--command", "sleep 3; echo slept", "-n", "long"];
    assert_eq!(site.run(&long).code, 0);
    wait_until("it runs", || site.text(&["job", "show", "-n", "long"]).contains("Running"));
    site.kill();
    site.start_with(&["--isolation", "sandbox"]);
    wait_until("it ends", || site.text(&["job", "show", "-n", "long"]).contains("Completed"));
    assert_eq!(ran(&site, "cpu", "after", "hostname"), before, "the same node");

    let state = site.state().display().to_string();
    // A node's first process has the helper's command line, and its parent is the helper or no process.
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

/// The namespaces of a process and its users as the machine sees them: the first one, and how many.
fn walls_of(pid: &str) -> (Vec<PathBuf>, (u64, u64)) {
    let kinds = ["pid", "mnt", "uts", "ipc", "user", "net"];
    let namespaces = kinds.map(|kind| std::fs::read_link(format!("/proc/{pid}/ns/{kind}")));
    let map = std::fs::read_to_string(format!("/proc/{pid}/uid_map")).expect("it runs");
    let numbers = map.split_whitespace().map(|number| number.parse().expect("a number"));
    let [_, first, count] = numbers.collect::<Vec<u64>>()[..] else { panic!("{map}") };
    (namespaces.map(|namespace| namespace.expect("it runs")).into(), (first, count))
}

#[test]
fn no_two_nodes_and_no_two_jobs_share_a_namespace() {
    if !rustix::process::geteuid().is_root() {
        return muster_testing::skip_or_fail("not root: there are no UID ranges");
    }
    let site = sandboxed();
    cluster(&site, "cpu", &["--min-instances", "2", "--size", "Standard_DS1_v2"]);
    let sleeps = ["1", "2"].map(|end| format!("600.{}{end}", std::process::id()));
    for (name, seconds) in ["one", "two"].iter().zip(&sleeps) {
        let command = format!("exec sleep {seconds}");
        let create = ["job", "create", "--compute", "cpu", "--command", &command, "-n", name];
        assert_eq!(site.run(&create).code, 0);
    }
    let job = |seconds: &str| {
        wait_until("it sleeps", || processes(&[&format!("sleep {seconds}")]).len() == 1);
        processes(&[&format!("sleep {seconds}")])[0].to_string()
    };
    let jobs = sleeps.each_ref().map(|seconds| walls_of(&job(seconds)));
    let nodes = std::fs::read_dir(site.state().join("sandboxes")).expect("nodes").flatten();
    let first = |node: std::fs::DirEntry| {
        let record = std::fs::read(node.path().join("init")).expect("it runs");
        let record: serde_json::Value = serde_json::from_slice(&record).expect("JSON");
        walls_of(&record["pid"].to_string())
    };
    let nodes: Vec<_> = nodes.map(first).collect();
    let machine = walls_of("self");
    assert_eq!(nodes.len(), 2);

    let all: Vec<_> = jobs.iter().chain(&nodes).chain([&machine]).collect();
    for kind in 0..5 {
        let different: BTreeSet<_> = all.iter().map(|(namespaces, _)| &namespaces[kind]).collect();
        assert_eq!(different.len(), all.len(), "{different:?}");
    }
    // Each node has a network, and each job another one.
    let networks = |sandbox: &[(Vec<PathBuf>, (u64, u64))]| -> BTreeSet<PathBuf> {
        sandbox.iter().map(|(namespaces, _)| namespaces[5].clone()).collect()
    };
    assert_eq!(networks(&nodes).len(), 2);
    assert_eq!(networks(&nodes), networks(&jobs));
    assert!(!networks(&nodes).contains(&machine.0[5]));

    let [(one, many), (other, as_many)] = [nodes[0].1, nodes[1].1];
    assert_eq!((many, as_many), (65_536, 65_536));
    assert!(one.abs_diff(other) >= many && one.min(other) >= many, "{one} {other}");
    for (_, (user, count)) in &jobs {
        let is_within = |(first, count): (u64, u64)| (first + 1..first + count).contains(user);
        assert_eq!(*count, 1);
        assert_eq!([nodes[0].1, nodes[1].1].into_iter().filter(|n| is_within(*n)).count(), 1);
    }
    assert_ne!(jobs[0].1, jobs[1].1);
    for name in ["one", "two"] {
        assert_eq!(site.run(&["job", "cancel", "-n", name]).code, 0);
    }
}

#[test]
fn internet_access_does_not_lead_back_to_the_machine() {
    if Command::new("slirp4netns").arg("--version").output().is_err() {
        return muster_testing::skip_or_fail("no slirp4netns, so nodes have no internet access");
    }
    let mut site = support::Site::empty();
    site.start_with(&["--isolation", "sandbox", "--egress=true"]);
    cluster(&site, "cpu", &[]);
    let url = site.url();
    let (_, server) = url.rsplit_once(':').expect("a port");
    let machine = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let other = machine.local_addr().expect("it listens").port().to_string();
    // slirp4netns' own address for the machine itself.
    let call = |port: &str| {
        format!(
            "timeout 5 bash -c 'exec 3<>/dev/tcp/10.0.2.2/{port}' 2>/dev/null && echo reached; "
        )
    };
    let calls = format!("ls /sys/class/net; {}{}true", call(server), call(&other));
    let seen = ran(&site, "cpu", "back", &calls);
    assert_eq!(seen.split_whitespace().collect::<Vec<_>>(), ["eth0", "lo", "tap0"]);

    // The server is reachable at its usual URL, with the same name and certificate.
    assert!(url.starts_with("https://localhost:"), "{url}");
    assert!(site.text(&["env"]).contains(&url), "clients use {url}");
    let asks = format!("curl -sS -o answer -w '%{{http_code}} ' {url}/subscriptions; cat answer");
    let answer = ran(&site, "cpu", "asks", &asks);
    assert!(answer.starts_with("401 ") && answer.contains("\"error\""), "{answer}");
    let distrusts = "CURL_CA_BUNDLE=/etc/hostname ";
    let answer = ran(&site, "cpu", "distrusts", &format!("{distrusts}{asks} 2>&1; true"));
    assert!(!answer.contains("401 "), "{answer}");
}

/// An address of this machine that is not its loopback, if it has one. Nothing is sent.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
fn nodes_have_internet_access_only_if_allowed() {
    let Some(address) = own_address() else {
        return muster_testing::skip(
            muster_testing::Optional::OwnAddress,
            "this machine has no address but its loopback",
        );
    };
    let outside = std::net::TcpListener::bind((address, 0)).expect("a port");
    let port = outside.local_addr().expect("it listens").port();
    let call = format!(
        "timeout 5 bash -c 'exec 3<>/dev/tcp/{address}/{port}' 2>/dev/null && echo reached; \
         timeout 5 bash -c 'exec 3<>/dev/tcp/169.254.169.254/80' 2>/dev/null && echo metadata; true"
    );
    for (flag, wanted) in [("true", "reached"), ("false", "")] {
        let mut site = support::Site::empty();
        site.start_with(&["--isolation", "sandbox", &format!("--egress={flag}")]);
        cluster(&site, "cpu", &[]);
        assert_eq!(ran(&site, "cpu", "call", &call).trim(), wanted, "egress = {flag}");
        assert_eq!(site.run(&["compute", "delete", "-n", "cpu", "--yes"]).code, 0);
    }
}

#[test]
fn a_node_that_cannot_be_made_fails_no_job() {
    let site = sandboxed();
    cluster(&site, "cpu", &[]);
    // Every node needs this file, so none can be created without it.
    let bundle = site.state().join("pki/ca-bundle.pem");
    let away = site.folder().join("away");
    std::fs::rename(&bundle, &away).expect("it exists");
    let create = ["job", "create", "--compute", "cpu", "--command", "true", "-n", "waits"];
    assert_eq!(site.run(&create).code, 0);
    let mut why = serde_json::Value::Null;
    wait_until("the reason is shown", || {
        why = site.json(&["why", "waits", "-o", "json"]);
        why["value"][0]["code"] == "CreateFailing"
    });
    assert_eq!(why["value"][0]["class"], "provision", "{why}");
    assert!(why.to_string().contains("cannot prepare the node's folder"), "{why}");
    let text = site.text(&["why", "waits"]);
    assert!(text.starts_with("1. CreateFailing (provision): "), "{text}");
    let shown = site.json(&["job", "show", "-n", "waits"]);
    assert_eq!((&shown["status"], &shown["failure"]), (&"Queued".into(), &shown["none"]));
    std::fs::rename(&away, &bundle).expect("it exists");
    wait_until("it runs in the end", || {
        site.text(&["job", "show", "-n", "waits"]).contains("Completed")
    });
}

#[test]
fn environments_of_the_cluster_are_seen_but_not_written_to_and_others_are_not_seen() {
    let site = sandboxed();
    cluster(&site, "cpu", &["--min-instances", "1"]);
    let seen = ran(
        &site,
        "cpu",
        "look",
        "/environments/plain/bin/python -c 'print(6 * 7)'; touch /environments/x 2>&1; \
         grep ' /environments ' /proc/self/mountinfo | cut -d' ' -f6; true",
    );
    assert!(seen.contains("42\n") && seen.contains("Read-only file system"), "{seen}");
    let options = seen.lines().last().unwrap_or_default();
    for wanted in ["ro", "nosuid", "nodev"] {
        assert!(options.split(',').any(|option| option == wanted), "{wanted}: {seen}");
    }
    // An environment that is built while the node lives is visible.
    let environments = site.state().join("environments");
    let own = std::fs::read_dir(environments.join("shown")).expect("it exists").next();
    let own = own.expect("the cluster has a folder").expect("it can be read").path();
    std::fs::create_dir(own.join("later")).expect("it is ours");
    // Environments that were built for other clusters, and by an earlier version.
    std::fs::create_dir_all(environments.join("shown/4711/secret")).expect("it is ours");
    std::fs::create_dir(environments.join("ready/secret")).expect("it is ours");
    let seen = ran(
        &site,
        "cpu",
        "later",
        "ls -R /environments; ls /environments/.. /environments/4711 2>&1; true",
    );
    assert!(seen.contains("later") && !seen.contains("secret"), "{seen}");
    let elsewhere =
        ran(&site, "cpu", "elsewhere", "ls /environments/..; ls /environments/../cache 2>&1; true");
    assert!(!elsewhere.contains("building") && elsewhere.contains("cannot access"), "{elsewhere}");
    assert_eq!(site.run(&["compute", "delete", "-n", "cpu", "--yes"]).code, 0);
}
