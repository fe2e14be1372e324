//! `muster up`: a server in the foreground for the user who started it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_core::model::DefaultLimits;
use muster_core::time::Span;
use muster_core::{ClusterNames, ErrorChain, Regions};
use muster_sandbox::disk_space::DiskSpace;
use muster_server::state_dir::StateDirError;
use muster_server::{
    Environments, EventRetention, HistoryRetention, JobRetention, Kept, Limits, RateLimits, Ready,
    Retention, ServeError, ServerConfig, Workspaces,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::{self, Config, Filed};
use crate::env::{program, shell_quoted};
use crate::failure::{CliResult, Failure, printable, quoted};
use crate::launcher::{self, Account};
use crate::logging;
use crate::logging::file::{LogFile, LogTarget};
use crate::output;
use crate::server_location::StateDirArg;

/// The region of workspaces that are created on first use. Clients display it; nothing depends on it.
const LOCATION: &str = "eastus";
/// The vCPU quota of a region for which none was set, with `up`.
const CORES_OF_ONE: u64 = 100_000;
/// The same, with `serve`.
const CORES_OF_MANY: u64 = 10_000;
/// How much one workspace may store, unless a limit is set or the disk is small.
const STORAGE_BYTES: u64 = 1 << 40;
/// How long a server that is shutting down waits for the disk to accept the rest of its log.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(3);
/// Short enough not to be noticed.
const HURRIED_LINES_WITHIN: Duration = Duration::from_millis(500);

/// Start a server in the foreground
///
/// It serves Azure's clients and the other commands, creates nodes when jobs need them and deletes them when they are
/// idle. Ctrl-C stops it; nodes and their jobs keep running for a while, and the next start takes them over again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating: writes the state directory and starts processes on this machine."
)]
pub struct Args {
    #[command(flatten)]
    start: Start,
}

/// The arguments with which every server is started.
#[derive(Debug, clap::Args)]
pub struct Start {
    #[command(flatten)]
    place: StateDirArg,
    #[command(flatten)]
    flags: config::Flags,
    /// Use a state directory that was started with the other command (`muster up` or `muster serve`)
    #[arg(long)]
    change_mode: bool,
}

pub fn run(args: Args) -> CliResult {
    start(&args.start, Workspaces::OnFirstUse)
}

pub fn start(args: &Start, workspaces: Workspaces) -> CliResult {
    if !args.flags.print && rustix::process::geteuid().is_root() {
        become_two(args)?;
    }
    let state_dir = args.place.path()?;
    let usual = if workspaces == Workspaces::ByHand { "info" } else { "warn" };
    let config = Config::gather(&args.flags, &state_dir, usual)?;
    let mut server = server_config(&config, state_dir, workspaces)?;
    server.may_change_mode = args.change_mode;
    if args.flags.print {
        return output::bytes(config::print(&config, &server.state_dir).as_bytes());
    }
    let is_json = config.text("log-format") == Some("json");
    let log = log_file(&config)?;
    logging::start_server(config.text("log-level").expect("it is derived"), is_json, log.as_ref());
    let talk = Talk { is_json: is_json && log.is_none(), log: log.clone() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|why| Failure::error(format!("cannot start: {why}")))?;
    let ended = runtime.block_on(async {
        let signals = Signals::listen()?;
        let for_ready = talk.clone();
        muster_server::run(server, move |ready| announce(ready, &for_ready), signals.shutdown(talk))
            .await
            .map_err(|why| match &why {
                // The user's own files, with the paths as given.
                ServeError::Prices(_)
                | ServeError::Certificate(_)
                | ServeError::Table(_)
                | ServeError::StateDir(StateDirError::OtherMode { .. }) => {
                    Failure::refused(printable(&ErrorChain(&why).to_string()))
                }
                _ => Failure::of(&why),
            })
    });
    if let Some(log) = &log {
        if let Err(failure) = &ended {
            tracing::error!("the server has stopped: {failure}");
        }
        log.flush(LAST_LINES_WITHIN);
    }
    // Threads may still be busy, for example with the digest of a large file, but their results are no longer needed.
    runtime.shutdown_background();
    ended
}

