//! The root process for a server that does not run as root: it starts a helper each time the server calls, and does
//! nothing else.
//!
//! It runs by itself under systemd (`muster launcher`), or as the remaining process of a `muster up` that root started:
//! the server is then its child and runs as another user.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt as _, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use muster_providers::sandboxed::{HelperConfig, helper_command};
use muster_server::pki;
use muster_server::state_dir::StateDir;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    sockopt,
};
use rustix::process::{Pid, Signal};
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use uzers::os::unix::UserExt as _;

use crate::failure::{CliResult, Failure, quoted};
use crate::server_location::StateDirArg;

/// Nodes that root creates for another user are not stored where that user could replace them.
const NODES: &str = "/var/lib/muster-nodes";
/// Followed by the launcher's process id and an extension.
const SOCKETS: &str = "/run/muster-helper-";
/// More than one call at a time is a mistake.
const CALLS_WAITING: i32 = 4;

/// Create the sandboxes of nodes for a server that does not run as root
///
/// It runs as root, listens on a socket that only the server's user may call, and starts a helper for each call. See
/// packaging/muster-helper.service.
#[derive(Debug, clap::Args)]
#[command(hide = true, after_help = "Mutating: starts helpers, which create and delete nodes.")]
pub struct Args {
    #[command(flatten)]
    place: StateDirArg,
    /// User that the server runs as: a name or an id
    #[arg(long, value_name = "NAME")]
    user: String,
    /// Socket to listen on
    #[arg(long, value_name = "PATH")]
    listen: PathBuf,
    /// Folder for the nodes; only root may write to it
    #[arg(long, value_name = "DIR", default_value = NODES)]
    nodes: PathBuf,
    /// Additional folder of the host that nodes can read
    #[arg(long, value_name = "DIR")]
    show: Vec<PathBuf>,
}

pub fn run(args: Args) -> CliResult {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::refused("only root can create sandboxes for another user; use sudo"));
    }
    let account = Account::find(&args.user)?;
    let service = Service {
        state_dir: StateDir::new(&args.place.path()?),
        owner: account.uid,
        nodes: args.nodes,
        shown: args.show,
    };
    crate::block_on(async {
        let door = Door::open(&args.listen, &account)?;
        keep(door, service, None).await.map(drop)
    })
}

/// A user of this machine.
pub struct Account {
    pub name: String,
    pub uid: u32,
    gid: u32,
    pub home: PathBuf,
}

impl Account {
    pub fn find(text: &str) -> CliResult<Account> {
        let by_number = text.parse().ok().map(|uid: u32| {
            let known = uzers::get_user_by_uid(uid);
            // A container may run as a user id without a name.
            known.unwrap_or_else(|| uzers::User::new(uid, text, uid))
        });
        let user = by_number.or_else(|| uzers::get_user_by_name(text)).ok_or_else(|| {
            let name = quoted(text);
            Failure::refused(format!(
                "there is no user {name} on this machine; create it, or choose another"
            ))
        })?;
        Ok(Account {
            name: user.name().to_string_lossy().into_owned(),
            uid: user.uid(),
            gid: user.primary_group_id(),
            home: user.home_dir().to_owned(),
        })
    }
}

/// The arguments of a helper.
struct Service {
    state_dir: StateDir,
    owner: u32,
    nodes: PathBuf,
    shown: Vec<PathBuf>,
}

impl Service {
    /// Evaluated late, because the server has created its folder by the time it calls.
    fn command(&self) -> io::Result<Vec<OsString>> {
        let instance = self.state_dir.instance();
        let folder = self.nodes.join(&instance);
        std::fs::create_dir_all(&folder)?;
        let found = std::fs::symlink_metadata(&self.nodes)?;
        if found.uid() != 0 || !found.is_dir() || found.mode() & 0o022 != 0 {
            let message = format!(
                "{} must be a folder that belongs to root and that only root can write to",
                self.nodes.display()
            );
            return Err(io::Error::other(message));
        }
        Ok(helper_command(&HelperConfig {
            instance,
            nodes: folder.join("nodes"),
            logs: folder.join("logs"),
            relays: self.state_dir.relays(),
            binary: std::env::current_exe()?,
            ca_file: self.state_dir.pki().join(pki::CA_FILE),
            ca_bundle: Some(self.state_dir.pki().join(pki::BUNDLE_FILE)),
            shown: self.shown.clone(),
            environments: Some(self.state_dir.environments_shown()),
            owner: Some(self.owner),
        }))
    }
}

/// The socket that the server calls.
struct Door {
    listener: AsyncFd<OwnedFd>,
    path: PathBuf,
    owner: u32,
}

impl Door {
    fn open(path: &Path, account: &Account) -> CliResult<Door> {
        let failed =
            |why: io::Error| Failure::error(format!("cannot listen on {}: {why}", path.display()));
        let open = || {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            bind(&listener, &SocketAddrUnix::new(path)?)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
            std::os::unix::fs::chown(path, Some(account.uid), None)?;
            listen(&listener, CALLS_WAITING)?;
            // SAFETY: the listener is one descriptor, which stays open and unchanged until it is dropped.
            let listener = unsafe { AsyncFd::register(listener) };
            listener.map_err(io::Error::from)
        };
        let listener = open().map_err(failed)?;
        Ok(Door { listener, path: path.to_owned(), owner: account.uid })
    }

