//! Runs a job inside a node, with its own processes, files and user.
//!
//! A process with threads can fork only to run another program, and a process that holds a secret should not fork at
//! all. An agent therefore starts a [`Spawner`] before anything else: a child process with one thread, which starts
//! every job from then on. The two share a [`Line`] for each job. If either end is dropped, the job is killed, so an
//! agent that dies takes all its jobs with it and leaves nothing behind to find and remove.
//!
//! A job has its own user, PID, mount, IPC and UTS namespaces. It uses its node's network, or one of its own if other
//! jobs share the node ([`JobNetwork`](crate::network::JobNetwork)). Inside:
//!
//! * Process 1 is a small init of ours ([`init`]). When it exits or is killed from outside, the kernel kills everything
//!   that the job started, however well it hid.
//! * The only user is [`USER`], and no process is root. If the node has a range of users, each job is a different user
//!   outside. If it has only one, all jobs and the agent are that user outside, and only the namespaces separate them.
//! * The files are the node's, read-only. The job's own folder ([`OWN`]), `/tmp` and `/dev/shm` are writable
//!   ([`mounts`]).
//! * The job has no capabilities and gains none, and the system calls that only sandboxes need are refused
//!   ([`filter`]).
//!
//! On request, jobs share the sandbox of their node instead ([`shared`]). They then have their own users, folders and
//! `/tmp`, but see each other's processes.
//!
//! If any part of the sandbox cannot be created, the launch fails with the reason. There are no partial sandboxes: a
//! caller that wants to run without one runs the command itself.

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

/// The path of a job's own folder, as the job sees it. It holds the working folder, and space beside it because many
/// programs write to `../data`.
pub const OWN: &str = "/job";
/// The path of a job's working folder, as the job sees it.
pub const FOLDER: &str = "/job/wd";
/// The working folder in a job's own folder.
pub const WORK_NAME: &str = "wd";
/// The folder in a job's own folder that is also its `/tmp`.
pub const TMP_NAME: &str = "tmp";
/// The path of a job's inputs, as the job sees it.
pub const INPUTS: &str = "/inputs";
/// The path of the trusted certificates, as the job sees it: the public CAs and the server's.
pub const CA_BUNDLE: &str = "/run/muster/ca-bundle.pem";
/// The user id of a job, as the job sees it. Outside it is a different user.
pub const USER: u32 = 1000;

/// What to run, and what it may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// For `/bin/sh -c`.
    pub command: String,
    /// The complete environment of the job.
    pub variables: BTreeMap<String, String>,
    /// Becomes [`OWN`]. It is handed over to the job's user, with the folders [`WORK_NAME`] and [`TMP_NAME`] in it.
    pub own_dir: PathBuf,
    /// Folders of the node that look empty to the job.
    pub hidden: Vec<PathBuf>,
    /// Becomes [`CA_BUNDLE`].
    pub ca_bundle: Option<PathBuf>,
    /// Becomes [`INPUTS`], read-only.
    #[serde(default)]
    pub inputs: Option<PathBuf>,
    /// The numbers of the node's GPUs that the job may use: `/dev/nvidiaN`.
    #[serde(default)]
    pub gpus: Vec<u16>,
    pub limits: Limits,
    /// The folders of a control group that the job joins before it runs anything.
    #[serde(default)]
    pub group: Vec<PathBuf>,
    /// The [count of processes](crate::cgroup::Group::process_count) of that group. No other job is in it.
    #[serde(default)]
    pub process_count: Option<PathBuf>,
    /// The job has no sandbox of its own but runs as a separate user in its node's: see [`shared`].
    #[serde(default)]
    pub shares_node: bool,
}

/// The most that one job may use. `None` means that only the node's limit applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub processes: Option<u64>,
    /// The largest size of one file.
    pub file_bytes: Option<u64>,
    /// The size of `/dev/shm`, which is memory. The kernel's default is half of the host's memory.
    pub shared_memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// Asks every process of the job to end, including those that left its process group or session.
    Terminate,
    /// Kills every process of the job.
    Kill,
}

/// What a line reports, in this order. After the last event the line is closed, and no process of the job is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    Started,
    /// Sent instead of `Started`, as the last event.
    NotStarted {
        message: String,
    },
    /// How the shell ended.
    Ended(Ending),
    /// Sent instead of `Ended` if the whole job was killed. If neither is sent, the spawner has died.
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
        "a launch takes {bytes} bytes, but at most {} are allowed; shorten the command or its variables",
        protocol::LAUNCH_BYTES_MAX
    )]
    TooLarge { bytes: usize },
    #[error("cannot serialize a launch")]
    NotText(#[source] serde_json::Error),
    #[error("the spawner, which starts all jobs, does not respond")]
    Spawner(#[source] io::Error),
}

/// A job, as seen from outside. Dropping it kills the job.
#[derive(Debug)]
pub struct Line {
    socket: OwnedFd,
}

impl Line {
    /// Returns the next event, or `None` once the line is closed. It never waits but fails with `WouldBlock`; the
    /// descriptor becomes readable when there is more.
    pub fn next(&self) -> io::Result<Option<Event>> {
        protocol::receive(self.socket.as_fd())
    }

    /// Sends a signal to the job. A job that has ended ignores it, which is not an error.
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

/// Moves this process into the job's group in every hierarchy. If that fails, the job runs anyway, its log contains a
/// note, and false is returned. Must be called while we are still the owner of the group.
fn join_group(launch: &Launch, log: BorrowedFd<'_>) -> bool {
    for folder in &launch.group {
        // 0 means the process that writes it.
        if let Err(error) = std::fs::write(folder.join("cgroup.procs"), "0") {
            let text = format!(
                "muster: the cores and memory that this job asked for are not enforced: {}: {error}\n",
                shown(folder)
            );
            let _ = rustix::io::write(log, text.as_bytes());
            return false;
        }
    }
    true
}

/// Describes a failed step: what it was, why it failed, and a remedy if there is one.
fn explain<T>(
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
