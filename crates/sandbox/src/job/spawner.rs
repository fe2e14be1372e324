//! The process that forks jobs. It has one thread and holds no secrets, and only waits for requests.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use rustix::pipe::PipeFlags;
use rustix::process::{
    Pid, Signal as KernelSignal, WaitId, WaitIdOptions, getpid, getppid, pidfd_send_signal,
    set_parent_process_death_signal, setsid, waitid,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::filter::Filter;
use super::init::{self, Inherited};
use super::protocol::{self, Attachments, Request};
use super::shared::{self, Shared};
use super::users::{Users, hand_over};
use super::{Event, Launch, LaunchError, Line, Signal, USER, explain, privileges};
use crate::descriptors;
use crate::network::JobNetwork;

const NO_NAMESPACES: &str = "the kernel refuses new namespaces; check /proc/sys/user/max_user_namespaces, \
    kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns";
/// A spawner that accepts no launch for this long never will.
const SEND_WITHIN: Duration = Duration::from_secs(5);

/// The agent's end of the spawner. Dropping it kills all jobs and ends the spawner.
#[derive(Debug)]
pub struct Spawner {
    socket: OwnedFd,
    users: Users,
}

impl Spawner {
    /// Forks the spawner. Call it on the main thread, before any other thread is started and any secret is read.
    pub fn start() -> io::Result<Spawner> {
        let users = Users::here()?;
        let filter = Filter::new().map_err(io::Error::other)?;
        let (ours, theirs) = pair(SocketFlags::CLOEXEC)?;
        sockopt::set_socket_timeout(&ours, sockopt::Timeout::Send, Some(SEND_WITHIN))?;
        let agent = getpid();
        // SAFETY: there is no other thread that could hold a lock in the child.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(ours);
                let _ = serve(agent, &theirs, &filter);
                // SAFETY: exits the child at once, without running the agent's cleanup.
                unsafe { libc::_exit(0) }
            }
            _ => Ok(Spawner { socket: ours, users }),
        }
    }

    /// Returns a handle that shows later whether the spawner is still alive.
    pub fn pulse(&self) -> io::Result<Pulse> {
        Ok(Pulse { socket: self.socket.try_clone()? })
    }

    /// Starts a job whose output goes to `log`, in its own network if it has one, and otherwise in the node's. The line
    /// reports whether the start succeeded.
    pub fn launch(
        &self,
        launch: Launch,
        log: &File,
        network: Option<&JobNetwork>,
    ) -> Result<Line, LaunchError> {
        let (has_range, outside) = (self.users.has_range(), self.users.next());
        if has_range {
            hand_over(&launch.own_dir, outside)?;
            // The job may open its log as /dev/stdout.
            let path = || "its log".into();
            std::os::unix::fs::fchown(log, Some(outside.0), Some(outside.1))
                .map_err(|source| LaunchError::HandOver { path: path(), source })?;
        }
        let request = Request { launch, outside, has_range };
        let (ours, theirs) =
            pair(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).map_err(LaunchError::Spawner)?;
        let network = network.map(JobNetwork::namespace);
        protocol::send_launch(self.socket.as_fd(), &request, log.as_fd(), theirs.as_fd(), network)?;
        Ok(Line { socket: ours })
    }
}

/// Shows whether a spawner is alive.
#[derive(Debug)]
pub struct Pulse {
    socket: OwnedFd,
}

impl Pulse {
    /// Returns true if the spawner has died. It waits a moment, because the lines of its jobs may be closed just before
    /// its own end is visible.
    pub fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
        let moment = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        // The spawner is a child of the agent, so SIGCHLD for its death interrupts this very call.
        let asked = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&moment)));
        asked.is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }
}

fn pair(flags: SocketFlags) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// A job as its spawner knows it.
struct Job {
    /// The init of the job, or its shell if the job shares its node.
    init: OwnedFd,
    /// `None` once the agent has dropped its end; the job then only has to be killed.
    line: Option<OwnedFd>,
    kind: Kind,
}

enum Kind {
    Sandboxed {
        /// Held but never written to again: the init exits when this is closed.
        _lifeline: OwnedFd,
    },
    Shared(Shared),
}

impl Job {
    fn signal(&self, signal: KernelSignal) {
        match &self.kind {
            // This fails only if the init has just ended.
            Kind::Sandboxed { .. } => drop(pidfd_send_signal(&self.init, signal)),
            Kind::Shared(shared) => shared.signal(signal),
        }
    }

    fn tell(&self, event: &Event) {
        if let Some(line) = &self.line {
            let _ = protocol::send(line.as_fd(), event);
        }
    }

    /// Returns the descriptor, other than its init and its line, that has news when its other end is closed.
    fn other(&self) -> Option<&File> {
        match &self.kind {
            Kind::Sandboxed { .. } => None,
            Kind::Shared(shared) => shared.failure(),
        }
    }