fn log_file(config: &Config) -> CliResult<Option<LogFile>> {
    let Some(path) = config.path("log-file") else { return Ok(None) };
    let number = |key| config.number(key).expect("it has a default");
    let place = LogTarget {
        path: path.clone(),
        bytes_max: number("log-max-mb") << 20,
        files_max: number("log-max-files"),
    };
    let opened = LogFile::open(place).map_err(|why| {
        let path = quoted(&path.to_string_lossy());
        Failure::refused(format!("cannot write the log-file {path}: {why}"))
    });
    opened.map(Some)
}

/// If root starts the server for another user, keeps only the root parts in this process. Returns if the server itself
/// is to run as root.
fn become_two(args: &Start) -> CliResult {
    // Nothing that the server's user can write may decide what root does for it.
    let config = Config::settle(&args.flags, config::variable, Filed::default(), "warn")?;
    let caller = std::env::var("SUDO_UID").ok().filter(|uid| !uid.is_empty());
    let user = config.text("user").map(str::to_owned).or(caller);
    let (None, Some(user)) = (config.path("helper-socket"), user) else { return Ok(()) };
    let account = Account::find(&user)?;
    if account.uid == 0 {
        return Ok(());
    }
    let state_dir = args.place.path_for(&account.home)?;
    let state_dir = std::path::absolute(&state_dir).unwrap_or(state_dir);
    let ended = launcher::split(&account, &state_dir, config.folders("node-folders"))?;
    // The server has already reported everything.
    std::process::exit(ended.code().unwrap_or(1));
}

fn server_config(
    config: &Config,
    state_dir: PathBuf,
    workspaces: Workspaces,
) -> CliResult<ServerConfig> {
    let listen = config.address("listen").expect("it has a default");
    if !listen.ip().is_loopback() && !config.is_on("trusted-users") {
        return Err(Failure::refused(format!(
            "--listen {listen} is reachable from other machines, and job sandboxes are new; listen on 127.0.0.1, or add \
             --trusted-users if you would let everyone who gets a key log in to this machine"
        )));
    }
    let certificate = match (config.path("tls-cert"), config.path("tls-key")) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (one, _) => {
            let (here, missing) =
                if one.is_some() { ("tls-cert", "tls-key") } else { ("tls-key", "tls-cert") };
            return Err(Failure::refused(format!(
                "{here} is set, but {missing} is not; set both, or neither to use Muster's own certificate"
            )));
        }
    };
    let agent_binary = std::env::current_exe()
        .map_err(|why| Failure::error(format!("cannot find this program's own file: {why}")))?;
    let seconds = |key| Duration::from_secs(config.number(key).expect("it has a default"));
    let limits = limits(config, workspaces, &state_dir);
    Ok(ServerConfig {
        state_dir,
        listen,
        files_port: config.number("files-port").and_then(|port| port.try_into().ok()).unwrap_or(0),
        metrics_listen: config.address("metrics-listen"),
        public_host: config.text("public-host").map(str::to_owned),
        certificate,
        hangup_reloads: workspaces == Workspaces::ByHand,
        drain: Duration::from_secs(config.number("drain-seconds").expect("it has a default")),
        agent_binary,
        price_file: config.path("prices"),
        location: LOCATION.to_owned(),
        workspaces,
        may_change_mode: false,
        isolation: config.isolation(),
        helper_socket: config.path("helper-socket"),
        shown: config.folders("node-folders"),
        job_disk_bytes: config.number("job-disk-gb").expect("it has a default") << 30,
        environments: Environments {
            uv: config.path("uv"),
            table: config.path("environments-file"),
            indexes: config.words("package-indexes"),
            bytes_max: config.number("environments-gb").expect("it has a default") << 30,
            build_within: Duration::from_secs(
                60 * config.number("environment-minutes").expect("it has a default"),
            ),
        },
        blob_store: config.text("blob-store").map(str::to_owned),
        retention: Retention {
            grace: seconds("blob-grace-seconds"),
            blocks: seconds("block-lifetime-seconds"),
        },
        kept: kept(config),
        jobs_share: config.text("job-sandbox") == Some("shared"),
        // A single user may overcommit their own machine; a shared machine stays within its capacity.
        over_commit: config.switch("over-commit").unwrap_or(workspaces == Workspaces::OnFirstUse),
        // Members of a workspace can change each other's code and data, and so act as each other's jobs.
        user_identity: config
            .switch("user-identity")
            .unwrap_or(workspaces == Workspaces::OnFirstUse),
        cluster_names: cluster_names(config, workspaces),
        default_limits: default_limits(config, workspaces),
        regions: Regions::with(config.words("regions").iter().map(String::as_str)),
        eviction_grace: Span::seconds(
            config.number("eviction-grace-seconds").expect("it has a default"),
        ),
        lease: Span::seconds(config.number("lease-seconds").expect("it has a default")),
        limits,
        // A single user may use everything on their own machine; on a shared one, not every user may.
        egress: config.switch("egress").unwrap_or(workspaces == Workspaces::OnFirstUse),
    })
}

