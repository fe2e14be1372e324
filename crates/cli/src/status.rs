//! `muster status`: whether a server is running, and its key figures.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use muster_core::read_only::StoreTrouble;
use muster_core::time::Wall;
use muster_sandbox::disk_space::DiskSpace;
use muster_sandbox::node::disk as node_disk;
use muster_server::FREE_BYTES_MIN;
use muster_wire::timestamp;
use serde::Serialize;

use crate::client::NoMetrics;
use crate::failure::{CliResult, Failure};
use crate::output::{self, PrintForPeople};
use crate::server_location::{Server, StateDirArg};
use crate::{client, server_process};

/// The server is on this machine: if it takes longer, it is not responding.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
const GIB: f64 = (1_u64 << 30) as f64;

/// Show whether a server is running, and its key figures
///
/// The server is the one that other commands use: from --state-dir, MUSTER_URL, MUSTER_STATE_DIR, `muster login` or the
/// default state directory, in this order. The server of a state directory is looked for on this machine and queried
/// with the owner's key from there, so no account is needed. The first rows show which server it is, and why it was
/// chosen.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 the server is running, 1 it does not respond, 3 no server is running for the state directory.\n\n\
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
    /// What determined the choice of the server.
    chosen_by: &'static str,
    /// Only for a server on this machine.
    state_dir: Option<String>,
    /// Only for a server that is running.
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
    /// What keeps the store from accepting new work, if anything.
    store_trouble: Option<Trouble>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Trouble {
    /// The same codes as in the reasons of `muster why`.
    code: String,
    message: String,
}

impl Trouble {
    /// From the code that the server reports, which may be from a newer version. The disk is known only for a server on
    /// this machine.
    fn of(code: &str, disk: Option<DiskSpace>) -> Trouble {
        let message = match (StoreTrouble::of_code(code).unwrap_or(StoreTrouble::Failing), disk) {
            (StoreTrouble::ShortOfSpace { .. }, Some(disk)) => {
                let needed_bytes = node_disk::reserve(disk.bytes);
                StoreTrouble::ShortOfSpace { free_bytes: disk.free_bytes, needed_bytes }.words()
            }
            (kind, _) => kind.words_without_figures(),
        };
        Trouble { code: code.to_owned(), message }
    }
}

pub async fn run(args: &Args) -> CliResult {
    if let Some((server, chosen_by)) = args.place.find_by_address()? {
        // A server on this machine can be examined more closely.
        let here = args.place.find_running().ok().flatten();
        if here.is_none_or(|(here, _)| here.url != server.url) {
            return elsewhere(args, &server, chosen_by).await;
        }
    }
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

/// A server that is known by its address only. Any key can check that it responds, but only keys with permission to
/// read everything can see its figures.
async fn elsewhere(args: &Args, server: &Server, chosen_by: &'static str) -> CliResult {
    let mut status = Status { chosen_by, url: Some(server.url.clone()), ..nothing_known() };
    let is_ready = client::readiness(server, ANSWER_WITHIN).await;
    let figures = server_process::figures(server, ANSWER_WITHIN).await;
    let ended = match (is_ready, figures) {
        (Ok(..500), Ok(figures)) => ask(&mut status, None, Ok(figures)),
        (Ok(..500), Err(why)) => {
            status.state = State::Running;
            output::say(&note_without_figures(&why));
            Ok(())
        }
        (Ok(code), _) => {
            let why = format!("its readiness check returned {code}");
            ask(&mut status, None, Err(NoMetrics::Failed(why)))
        }
        (Err(why), _) => ask(&mut status, None, Err(NoMetrics::Failed(why))),
    };
    args.print.show(&status, || print_table(&status))?;
    ended
}

fn note_without_figures(why: &NoMetrics) -> String {
    match why {
        NoMetrics::NotAllowed(_) => {
            format!("note: this key may not read the server's figures: {why}")
        }
        NoMetrics::Failed(why) => format!("note: cannot read the server's figures: {why}"),
    }
}

fn look(path: &Path, disk: Option<DiskSpace>) -> Status {
    // The disk also matters for a server that waits for free space before it starts.
    let is_full = disk.is_some_and(|disk| disk.free_bytes < FREE_BYTES_MIN);
    let [space, ..] = StoreTrouble::KINDS;
    Status {
        chosen_by: "the state directory",
        state_dir: Some(path.display().to_string()),
        disk_free_bytes: disk.map(|disk| disk.free_bytes),
        disk_bytes: disk.map(|disk| disk.bytes),
        store_trouble: is_full.then(|| Trouble::of(space.code(), disk)),
        ..nothing_known()
    }
}

fn nothing_known() -> Status {
    Status {
        state: State::Stopped,
        chosen_by: "",
        state_dir: None,
        url: None,
        version: None,
        pid: None,
        started_at: None,
        clusters: None,
        nodes: None,
        jobs_running: None,
        jobs_queued: None,
        disk_free_bytes: None,
        disk_bytes: None,
        store_trouble: None,
    }
}

fn ask(
    status: &mut Status,
    disk: Option<DiskSpace>,
    answer: Result<server_process::Figures, NoMetrics>,
) -> CliResult {
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
            let url = status.url.as_deref().unwrap_or_default();
            Err(Failure::error(format!("the server at {url} does not respond: {why}"))
                .hint("look at its log, or run `muster doctor` to find out what is wrong"))
        }
    }
}

fn print_table(status: &Status) -> CliResult {
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
        ("Address", status.url.clone()),
        ("Chosen by", Some(status.chosen_by.to_owned())),
        ("State directory", status.state_dir.clone()),
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
        // For a server that does not respond, only the disk is known.
        let path = Path::new("/state");
        assert_eq!(look(path, Some(disk(5 << 20))).store_trouble, None);
        let full = look(path, Some(disk(900 << 10))).store_trouble.expect("it is full");
        assert_eq!(full.code, "StoreShortOfSpace");
    }

    #[test]
    fn no_figure_of_another_machines_disk_is_made_up() {
        let short = Trouble::of("StoreShortOfSpace", None).message;
        assert!(short.contains("disk is full") && short.contains("free space"), "{short}");
        assert!(!short.contains(|one: char| one.is_ascii_digit()), "{short}");
        let read_only = Trouble::of("StoreReadOnly", None).message;
        assert_eq!(read_only, StoreTrouble::ReadOnly.words());
    }

    #[test]
    fn only_a_refusal_is_blamed_on_the_key() {
        let refused = NoMetrics::NotAllowed(reqwest::StatusCode::FORBIDDEN);
        let said = note_without_figures(&refused);
        assert!(said.contains("this key may not") && said.contains("403"), "{said}");
        let failed = NoMetrics::Failed("no answer within 3000 ms".to_owned());
        let said = note_without_figures(&failed);
        assert!(!said.contains("key") && said.ends_with(": no answer within 3000 ms"), "{said}");
    }
}
