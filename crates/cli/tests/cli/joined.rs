//! Joined hosts: real processes, each machine in a network of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::machines::{Cut, Pair, to_all};
use crate::support::sandbox::{cluster, ran, wait_until, works_in};
use crate::support::{self, Site};

/// A lease, the time that the server waits beyond it, and a new node, on a busy machine.
const LOST_WITHIN: Duration = Duration::from_secs(120);

/// Prints every tenth of a second that it is alive; the first attempt never ends by itself.
const BEATS: &str = "echo attempt $MUSTER_ATTEMPT; n=0; \
     while [ $MUSTER_ATTEMPT = 1 ] || [ $n -lt 20 ]; do date +%s%N | tee -a beats; sleep 0.1; n=$((n+1)); done";

/// Watches the beats of every attempt on every machine, until it is asked for the result.
struct Watch {
    stop: Arc<AtomicBool>,
    watching: JoinHandle<BTreeMap<String, (u128, u128)>>,
}

impl Watch {
    fn start(folders: Vec<PathBuf>) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let watching = std::thread::spawn(move || {
            let mut seen = BTreeMap::new();
            while !is_over.load(Ordering::Relaxed) {
                folders.iter().for_each(|folder| look(folder, &mut seen));
                std::thread::sleep(Duration::from_millis(50));
            }
            seen
        });
        Watch { stop, watching }
    }

    /// The first and the last beat of each attempt, in the order of their epochs.
    fn end(self) -> Vec<(u128, u128)> {
        self.stop.store(true, Ordering::Relaxed);
        self.watching.join().expect("the watcher does not panic").into_values().collect()
    }
}

fn look(sandboxes: &Path, seen: &mut BTreeMap<String, (u128, u128)>) {
    for work in works_in(sandboxes) {
        let text = std::fs::read_to_string(work.join("beats")).unwrap_or_default();
        // The last line may be incomplete.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let beat = |line: &str| line.parse::<u128>().ok();
        let mut lines = whole.lines().filter_map(beat);
        let Some(first) = lines.next() else { continue };
        let own = work.parent().and_then(Path::file_name).expect("named");
        let epoch = own.to_string_lossy().into_owned();
        seen.insert(epoch, (first, lines.next_back().unwrap_or(first)));
    }
}

fn status(site: &Site, job: &str) -> String {
    let shown = site.json(&["job", "show", "-n", job]);
    shown["status"].as_str().expect("it has a status").to_owned()
}

/// The output of an attempt, as the server has it.
fn written(site: &Site, attempt: &str) -> String {
    let done = site.run(&["job", "stream", "-n", "beats", "--attempt", attempt]);
    String::from_utf8(done.stdout).expect("text")
}

/// The contents of all logs on the server.
fn kept(site: &Site) -> String {
    let inside = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let jobs = inside(site.state().join("logs"));
    let logs = jobs.flat_map(|job| inside(job.path()));
    logs.filter_map(|log| std::fs::read_to_string(log.path()).ok()).collect()
}

