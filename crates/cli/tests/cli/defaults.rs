//! What `muster up` and `muster serve` do without any settings, what they report about it, and that it is true.

use muster_sandbox::disk_space::DiskSpace;

use crate::support::Site;
use crate::support::sandbox::{cluster, ran, wait_until};

/// A size with GPUs, and a workspace of a server that creates none on first use.
const GPUS: [&str; 8] =
    ["compute", "create", "-n", "gpu", "--size", "Standard_ND96asr_v4", "--max-instances", "1"];
const PLACE: [&str; 6] = ["-g", "lab", "-w", "vision", "--subscription", "s"];
/// Prints the network devices, and whether a listener outside can be reached.
const LOOK: &str = "ls /sys/class/net | tr '\\n' ' '; \
                    timeout 5 bash -c 'exec 3<>/dev/tcp/ADDRESS' 2>/dev/null && echo reached; true";

/// Starts a server with sandboxes and nothing else set. Returns its output once it is complete.
fn started(how: &str) -> (Site, String) {
    let mut site = Site::empty();
    let said = site.start_heard(how, &["--isolation", "sandbox"]);
    let text = all_of(&said);
    (site, text)
}

fn all_of(said: &std::path::Path) -> String {
    let mut text = String::new();
    wait_until("the output is complete", || {
        text = std::fs::read_to_string(said).expect("it exists");
        text.contains("Ctrl-C stops the server")
    });
    text
}

/// The output lists what is not enforced, with the same messages as in the list of hosts.
fn says_what_is_missing(site: &Site, said: &str) {
    let shown = site.json(&["host", "show", "local"]);
    let missing = shown["not_enforced"].as_array().expect("a list");
    assert_eq!(missing.is_empty(), said.contains("files, users and limits;"), "{said}{shown}");
    assert_eq!(missing.is_empty(), !said.contains("not enforced: "), "{said}{shown}");
    for what in missing {
        assert!(said.contains(what.as_str().expect("text")), "{said}{shown}");
    }
    let table = site.text(&["host", "list", "-o", "table"]);
    assert_eq!(missing.is_empty(), !table.contains("not all enforced"), "{table}");
}

fn has_gpus(site: &Site) -> bool {
    site.json(&["host", "show", "local"])["gpus"] != 0
}

/// A listener on an address of this machine that is not its loopback, if it has one.
fn outside() -> Option<std::net::TcpListener> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    let listener = std::net::TcpListener::bind((address, 0)).ok()?;
    (!address.is_loopback()).then_some(listener)
}

fn look(outside: Option<&std::net::TcpListener>) -> String {
    let place = outside.and_then(|listener| listener.local_addr().ok());
    let place = place.map(|place| format!("{}/{}", place.ip(), place.port()));
    LOOK.replace("ADDRESS", place.as_deref().unwrap_or("127.0.0.1/1"))
}

#[test]
fn one_persons_server_is_generous_and_says_so() {
    let (site, said) = started("up");
    assert!(said.contains("(over-commit = true)"), "{said}");
    assert_eq!(site.json(&["host", "show", "local"])["over_commit"], true);
    says_what_is_missing(&site, &said);
    let outside = outside();
    cluster(&site, "cpu", &[]);
    let seen = ran(&site, "cpu", "look", &look(outside.as_ref()));
    if said.contains("they reach everything that this machine reaches, except its loopback") {
        assert!(seen.starts_with("eth0 lo tap0 "), "{seen}");
        assert_eq!(seen.contains("reached"), outside.is_some(), "{seen}");
    } else {
        // Otherwise it says why, and what to do.
        assert!(said.contains("this server, because slirp4netns"), "{said}");
        assert!(!seen.contains("tap0"), "{seen}");
    }
    if !has_gpus(&site) {
        let made = site.run(&GPUS);
        assert_eq!(made.code, 0, "{}", made.stderr);
        assert!(made.stderr.contains("note: no host has a GPU"), "{}", made.stderr);
        assert!(made.stderr.contains("CUDA_VISIBLE_DEVICES is empty"), "{}", made.stderr);
        let empty = "echo cuda=[$CUDA_VISIBLE_DEVICES] nvidia=[$NVIDIA_VISIBLE_DEVICES]";
        let create = ["job", "create", "--compute", "gpu", "-n", "on-none", "--command", empty];
        let job = site.run(&[&create[..], &["--stream"]].concat());
        assert!(job.stderr.contains("note: no host has a GPU"), "{}", job.stderr);
        let log = String::from_utf8_lossy(&job.stdout);
        assert!(log.contains("cuda=[] nvidia=[void]"), "{log}");
        assert!(
            log.contains("muster: 0 of the 8 GPUs that this job was given are available"),
            "{log}"
        );
        // The same without a compute, on a cluster that the server creates.
        let create = ["job", "create", "-n", "of-its-own", "--command", "true", "--stream"];
        let job =
            site.run(&[&create[..], &["--instance-type", "Standard_NC24ads_A100_v4"]].concat());
        assert!(job.stderr.contains("note: no host has a GPU"), "{}", job.stderr);
        for question in [&["why", "gpu"][..], &["why", "on-none"], &["cost"]] {
            let said = site.run(question);
            let said = String::from_utf8_lossy(&said.stdout).into_owned() + &said.stderr;
            assert!(said.contains("no host has a GPU"), "{question:?}: {said}");
        }
    }
}

