//! The processes of one job: a shell in its own session, and whatever it starts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use muster_core::agent::Signal;
use muster_core::model::Exit;
use rustix::process::{
    Pid, PidfdFlags, getpid, getppid, kill_process_group, pidfd_open,
    set_parent_process_death_signal, setsid, test_kill_process_group,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::descriptors::close_others_on_exec;
use crate::kin::is_group_alive;

const LEFTOVERS_WITHIN: Duration = Duration::from_secs(1);

pub(crate) struct Launch<'a> {
    pub(crate) command: &'a str,
    pub(crate) work_dir: &'a Path,
    pub(crate) variables: BTreeMap<String, OsString>,
    pub(crate) log: File,
}

/// A running job. Dropping it kills its whole process group.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// The leader of its session and its group. Its PID is not reused until we reap it.
    leader: Pid,
    exited: AsyncFd<OwnedFd>,
    is_collected: bool,
}

impl Process {
    /// Must be called on a thread that lives as long as the agent: the kernel kills the job when the thread that
    /// started it ends.
    pub(crate) fn spawn(launch: Launch<'_>) -> io::Result<Process> {
        let agent = getpid();
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(launch.command)
            .current_dir(launch.work_dir)
            .env_clear()
            .envs(launch.variables)
            .stdin(Stdio::null())
            .stdout(launch.log.try_clone()?)
            .stderr(launch.log);
        // SAFETY: only system calls are made between fork and exec; nothing allocates or takes a lock.
        unsafe {
            command.pre_exec(move || {
                setsid()?;
                close_others_on_exec()?;
                set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
                // The agent may have died before the line above, and then that signal never comes.
                if getppid() != Some(agent) {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Ok(())
            });
        }
        Process::watch(command.spawn()?)
    }

    fn watch(mut child: Child) -> io::Result<Process> {
        let leader = Pid::from_child(&child);
        let exited =
            pidfd_open(leader, PidfdFlags::empty()).map_err(io::Error::from).and_then(|fd| {
                // SAFETY: an `OwnedFd` is open until it is dropped, and always the same one.
                Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
            });
        match exited {
            Ok(exited) => Ok(Process { child, leader, exited, is_collected: false }),
            Err(error) => {
                kill_group(leader);
                child.wait()?;
                Err(error)
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let signal = match signal {
            Signal::Terminate => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
        };
        signal_group(self.leader, signal);
    }

    /// Waits for the shell, then kills whatever it left behind in its group. May be dropped and called again.
    pub(crate) async fn wait(&mut self) -> io::Result<Exit> {
        let _ready = self.exited.readable().await?;
        // This comes before the shell is reaped: until then the group's number cannot be reused.
        kill_group(self.leader);
        let status = self.child.wait()?;
        self.is_collected = true;
        Ok(exit_of(status))
    }

    /// Waits until the killed processes of the group have ended, but not forever, because the kernel may block them.
    /// Until then the group's number is not reused, so checking it is harmless.
    pub(crate) async fn leftovers_gone(&self) {
        let deadline = Instant::now() + LEFTOVERS_WITHIN;
        // The cheap check comes first, because usually nothing is left at all.
        while test_kill_process_group(self.leader).is_ok()
            && is_group_alive(self.pid())
            && Instant::now() < deadline
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_collected {
            kill_group(self.leader);
            // This cannot fail for a child of ours, and there would be nothing to do about it.
            let _ = self.child.wait();
        }
    }
}

fn kill_group(leader: Pid) {
    signal_group(leader, rustix::process::Signal::KILL);
}

fn signal_group(leader: Pid, signal: rustix::process::Signal) {
    if let Err(error) = kill_process_group(leader, signal)
        && error != rustix::io::Errno::SRCH
    {
        tracing::error!(%error, ?leader, "cannot signal a job");
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => unreachable!("a process that has ended has exited or was killed"),
    }
}
