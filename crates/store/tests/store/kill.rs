//! Kills a real process that writes to the store with SIGKILL, at a thousand random points.
//!
//! The test starts itself again as a writer, which commits batches and reports each commit. Every batch that it
//! reported must be there afterwards, complete; a batch that it did not report may be there or not, but must be
//! complete, too. (Power failures are a different matter: what a killed process wrote is safe with the operating
//! system.)

mod batches;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use batches::{batch, batches_up_to, expected};
use muster_core::time::Wall;
use muster_store::conformance::Chance;
use muster_store::{Durability, Reader, Revision, SqliteReader, SqliteStore, Store};

const KILLS: u64 = 1_000;
/// Each with databases of its own. There are more than cores, because they mostly wait for the disk.
const LANES: u64 = 4;
/// Few enough that checking everything stays quick, many enough that most writers find some content.
const KILLS_PER_DATABASE: u64 = 10;

const DATABASE: &str = "MUSTER_KILL_DATABASE";
const CHECKPOINT: &str = "MUSTER_KILL_CHECKPOINT_PAGES";
/// Set it to repeat the same kills, as far as timing allows.
const SEED: &str = "MUSTER_KILL_SEED";

/// The moments that the kills hit, over all lanes.
#[derive(Default)]
struct Tally {
    kills: AtomicU64,
    before_any_commit: AtomicU64,
    unsaid_commits: AtomicU64,
    commits: AtomicU64,
}

#[test]
fn what_was_acknowledged_survives_a_thousand_kills() {
    let seed = std::env::var(SEED).ok().map(|text| text.parse().expect("a number"));
    let seed: u64 = seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        now.as_nanos() as u64
    });
    println!("{SEED}={seed}");
    let tally = Tally::default();
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            let tally = &tally;
            scope.spawn(move || run_lane(&mut Chance(seed.wrapping_add(lane)), tally));
        }
    });
    let [kills, early, unsaid, commits] =
        [&tally.kills, &tally.before_any_commit, &tally.unsaid_commits, &tally.commits]
            .map(|count| count.load(Ordering::Relaxed));
    println!("{kills} kills: {early} before a commit, {unsaid} between a commit and its report");
    println!("{commits} commits survived");
    assert_eq!(kills, KILLS);
    // Otherwise the kills all hit the same moment, and the test shows little.
    assert!(early > KILLS / 50 && early < KILLS * 3 / 4, "{early} kills before a commit");
    assert!(commits > KILLS, "{commits} commits");
}

fn run_lane(chance: &mut Chance, tally: &Tally) {
    for _ in 0..KILLS / LANES / KILLS_PER_DATABASE {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("muster.db");
        let mut said = 0;
        for kill in 1..=KILLS_PER_DATABASE {
            let before = said;
            said = kill_one_writer(&path, said, chance);
            tally.kills.fetch_add(1, Ordering::Relaxed);
            tally.before_any_commit.fetch_add(u64::from(said == before), Ordering::Relaxed);
            // Now and then the next writer finds what two or more have left.
            if kill == KILLS_PER_DATABASE || chance.below(3) > 0 {
                let found = check(&path, said, chance);
                tally.unsaid_commits.fetch_add(found - said, Ordering::Relaxed);
                said = found;
            }
        }
        tally.commits.fetch_add(said, Ordering::Relaxed);
    }
}

/// Starts a writer, kills it at a random moment, and returns the last batch that it reported as committed.
fn kill_one_writer(path: &Path, said: u64, chance: &mut Chance) -> u64 {
    let checkpoint_pages = [1, 5, 30, 1_000][chance.below(4) as usize];
    let mut child = start_writer(path, checkpoint_pages);
    let mut words = BufReader::new(child.stdout.take().expect("piped"));
    let mut last = said;
    if chance.below(2) == 0 {
        // After this much time: it may still be opening the store.
        std::thread::sleep(Duration::from_micros(chance.below(15_000)));
    } else {
        // After this many reports, and a little longer.
        for _ in 0..=chance.below(6) {
            listen(&mut words, &mut last).expect("it continues until it is killed");
        }
        std::thread::sleep(Duration::from_micros(chance.below(800)));
    }
    child.kill().expect("it is ours to kill");
    while listen(&mut words, &mut last).is_some() {}
    let status = child.wait().expect("it was started");
    let complaint = complaint(&mut child);
    assert_eq!(status.signal(), Some(9), "it ended by itself: {complaint}");
    last
}

