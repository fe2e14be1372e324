//! One job inside a node: its own processes, files and user.
//!
//! A process with threads can fork only to become another program, and whoever holds a secret should not fork at
//! all. So an agent starts a [`Spawner`] first of all: a child with one thread, which makes every job from then on.
//! For each job the two share a [`Line`]. Who drops his end ends the job: an agent that dies takes all its jobs along
//! and leaves nothing to be found and removed.
//!
//! A job has namespaces of its own (user, pid, mount, ipc, uts). Its network is its node's, or one of its own where others
//! share the node ([`JobNetwork`](crate::network::JobNetwork)). Inside:
//!
//! * process 1 is a small init of ours ([`init`]); when it ends, by itself or by a signal from outside, the kernel
//!   kills whatever the job started, however it hid;
//! * the only user is [`USER`], and nobody is root. With a range of users each job is another one outside; with one
//!   user only, all jobs and the agent are that one outside, and the namespaces alone keep them apart;
//! * the files are the node's, read-only; writable are its folder ([`OWN`]), `/tmp` and `/dev/shm` ([`mounts`]);
//! * it has no capability, gains none, and is refused the system calls that only walls need ([`filter`]).
//!
//! Where asked for, jobs share the sandbox of their node instead ([`shared`]): then they have users, folders and `/tmp` of
//! their own, and see each other's processes.
//!
//! A wall that cannot be made fails the launch and says why. There is no half: whoever wants to run without walls
//! runs the command by himself.

pub(crate) mod filter;
mod init;
mod mounts;
mod privileges;
mod protocol;
mod shared;
mod spawner;
mod users;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::spawner::{Pulse, Spawner};

/// Where a job finds what is its own: its working folder, and room beside it, as many programs write to `../data`.
pub const OWN: &str = "/job";
/// Where a job finds its working folder.
pub const FOLDER: &str = "/job/wd";
/// The working folder in a job's own folder.
pub const WORK_NAME: &str = "wd";
/// The folder in a job's own folder that is also its `/tmp`.
pub const TMP_NAME: &str = "tmp";
/// Where a job finds what it reads.
pub const INPUTS: &str = "/inputs";
/// Where it finds whom to trust: the public CAs and the server's.
pub const CA_BUNDLE: &str = "/run/muster/ca-bundle.pem";
/// Who a job is, in its own eyes. Outside it is somebody else.
pub const USER: u32 = 1000;

/// What is to run, and what it may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// For `/bin/sh -c`.
    pub command: String,
    /// All of its environment.
    pub variables: BTreeMap<String, String>,
    /// Becomes [`OWN`]. It is handed over to the job's user, with the folders [`WORK_NAME`] and [`TMP_NAME`] in it.
    pub own_dir: PathBuf,
    /// Folders of the node that a job finds empty.
    pub hidden: Vec<PathBuf>,
    /// Becomes [`CA_BUNDLE`].
    pub ca_bundle: Option<PathBuf>,
    /// Becomes [`INPUTS`], read-only.
    #[serde(default)]
    pub inputs: Option<PathBuf>,
    /// The numbers of the node's GPUs that it may use: `/dev/nvidiaN`.
    #[serde(default)]
    pub gpus: Vec<u16>,
    pub limits: Limits,
    /// The folders of a control group that it moves into before anything of it runs.
    #[serde(default)]
    pub group: Vec<PathBuf>,
    /// It has no sandbox of its own, but is one of several users in its node's: see [`shared`].
    #[serde(default)]
    pub shares_node: bool,
}

/// What one job may use at most. What is `None` is limited by the node alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub processes: Option<u64>,
    /// Of one file.
    pub file_bytes: Option<u64>,
    /// Of `/dev/shm`, which is memory. By itself the kernel grants half of the machine's.
    pub shared_memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// To every process of the job, also to those that left its group or session.
    Terminate,
    /// Ends every process of the job.
    Kill,
}

/// What a line tells, in this order. After the last the line is closed: then no process of the job is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    Started,
    /// Instead of `Started`, and the last.
    NotStarted {
        message: String,
    },
    /// How the shell ended.
    Ended(Ending),
    /// Instead of `Ended`: the whole job was killed. If neither is told, the spawner is gone.
    Killed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    Code(i32),
    Signal(i32),
}

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("cannot give {path} to the job's user")]
    HandOver { path: PathBuf, source: io::Error },
    #[error(
        "a launch takes {bytes} bytes, at most {} are allowed; shorten the command or its variables",
        protocol::LAUNCH_BYTES_MAX
    )]
    TooLarge { bytes: usize },
    #[error("a launch cannot be written down")]
    NotText(#[source] serde_json::Error),
    #[error("the spawner, which starts all jobs, does not answer")]
    Spawner(#[source] io::Error),
}

/// One job, from outside. When it is dropped, the job is killed.
#[derive(Debug)]
pub struct Line {
    socket: OwnedFd,
}

impl Line {
    /// The next event, `None` when the line is closed. Never waits: fails with `WouldBlock` instead; the descriptor
    /// becomes readable when there is more.
    pub fn next(&self) -> io::Result<Option<Event>> {
        protocol::receive(self.socket.as_fd())
    }

    /// A job that is over takes no more signals, and that is no mistake.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match protocol::send(self.socket.as_fd(), &signal) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) =>
            {
                Ok(())
            }
            result => result,
        }
    }
}

impl AsRawFd for Line {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Moves this process into the job's group, in every hierarchy. The job runs without it, too, but whoever reads its log is
/// told. To be called while we are still who owns the group.
fn join_group(launch: &Launch, log: BorrowedFd<'_>) {
    for folder in &launch.group {
        // 0 is whoever writes it.
        if let Err(error) = std::fs::write(folder.join("cgroup.procs"), "0") {
            let text = format!(
                "muster: the cores and memory that this job asked for are not enforced: {}: {error}\n",
                shown(folder)
            );
            let _ = rustix::io::write(log, text.as_bytes());
            return;
        }
    }
}

/// A failed step: which one, why, and what helps if we know it.
fn told<T>(
    result: Result<T, impl Into<io::Error>>,
    step: impl FnOnce() -> String,
    help: &str,
) -> Result<T, String> {
    result.map_err(|error| {
        let error: io::Error = error.into();
        let separator = if help.is_empty() { "" } else { "; " };
        format!("{}: {error}{separator}{help}", step())
    })
}

fn shown(path: &Path) -> std::path::Display<'_> {
    path.display()
}
