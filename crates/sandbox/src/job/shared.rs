//! Runs a job that shares the sandbox of its node with other jobs, for clusters with many short jobs. It has its own
//! user, folder and `/tmp`, but none of the namespaces that hide processes.
//!
//! The spawner is its parent, without an init in between. To end all its processes, we signal its user, which no other
//! job of the node has at the same time: see [`Shared::end`].

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{
    Pid, Signal, Uid, WaitIdStatus, WaitOptions, getppid, set_parent_process_death_signal, waitpid,
};
use rustix::thread::set_thread_res_uid;

use super::filter::Filter;
use super::init::{Program, become_shell};
use super::protocol::{Attachments, Request};
use super::{Ending, Event, explain, mounts, privileges};
use crate::descriptors;

/// A killed process ends at once, unless it is blocked in the kernel.
const GONE_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);
/// A job may kill our signalling process first, so the signal is sent up to this many times.
const SIGNALS_MAX: u32 = 1000;

/// What the spawner knows about such a job.
pub(super) struct Shared {
    user: u32,
    /// `Some` until it is known whether the shell runs. A shell that starts successfully closes it without writing to
    /// it.
    failure: Option<fs::File>,
}

/// Starts the shell and returns a handle to it.
pub(super) fn fork(
    request: &Request,
    parcel: &Attachments,
    filter: &Filter,
) -> Result<(OwnedFd, Shared), String> {
    if !request.has_range {
        return Err("jobs cannot share a node that has only one user; \
                    set job-sandbox = \"own\", or start the server as root"
            .into());
    }
    let program = Program::new(request)?;
    let (failure, failing) =
        explain(rustix::pipe::pipe_with(PipeFlags::CLOEXEC), || "pipe2".into(), "")?;
    let cloned = explain(super::spawner::clone_with(libc::CLONE_NEWNS), || "clone".into(), "")?;
    let Some((_, shell)) = cloned else {
        let Err(message) = become_job(request, parcel, filter, &program, &failing);
        let _ = rustix::io::write(&failing, message.as_bytes());
        // SAFETY: exits this process at once, without running any cleanup that belongs to the spawner.
        unsafe { libc::_exit(127) }
    };
    Ok((shell, Shared { user: request.outside.0, failure: Some(failure.into()) }))
}

fn become_job(
    request: &Request,
    parcel: &Attachments,
    filter: &Filter,
    program: &Program,
    failing: &OwnedFd,
) -> Result<std::convert::Infallible, String> {
    let spawner = getppid();
    let kept = &mut [parcel.log.as_raw_fd(), failing.as_raw_fd()];
    explain(descriptors::close_all_but(kept), || "close_range".into(), "")?;
    super::join_group(&request.launch, parcel.log.as_fd());
    privileges::prefer_as_oom_victim()?;
    mounts::enter_in_node(&request.launch)?;
    privileges::bar_capabilities()?;
    privileges::become_user(request.outside, request.has_range)?;
    privileges::drop_capabilities()?;
    filter.apply()?;
    explain(set_parent_process_death_signal(Some(Signal::KILL)), || "prctl".into(), "")?;
    if getppid() != spawner {
        return Err("the spawner has died".into());
    }
    become_shell(request, program, parcel.log.as_fd())
}

impl Shared {
    /// Becomes readable once it is known whether the shell runs.
    pub(super) fn failure(&self) -> Option<&fs::File> {
        self.failure.as_ref()
    }

    /// Returns the outcome of the start, once. Call it when [`Self::failure`] is readable or the shell has ended.
    pub(super) fn start(&mut self) -> Option<Event> {
        let mut message = String::new();
        let _ = self.failure.take()?.read_to_string(&mut message);
        Some(if message.is_empty() { Event::Started } else { Event::NotStarted { message } })
    }

    /// Signals every process of the job, including those that left its process group or session.
    pub(super) fn signal(&self, signal: Signal) {
        for _ in 0..SIGNALS_MAX {
            match signal_all_of(self.user, signal) {
                Ok(true) => return,
                // The signalling process has this user for a moment, so the job's processes can kill it.
                Ok(false) => {}
                // We cannot fork, perhaps because the job has used up all processes. Wait until some have ended.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Ends everything that the shell started, after the shell itself has ended.
    pub(super) fn end(&self, status: Option<WaitIdStatus>) -> Event {
        self.signal(Signal::KILL);
        let deadline = Instant::now() + GONE_WITHIN;
        while has_processes(self.user) && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
        }
        let code = status.as_ref().and_then(WaitIdStatus::exit_status);
        let signal = status.as_ref().and_then(WaitIdStatus::terminating_signal);
        match (code, signal) {
            (Some(code), _) => Event::Ended(Ending::Code(code)),
            (None, Some(libc::SIGKILL)) | (None, None) => Event::Killed,
            (None, Some(signal)) => Event::Ended(Ending::Signal(signal)),
        }
    }
}

/// Sends a signal from a process that becomes this user, and can therefore signal no other user's processes. The kernel
/// lets no fork escape: a child either receives the signal or is not created. Returns true if the signal was sent.
fn signal_all_of(user: u32, signal: Signal) -> io::Result<bool> {
    // SAFETY: the spawner has one thread, so its child may do anything that it may do.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let user = Some(Uid::from_raw(user));
            let is_user = set_thread_res_uid(user, user, user).is_ok();
            if is_user {
                // SAFETY: takes numbers only. It leaves out this process and those of all other users, including the
                // user it was before it gave up its capabilities.
                unsafe { libc::kill(-1, signal.as_raw()) };
            }
            // SAFETY: exits this process at once.
            unsafe { libc::_exit(i32::from(!is_user)) }
        }
        child => Pid::from_raw(child).expect("a child has a PID"),
    };
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            ended => return Ok(ended?.is_some_and(|(_, end)| end.exit_status() == Some(0))),
        }
    }
}

/// Zombies count as well; their parents reap them at once.
fn has_processes(user: u32) -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |name: &str| name.parse::<i32>().ok().and_then(Pid::from_raw).is_some();
    let mut processes = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_process));
    processes.any(|entry| entry.metadata().is_ok_and(|found| found.uid() == user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_by_their_user() {
        assert!(!has_processes(1_999_999_999));
        assert!(has_processes(rustix::process::geteuid().as_raw()));
    }
}
