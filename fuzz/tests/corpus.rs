//! Runs every parser over its corpus and over seeded mutations of it: the same inputs each time, in a few seconds.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use muster_fuzz::{Random, TARGETS, Target, changed};
use rustix::time::{ClockId, clock_gettime};

/// The number of mutations of each file.
const CHANGES: usize = 150;
/// How much CPU time a parser may use: a constant, and some for each byte. Debug builds are slow, but none exceeds this
/// unless it processes the whole input again for every byte.
const TIME_MIN: Duration = Duration::from_millis(100);
const TIME_PER_BYTE: Duration = Duration::from_micros(50);

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn files(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = corpus().join(target.name);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|why| panic!("{}: {why}", folder.display()))
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

fn run(target: &Target, input: &[u8], what: &str) {
    // The time of all threads, because some parsers have a thread of their own.
    let time_used = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::try_from(time).unwrap()
    };
    let before = time_used();
    let result = std::panic::catch_unwind(|| (target.run)(input));
    let took = time_used() - before;
    if let Err(why) = result {
        eprintln!("{what}: {}", input.escape_ascii());
        std::panic::resume_unwind(why);
    }
    let limit = TIME_MIN + TIME_PER_BYTE * u32::try_from(input.len()).unwrap();
    assert!(took <= limit, "{what}: {} bytes took {took:?}, more than {limit:?}", input.len());
}

fn check(name: &str) {
    // If all tests share one process, its CPU time must belong to a single test.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let files = files(target);
    assert!(!files.is_empty(), "{name} has no corpus");
    let inputs: Vec<Vec<u8>> = files.iter().map(|(_, bytes)| bytes.clone()).collect();
    run(target, b"", "nothing");
    for (file, bytes) in &files {
        run(target, bytes, &format!("{name}/{file}"));
        let mut random = Random::new(&format!("{name}/{file}"));
        for number in 0..CHANGES {
            let input = changed(bytes, &inputs, &mut random);
            run(target, &input, &format!("{name}/{file}, change {number}"));
        }
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        const NAMED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*
    };
}

targets! {
    activity_filter agent_desired agent_report agent_usage answers asset asset_container asset_place asset_reference blob_address blob_batch blob_headers blob_range blob_sas
    block_list certificate cgroup_layout compute_file compute_patch compute_put conda_file config datastore defaults deployment dockerfile duration
    environment_table flag_values group helper_request host_join host_report host_wanted ignore_file job job_file ledger_query lock login_file login_form packed_file path
    prices query quota requirements resources_query role_assignment role_filter timestamp token trace tree user workspace workspace_file
}

#[test]
fn every_parser_has_its_test_and_its_folder() {
    let known: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(known, NAMED.iter().copied().collect());
    let folders = fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().file_name());
    let folders: BTreeSet<String> = folders.map(|name| name.into_string().unwrap()).collect();
    assert_eq!(folders, known.iter().map(|name| (*name).to_owned()).collect());
}

#[test]
fn a_seed_gives_the_same_changes_again() {
    let made = || {
        let mut random = Random::new("seed");
        let make = |_| changed(br#"{"a": [1, "b"]}"#, &[], &mut random);
        (0..100).map(make).collect::<Vec<_>>()
    };
    assert_eq!(made(), made());
    assert!(made().iter().collect::<BTreeSet<_>>().len() > 50);
}
