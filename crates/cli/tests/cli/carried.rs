//! The files that a job brings, leaves, and finds again in its next attempt, on real sandboxed nodes.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::support::sandbox::{cluster, sandboxed, wait_until};
use crate::support::{self, Site};

/// Counts steps, and saves every tenth properly: to another name first. The polite ones also save their position when
/// their node is evicted; the others ignore the notice.
const TRAIN: &str = r"
import os, signal, sys, time
total, polite = int(sys.argv[1]), sys.argv[2] == 'polite'
place = os.environ['MUSTER_CHECKPOINT_DIR'] + '/state'
step, value = 0, 1
if os.path.exists(place):
    step, value = map(int, open(place).read().split())
print('from', step, flush=True)
def write_down():
    with open(place + '.new', 'w') as file:
        file.write(f'{step} {value}')
    os.rename(place + '.new', place)
told = []
signal.signal(signal.SIGTERM, (lambda *_: told.append(1)) if polite else signal.SIG_IGN)
while step < total:
    time.sleep(0.01)
    step, value = step + 1, (value * 6364136223846793005 + 1442695040888963407) % 2**64
    if step % 10 == 0:
        write_down()
        print('at', step, flush=True)
    if told:
        write_down()
        print('left', step, flush=True)
        sys.exit(1)
with open('outputs/result', 'w') as file:
    file.write(f'{step} {value}')
";
/// The number of steps between two saves.
const INTERVAL: u64 = 10;

/// The result of the loop without any interruption.
fn undisturbed(steps: u64) -> String {
    let next = |value: u64, _| {
        value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
    };
    format!("{steps} {}", (0..steps).fold(1, next))
}

fn spot(flags: &[&str], nodes: &str) -> Site {
    let mut site = Site::empty();
    site.start_with(&[&["--isolation", "sandbox"], flags].concat());
    let more = ["--size", "Standard_DS1_v2", "--tier", "low_priority", "--min-instances", nodes];
    cluster(&site, "cpu", &more);
    site
}