/// Programs of one person use the same cluster names in every workspace; for many users, Azure's rule applies.
fn cluster_names(config: &Config, workspaces: Workspaces) -> ClusterNames {
    match config.text("cluster-names") {
        Some("workspace") => ClusterNames::UniqueInWorkspace,
        Some(_) => ClusterNames::UniqueInRegion,
        None if workspaces == Workspaces::OnFirstUse => ClusterNames::UniqueInWorkspace,
        None => ClusterNames::UniqueInRegion,
    }
}

/// The server of one person has the machine's limits only; a server for many stops mistakes before they use up
/// everything.
fn default_limits(config: &Config, workspaces: Workspaces) -> DefaultLimits {
    let usual = match workspaces {
        Workspaces::OnFirstUse => CORES_OF_ONE,
        Workspaces::ByHand => CORES_OF_MANY,
    };
    // 0 means no limit.
    let limit = |key| Some(config.number(key).unwrap_or(usual)).filter(|limit| *limit > 0);
    DefaultLimits {
        region: limit("dedicated-cores"),
        family: limit("family-cores"),
        low_priority: limit("low-priority-cores"),
    }
}

/// How much one workspace may store if nothing is set. With many users, no single workspace may fill the disk: the
/// others could then not store the outputs of their jobs.
fn default_storage_bytes(workspaces: Workspaces, state_dir: &Path, is_elsewhere: bool) -> u64 {
    let disk = match workspaces {
        // On the first start, the folder is created later.
        Workspaces::ByHand if !is_elsewhere => {
            state_dir.ancestors().find_map(|folder| DiskSpace::of(folder).ok())
        }
        Workspaces::ByHand | Workspaces::OnFirstUse => None,
    };
    disk.map_or(STORAGE_BYTES, |disk| STORAGE_BYTES.min(disk.bytes / 2))
}

/// How long, or how much, is kept of what the server records.
fn kept(config: &Config) -> Kept {
    let number = |key| config.number(key).expect("it has a default");
    let days = |key| Span::seconds(86_400 * number(key));
    // 0 means no limit.
    let limit = |key| Some(days(key)).filter(|span| *span > Span::ZERO);
    Kept {
        jobs: JobRetention { jobs: limit("job-days"), logs: limit("log-days") },
        events: EventRetention { age: days("event-days"), entries: number("events-max") },
        activity: days("activity-days"),
        history: HistoryRetention {
            kept_s: days("history-days").as_seconds(),
            cluster_bytes_max: 1_000_000 * number("history-mb-per-compute"),
        },
    }
}