    /// Reaps the job. When this returns, every process that it started has ended.
    fn collect(&self) {
        let init = || WaitId::PidFd(self.init.as_fd());
        while matches!(waitid(init(), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
    }
}

/// Runs the spawner until the agent's end of the socket is closed.
fn serve(agent: Pid, socket: &OwnedFd, filter: &Filter) -> Result<(), String> {
    // A terminal sends its signals to the agent's process group, and only the agent decides which jobs end.
    explain(setsid(), || "setsid".into(), "")?;
    explain(descriptors::close_all_but(&mut [socket.as_raw_fd()]), || "close_range".into(), "")?;
    block_signals();
    explain(set_parent_process_death_signal(Some(KernelSignal::KILL)), || "prctl".into(), "")?;
    if getppid() != Some(agent) {
        return Ok(());
    }
    // Once here instead of in every job that shares its node. The others have a user namespace of their own, in which
    // they do this themselves. Without the right to do it, no job can share the node.
    let barred = privileges::bar_capabilities();
    let mut jobs: Vec<Job> = Vec::new();
    loop {
        let (has_launch, busy) = look(socket, &jobs)?;
        // In reverse order, because removing a job moves only those after it.
        for index in busy.into_iter().rev() {
            if attend(&mut jobs[index]) {
                jobs.swap_remove(index);
            }
        }
        if !has_launch {
            continue;
        }
        match protocol::receive_launch(socket.as_fd()) {
            Ok(Some(parcel)) => jobs.extend(receive(parcel, filter, &barred)),
            Ok(None) => break,
            // One launch was malformed; its sender sees that its line is closed.
            Err(_) => {}
        }
    }
    for job in &jobs {
        job.signal(KernelSignal::KILL);
    }
    jobs.iter().for_each(Job::collect);
    Ok(())
}

/// Waits for something to do: a launch, or jobs (by index) that have news.
fn look(socket: &OwnedFd, jobs: &[Job]) -> Result<(bool, Vec<usize>), String> {
    let mut fds = vec![PollFd::new(socket, PollFlags::IN)];
    for job in jobs {
        fds.push(PollFd::new(&job.init, PollFlags::IN));
        // Polling a closed line would return at once every time.
        fds.push(PollFd::new(job.line.as_ref().unwrap_or(&job.init), PollFlags::IN));
        fds.push(match job.other() {
            // A closed end is reported in any case.
            Some(other) => PollFd::new(other, PollFlags::empty()),
            None => PollFd::new(&job.init, PollFlags::IN),
        });
    }
    match poll(&mut fds, None) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok((false, Vec::new())),
        error => return explain(error.map(|_| (false, Vec::new())), || "poll".into(), ""),
    }
    let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    let each = fds[1..].chunks(3).enumerate();
    let busy = each.filter(|(_, fds)| fds.iter().any(is_ready)).map(|(index, _)| index);
    Ok((is_ready(&fds[0]), busy.collect()))
}

/// Forwards signals. Returns true if the job has ended; its line is then closed after the last event.
fn attend(job: &mut Job) -> bool {
    let heard = job.line.as_ref().map(|line| protocol::receive::<Signal>(line.as_fd()));
    match heard {
        Some(Ok(Some(Signal::Terminate))) => job.signal(KernelSignal::TERM),
        Some(Ok(Some(Signal::Kill))) => job.signal(KernelSignal::KILL),
        Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
        // The agent dropped its end, or sent something that we cannot parse.
        Some(Ok(None) | Err(_)) => {
            job.signal(KernelSignal::KILL);
            job.line = None;
        }
        None => {}
    }
    report_start(job);
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let ended = match waitid(WaitId::PidFd(job.init.as_fd()), options) {
        Ok(None) | Err(Errno::INTR) => return false,
        ended => ended,
    };
    let status = ended.ok().flatten();
    match &mut job.kind {
        Kind::Sandboxed { .. } if status.is_some_and(|status| status.killed()) => {
            job.tell(&Event::Killed);
        }
        Kind::Sandboxed { .. } => {}
        Kind::Shared(shared) => {
            let (start, end) = (shared.start(), shared.end(status));
            let is_started = !matches!(start, Some(Event::NotStarted { .. }));
            start.iter().chain(Some(&end).filter(|_| is_started)).for_each(|event| job.tell(event));
        }
    }
    true
}

/// Reports whether the shell runs, as soon as that is known.
fn report_start(job: &mut Job) {
    let Kind::Shared(shared) = &mut job.kind else { return };
    let is_known = shared.failure().is_some_and(|failure| {
        let mut fds = [PollFd::new(failure, PollFlags::empty())];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
    });
    if is_known && let Some(start) = shared.start() {
        job.tell(&start);
    }
}

/// `barred` tells whether we have barred the capabilities that a program could gain.
fn receive(parcel: Attachments, filter: &Filter, barred: &Result<(), String>) -> Option<Job> {
    let started = parcel.request().and_then(|request| match request.launch.shares_node {
        true => barred
            .clone()
            .and_then(|()| shared::fork(&request, &parcel, filter))
            .map(|(shell, shared)| (shell, Kind::Shared(shared))),
        false => fork(&request, &parcel, filter)
            .map(|(init, lifeline)| (init, Kind::Sandboxed { _lifeline: lifeline })),
    });
    match started {
        Ok((init, kind)) => Some(Job { init, line: Some(parcel.line), kind }),
        Err(message) => {
            let _ = protocol::send(parcel.line.as_fd(), &Event::NotStarted { message });
            None
        }
    }
}

/// Creates the init of a job. Returns a handle to it, and its lifeline.
fn fork(
    request: &Request,
    parcel: &Attachments,
    filter: &Filter,
) -> Result<(OwnedFd, OwnedFd), String> {
    let (lifeline, our_end) =
        explain(rustix::pipe::pipe_with(PipeFlags::CLOEXEC), || "pipe2".into(), "")?;
    let inherited = Inherited {
        log: parcel.log.as_fd(),
        line: parcel.line.as_fd(),
        lifeline: lifeline.as_fd(),
        filter,
    };
    let visit = parcel.network.as_ref().map(Visit::to).transpose()?;
    let cloned = clone_with(NAMESPACES);
    let Some((pid, init)) = explain(cloned, || "clone".into(), NO_NAMESPACES)? else {
        init::run(request, &inherited)
    };
    drop(visit);
    let told_who = map_users(pid, request)
        .and_then(|()| explain(rustix::io::write(&our_end, &[1]), || "write".into(), ""));
    match told_who {
        Ok(_) => Ok((init, our_end)),
        Err(message) => {
            let _ = pidfd_send_signal(&init, KernelSignal::KILL);
            let _ = waitid(WaitId::PidFd(init.as_fd()), WaitIdOptions::EXITED);
            Err(message)
        }
    }
}

/// Keeps the spawner in the network of the job that it is about to start. Dropping it returns to the node's network.
struct Visit {
    home: File,
}

impl Visit {
    fn to(network: &OwnedFd) -> Result<Visit, String> {
        let home =
            explain(File::open("/proc/self/ns/net"), || "open the node's network".into(), "")?;
        let moved = move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network));
        explain(moved, || "enter the job's network".into(), "")?;
        Ok(Visit { home })
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let network = Some(LinkNameSpaceType::Network);
        if move_into_link_name_space(self.home.as_fd(), network).is_err() {
            // Every later job would run in this job's network.
            std::process::abort();
        }
    }
}

