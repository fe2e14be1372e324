//! Runs a job that shares the sandbox of its node with other jobs, for clusters with many short jobs. It has its own
//! user, folder and `/tmp`, but none of the namespaces that hide processes.
//!
//! The spawner is its parent, without an init in between. To end all its processes, we signal its user, which no other
//! job of the node has at the same time: see [`Shared::end`]. Most jobs leave no process behind. If they have a control
//! group of their own, that is certain and costs little to find out: see [`Shared::has_none`].

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
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
use super::users::signaller_of;
use super::{Ending, Event, explain, mounts, privileges};
use crate::cgroup::counts_none;
use crate::descriptors;

/// A killed process ends at once, unless it is blocked in the kernel.
const GONE_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);
/// Forking may fail for a while, so sending a signal is tried up to this many times.
const SIGNALS_MAX: u32 = 1000;

/// What the spawner knows about such a job.
pub(super) struct Shared {
    user: u32,
    /// `Some` until it is known whether the shell runs. A shell that starts successfully closes it without writing a
    /// message to it.
    failure: Option<fs::File>,
    /// The count of processes of the group that the job was asked to join.
    process_count: Option<PathBuf>,
    /// Whether it did join the group, as far as is known.
    has_joined: bool,
}

/// The shell sends this, right before it runs the job's command, if it has joined its group.
const JOINED: u8 = b'+';

/// Starts the shell and returns a handle to it. The spawner must have barred the capabilities that a program could gain.
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
    let user = request.outside.0;
    let process_count = request.launch.process_count.clone();
    Ok((shell, Shared { user, failure: Some(failure.into()), process_count, has_joined: false }))
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
    let has_joined = super::join_group(&request.launch, parcel.log.as_fd());
    privileges::prefer_as_oom_victim()?;
    mounts::enter_in_node(&request.launch)?;
    // The spawner has already barred the capabilities that a program could gain.
    privileges::lock_root_out()?;
    privileges::become_user(request.outside, request.has_range)?;
    privileges::drop_capabilities()?;
    filter.apply()?;
    explain(set_parent_process_death_signal(Some(Signal::KILL)), || "prctl".into(), "")?;
    if getppid() != spawner {
        return Err("the spawner has died".into());
    }
    if has_joined {
        explain(rustix::io::write(failing, &[JOINED]), || "write".into(), "")?;
    }
    become_shell(request, program, parcel.log.as_fd())
}

impl Shared {
    /// Its other end is closed once it is known whether the shell runs.
    pub(super) fn failure(&self) -> Option<&fs::File> {
        self.failure.as_ref()
    }

    /// Returns the outcome of the start, once. Call it when [`Self::failure`] is closed or the shell has ended.
    pub(super) fn start(&mut self) -> Option<Event> {
        let mut message = String::new();
        let _ = self.failure.take()?.read_to_string(&mut message);
        if let Some(rest) = message.strip_prefix(char::from(JOINED)) {
            self.has_joined = true;
            message = rest.to_owned();
        }
        Some(if message.is_empty() { Event::Started } else { Event::NotStarted { message } })
    }

