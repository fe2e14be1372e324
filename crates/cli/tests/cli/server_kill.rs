//! Kills a real server with waiting and running jobs with SIGKILL, again and again: none is lost, none runs twice, and
//! completed jobs stay completed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use muster_core::ids::JobId;

use crate::support::Site;
use crate::support::sandbox::wait_until;

const WAITING: usize = 50;
const RUNNING: usize = 2;
const KILLS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(90);

/// Every job that the server knows, with its status.
fn jobs(site: &Site) -> BTreeMap<String, String> {
    let list = site.json(&["job", "list", "--max-results", "1000"]);
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let job = |job: &serde_json::Value| (text(&job["name"]), text(&job["status"]));
    list.as_array().expect("a list").iter().map(job).collect()
}

/// Submits until as many jobs wait and run as the test wants at every kill.
fn fill(site: &Site, submitted: &mut BTreeSet<String>, command: &str) -> BTreeMap<String, String> {
    let started = Instant::now();
    loop {
        let jobs = jobs(site);
        let count = |status: &str| jobs.values().filter(|other| *other == status).count();
        let (waiting, running) = (count("Queued"), count("Running"));
        if waiting >= WAITING && running == RUNNING {
            return jobs;
        }
        assert!(started.elapsed() < PATIENCE, "{waiting} wait, {running} run");
        for _ in waiting..WAITING + 5 {
            let name = format!("job-{:03}", submitted.len());
            let (compute, command) = (["--compute", "pool"], ["--command", command]);
            site.text(&[&["job", "create", "--name", &name][..], &compute, &command].concat());
            submitted.insert(name);
        }
    }
}

/// Holds a lock as long as it runs, and writes a line per start and end.
fn command(marks: &Path) -> String {
    let marks = marks.display();
    format!(
        "exec 9> {marks}/$MUSTER_JOB_NAME.lock; flock -n 9 || touch {marks}/TWICE-$MUSTER_JOB_NAME; \
         echo start >> {marks}/$MUSTER_JOB_NAME.runs; sleep 0.6; \
         echo end >> {marks}/$MUSTER_JOB_NAME.runs"
    )
}

fn is_completed((_, status): &(String, String)) -> bool {
    status == "Completed"
}

/// Takes 20 s: each of ten kills waits until jobs run again, and comes at another moment of their lives.
#[test]
fn no_job_is_lost_or_run_twice_when_the_server_is_killed() {
    let mut site = Site::start_plain();
    let marks = site.folder().join("marks");
    std::fs::create_dir_all(&marks).expect("io");
    site.text(&["compute", "create", "--name", "pool", "--max-instances", "2", "-d", "60"]);
    let command = command(&marks);
    let mut submitted = BTreeSet::new();
    let mut completed = BTreeSet::new();
    for kill in 0..KILLS {
        let before = fill(&site, &mut submitted, &command);
        completed.extend(before.into_iter().filter(is_completed).map(|(name, _)| name));
        // At a different moment of a job's life each time.
        std::thread::sleep(Duration::from_millis(37 * kill as u64));
        site.kill();
        site.up();
        let jobs = jobs(&site);
        assert!(jobs.keys().eq(&submitted), "after kill {kill}: none is lost");
        let still: BTreeSet<_> =
            jobs.into_iter().filter(is_completed).map(|(name, _)| name).collect();
        assert!(still.is_superset(&completed), "after kill {kill}: completed jobs stay completed");
    }
    let started = Instant::now();
    while !jobs(&site).iter().all(|(_, status)| status == "Completed") {
        assert!(started.elapsed() < PATIENCE, "still not done: {:?}", jobs(&site));
        std::thread::sleep(Duration::from_millis(200));
    }
    for name in &submitted {
        let runs = std::fs::read_to_string(marks.join(format!("{name}.runs")));
        assert_eq!(runs.expect("it ran"), "start\nend\n", "{name} ran exactly once");
    }
    let twice = std::fs::read_dir(&marks).expect("io").flatten();
    let twice = twice.filter(|entry| entry.file_name().to_string_lossy().starts_with("TWICE"));
    assert_eq!(twice.count(), 0, "two runs of one job at once");
}

/// It was killed after the delete was on disk, but before the log was deleted.
#[test]
fn the_log_of_a_deleted_job_goes_when_the_server_starts_again() {
    let mut site = Site::start_plain();
    site.kill();
    let left = site.state().join("logs").join(JobId(999_999).to_string());
    std::fs::create_dir_all(&left).expect("our own folder");
    std::fs::write(left.join("a1.0.log"), "said").expect("our own folder");
    site.start_with(&["--isolation", "none"]);
    wait_until("it is found and deleted", || !left.exists());
}