const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// Like `fork`, but creates these namespaces. Returns `None` in the child.
pub(super) fn clone_with(namespaces: libc::c_int) -> io::Result<Option<(Pid, OwnedFd)>> {
    let flags = namespaces | libc::CLONE_PIDFD | libc::SIGCHLD;
    let mut pidfd: RawFd = -1;
    // SAFETY: without a separate stack and without shared memory the child is a copy of us, as with `fork`; we have one
    // thread. The kernel writes one descriptor, new and only ours, to where the third argument points.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) };
    match i32::try_from(pid).map_err(io::Error::other)? {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        // SAFETY: see above.
        pid => Ok(Pid::from_raw(pid).map(|pid| (pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))),
    }
}

/// Maps the job's only user to its user outside.
fn map_users(pid: Pid, request: &Request) -> Result<(), String> {
    let write = |file: &str, text: String| {
        let path = format!("/proc/{}/{file}", pid.as_raw_nonzero());
        let help =
            "the agent must be root in its node, or the only user that it maps must be itself";
        explain(std::fs::write(&path, text), || format!("write to {file}"), help)
    };
    let (user, group) = request.outside;
    if !request.has_range {
        // The kernel requires this from a process that is not root.
        write("setgroups", "deny".into())?;
    }
    write("uid_map", format!("{USER} {user} 1"))?;
    write("gid_map", format!("{USER} {group} 1"))
}

fn block_signals() {
    // SAFETY: the first call initializes the set before it is used.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::thread::JoinHandleExt as _;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_signal_does_not_make_a_dead_spawner_look_alive() {
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: the handler does nothing, and nothing else in this process uses this signal.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
        }
        let (ours, theirs) = pair(SocketFlags::CLOEXEC).expect("a pair of sockets");
        let asking = std::thread::spawn(move || Pulse { socket: ours }.is_gone());
        // The thread may not have called poll yet when the first signals arrive.
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(5));
            // SAFETY: the thread is not joined yet.
            assert_eq!(unsafe { libc::pthread_kill(asking.as_pthread_t(), libc::SIGUSR2) }, 0);
        }
        drop(theirs);
        assert!(asking.join().expect("the thread returns"));
    }
}