fn start_writer(path: &Path, checkpoint_pages: u32) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "kill::writer", "--nocapture", "--test-threads=1"])
        .env(DATABASE, path)
        .env(CHECKPOINT, checkpoint_pages.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process can be started")
}

/// Waits for one report of the writer: the number of the batch that it has committed.
fn listen(words: &mut BufReader<ChildStdout>, last: &mut u64) -> Option<u64> {
    let mut line = String::new();
    loop {
        line.clear();
        if words.read_line(&mut line).expect("a pipe") == 0 {
            return None;
        }
        let Some(number) = line.trim_end().strip_prefix("committed ") else { continue };
        let number: u64 = number.parse().expect("a number");
        // Not always the next one: after kills without a check, there may be more than was reported.
        assert!(number > *last, "{number} after {last}");
        *last = number;
        return Some(number);
    }
}

fn complaint(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut text).expect("a pipe");
    text
}

/// Checks that every reported batch is there, that none is there in part, and that nothing else is. Returns their
/// number.
fn check(path: &Path, said: u64, chance: &mut Chance) -> u64 {
    // A reader leaves the log for the next writer; a writer cleans it up.
    if chance.below(2) == 0 && said > 0 {
        let mut reader = SqliteReader::open(path).expect("it opens after a kill");
        return check_events(&mut reader, said);
    }
    let mut store = SqliteStore::open(path, Durability::Disk).expect("it opens after a kill");
    let found = check_events(&mut store.reader().expect("the file opens"), said);
    assert_eq!(
        store.load().expect("rows can be loaded"),
        expected(found),
        "rows of {found} batches"
    );
    found
}

fn check_events(reader: &mut SqliteReader, said: u64) -> u64 {
    let events = reader.events(Revision(0), usize::MAX).expect("rows can be read");
    let found = batches_up_to(events.len() as u64).expect("no batch is there in part");
    assert!(found >= said, "batch {said} was acknowledged, but only {found} are there");
    let mut changes = (1..=found).flat_map(batch);
    for (number, event) in (1..).zip(events) {
        let change = changes.next().expect("as many as were counted");
        let text = serde_json::to_string(&change).expect("plain data");
        assert_eq!((event.revision, &*event.change), (Revision(number), text.as_str()));
    }
    found
}

/// The other process. When it is run as an ordinary test, it does nothing.
#[test]
fn writer() {
    let Ok(path) = std::env::var(DATABASE) else { return };
    let pages = std::env::var(CHECKPOINT).expect("set together").parse().expect("a number");
    let mut store = SqliteStore::open(&path, Durability::Disk).expect("the file opens");
    store.checkpoint_after(pages);
    store.claim(1).expect("it can be claimed");
    let revision = store.revision().expect("rows can be read");
    let done = batches_up_to(revision.0).expect("no batch is there in part");
    assert_eq!(store.load().expect("rows can be loaded"), expected(done));
    let mut out = std::io::stdout();
    for number in done + 1.. {
        let changes: Vec<_> = batch(number).collect();
        store.commit(&changes, Wall(number)).expect("the commit succeeds");
        // In one write, and from the start of a line, because the test runner writes here, too.
        let word = format!("\ncommitted {number}\n");
        out.write_all(word.as_bytes())
            .and_then(|()| out.flush())
            .expect("the test reads the output");
    }
}

/// Checks the functions that compute the expectations above.
#[test]
fn batches_are_recognised_by_their_ends() {
    let mut ends = BTreeMap::new();
    let mut changes = 0;
    for number in 1..50 {
        changes += batch(number).count() as u64;
        ends.insert(changes, number);
    }
    for total in 1..changes {
        assert_eq!(batches_up_to(total), ends.get(&total).copied());
    }
    assert!(ends.len() < changes as usize, "some batches have several changes");
}
