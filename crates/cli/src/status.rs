//! `muster status`: whether a server runs for a state directory, and how it does.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use muster_core::read_only::StoreTrouble;
use muster_core::time::Wall;
use muster_sandbox::disk_space::DiskSpace;
use muster_sandbox::node::disk as node_disk;
use muster_wire::timestamp;
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::output::{self, PrintForPeople};
use crate::place::StateDirArg;
use crate::server_process;

/// It is on this machine: one that takes longer does not respond.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// With less than this a server cannot start.
const FULL_BYTES: u64 = 1 << 20;
const GIB: f64 = (1_u64 << 30) as f64;

/// Show whether a server is running, and how it is doing
///
/// Looks for the server of the state directory on this machine, and asks it with the owner's key from there: no account
/// is needed. For a server elsewhere, `muster whoami` shows whether it answers.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 it runs, 1 it runs and does not respond, 3 no server runs.\n\n\
                        Read-only: changes nothing."
)]
pub struct Args {
    #[command(flatten)]
    print: PrintForPeople,
    #[command(flatten)]
    place: StateDirArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Running,
    NotResponding,
    Stopped,
}

#[derive(Debug, Serialize)]
struct Status {
    state: State,
    state_dir: String,
    /// Of a server that runs.
    url: Option<String>,
    version: Option<String>,
    pid: Option<u32>,
    started_at: Option<String>,
    clusters: Option<u64>,
    nodes: Option<u64>,
    jobs_running: Option<u64>,
    jobs_queued: Option<u64>,
    disk_free_bytes: Option<u64>,
    disk_bytes: Option<u64>,
    /// What keeps the store from taking new work, if something does.
    store_trouble: Option<Trouble>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Trouble {
    /// As in the reasons of `muster why`.
    code: String,
    message: String,
}

impl Trouble {
    /// By the code that the server gives it, or a newer one.
    fn of(code: &str, disk: Option<DiskSpace>) -> Trouble {
        let space = StoreTrouble::ShortOfSpace {
            free_bytes: disk.map_or(0, |disk| disk.free_bytes),
            needed_bytes: disk.map_or(0, |disk| node_disk::reserve(disk.bytes)),
        };
        let known = [space, StoreTrouble::ReadOnly, StoreTrouble::Failing];
        let known = known.into_iter().find(|trouble| trouble.code() == code);
        let message = known.unwrap_or(StoreTrouble::Failing).words();
        Trouble { code: code.to_owned(), message }
    }
}

pub async fn run(args: &Args) -> Outcome {
    let path = args.place.path()?;
    let disk = DiskSpace::of(&path).ok();
    let mut status = look(&path, disk);
    let ended = match args.place.find_running()? {
        None => Err(Failure::not_found(format!(
            "no server is running for the state directory {}",
            path.display()
        ))
        .hint(format!("start one: {}", server_process::start_command(&path)))),
        Some((server, pid)) => {
            status.url = Some(server.url.clone());
            status.pid = Some(pid);
            status.started_at = server_process::started_at(pid)
                .and_then(|at| at.duration_since(UNIX_EPOCH).ok())
                .map(|since| timestamp::format(Wall(since.as_secs() * 1_000_000)));
            ask(&mut status, disk, server_process::figures(&server, ANSWER_WITHIN).await)
        }
    };
    args.print.show(&status, || print_table(&status))?;
    ended
}

fn look(path: &Path, disk: Option<DiskSpace>) -> Status {
    // Also of a server that waits for space before it starts.
    let is_full = disk.is_some_and(|disk| disk.free_bytes < FULL_BYTES);
    let space = StoreTrouble::ShortOfSpace { free_bytes: 0, needed_bytes: 0 };
    Status {
        state: State::Stopped,
        state_dir: path.display().to_string(),
        url: None,
        version: None,
        pid: None,
        started_at: None,
        clusters: None,
        nodes: None,
        jobs_running: None,
        jobs_queued: None,
        disk_free_bytes: disk.map(|disk| disk.free_bytes),
        disk_bytes: disk.map(|disk| disk.bytes),
        store_trouble: is_full.then(|| Trouble::of(space.code(), disk)),
    }
}

fn ask(
    status: &mut Status,
    disk: Option<DiskSpace>,
    answer: Result<server_process::Figures, String>,
) -> Outcome {
    match answer {
        Ok(figures) => {
            status.state = State::Running;
            status.version = Some(figures.version);
            status.clusters = Some(figures.clusters);
            status.nodes = Some(figures.nodes);
            status.jobs_running = Some(figures.jobs_running);
            status.jobs_queued = Some(figures.jobs_queued);
            status.store_trouble = figures.store_trouble.map(|code| Trouble::of(&code, disk));
            Ok(())
        }
        Err(why) => {
            status.state = State::NotResponding;
            Err(Failure::error(format!("the server runs but does not respond: {why}"))
                .hint("see its log; `muster doctor` looks for what is wrong"))
        }
    }
}

fn print_table(status: &Status) -> Outcome {
    let state = match status.state {
        State::Running => "running",
        State::NotResponding => "not responding",
        State::Stopped => "stopped",
    };
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let gib = |bytes: u64| bytes as f64 / GIB;
    let disk = status.disk_free_bytes.zip(status.disk_bytes);
    let rows = [
        ("State", Some(state.to_owned())),
        ("State directory", Some(status.state_dir.clone())),
        ("Address", status.url.clone()),
        ("Version", status.version.clone()),
        ("Process", number(status.pid.map(u64::from))),
        ("Running since", status.started_at.clone()),
        ("Clusters", number(status.clusters)),
        ("Nodes", number(status.nodes)),
        ("Jobs running", number(status.jobs_running)),
        ("Jobs queued", number(status.jobs_queued)),
        ("Disk free", disk.map(|(free, all)| format!("{:.1} of {:.1} GiB", gib(free), gib(all)))),
        ("Store", status.store_trouble.as_ref().map(|trouble| trouble.message.clone())),
    ];
    let rows = rows.into_iter().filter_map(|(what, value)| Some(vec![what.to_owned(), value?]));
    output::table(&["What", "Value"], rows.collect(), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_the_store_from_taking_work_is_said_with_figures_and_a_remedy() {
        let disk = |free_bytes| DiskSpace { free_bytes, bytes: 1 << 30, free_files: 9, files: 99 };
        let words = |code| Trouble::of(code, Some(disk(5 << 20))).message;
        let short = words("StoreShortOfSpace");
        assert!(short.contains("5 MiB are free") && short.contains("until 64 MiB are"), "{short}");
        assert!(words("StoreReadOnly").contains("mount it again"));
        assert!(words("StoreOfTomorrow").contains("see the server's log"));
        // Of a server that does not answer only the disk is known.
        let path = Path::new("/state");
        assert_eq!(look(path, Some(disk(5 << 20))).store_trouble, None);
        let full = look(path, Some(disk(900 << 10))).store_trouble.expect("it is full");
        assert_eq!(full.code, "StoreShortOfSpace");
    }
}