/// The limits per user, per workspace and per address.
fn limits(config: &Config, workspaces: Workspaces, state_dir: &Path) -> Limits {
    let count = |key| config.number(key).and_then(|count| u32::try_from(count).ok());
    // 0 means no limit.
    let rate = |key| count(key).filter(|count| *count > 0);
    let storage_bytes = match config.number("workspace-storage-gb") {
        Some(gb) => (gb > 0).then_some(gb << 30),
        None => {
            let is_elsewhere = config.text("blob-store").is_some();
            Some(default_storage_bytes(workspaces, state_dir, is_elsewhere))
        }
    };
    Limits {
        queued_per_user: count("queued-jobs-per-user"),
        queued_per_workspace: count("queued-jobs-per-workspace"),
        rates: RateLimits {
            per_user: rate("user-requests-per-second"),
            per_workspace: rate("workspace-requests-per-second"),
            files_per_workspace: rate("workspace-file-requests-per-second"),
        },
        storage_bytes,
        connections_per_address: count("connections-per-address").map(|count| count as usize),
    }
}

/// Messages to the user who started the server. They are left out if the log is JSON, so that it has only JSON lines.
#[derive(Clone)]
struct Talk {
    is_json: bool,
    log: Option<LogFile>,
}

impl Talk {
    fn say(&self, line: &str) {
        if self.is_json {
            tracing::info!("{line}");
        } else {
            output::say(line);
        }
    }
}

/// Both signals are handled even if they were ignored at the start, as SIGINT is for background commands of a shell.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> CliResult<Signals> {
        let listen = |kind| {
            signal(kind).map_err(|why| Failure::error(format!("cannot listen for signals: {why}")))
        };
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// The first signal asks the server to stop. After that, Ctrl-C stops it at once, and another request (such as from
    /// `muster down`) changes nothing: requests in progress are finished. Both are safe: what was acknowledged is on
    /// disk.
    async fn shutdown(mut self, talk: Talk) {
        self.next().await;
        talk.say("stopping once the requests in progress are finished; Ctrl-C stops at once");
        tokio::spawn(async move {
            self.interrupt.recv().await;
            if let Some(log) = &talk.log {
                log.flush(HURRIED_LINES_WITHIN);
            }
            std::process::exit(1);
        });
    }
}

fn announce(ready: &Ready, talk: &Talk) {
    let mut out = std::io::stdout().lock();
    // Standard output may have been closed; the server runs anyway.
    let _ = writeln!(out, "ready {}", ready.url).and_then(|()| out.flush());
    let dir = shell_quoted(&ready.state_dir.to_string_lossy());
    talk.say(&format!("the state directory is {}", ready.state_dir.display()));
    let muster = program();
    talk.say(&format!(
        "to use this server from another shell: eval \"$({muster} env --state-dir {dir})\""
    ));
    for note in &ready.notes {
        talk.say(&format!("note: {note}"));
    }
    talk.say(&ready.machine);
    talk.say(&ready.isolation);
    if rustix::process::geteuid().is_root() {
        talk.say(
            "the server runs as root; with --user NAME, only the part that creates sandboxes does",
        );
    }
    talk.say("Ctrl-C stops the server");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_many_share_on_this_disk_is_a_part_of_it() {
        let bytes = |workspaces, is_elsewhere| {
            default_storage_bytes(workspaces, Path::new("/nowhere/yet"), is_elsewhere)
        };
        let half = DiskSpace::of(Path::new("/")).expect("a disk").bytes / 2;
        assert_eq!(bytes(Workspaces::ByHand, false), half.min(STORAGE_BYTES));
        assert_eq!(bytes(Workspaces::ByHand, true), STORAGE_BYTES, "in an object store");
        assert_eq!(bytes(Workspaces::OnFirstUse, false), STORAGE_BYTES, "one person's own disk");
    }
}