#[test]
fn a_server_for_many_is_strict_and_says_so() {
    let (site, said) = started("serve");
    assert!(said.contains("(over-commit = false)"), "{said}");
    assert_eq!(site.json(&["host", "show", "local"])["over_commit"], false);
    says_what_is_missing(&site, &said);
    assert!(said.contains("reach only their cluster and this server (egress = false)"), "{said}");
    let workspace = ["workspace", "create", "-n", "vision", "-g", "lab", "--subscription", "s"];
    site.text(&workspace);
    let create = ["compute", "create", "-n", "cpu", "--size", "Standard_DS1_v2"];
    site.text(&[&create[..], &["--max-instances", "1"], &PLACE].concat());
    // No workspace may fill the disk that it shares with others.
    let usage = site.json(&[&["workspace", "list-usage"][..], &PLACE].concat());
    let limit = usage[0]["limit"].as_u64().expect("a limit");
    let disk = DiskSpace::of(&site.state()).expect("a disk").bytes;
    assert_eq!(limit, (disk / 2).min(1 << 40), "{usage}");
    let outside = outside();
    let look = look(outside.as_ref());
    let job = ["job", "create", "-n", "look", "--compute", "cpu", "--command", &look, "--stream"];
    assert_eq!(site.text(&[&job[..], &PLACE].concat()).trim(), "eth0 lo");
    if !has_gpus(&site) {
        let refused = site.run(&[&GPUS[..], &PLACE].concat());
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains("GPUs"), "{}", refused.stderr);
        let listed = site.text(&[&["compute", "list"][..], &PLACE].concat());
        assert!(!listed.contains("gpu"), "the cluster still exists: {listed}");
    }
    let wide = ["compute", "create", "-n", "wide", "--size", "Standard_DS1_v2"];
    site.text(&[&wide[..], &["--max-instances", "1000"], &PLACE].concat());
    let job = ["job", "create", "-n", "wide", "--compute", "wide", "--command", "true"];
    let made = site.run(&[&job[..], &["--instance-count", "1000"], &PLACE].concat());
    let words =
        "All nodes of a job must be on one host; no host has room for 1000 × Standard_DS1_v2";
    assert!(made.code == 0 && made.stderr.contains(words), "{}", made.stderr);
    let why = site.text(&[&["why", "wide", "--job"][..], &PLACE].concat());
    assert!(why.contains("HostsTooSmall: all nodes of a job must be on one host"), "{why}");
    for name in ["cpu", "wide"] {
        site.text(&[&["compute", "delete", "-n", name, "--yes"][..], &PLACE].concat());
    }
}

/// The programs that nodes need, but neither uv nor slirp4netns.
const SPARSE_PATH: &str = "/usr/sbin";

#[test]
fn missing_programs_are_reported_with_their_remedy_everywhere() {
    let mut site = Site::empty();
    let up = ["up", "--listen", "127.0.0.1:0", "--isolation", "sandbox"];
    let sparse = |arguments: &[&str]| {
        let mut command = site.command(arguments);
        command.env("PATH", SPARSE_PATH).env_remove("MUSTER_UV");
        command
    };
    let doctor = sparse(&["doctor"]).output().expect("it starts");
    let up = sparse(&up);
    let said = all_of(&site.start_heard_by(up));
    for words in [
        "note: jobs that need a Python environment will fail, because uv, which builds environments",
        "pip install uv",
        "note: jobs cannot reach the internet, although egress is true, because slirp4netns is not installed",
        "apt install slirp4netns",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let table = String::from_utf8_lossy(&doctor.stdout);
    let is_row = |id: &str, found: &str| {
        let mut rows = table.lines().filter_map(|line| line.strip_prefix("warning  "));
        rows.any(|row| row.split_once(' ').is_some_and(|(a, b)| a == id && b.trim() == found))
    };
    assert!(
        is_row("uv", "not found") && is_row("internet-access", "slirp4netns not found"),
        "{table}"
    );
    for fix in ["fix: pip install uv", "fix: apt install slirp4netns"] {
        assert!(table.contains(fix), "{fix}: {table}");
    }

    cluster(&site, "cpu", &[]);
    let file = site.folder().join("job.yml");
    let text = "command: /bin/true\ncompute: azureml:cpu\nenvironment:\n  image: ubuntu:22.04\n  \
                conda_file: {dependencies: ['python=3.39', pip]}\n";
    std::fs::write(&file, text).expect("our own folder");
    let file = file.to_str().expect("text");
    let made = site.run(&["job", "create", "-n", "old", "--file", file, "--stream"]);
    // The response to the submission says it, not only the job's log.
    let note = "python 3.39 is not on this host, which has 3.";
    assert!(made.stderr.contains(&format!("note: {note}")), "{}", made.stderr);
    let shown = site.json(&["job", "show", "-n", "old"]);
    let kept = shown["properties"]["muster.note"].as_str().expect("a note");
    assert!(kept.contains(note) && kept.contains("uv python install"), "{kept}");
    let log = String::from_utf8_lossy(&made.stdout);
    assert!(made.code == 1 && log.contains("(pip install uv)"), "{log}{}", made.stderr);

    let job = ["job", "create", "-n", "plain", "--compute", "cpu", "--command", "/bin/true"];
    let made = site.run(&[&job[..], &["--stream"]].concat());
    let log = String::from_utf8_lossy(&made.stdout);
    let words = "muster: this node has no internet access, although egress is true, because slirp4netns is not \
                 installed: apt install slirp4netns\n";
    assert!(made.code == 0 && log.contains(words), "{log}{}", made.stderr);
}
