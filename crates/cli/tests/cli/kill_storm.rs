//! Kills every kind of process (the server, its helper, agents, jobs, nodes) a hundred times with SIGKILL, while five
//! hundred jobs are submitted and run: none is lost, none runs twice at once, each ends as it should, and nothing is
//! left on the machine.
//!
//! It runs in namespaces of its own, with a first process of its own, so that everything that is left in them
//! afterwards was left by it: a process, a mount, a network, a cable. The victims are drawn from a seed, which is
//! printed; `MUSTER_STORM_SEED` draws the same again. The moments depend on the machine's timing.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::sandbox::{cgroups_of, processes};
use crate::support::storm::{Chance, Marks, Victim, first_of_job, ours};
use crate::support::{Site, ends, ready, run_apart, signal};
use muster_core::model::WorkspaceKey;
use muster_store::{Reader as _, SqliteReader};
use serde_json::Value;

const JOBS: usize = 500;
const KILLS: usize = 100;
const SUBMITTERS: usize = 3;
/// How many jobs are submitted ahead of the kills, so that there is always something to hit.
const AHEAD: usize = 40;
const PATIENCE: Duration = Duration::from_secs(240);
/// Set for the run that is alone in its namespaces.
const INSIDE: &str = "MUSTER_STORM_INSIDE";
const SERVER: [&str; 5] = ["up", "--listen", "127.0.0.1:0", "--isolation", "sandbox"];

struct Storm {
    site: Site,
    server: Mutex<Child>,
    /// A part of the names of everything that is created here, and of nothing else on the machine.
    mark: String,
    kills: AtomicUsize,
    next_job: AtomicUsize,
    is_over: AtomicBool,
    /// Jobs of which a process was killed: they may end in any way.
    hit: Mutex<BTreeSet<String>>,
}

impl Storm {
    fn job(&self, number: usize) -> String {
        format!("{}-job-{number:03}", self.mark)
    }

    /// Jobs take up to 0.3 s, and every tenth fails on purpose. Every fifth takes longer and ignores signals: if it is
    /// given to another node before its own has ended, both are seen.
    fn command(number: usize) -> String {
        let code = if number % 10 == 7 { 7 } else { 0 };
        let milliseconds = (number * 37) % 300;
        match number % 5 {
            3 => "trap '' TERM; sleep 1; exit 0".to_owned(),
            _ => format!("sleep 0.{milliseconds:03}; exit {code}"),
        }
    }