fn train(site: &Site, name: &str, steps: u64, manner: &str) {
    let code = site.folder().join("code");
    fs::create_dir_all(&code).expect("a folder");
    fs::write(code.join("train.py"), TRAIN).expect("a file");
    let command = format!("exec python3 train.py {steps} {manner}");
    let code = code.to_str().expect("text").to_owned();
    let job = ["job", "create", "--compute", "cpu", "--command", &command, "-n", name];
    let done = site.run(&[&job[..], &["--code", &code, "--checkpoint", "state"]].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
}

fn attempts(site: &Site, job: &str) -> Vec<serde_json::Value> {
    let all = site.json(&["job", "list-attempts", "-n", job]);
    all.as_array().expect("a list").clone()
}

fn log(site: &Site, job: &str, attempt: usize) -> String {
    site.text(&["job", "stream", "-n", job, "--attempt", &attempt.to_string()])
}

/// The last number after a word in a log.
fn said(log: &str, word: &str) -> Option<u64> {
    let of = |line: &str| line.strip_prefix(word)?.trim().parse().ok();
    log.lines().rev().find_map(of)
}

/// The node that the job is on.
fn node_of(site: &Site, job: &str) -> String {
    let nodes = site.json(&["compute", "list-nodes", "-n", "cpu"]);
    let nodes = nodes.as_array().expect("a list");
    let on_it = nodes.iter().find(|node| node["run_id"] == job || node["job"] == job);
    let node = on_it.unwrap_or_else(|| panic!("{job} is on none of {nodes:?}"));
    node["node_id"].as_str().expect("a name").to_owned()
}

/// Waits until the attempt with this number has saved something.
fn wait_for(site: &Site, job: &str, attempt: usize) {
    wait_until("it makes progress", || {
        let all = attempts(site, job);
        all.len() >= attempt && said(&log(site, job, attempt), "at").is_some()
    });
}

fn result(site: &Site, job: &str) -> String {
    let folder = site.folder().join(format!("{job}-files"));
    let done = site.run(&["job", "download", "-n", job, "-p", folder.to_str().expect("text")]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(
        !folder.join("artifacts/state").exists(),
        "only outputs, unless everything is requested"
    );
    fs::read_to_string(folder.join("artifacts/outputs/result")).expect("a result")
}

/// The costs of the attempts add up to those of the job, and these to what the ledger has for the submitter.
fn check_costs(site: &Site, jobs: &[&str]) {
    let amount = |text: &serde_json::Value| -> u64 {
        text.as_str().expect("text").replace('.', "").parse().expect("six digits")
    };
    let sum = |key: &str| -> u64 {
        let all = jobs.iter().flat_map(|job| attempts(site, job));
        all.map(|attempt| amount(&attempt[key])).sum()
    };
    let bill = site.json(&["cost", "--by", "user", "-o", "json"]);
    let lines = bill["lines"].as_array().expect("lines").iter();
    let served = |key: &str| -> u64 {
        let lines = lines.clone().filter(|line| line["outcome"] != "none");
        lines.map(|line| amount(&line[key])).sum()
    };
    assert_eq!(sum("node_seconds"), served("node_seconds"), "{bill}");
    // Each line of the ledger is rounded by itself.
    assert!(sum("cost_usd").abs_diff(served("usd")) <= 4, "{} {bill}", sum("cost_usd"));
}

#[test]
fn the_files_of_a_folder_are_there_when_the_job_starts() {
    let site = sandboxed();
    cluster(&site, "cpu", &["--size", "Standard_DS1_v2"]);
    let code = site.folder().join("code");
    fs::create_dir_all(code.join("lib/deep")).expect("folders");
    fs::write(code.join("run.sh"), "#!/bin/sh\ncat lib/deep/words link\n").expect("a file");
    fs::set_permissions(code.join("run.sh"), fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::write(code.join("lib/deep/words"), "hello from deep\n").expect("a file");
    fs::write(code.join("secret.key"), "x").expect("a file");
    let large: Vec<u8> = (0..5_000_000u32).map(|number| (number % 251) as u8).collect();
    fs::write(code.join("large"), &large).expect("a file");
    fs::write(code.join(".amlignore"), "*.key\n").expect("a file");
    symlink("lib/deep/words", code.join("link")).expect("a link");
    let path = code.to_str().expect("text");
    let create = ["job", "create", "--compute", "cpu", "--code", path, "--stream"];
    let command = "./run.sh && ls -a . && echo x >> lib/deep/words && mkdir -p outputs/a && \
                   cp run.sh large outputs/a";
    let done = site.run(&[&create[..], &["--command", command, "-n", "first"]].concat());
    let text = String::from_utf8(done.stdout).expect("text");
    assert_eq!(done.code, 0, "{text}{}", done.stderr);
    assert_eq!(text.matches("hello from deep").count(), 2, "{text}");
    assert!(!text.contains("secret.key"), "{text}");
    assert!(done.stderr.contains("uploading"), "{}", done.stderr);

    // The same files are on the server already, unchanged.
    let done = site.run(&[&create[..], &["--command", "./run.sh", "-n", "second"]].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(!done.stderr.contains("uploading"), "{}", done.stderr);
    assert_eq!(String::from_utf8(done.stdout).expect("text").lines().count(), 2);

    let folder = site.folder().join("down");
    let download = ["job", "download", "-n", "first", "-p", folder.to_str().expect("text")];
    assert_eq!(site.run(&download).code, 0);
    let mode =
        fs::metadata(folder.join("artifacts/outputs/a/run.sh")).expect("it exists").permissions();
    assert_eq!(mode.mode() & 0o777, 0o755);
    assert!(fs::read(folder.join("artifacts/outputs/a/large")).expect("it exists") == large);
    let log = fs::read_to_string(folder.join("artifacts/user_logs/std_log.txt")).expect("a log");
    assert!(log.contains("hello from deep"), "{log}");

    symlink("/etc/passwd", code.join("out")).expect("a link");
    let refused = site.run(&[&create[..], &["--command", "true", "-n", "third"]].concat());
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("outside the folder"), "{}", refused.stderr);
    assert_eq!(site.run(&["job", "show", "-n", "third"]).code, 3, "nothing was submitted");
}

#[test]
fn links_out_of_the_jobs_folder_are_not_saved() {
    let site = sandboxed();
    cluster(&site, "cpu", &["--size", "Standard_DS1_v2"]);
    let command = "ln -s /etc/passwd outputs/passwd; mkfifo outputs/pipe; echo yes > outputs/good; \
                   rm -rf state; ln -s /etc state";
    let job = ["job", "create", "--compute", "cpu", "--command", command, "-n", "sly"];
    let done = site.run(&[&job[..], &["--checkpoint", "state", "--stream"]].concat());
    let text = String::from_utf8(done.stdout).expect("text");
    assert_eq!(done.code, 0, "{text}{}", done.stderr);
    assert!(text.contains("muster: outputs/passwd is a symbolic link"), "{text}");
    assert!(text.contains("muster: outputs/pipe is a pipe"), "{text}");
    let folder = site.folder().join("down");
    let download = ["job", "download", "-n", "sly", "--all", "-p", folder.to_str().expect("text")];
    assert_eq!(site.run(&download).code, 0);
    assert_eq!(fs::read_to_string(folder.join("artifacts/outputs/good")).expect("kept"), "yes\n");
    assert!(
        !folder.join("artifacts/outputs/passwd").exists()
            && !folder.join("artifacts/state").exists()
    );
    assert!(folder.join("artifacts/user_logs/attempt-1/std_log.txt").exists());
}

/// Takes a minute: fifty evictions, each of which begins only when the job runs again.
#[test]
fn fifty_evictions_change_nothing_but_the_time() {
    const STEPS: u64 = 6_000;
    const EVICTIONS: usize = 50;
    let site = spot(&[], "2");
    train(&site, "train", STEPS, "polite");
    for number in 1..=EVICTIONS {
        wait_for(&site, "train", number);
        let node = node_of(&site, "train");
        let evict = site.run(&["compute", "evict", "--cluster", "cpu", "--node", &node]);
        assert_eq!(evict.code, 0, "{}", evict.stderr);
    }
    wait_for(&site, "train", EVICTIONS + 1);
    let shown = site.text(&["job", "show", "-n", "train"]);
    assert!(shown.contains("Running"), "it must not finish all its steps before: {shown}");
    wait_until("it ends", || site.text(&["job", "show", "-n", "train"]).contains("Completed"));
    assert_eq!(result(&site, "train"), undisturbed(STEPS));
    let all = attempts(&site, "train");
    assert_eq!(all.len(), EVICTIONS + 1);
    let mut reached = 0;
    for number in 1..=EVICTIONS {
        let log = log(&site, "train", number);
        assert_eq!(all[number - 1]["outcome"], "evicted", "{number}");
        assert_eq!(said(&log, "from"), Some(reached), "attempt {number}: {log}");
        reached = said(&log, "left").expect("it was notified");
    }
    assert_eq!(all[EVICTIONS]["outcome"], "succeeded");
    check_costs(&site, &["train"]);
}

/// Takes 18 s: five evictions, each of which uses its whole grace period, and fifteen seconds of steps.
#[test]
fn a_loop_that_does_not_listen_loses_no_more_than_an_interval() {
    const STEPS: u64 = 1_500;
    const EVICTIONS: usize = 5;
    let site = spot(&["--eviction-grace-seconds", "1"], "2");
    train(&site, "train", STEPS, "rude");
    for number in 1..=EVICTIONS {
        wait_for(&site, "train", number);
        let node = node_of(&site, "train");
        assert_eq!(site.run(&["compute", "evict", "--cluster", "cpu", "--node", &node]).code, 0);
    }
    wait_until("it ends", || site.text(&["job", "show", "-n", "train"]).contains("Completed"));
    assert_eq!(result(&site, "train"), undisturbed(STEPS));
    assert_eq!(attempts(&site, "train").len(), EVICTIONS + 1);
    for number in 1..=EVICTIONS {
        let reached = said(&log(&site, "train", number), "at").expect("it made progress");
        let from = said(&log(&site, "train", number + 1), "from").expect("it began");
        // Everything that was saved before the last line was printed is there.
        assert!(
            from + INTERVAL >= reached,
            "attempt {number} was at {reached}, the next began at {from}"
        );
    }
    check_costs(&site, &["train"]);
}

/// The step that was saved last.
fn kept_step(site: &Site, job: &str) -> Option<u64> {
    let folder = site.folder().join(format!("{job}-kept"));
    let folder = folder.to_str().expect("text");
    let done = site.run(&["job", "download", "-n", job, "--all", "-p", folder]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let state =
        fs::read_to_string(site.folder().join(format!("{job}-kept/artifacts/state/state"))).ok()?;
    state.split(' ').next()?.parse().ok()
}

#[test]
fn a_node_that_dies_takes_only_what_was_not_kept() {
    let site = spot(&[], "1");
    train(&site, "train", 3_000, "polite");
    let mut kept = None;
    wait_until("something is saved while it runs", || {
        kept = attempts(&site, "train").first().and_then(|_| kept_step(&site, "train"));
        kept.is_some()
    });
    let node = node_of(&site, "train");
    let killed = support::sandbox::processes(&["agent", &node]);
    assert!(!killed.is_empty(), "{node} has an agent");
    for process in killed {
        // When the first process ends, the others end with it.
        let kill = std::process::Command::new("kill").args(["-9", &process.to_string()]).output();
        kill.expect("kill runs");
    }
    wait_until("it has another attempt", || attempts(&site, "train").len() >= 2);
    wait_for(&site, "train", 2);
    let from = said(&log(&site, "train", 2), "from");
    assert!(from >= kept && from > Some(0), "kept {kept:?}, began at {from:?}");
    assert_eq!(attempts(&site, "train")[0]["outcome"], "lost");
    assert_eq!(site.run(&["job", "cancel", "-n", "train"]).code, 0);
}

#[test]
fn a_job_that_asks_to_fail_fails_and_says_of_what() {
    let site = spot(&[], "1");
    let command = "while :; do sleep 0.1; done";
    let job = ["job", "create", "--compute", "cpu", "--command", command, "-n", "once"];
    assert_eq!(site.run(&[&job[..], &["--on-eviction", "fail"]].concat()).code, 0);
    wait_until("it runs", || site.text(&["job", "show", "-n", "once"]).contains("Running"));
    let node = node_of(&site, "once");
    assert_eq!(site.run(&["compute", "evict", "--cluster", "cpu", "--node", &node]).code, 0);
    let mut shown = String::new();
    wait_until("it ends", || {
        shown = site.text(&["job", "show", "-n", "once"]);
        shown.contains("Failed")
    });
    assert!(shown.contains("was evicted") && shown.contains("\"node\""), "{shown}");
}

#[test]
fn every_member_of_a_gang_keeps_its_own() {
    let site = sandboxed();
    cluster(&site, "cpu", &["--size", "Standard_DS1_v2"]);
    let command =
        "echo rank $NODE_RANK > outputs/mine; [ $NODE_RANK = 0 ] || echo more > outputs/more";
    let job = ["job", "create", "--compute", "cpu", "--command", command, "-n", "gang"];
    let done = site.run(&[&job[..], &["--instance-count", "2", "--stream"]].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
    let folder = site.folder().join("down");
    let path = folder.to_str().expect("text");
    assert_eq!(site.run(&["job", "download", "-n", "gang", "-p", path]).code, 0);
    for rank in [0, 1] {
        let mine = folder.join(format!("artifacts/rank-{rank}/outputs/mine"));
        assert_eq!(fs::read_to_string(mine).expect("kept"), format!("rank {rank}\n"));
    }
    assert!(folder.join("artifacts/rank-1/outputs/more").exists());
    assert!(!folder.join("artifacts/rank-0/outputs/more").exists());
    assert!(folder.join("artifacts/user_logs/std_log_process_1.txt").exists());
    check_costs(&site, &["gang"]);
}

/// Waits until the job has failed, and returns how it is shown.
fn failed(site: &Site, job: &str) -> String {
    let mut shown = String::new();
    wait_until("it fails", || {
        shown = site.text(&["job", "show", "-n", job]);
        assert!(!shown.contains("Completed"), "{shown}");
        shown.contains("\"Failed\"")
    });
    shown
}

#[test]
fn files_that_cannot_be_kept_or_brought_fail_the_job_and_say_so() {
    let site = Site::start_plain();
    cluster(&site, "cpu", &[]);
    let command = "cd outputs && seq 10001 | xargs touch";
    let job = ["job", "create", "--compute", "cpu", "--command", command, "-n", "many"];
    assert_eq!(site.run(&job).code, 0);
    let shown = failed(&site, "many");
    assert!(shown.contains("its outputs could not be saved: 10001 files"), "{shown}");
    assert!(shown.contains("\"muster.failureClass\": \"data\""), "{shown}");
    let log = site.text(&["job", "stream", "-n", "many", "--attempt", "1"]);
    assert!(log.contains("muster: the files of this attempt are not saved: 10001 files"), "{log}");

    // Its files exist when it is submitted, but not any more when it starts.
    let closed = ["compute", "update", "-n", "cpu", "--max-instances", "0"];
    assert_eq!(site.run(&closed).code, 0);
    let code = site.folder().join("code");
    fs::create_dir_all(&code).expect("a folder");
    fs::write(code.join("file"), "content").expect("a file");
    let path = code.to_str().expect("text");
    let job = ["job", "create", "--compute", "cpu", "--command", "true", "-n", "robbed"];
    assert_eq!(site.run(&[&job[..], &["--code", path]].concat()).code, 0);
    fs::remove_dir_all(site.state().join("blobs")).expect("they are there");
    assert_eq!(site.run(&["compute", "update", "-n", "cpu", "--max-instances", "1"]).code, 0);
    let shown = failed(&site, "robbed");
    assert!(shown.contains("could not be fetched") && shown.contains("\"data\""), "{shown}");
}

/// Talks to the server as a node does.
struct Zombie {
    http: reqwest::Client,
    base: String,
    node: String,
    secret: String,
    runtime: tokio::runtime::Runtime,
}

impl Zombie {
    fn of(site: &Site, node: &str) -> Zombie {
        let read = |path: &str| fs::read(site.state().join(path)).expect("it exists");
        let connection: serde_json::Value =
            serde_json::from_slice(&read("connection.json")).expect("JSON");
        let ca = reqwest::Certificate::from_pem_bundle(&read("pki/ca.pem")).expect("a CA");
        let http = reqwest::Client::builder().tls_certs_only(ca).no_proxy().build();
        let secret = String::from_utf8(read(&format!("nodes/{node}/secret"))).expect("text");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Zombie {
            http: http.expect("a client"),
            base: connection["url"].as_str().expect("text").to_owned(),
            node: node.to_owned(),
            secret: secret.trim().to_owned(),
            runtime: runtime.expect("a runtime"),
        }
    }

    /// The status of a PUT, and the body of the response.
    fn put(&self, path: &str, body: Vec<u8>) -> (u16, String) {
        let request = self.http.put(format!("{}/agent/v1/{path}", self.base)).body(body);
        let request = request.bearer_auth(&self.secret).header("x-muster-node", &self.node);
        self.runtime.block_on(async {
            let answer = request.send().await.expect("an answer");
            (answer.status().as_u16(), answer.text().await.expect("text"))
        })
    }

    fn put_tree(&self, epoch: &str, text: &str) -> (u16, String) {
        let id = muster_trees::tree_of(text.as_bytes());
        self.put(&format!("trees/{epoch}/{id}"), text.into())
    }
}

#[test]
fn a_node_keeps_files_for_its_live_attempt_and_for_nothing_else() {
    let site = Site::start_plain();
    cluster(&site, "cpu", &["--min-instances", "1"]);
    let command = "echo epoch $MUSTER_EPOCH; while [ ! -e go ]; do sleep 0.05; done";
    let job = ["job", "create", "--compute", "cpu", "--command", command, "-n", "job"];
    assert_eq!(site.run(&job).code, 0);
    let mut epoch = None;
    wait_until("it runs", || {
        let all = attempts(&site, "job");
        let log = if all.is_empty() { String::new() } else { log(&site, "job", 1) };
        epoch = log.lines().find_map(|line| line.strip_prefix("epoch ")).map(str::to_owned);
        epoch.is_some()
    });
    let (epoch, node) = (epoch.expect("it said so"), node_of(&site, "job"));
    let zombie = Zombie::of(&site, &node);
    let digest = muster_trees::blob_of(b"theirs");
    let list = format!("muster-tree 1\n{digest} - 6 outputs/x\n");
    let (status, said) = zombie.put_tree(&epoch, &list);
    assert!(status == 200 && said.contains(&digest.to_string()), "{status} {said}");
    assert_eq!(zombie.put(&format!("blobs/{epoch}/{digest}"), b"other".to_vec()).0, 400);
    assert_eq!(zombie.put(&format!("blobs/{epoch}/{digest}"), b"theirs".to_vec()).0, 200);
    assert_eq!(zombie.put_tree(&epoch, &list), (200, "{\"missing\":[]}".to_owned()));

    for path in ["../x", "/etc/passwd", "a/../../x", "outputs/", "."] {
        let (status, said) = zombie.put_tree(&epoch, &list.replace("outputs/x", path));
        assert!(status == 400 && said.contains("path"), "{path}: {status} {said}");
    }
    let tree = muster_trees::tree_of(b"another");
    assert_eq!(zombie.put(&format!("trees/{epoch}/{tree}"), list.clone().into()).0, 400);
    assert_eq!(zombie.put(&format!("trees/{epoch}/{tree}"), vec![b'x'; 3 << 20]).0, 413);
    let stranger = Zombie { secret: "guess".into(), ..Zombie::of(&site, &node) };
    assert_eq!(stranger.put_tree(&epoch, &list).0, 401);
    let another = Zombie { node: format!("{node}x"), ..Zombie::of(&site, &node) };
    assert_eq!(another.put_tree(&epoch, &list).0, 401);

    assert_eq!(site.run(&["job", "cancel", "-n", "job"]).code, 0);
    wait_until("it ends", || site.text(&["job", "show", "-n", "job"]).contains("Canceled"));
    assert_eq!(zombie.put_tree(&epoch, &list).0, 410, "its attempt has ended");
    assert_eq!(zombie.put(&format!("blobs/{epoch}/{digest}"), b"theirs".to_vec()).0, 410);
}