fn waits(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LOST_WITHIN, "{what}: not within {LOST_WITHIN:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A job that beats on the machine, and its watcher.
fn beating(pair: &Pair) -> Watch {
    cluster(&pair.site, "cpu", &["--size", "Standard_DS1_v2"]);
    let job = ["job", "create", "--compute", "cpu", "--command", BEATS, "-n", "beats"];
    assert_eq!(pair.site.run(&job).code, 0);
    let places = [pair.machine.state(), pair.site.state()];
    let watch = Watch::start(places.map(|place| place.join("sandboxes")).into());
    wait_until("it runs", || status(&pair.site, "beats") == "Running");
    assert_eq!(pair.machine.nodes().len(), 1, "on the machine that joined");
    watch
}

/// Two attempts, one after the other, and one end.
fn assert_one_after_the_other(pair: &Pair, watch: Watch) {
    waits("it ends", || status(&pair.site, "beats") == "Completed");
    let beats = watch.end();
    assert_eq!(beats.len(), 2, "one attempt was lost, and another followed: {beats:?}");
    let [(_, lost), (again, _)] = beats[..] else { unreachable!("there are two") };
    assert!(lost < again, "the second began at {again}, before the first ended at {lost}");
    let log = pair.site.text(&["job", "stream", "-n", "beats"]);
    assert!(log.contains("attempt 2"), "{log}");
}

#[test]
fn a_machine_joins_with_a_token_that_is_good_once() {
    let mut pair = Pair::start();
    let token = pair.token();
    let wrong = format!("mjt_{}{}", "0".repeat(64), &token[68..]);
    let refused = pair.machine.fails_to_join(&pair.site, &["--token", &wrong, "--name", "box"]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("this join token is invalid"), "{}", refused.stderr);
    let stranger = format!("{}.{}", &token[..68], "0".repeat(64));
    let refused = pair.machine.fails_to_join(&pair.site, &["--token", &stranger, "--name", "box"]);
    assert!(refused.stderr.contains("is not the one that the token is from"), "{}", refused.stderr);

    pair.machine.join(&pair.site, &["--token", &token, "--name", "box"]);
    let again = pair.machine.fails_to_join(&pair.site, &["--token", &token, "--name", "box-2"]);
    assert!(again.stderr.contains("already used"), "{}", again.stderr);
    assert!(pair.site.text(&["host", "list", "-o", "table"]).contains("box"));
    let key = std::fs::read_to_string(pair.machine.state().join("key")).expect("it has one");
    let list = pair.site.command(&["host", "list"]).env("MUSTER_API_KEY", key.trim()).output();
    let refused = support::done(list.expect("the binary runs"));
    assert_eq!(refused.code, 1, "a host's key is valid for its exchange and nothing else");
    assert!(refused.stderr.contains("does not accept the key"), "{}", refused.stderr);

    cluster(&pair.site, "cpu", &["--size", "Standard_DS1_v2"]);
    let said = ran(&pair.site, "cpu", "one", "echo on $MUSTER_NODE as $(id -u)");
    let nodes = pair.machine.nodes();
    assert!(said.contains(&format!("on {} as 1000", nodes[0])), "{said} {nodes:?}");

    // The host agent is restarted; the node is kept.
    pair.machine.stop();
    pair.machine.join(&pair.site, &[]);
    let said = ran(&pair.site, "cpu", "two", "echo on $MUSTER_NODE");
    assert!(said.contains(&format!("on {}", nodes[0])), "{said} {nodes:?}");
    assert_eq!(pair.machine.nodes(), nodes);

    // The node is also kept when the server is restarted.
    pair.site.kill();
    pair.serve();
    let said = ran(&pair.site, "cpu", "three", "echo on $MUSTER_NODE");
    assert!(said.contains(&format!("on {}", nodes[0])), "{said} {nodes:?}");
}

#[test]
fn a_host_that_is_drained_is_empty_and_one_that_is_removed_ends() {
    let mut pair = Pair::joined();
    cluster(&pair.site, "cpu", &["--size", "Standard_DS1_v2"]);
    ran(&pair.site, "cpu", "one", "true");
    assert_eq!(pair.machine.nodes().len(), 1);
    assert_ne!(pair.site.run(&["host", "remove", "--yes", "box"]).code, 0, "it has a node");
    assert_eq!(pair.site.run(&["host", "drain", "box"]).code, 0);
    wait_until("it is empty", || pair.machine.nodes().is_empty());
    ran(&pair.site, "cpu", "two", "true");
    assert_eq!(pair.machine.nodes(), [""; 0], "new nodes are created elsewhere");
    assert_eq!(pair.site.run(&["host", "remove", "--yes", "box"]).code, 0);
    assert_eq!(pair.machine.ended(), 1);
    assert!(pair.machine.says("does not know this host any more"));
    assert!(!pair.machine.state().join("key").exists());
}

/// Takes 18 s: it waits for the shortest possible lease to expire, and then for the second run.
#[test]
fn a_job_on_a_machine_that_dies_runs_again_and_never_twice_at_once() {
    let mut pair = Pair::joined();
    let watch = beating(&pair);
    pair.machine.kill();
    waits("it is lost", || status(&pair.site, "beats") != "Running");
    pair.machine.join(&pair.site, &[]);
    assert_one_after_the_other(&pair, watch);
}

/// Takes 18 s: the lease of the lost node has to expire first.
#[test]
fn what_runs_on_a_host_that_is_given_up_goes_on_elsewhere() {
    let mut pair = Pair::joined();
    let watch = beating(&pair);
    let removed = pair.site.run(&["host", "remove", "--force", "--yes", "box"]);
    assert_eq!(removed.code, 0, "{}", removed.stderr);
    assert_eq!(pair.machine.ended(), 1);
    assert_eq!(pair.machine.nodes(), [""; 0], "it ends its nodes before it leaves");
    assert_one_after_the_other(&pair, watch);
    let listed = pair.site.text(&["host", "list", "-o", "tsv", "--query", "[].name"]);
    assert!(!listed.contains("box"), "{listed}");
}

/// The job on a machine that does not report stops before it is given to another machine.
fn survives(cut: Cut) {
    let pair = Pair::joined();
    let watch = beating(&pair);
    pair.machine.cut(cut);
    waits("it is lost", || status(&pair.site, "beats") != "Running");
    assert_one_after_the_other(&pair, watch);
    pair.machine.heal();
    wait_until("the lost node is removed", || pair.machine.nodes().is_empty());
    cluster(&pair.site, "more", &["--size", "Standard_DS1_v2"]);
    ran(&pair.site, "more", "later", "true");
    assert!(pair.machine.nodes().iter().any(|node| node.starts_with("more-")), "it is used again");
}

/// Takes 20 s: it waits for the shortest possible lease to expire, and then for the second run.
#[test]
fn a_machine_whose_words_are_lost_stops_its_job_in_time() {
    survives(Cut::FromMachine);
}

/// Takes 20 s: it waits for the shortest possible lease to expire, and then for the second run.
#[test]
fn a_machine_that_hears_nothing_stops_its_job_in_time() {
    survives(Cut::ToMachine);
}

/// Takes 20 s: it waits for the shortest possible lease to expire, and then for the second run.
#[test]
fn a_machine_that_is_cut_off_stops_its_job_in_time() {
    survives(Cut::BothWays);
}

/// Takes 20 s: it waits for the shortest possible lease to expire, and then for the second run.
#[test]
fn a_machine_that_was_paused_cannot_end_a_job_that_went_on_elsewhere() {
    let pair = Pair::joined();
    let watch = beating(&pair);
    wait_until("its first beats are with the server", || kept(&pair.site).lines().count() > 3);
    let paused = pair.machine.processes();
    to_all("-STOP", &paused);
    assert_one_after_the_other(&pair, watch);
    let before = ["1", "2"].map(|attempt| written(&pair.site, attempt));
    assert!(before[0].starts_with("attempt 1\n1"), "{before:?}");
    to_all("-CONT", &paused);
    // The paused job beats on until its agent has learned how late it is.
    wait_until("the lost node is removed", || pair.machine.nodes().is_empty());
    let after = ["1", "2"].map(|attempt| written(&pair.site, attempt));
    assert_eq!(after, before, "nothing was added");
    assert_eq!(status(&pair.site, "beats"), "Completed");
}

#[test]
fn a_node_that_dies_on_a_living_machine_is_not_waited_for() {
    // If it had to wait for the lease, the node would be lost later than this test waits.
    let pair = Pair::joined_patiently();
    let watch = beating(&pair);
    let node = pair.machine.nodes().remove(0);
    to_all("-KILL", &[pair.machine.init_of(&node).expect("it runs")]);
    wait_until("it has another attempt", || {
        let attempts = pair.site.json(&["job", "list-attempts", "-n", "beats"]);
        attempts.as_array().expect("a list").len() == 2 && status(&pair.site, "beats") == "Running"
    });
    wait_until("the dead node is removed", || !pair.machine.nodes().contains(&node));
    assert_one_after_the_other(&pair, watch);
}

#[test]
fn a_cordoned_machine_finishes_what_it_has_and_takes_nothing_new() {
    let pair = Pair::joined();
    let is_used_by = |cluster: &str| pair.machine.nodes().iter().any(|n| n.starts_with(cluster));
    cluster(&pair.site, "cpu", &["--size", "Standard_DS1_v2"]);
    let command = "while [ ! -e go ]; do sleep 0.1; done";
    let job = ["job", "create", "--compute", "cpu", "--command", command, "-n", "long"];
    assert_eq!(pair.site.run(&job).code, 0);
    wait_until("it runs", || status(&pair.site, "long") == "Running");

    assert_eq!(pair.site.run(&["host", "cordon", "box"]).code, 0);
    cluster(&pair.site, "more", &["--size", "Standard_DS1_v2"]);
    ran(&pair.site, "more", "elsewhere", "true");
    assert!(!is_used_by("more-"), "a new node was created there");
    assert_eq!(status(&pair.site, "long"), "Running", "it was not disturbed");
    std::fs::write(pair.machine.work().join("go"), "").expect("its folder exists");
    wait_until("it ends", || status(&pair.site, "long") == "Completed");
    let attempts = pair.site.json(&["job", "list-attempts", "-n", "long"]);
    assert_eq!(attempts.as_array().expect("a list").len(), 1);

    assert_eq!(pair.site.run(&["host", "uncordon", "box"]).code, 0);
    cluster(&pair.site, "again", &["--size", "Standard_DS1_v2"]);
    ran(&pair.site, "again", "there", "true");
    assert!(is_used_by("again-"), "it takes nodes again: {:?}", pair.machine.nodes());
}

/// Requests a token as a job would, and then prints its identity.
const WHO: &str = r#"python3 - <<'EOF'
import json, os, urllib.error, urllib.request
here = os.environ['MSI_ENDPOINT']
asked = urllib.request.Request(here, b'resource=https://management.azure.com/', {'Metadata': 'true'})
try:
    token = json.load(urllib.request.urlopen(asked))['access_token']
    me = here.removesuffix('/msi/token') + '/providers/Muster.Identity/me?api-version=2024-04-01'
    asked = urllib.request.Request(me, headers={'Authorization': 'Bearer ' + token})
    print('me:', urllib.request.urlopen(asked).read().decode())
except urllib.error.HTTPError as refused:
    print('refused:', refused.read().decode())
EOF"#;

/// Takes 10 s: four nodes on two machines, one after the other.
#[test]
fn a_cluster_is_itself_on_a_joined_machine_too() {
    let pair = Pair::joined();
    cluster(
        &pair.site,
        "somebody",
        &["--size", "Standard_DS1_v2", "--identity-type", "SystemAssigned"],
    );
    cluster(&pair.site, "no-such", &["--size", "Standard_DS1_v2"]);
    let shown = pair.site.json(&["compute", "show", "-n", "somebody"]);
    let id = shown["identity"]["principal_id"].as_str().expect("it has an identity").to_owned();
    let said = ran(&pair.site, "somebody", "who", WHO);
    assert!(said.contains("me:") && said.contains(&id), "{said} {id}");
    let said = ran(&pair.site, "no-such", "who-not", WHO);
    assert!(said.contains("Identity not found"), "{said}");
    assert_eq!(pair.machine.nodes().len(), 2, "both ran there");

    // The machine itself may act for its own nodes and for no others.
    let own = pair.machine.nodes().into_iter().find(|node| node.starts_with("somebody-"));
    assert_eq!(pair.site.run(&["host", "cordon", "box"]).code, 0);
    cluster(
        &pair.site,
        "local",
        &["--size", "Standard_DS1_v2", "--identity-type", "SystemAssigned"],
    );
    let other = ran(&pair.site, "local", "here", "echo $MUSTER_NODE").trim().to_owned();
    assert!(!pair.machine.nodes().contains(&other), "it is on the server's machine");
    let key = std::fs::read_to_string(pair.machine.state().join("key")).expect("it has one");
    let call = |node: &str, key: &str| pair.calls_for(node, key.trim());
    assert_eq!(call(&own.expect("it exists"), &key), "101");
    assert_eq!(call(&other, &key), "403", "the node is on another machine");
    assert_eq!(call("made-up", &key), "403");
    assert_eq!(call(&other, "mhk_wrong"), "401");
}