    /// Signals every process of the job, including those that left its process group or session.
    pub(super) fn signal(&self, signal: Signal) {
        for _ in 0..SIGNALS_MAX {
            match signal_all_of(self.user, signal) {
                Ok(true) => return,
                // Another user may have ended it, such as the node's root.
                Ok(false) => {}
                // We cannot fork, perhaps because the job has used up all processes. Wait until some have ended.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Ends everything that the shell started, after the shell itself has been reaped and [`Self::start`] was called.
    pub(super) fn end(&self, status: Option<WaitIdStatus>) -> Event {
        if !self.has_none() {
            self.signal(Signal::KILL);
            let deadline = Instant::now() + GONE_WITHIN;
            while has_processes(self.user) && Instant::now() < deadline {
                std::thread::sleep(PAUSE);
            }
        }
        let code = status.as_ref().and_then(WaitIdStatus::exit_status);
        let signal = status.as_ref().and_then(WaitIdStatus::terminating_signal);
        match (code, signal) {
            (Some(code), _) => Event::Ended(Ending::Code(code)),
            (None, Some(libc::SIGKILL)) | (None, None) => Event::Killed,
            (None, Some(signal)) => Event::Ended(Ending::Signal(signal)),
        }
    }

    /// Returns true if it is certain that no process of the job is left, and that none can appear any more:
    ///
    /// 1. The shell was in the group before it ran anything of the job. It says so itself, over a pipe that it closes by
    ///    running the job's command, so no job can say it. If it could not join, it does not say so.
    /// 2. All processes of the job descend from the shell, and a new process is in the group of the process that
    ///    creates it. No other process can become the job's user.
    /// 3. A process leaves a group only by being moved. The job cannot do that, nor create a process in another group
    ///    (`clone3` is refused): both take the right to write to files of the groups. These belong to the node's root, and
    ///    the job is another user, has no capabilities, and gains none from any program.
    /// 4. The kernel counts a process before it exists and until it has been reaped: see [`counts_none`]. Only processes
    ///    can create others, so a count of 0 remains 0.
    ///
    /// Without a group or its count, nothing is certain.
    fn has_none(&self) -> bool {
        self.has_joined && self.process_count.as_deref().is_some_and(counts_none)
    }
}

/// Sends a signal from a process that acts as this user, and can therefore signal no other user's processes. The kernel
/// lets no fork escape: a child either receives the signal or is not created. Returns true if the signal was sent.
///
/// It is this user only in effect. Who may signal a process is decided by the process's real and saved users, and these
/// are one that no job has: otherwise the job could stop it, and we would wait for it for ever.
fn signal_all_of(user: u32, signal: Signal) -> io::Result<bool> {
    // SAFETY: the spawner has one thread, so its child may do anything that it may do.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let own = Uid::from_raw(signaller_of(user));
            let is_user = set_thread_res_uid(own, Uid::from_raw(user), own).is_ok();
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
    fn it_is_certain_that_nothing_is_left_only_if_all_of_it_was_counted() {
        let dir = tempfile::tempdir().unwrap();
        let count = dir.path().join("pids.current");
        let job = |has_joined, process_count| Shared {
            user: 1_999_999_999,
            failure: None,
            process_count,
            has_joined,
        };
        assert!(!job(true, Some(count.clone())).has_none(), "there is no count");
        for (text, is_none) in [("0\n", true), ("1\n", false), ("10\n", false), ("", false)] {
            fs::write(&count, text).unwrap();
            assert_eq!(job(true, Some(count.clone())).has_none(), is_none, "{text:?}");
            assert!(!job(false, Some(count.clone())).has_none(), "it is in another group");
        }
        assert!(!job(true, None).has_none(), "it has no group");
    }

    #[test]
    fn a_job_that_has_joined_its_group_says_so_before_its_command_runs() {
        for (text, has_joined, start) in [
            ("", false, Event::Started),
            ("+", true, Event::Started),
            ("+no", true, Event::NotStarted { message: "no".into() }),
            ("no", false, Event::NotStarted { message: "no".into() }),
        ] {
            let (failure, failing) = rustix::pipe::pipe().unwrap();
            rustix::io::write(&failing, text.as_bytes()).unwrap();
            drop(failing);
            let failure = Some(failure.into());
            let mut job = Shared { user: 0, failure, process_count: None, has_joined: false };
            assert_eq!(job.start(), Some(start));
            assert_eq!((job.start(), job.has_joined), (None, has_joined));
        }
    }

    #[test]
    fn processes_are_found_by_their_user() {
        assert!(!has_processes(1_999_999_999));
        assert!(has_processes(rustix::process::geteuid().as_raw()));
    }
}