    /// Submits until everything is submitted. A submission that was not acknowledged is repeated.
    fn submit(&self) {
        let started = Instant::now();
        loop {
            let number = self.next_job.fetch_add(1, Ordering::SeqCst);
            if number >= JOBS {
                return;
            }
            while number > self.kills.load(Ordering::SeqCst) * JOBS / KILLS + AHEAD {
                assert!(!self.is_over.load(Ordering::SeqCst), "the storm ended early");
                std::thread::sleep(Duration::from_millis(20));
            }
            let (name, command) = (self.job(number), Storm::command(number));
            let job = ["job", "create", "--compute", &self.mark, "-n", &name, "-o", "none"];
            loop {
                let tried = self.site.run(&[&job[..], &["--command", &command]].concat());
                if tried.code == 0 {
                    break;
                }
                assert!(started.elapsed() < PATIENCE, "{name}: {}", tried.stderr);
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Scans all processes again and again: two epochs of a job that are alive at once are two runs at once.
    fn watch(&self) -> Seen {
        let mut seen = Seen::default();
        while !self.is_over.load(Ordering::SeqCst) {
            let mut now: BTreeMap<String, Vec<Marks>> = BTreeMap::new();
            for marks in Marks::of_all(&self.mark) {
                now.entry(marks.job.clone()).or_default().push(marks);
            }
            for (job, marks) in now {
                for (one, other) in marks.iter().flat_map(|a| marks.iter().map(move |b| (a, b))) {
                    // A scan takes time: only a process that is seen before and after the other is alive at the same
                    // time.
                    if one.epoch < other.epoch && one.lives() && other.lives() && one.lives() {
                        seen.twice.push(format!("{job}: {one:?} and {other:?}"));
                    }
                }
                seen.epochs.entry(job).or_default().extend(marks.into_iter().map(|m| m.epoch));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        seen
    }

    fn jobs(&self) -> BTreeMap<String, Value> {
        let list = self.site.json(&["job", "list", "--max-results", "1000"]);
        let named = |job: &Value| (job["name"].as_str().expect("text").to_owned(), job.clone());
        list.as_array().expect("a list").iter().map(named).collect()
    }
}

impl Drop for Storm {
    /// A failed test leaves nothing running either.
    fn drop(&mut self) {
        let server = self.server.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if matches!(server.try_wait(), Ok(None)) {
            self.site.run(&["compute", "delete", "-n", &self.mark, "--yes"]);
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Stops the threads that watch and submit, also when the test fails.
struct Calm<'a>(&'a AtomicBool);

impl Drop for Calm<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[derive(Default)]
struct Seen {
    twice: Vec<String>,
    epochs: BTreeMap<String, BTreeSet<String>>,
}

/// Kills a process of a drawn kind; if there is none of that kind soon, another kind is drawn.
fn strike(storm: &Storm, chance: &mut Chance) -> Victim {
    const SOON: Duration = Duration::from_millis(1500);
    let state = storm.site.state().display().to_string();
    let mut server = storm.server.lock().expect("no thread panicked");
    loop {
        let victim = chance.victim();
        let started = Instant::now();
        while started.elapsed() < SOON {
            if victim == Victim::Server {
                server.kill().expect("it runs");
                server.wait().expect("it was killed");
                *server = ready(&mut storm.site.command(&SERVER));
                return victim;
            }
            let found = victim.find(&storm.mark, &state);
            if let Some((pid, job)) = chance.one_of(&found).cloned() {
                storm.hit.lock().expect("no thread panicked").extend(job);
                // Now and then not the command itself, but the process above it.
                let first = first_of_job(pid, &storm.mark).filter(|_| chance.below(3) == 0);
                let pid = first.unwrap_or(pid);
                let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("not 0");
                if rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok() {
                    return victim;
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Takes 45 s: five hundred real jobs and a hundred restarts.
#[test]
fn a_hundred_kills_lose_no_job_and_leave_nothing() {
    if !rustix::process::geteuid().is_root() {
        return muster_testing::skip_or_fail(
            "not root: only root can make namespaces of its own for all of it",
        );
    }
    if std::env::var_os(INSIDE).is_none() {
        let test = "kill_storm::a_hundred_kills_lose_no_job_and_leave_nothing";
        return run_apart(test, "ip link set lo up", INSIDE);
    }
    let before = Traces::look();
    let seed = std::env::var("MUSTER_STORM_SEED").ok();
    let seed =
        seed.map_or_else(|| u64::from(std::process::id()), |text| text.parse().expect("a number"));
    // Shown by a test that fails.
    println!("MUSTER_STORM_SEED={seed}");
    let mut chance = Chance::new(seed);
    let site = Site::empty();
    let server = Mutex::new(ready(&mut site.command(&SERVER)));
    let mark = format!("storm{}", std::process::id());
    let storm = Storm {
        site,
        server,
        mark: mark.clone(),
        kills: AtomicUsize::new(0),
        next_job: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
        hit: Mutex::default(),
    };
    let size = ["--size", "Standard_DS1_v2", "--max-instances", "6", "-d", "600"];
    storm.site.text(&[&["compute", "create", "-n", &mark][..], &size].concat());

    let mut struck: BTreeMap<Victim, usize> = BTreeMap::new();
    let (jobs, seen) = std::thread::scope(|scope| {
        let calm = Calm(&storm.is_over);
        let watch = scope.spawn(|| storm.watch());
        let submitters: Vec<_> = (0..SUBMITTERS).map(|_| scope.spawn(|| storm.submit())).collect();
        let started = Instant::now();
        for _ in 0..KILLS {
            std::thread::sleep(Duration::from_millis(chance.below(200)));
            *struck.entry(strike(&storm, &mut chance)).or_default() += 1;
            storm.kills.fetch_add(1, Ordering::SeqCst);
        }
        println!("{KILLS} kills after {:?}: {struck:?}", started.elapsed());
        let all_submitted = submitters.into_iter().all(|thread| thread.join().is_ok());
        let jobs = loop {
            let jobs = storm.jobs();
            let is_open =
                |job: &&Value| !["Completed", "Failed"].iter().any(|end| job["status"] == *end);
            let open = jobs.values().filter(is_open).count();
            if open == 0 || started.elapsed() > PATIENCE {
                break jobs;
            }
            std::thread::sleep(Duration::from_millis(200));
        };
        println!("all jobs ended after {:?}", started.elapsed());
        drop(calm);
        assert!(all_submitted, "everything was acknowledged in the end");
        (jobs, watch.join().expect("the watcher does not panic"))
    });
    let names: BTreeSet<String> = (0..JOBS).map(|number| storm.job(number)).collect();
    assert!(jobs.keys().eq(&names), "no job is lost, and none is made up");
    assert_eq!(seen.twice, Vec::<String>::new(), "two runs of one job at once");
    // Otherwise it would have shown nothing.
    assert!(seen.epochs.len() > JOBS / 10, "only {} jobs were seen to run", seen.epochs.len());
    assert!(seen.epochs.values().any(|epochs| epochs.len() > 1), "no job was seen to run again");
    assert!(struck.len() == Victim::ALL.len(), "not all kinds were hit: {struck:?}");
    check_ends(&storm, &jobs);
    let instance = delete(&storm);
    check_books(&storm, &jobs);
    leave_nothing(&storm);
    let settled = Instant::now();
    while Traces::look() != before {
        let now = Traces::look();
        assert!(settled.elapsed() < Duration::from_secs(10), "left: {now:#?}, not {before:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(cgroups_of(&instance), Vec::<PathBuf>::new());
    assert_eq!(sockets_in(&storm.site.state()), Vec::<PathBuf>::new());
}

/// The resources of this machine that a node uses, as far as they are in these namespaces.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    /// The processes by name, and how many there are.
    processes: BTreeMap<String, usize>,
    mounts: Vec<String>,
    /// The cgroups that have processes.
    networks: BTreeSet<PathBuf>,
    interfaces: BTreeSet<String>,
}

impl Traces {
    fn look() -> Traces {
        let mut processes = BTreeMap::new();
        let mut networks = BTreeSet::new();
        for entry in std::fs::read_dir("/proc").expect("/proc is there").flatten() {
            // If the file does not exist any more, its process has ended.
            let Ok(name) = std::fs::read_to_string(entry.path().join("comm")) else { continue };
            if entry.file_name().to_string_lossy().parse::<u32>().is_ok() {
                *processes.entry(name.trim_end().to_owned()).or_default() += 1;
                networks.extend(std::fs::read_link(entry.path().join("ns/net")));
            }
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("it exists");
        let interfaces = std::fs::read_to_string("/proc/self/net/dev").expect("it exists");
        let interfaces = interfaces.lines().filter_map(|line| line.split_once(':'));
        Traces {
            processes,
            mounts: mounts.lines().map(str::to_owned).collect(),
            networks,
            interfaces: interfaces.map(|(name, _)| name.trim().to_owned()).collect(),
        }
    }
}

fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("it exists").flatten() {
        let kind = entry.file_type().expect("it exists");
        if kind.is_dir() {
            found.append(&mut sockets_in(&entry.path()));
        } else if kind.is_socket() {
            found.push(entry.path());
        }
    }
    found
}

/// As the command says, unless it was hit itself or lost its node as often as a job may.
fn check_ends(storm: &Storm, jobs: &BTreeMap<String, Value>) {
    let hit = storm.hit.lock().expect("no thread panicked");
    for number in 0..JOBS {
        let name = storm.job(number);
        let job = &jobs[&name];
        let (status, failure) = (&job["status"], job["failure"].as_str().unwrap_or_default());
        let attempts = job["attempts"].as_u64().expect("a number");
        let is_as_told = match number % 10 {
            7 => status == "Failed" && failure.contains("exit code 7"),
            _ => status == "Completed",
        };
        let is_ours = hit.contains(&name) && status == "Failed" && failure.contains("signal 9");
        let is_given_up = attempts == 5 && status == "Failed" && failure.contains("lost");
        assert!(is_as_told || is_ours || is_given_up, "{job}");
        assert!(attempts >= 1, "{job}");
    }
}

/// One attempt of each job is its last, none began before the previous one had ended, and every moment of every node is
/// on one line of the ledger.
fn check_books(storm: &Storm, jobs: &BTreeMap<String, Value>) {
    let database = storm.site.state().join("muster.db");
    let database = rusqlite::Connection::open(database).expect("it opens");
    let mut reader = SqliteReader::open(storm.site.state().join("muster.db")).expect("it opens");
    let subscription = "00000000-0000-0000-0000-000000000000";
    let workspace = WorkspaceKey::new(subscription, "default", "default");
    for (name, job) in jobs {
        let view = reader.job(&workspace, name).expect("rows").expect("it is there");
        let attempts = view.attempts.iter().map(serde_json::to_value);
        let attempts: Vec<Value> = attempts.map(|attempt| attempt.expect("JSON")).collect();
        assert_eq!(job["attempts"].as_u64(), Some(attempts.len() as u64), "{name}: {attempts:?}");
        let (last, earlier) = attempts.split_last().expect("at least one");
        assert_ne!(last["outcome"], "Retried", "{name}: {attempts:?}");
        assert!(earlier.iter().all(|one| one["outcome"] == "Retried"), "{name}: {attempts:?}");
        let time = |attempt: &Value, which: &str| attempt[which].as_u64().expect("a time");
        let mut pairs = attempts.iter().zip(&attempts[1..]);
        let in_turn = pairs.all(|(one, next)| time(one, "ended_at") <= time(next, "granted_at"));
        assert!(in_turn, "{name}: {attempts:?}");
    }
    let mut rows = database
        .prepare("SELECT node, from_us, to_us FROM ledger ORDER BY node, from_us, to_us")
        .expect("tables as they were");
    let lines = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let lines: Vec<(i64, i64, i64)> =
        lines.expect("rows").map(|line| line.expect("a row")).collect();
    for pair in lines.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        assert_eq!(pair[0].2, pair[1].1, "the lines of a node have neither gaps nor overlaps");
    }
    let spent: i64 = lines.iter().map(|(_, from, to)| to - from).sum();
    let bill = storm.site.json(&["cost", "--by", "category", "-o", "json"]);
    let billed = bill["total"]["node_seconds"].as_str().expect("text").replace('.', "");
    assert_eq!(billed.parse(), Ok(spent), "{bill}");
}

/// Deletes the cluster, and with it everything that its nodes had. Returns the instance of the server.
fn delete(storm: &Storm) -> String {
    let state = storm.site.state().display().to_string();
    let helper = processes(&["helper", &state]);
    let line = std::fs::read_to_string(format!("/proc/{}/cmdline", helper[0])).expect("it runs");
    let mut words = line.split('\0').skip_while(|word| *word != "--instance");
    let instance = words.nth(1).expect("it has a name").to_owned();

    let delete = storm.site.run(&["compute", "delete", "-n", &storm.mark, "--yes"]);
    assert_eq!(delete.code, 0, "{}", delete.stderr);
    for folder in ["sandboxes", "relays"] {
        let left: Vec<_> =
            std::fs::read_dir(storm.site.state().join(folder)).expect("it exists").collect();
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
    assert_eq!(cgroups_of(&instance), Vec::<PathBuf>::new());
    instance
}

fn leave_nothing(storm: &Storm) {
    let mut server = storm.server.lock().expect("no thread panicked");
    signal("-TERM", &server);
    assert!(ends(&mut server), "the server ends");
    // A debug build checks at its end that its memory matches its rows.
    assert!(server.wait().expect("a child of ours").success());
    let started = Instant::now();
    while let Some(pid) = ours(&storm.site.state(), &storm.mark).first() {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        assert!(started.elapsed() < Duration::from_secs(10), "{pid} is still alive: {line:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
