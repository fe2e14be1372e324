//! The first process of a node. It completes the sandbox from inside, starts the agent, and keeps running.
//!
//! It is a copy of the helper that never execs another program, so there is no other program to trust inside the node.
//! The node is alive as long as this process; when it ends, the kernel kills everything in the node.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions};

use super::root::{self, Root};
use super::{Doing, NodeError};
use crate::{descriptors, logs};

/// The largest size of a pipe, unless the host's root allows more.
const PIPE_MAX: usize = 1 << 20;
const PIECE: usize = 16 * 1024;

pub(super) struct Inside {
    pub root: Root,
    pub host_name: String,
    pub has_ranges: bool,
    pub hub: OwnedFd,
    /// The process that provides internet access ends when this is closed everywhere.
    pub leash: OwnedFd,
    /// The claims of this node, which are valid as long as these are open.
    pub claims: Vec<OwnedFd>,
    /// The file for the agent's output. It is on the host's own disk, so the agent does not get it.
    pub log: File,
    pub arguments: Vec<CString>,
}

/// Runs the first process of the node. It never returns.
pub(super) fn live(go: OwnedFd, report: OwnedFd, inside: Inside) -> ! {
    let code =
        match close_inherited(&go, &report, &inside).and_then(|()| begin(&go, &report, inside)) {
            // The helper died before the node was complete.
            Ok(None) => 0,
            Ok(Some(parent)) => {
                drop((go, report));
                parent.run()
            }
            Err(error) => {
                let _ = rustix::io::write(&report, error.describe().as_bytes());
                1
            }
        };
    // SAFETY: exits this process at once, without running its parent's cleanup.
    unsafe { libc::_exit(code) }
}

/// Closes what we inherited from the helper; otherwise its socket would seem to be open as long as we are alive.
fn close_inherited(go: &OwnedFd, report: &OwnedFd, inside: &Inside) -> Result<(), NodeError> {
    let null = File::open("/dev/null").doing("cannot open /dev/null")?;
    rustix::stdio::dup2_stdin(&null).doing("cannot replace the standard input")?;
    // Nothing here may own a descriptor that is closed below.
    drop(null);
    let mut kept = inside.root.descriptors();
    kept.extend([go.as_raw_fd(), report.as_raw_fd()]);
    let held = [inside.hub.as_raw_fd(), inside.leash.as_raw_fd(), inside.log.as_raw_fd()];
    kept.extend(held);
    kept.extend(inside.claims.iter().map(AsRawFd::as_raw_fd));
    descriptors::close_all_but(&mut kept).doing("cannot close inherited descriptors")
}

fn begin(go: &OwnedFd, report: &OwnedFd, inside: Inside) -> Result<Option<Parent>, NodeError> {
    let mut byte = [0];
    // Until the helper writes this byte, we have no users, no group and no network.
    if rustix::io::read(go, &mut byte).doing("cannot wait for the helper")? == 0 {
        return Ok(None);
    }
    rustix::process::setsid().doing("cannot start a session")?;
    become_root(inside.has_ranges)?;
    rustix::system::sethostname(inside.host_name.as_bytes()).doing("cannot set the host name")?;
    inside.root.enter()?;
    let signals = block_signals()?;
    let (said, says) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .doing("cannot create a pipe for the agent's output")?;
    // The agent's writes block until we have read them.
    rustix::fs::fcntl_setfl(&says, rustix::fs::OFlags::empty())
        .doing("cannot create a pipe for the agent's output")?;
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"muster-node".as_ptr()) };
    let agent = start_agent(report, &says, &inside.arguments)?;
    let mut held = inside.claims;
    held.extend([inside.hub, inside.leash]);
    Ok(Some(Parent { agent, signals, said, log: inside.log, _held: held }))
}

pub(super) fn become_root(has_ranges: bool) -> Result<(), NodeError> {
    // SAFETY: plain system calls; we have one thread, so no other thread keeps the old users.
    let done = unsafe {
        (!has_ranges || libc::setgroups(0, std::ptr::null()) == 0)
            && libc::setresgid(0, 0, 0) == 0
            && libc::setresuid(0, 0, 0) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        .doing("cannot become the node's root")
}

/// Blocks signals, which are read from this descriptor instead of being handled.
fn block_signals() -> Result<OwnedFd, NodeError> {
    // SAFETY: the set is on our stack and is filled before it is used; the new descriptor is only ours.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut()) == 0
            && let signals @ 0.. = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        {
            return Ok(OwnedFd::from_raw_fd(signals));
        }
    }
    Err(std::io::Error::last_os_error()).doing("cannot block signals")
}