    /// The next call from the server's user or root.
    async fn called(&self) -> io::Result<OwnedFd> {
        loop {
            let mut ready = self.listener.readable().await?;
            let accept = |listener: &AsyncFd<OwnedFd>| {
                Ok(accept_with(listener.get_ref(), SocketFlags::CLOEXEC)?)
            };
            let Ok(accepted) = ready.try_io(accept) else { continue };
            let call = accepted?;
            let caller = sockopt::socket_peercred(&call)?.uid.as_raw();
            if caller == self.owner || caller == 0 {
                return Ok(call);
            }
            tracing::warn!(caller, "refused a call from another user; only the server may call");
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Serves calls until it is asked to stop, or the server that it started has ended.
async fn keep(
    door: Door,
    service: Service,
    mut server: Option<Child>,
) -> CliResult<Option<ExitStatus>> {
    let failed = |why: io::Error| Failure::error(format!("cannot run the launcher: {why}"));
    let mut helper: Option<Child> = None;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    loop {
        let heard = tokio::select! {
            call = door.called() => {
                // One helper at a time: a server that calls again has given up on the last one.
                if let Some(mut old) = helper.take() {
                    let _ = old.kill().await;
                }
                match call.and_then(|call| start(&service, call)) {
                    Ok(child) => helper = Some(child),
                    Err(error) => tracing::error!(%error, "cannot start a helper"),
                }
                continue;
            }
            ended = ended(&mut server) => return ended.map(Some).map_err(failed),
            _ = interrupt.recv() => Signal::INT,
            _ = terminate.recv() => Signal::TERM,
            _ = hangup.recv() => Signal::HUP,
        };
        match server.as_ref().and_then(Child::id) {
            // The launcher ends when the server has.
            Some(pid) => signal_process(pid, heard),
            None if heard == Signal::HUP => {}
            None => return Ok(None),
        }
    }
}

async fn ended(server: &mut Option<Child>) -> io::Result<ExitStatus> {
    match server {
        Some(server) => server.wait().await,
        None => std::future::pending().await,
    }
}

fn signal_process(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn start(service: &Service, call: OwnedFd) -> io::Result<Child> {
    let command = service.command()?;
    Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::from(call))
        .stdout(Stdio::null())
        .spawn()
}

/// Starts the same command again as another user, and keeps the root parts in this process. Returns the exit code of
/// the server.
pub fn split(account: &Account, state_dir: &Path, shown: Vec<PathBuf>) -> CliResult<ExitStatus> {
    check_state_dir(account, state_dir)?;
    remove_stale_sockets();
    let socket = PathBuf::from(format!("{SOCKETS}{}.sock", std::process::id()));
    let service = Service {
        state_dir: StateDir::new(state_dir),
        owner: account.uid,
        nodes: NODES.into(),
        shown,
    };
    crate::block_on(async {
        let door = Door::open(&socket, account)?;
        // By this name it can be executed even if the user may not read the folders above it.
        let mut command = std::process::Command::new("/proc/self/exe");
        command
            .arg0("muster")
            .args(std::env::args_os().skip(1))
            .env("MUSTER_HELPER_SOCKET", &socket)
            .env("MUSTER_STATE_DIR", state_dir)
            .env("HOME", &account.home)
            .env("USER", &account.name)
            .env("LOGNAME", &account.name)
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME")
            .gid(account.gid)
            .uid(account.uid);
        // SAFETY: one system call, in a child that is a copy of one thread.
        unsafe {
            command.pre_exec(|| {
                // If the launcher is killed, the server is meant.
                Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?)
            });
        }
        let mut command = Command::from(command);
        let server = command.spawn();
        let server = server.map_err(|why| {
            Failure::error(format!("cannot start the server as user {}: {why}", account.name))
        })?;
        let ended = keep(door, service, Some(server)).await?;
        Ok(ended.unwrap_or_else(|| ExitStatus::from_raw(0)))
    })
}

/// A launcher that was killed leaves its socket behind; no other program uses this prefix.
fn remove_stale_sockets() {
    for entry in std::fs::read_dir("/run").into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.to_str().and_then(|path| path.strip_prefix(SOCKETS)?.strip_suffix(".sock"));
        let launcher: Option<u32> = name.and_then(|pid| pid.parse().ok());
        if launcher.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Another user cannot use what root has created before.
fn check_state_dir(account: &Account, path: &Path) -> CliResult {
    match std::fs::metadata(path) {
        Ok(found) if found.uid() != account.uid => Err(Failure::refused(format!(
            "the state directory {} belongs to user {}, but the server is to run as {}; change its owner (chown -R {} {}), \
             choose another with --state-dir, or add --user root",
            path.display(),
            found.uid(),
            account.name,
            account.name,
            path.display(),
        ))),
        // If it cannot be created, the server itself reports that.
        _ => Ok(()),
    }
}
