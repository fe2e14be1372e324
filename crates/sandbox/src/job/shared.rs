//! A job that shares the sandbox of its node with the other jobs there, for those who would rather have many short ones
//! quickly: it has its own user, folder and `/tmp`, and none of the namespaces that keep processes out of sight.
//!
//! The spawner is its parent, without an init in between. What ends all of it is its user, whom no other job of the node
//! has at the same time: see [`Shared::end`].

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
use super::{Ending, Event, mounts, privileges, told};
use crate::descriptors;

/// What was killed is gone in an instant, unless it waits in the kernel.
const GONE_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);
/// To reach a job that strikes back.
const TRIES: u32 = 1000;

/// What the spawner has to know of such a job.
pub(super) struct Shared {
    user: u32,
    /// Until it is known whether it runs: closed without a word by a shell that does.
    failure: Option<fs::File>,
}

/// Starts the shell. Returns a hold on it.
pub(super) fn fork(
    request: &Request,
    parcel: &Attachments,
    filter: &Filter,
) -> Result<(OwnedFd, Shared), String> {
    if !request.has_range {
        return Err("jobs cannot share a node that has one user only; \
                    set job-sandbox = \"own\", or start the server as root"
            .into());
    }
    let program = Program::new(request)?;
    let (failure, failing) =
        told(rustix::pipe::pipe_with(PipeFlags::CLOEXEC), || "pipe2".into(), "")?;
    let cloned = told(super::spawner::clone_with(libc::CLONE_NEWNS), || "clone".into(), "")?;
    let Some((_, shell)) = cloned else {
        let Err(message) = become_job(request, parcel, filter, &program, &failing);
        let _ = rustix::io::write(&failing, message.as_bytes());
        // SAFETY: ends this process at once. Nothing that belongs to the spawner is cleaned up on its behalf.
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
    told(descriptors::close_all_but(kept), || "close_range".into(), "")?;
    super::join_group(&request.launch, parcel.log.as_fd());
    privileges::first_to_go_without_memory()?;
    mounts::settle_in_node(&request.launch)?;
    privileges::bar_capabilities()?;
    privileges::become_user(request.outside, request.has_range)?;
    privileges::drop_capabilities()?;
    filter.apply()?;
    told(set_parent_process_death_signal(Some(Signal::KILL)), || "prctl".into(), "")?;
    if getppid() != spawner {
        return Err("the spawner is gone".into());
    }
    become_shell(request, program, parcel.log.as_fd())
}

impl Shared {
    /// Becomes ready when it is known whether the shell runs.
    pub(super) fn failure(&self) -> Option<&fs::File> {
        self.failure.as_ref()
    }

    /// What there is to tell of its start, once. To be asked when [`Self::failure`] is ready, or the shell is over.
    pub(super) fn start(&mut self) -> Option<Event> {
        let mut message = String::new();
        let _ = self.failure.take()?.read_to_string(&mut message);
        Some(if message.is_empty() { Event::Started } else { Event::NotStarted { message } })
    }

    /// To every process of the job, also to those that left its group or session.
    pub(super) fn signal(&self, signal: Signal) {
        for _ in 0..TRIES {
            match signal_all_of(self.user, signal) {
                Ok(true) => return,
                // It is this user for a moment, and so within reach of what it is after.
                Ok(false) => {}
                // No process to be had, perhaps because the job has them all. It has to give some back first.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// The shell is over: so is all that it started.
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

/// Sends it from a process that becomes that user, who may signal himself and nobody else. The kernel lets no fork get
/// away from it: a child is either found, or not born. Says whether it got that far.
fn signal_all_of(user: u32, signal: Signal) -> io::Result<bool> {
    // SAFETY: the spawner has one thread, so its child may do whatever it may.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let user = Some(Uid::from_raw(user));
            let is_user = set_thread_res_uid(user, user, user).is_ok();
            if is_user {
                // SAFETY: takes numbers only. It leaves out this process, and all that are not this user's: with the
                // user it was before it gave up its capabilities.
                unsafe { libc::kill(-1, signal.as_raw()) };
            }
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(i32::from(!is_user)) }
        }
        child => Pid::from_raw(child).expect("a child has a number"),
    };
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            ended => return Ok(ended?.is_some_and(|(_, end)| end.exit_status() == Some(0))),
        }
    }
}

/// Corpses count as well: whose children they are collects them at once.
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
    fn nobody_has_processes_and_we_have() {
        assert!(!has_processes(1_999_999_999));
        assert!(has_processes(rustix::process::geteuid().as_raw()));
    }
}