fn start_agent(report: &OwnedFd, says: &OwnedFd, arguments: &[CString]) -> Result<Pid, NodeError> {
    // SAFETY: we have one thread; the child only makes system calls and then execs another program.
    let pid = unsafe { libc::fork() };
    match Pid::from_raw(pid) {
        Some(agent) if pid > 0 => Ok(agent),
        None => {
            let failed = become_agent(says, arguments);
            let _ = rustix::io::write(report, failed.describe().as_bytes());
            // SAFETY: as above.
            unsafe { libc::_exit(1) }
        }
        Some(_) => Err(std::io::Error::last_os_error()).doing("cannot start the agent"),
    }
}

/// Execs the agent. Returns only if that failed.
fn become_agent(says: &OwnedFd, arguments: &[CString]) -> NodeError {
    let error = match try_become_agent(says, arguments) {
        Ok(()) => std::io::Error::last_os_error(),
        Err(error) => error,
    };
    NodeError { what: "cannot start the agent".to_owned(), source: Some(error) }
}

fn try_become_agent(says: &OwnedFd, arguments: &[CString]) -> std::io::Result<()> {
    let null = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(says)?;
    rustix::stdio::dup2_stderr(says)?;
    rustix::process::setsid()?;
    descriptors::close_others_on_exec()?;
    let variables = [
        c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        c"LANG=C.UTF-8",
        c"HOME=/node",
    ];
    let pointers = |texts: &[&std::ffi::CStr]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let arguments: Vec<&std::ffi::CStr> = arguments.iter().map(|text| text.as_c_str()).collect();
    let (arguments, variables) = (pointers(&arguments), pointers(&variables));
    let program = CString::new(root::BINARY)?;
    // SAFETY: all strings and both null-terminated lists live until the call, which returns only if it failed.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
        libc::execve(program.as_ptr(), arguments.as_ptr(), variables.as_ptr());
    }
    Ok(())
}

/// The first process, once the agent is running.
struct Parent {
    agent: Pid,
    /// Delivers the signals that arrived.
    signals: OwnedFd,
    /// Delivers the agent's output.
    said: OwnedFd,
    log: File,
    /// What must be held open as long as the node is alive.
    _held: Vec<OwnedFd>,
}

impl Parent {
    /// Reaps every process of the node, forwards requests to terminate, writes the agent's log, and ends with the
    /// agent.
    fn run(&self) -> i32 {
        if let Ok(null) = File::open("/dev/null") {
            // The node must not hold the helper's own output open.
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
        let mut heard = Heard::Nothing;
        loop {
            let signals = PollFd::new(&self.signals, PollFlags::IN);
            let said = PollFd::new(&self.said, PollFlags::IN);
            // An agent that has closed its output would wake us all the time.
            let count = if heard == Heard::End { 1 } else { 2 };
            // This fails only if it is interrupted.
            let _ = poll(&mut [signals, said][..count], None);
            if heard != Heard::End {
                heard = self.read_output();
            }
            self.pass_on();
            while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
                if pid == self.agent {
                    self.drain_output();
                    let killed = || status.terminating_signal().map_or(1, |signal| 128 + signal);
                    return status.exit_status().unwrap_or_else(killed);
                }
            }
        }
    }

    /// Writes one chunk of the agent's output to its log. What does not fit on the host's disk is lost.
    fn read_output(&self) -> Heard {
        let mut piece = [0; PIECE];
        match rustix::io::read(&self.said, &mut piece) {
            Ok(0) => Heard::End,
            Ok(length) => {
                let _ = logs::append(&self.log, &piece[..length]);
                Heard::Words
            }
            Err(_) => Heard::Nothing,
        }
    }

    /// Reads what is left in the pipe. The number of reads is limited because other processes may hold the agent's
    /// output open and continue to write.
    fn drain_output(&self) {
        let mut pieces = PIPE_MAX / PIECE;
        while pieces > 0 && self.read_output() == Heard::Words {
            pieces -= 1;
        }
    }

    /// Asks the agent to end if we were asked to.
    fn pass_on(&self) {
        let mut signal = [0; size_of::<libc::signalfd_siginfo>()];
        while rustix::io::read(&self.signals, &mut signal).is_ok_and(|read| read == signal.len()) {
            // The structure starts with the signal number.
            if signal[..4] != libc::SIGCHLD.to_ne_bytes() {
                let _ = rustix::process::kill_process(self.agent, Signal::TERM);
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Words,
    Nothing,
    /// No process holds the other end any more.
    End,
}
