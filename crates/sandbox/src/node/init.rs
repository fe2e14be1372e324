//! The first process of a node: makes the sandboxes from inside, starts the agent, and stays.
//!
//! It is a copy of the helper that has never left its code: there is no other program to trust in there. While it
//! lives the node lives; when it ends the kernel ends everything in the node.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions};

use super::root::{self, Root};
use super::{Doing, NodeError};
use crate::{descriptors, logs};

/// What a pipe can hold at most, unless the machine's root allows more.
const PIPE_MAX: usize = 1 << 20;
const PIECE: usize = 16 * 1024;

pub(super) struct Inside {
    pub root: Root,
    pub host_name: String,
    pub has_ranges: bool,
    pub hub: OwnedFd,
    /// What gives the node its way out ends when nobody holds this any more.
    pub leash: OwnedFd,
    /// What is this node's as long as these are held.
    pub claims: Vec<OwnedFd>,
    /// What the agent says goes there. It is on the machine's own disk, so the agent does not get it.
    pub log: File,
    pub arguments: Vec<CString>,
}

/// Never returns: this is the process now.
pub(super) fn live(go: OwnedFd, told: OwnedFd, inside: Inside) -> ! {
    let code = match leave_behind(&go, &told, &inside).and_then(|()| begin(&go, &told, inside)) {
        // Whoever made us is gone before we were whole.
        Ok(None) => 0,
        Ok(Some(parent)) => {
            drop((go, told));
            parent.stay()
        }
        Err(error) => {
            let _ = rustix::io::write(&told, error.told().as_bytes());
            1
        }
    };
    // SAFETY: ends this process without running what its parent had planned for its own end.
    unsafe { libc::_exit(code) }
}

/// What the helper holds open is not the node's: its socket would seem to live as long as we do.
fn leave_behind(go: &OwnedFd, told: &OwnedFd, inside: &Inside) -> Result<(), NodeError> {
    let null = File::open("/dev/null").doing("cannot open /dev/null")?;
    rustix::stdio::dup2_stdin(&null).doing("cannot replace the input")?;
    // Nothing here may own what is closed below.
    drop(null);
    let mut kept = inside.root.descriptors();
    kept.extend([go.as_raw_fd(), told.as_raw_fd()]);
    let held = [inside.hub.as_raw_fd(), inside.leash.as_raw_fd(), inside.log.as_raw_fd()];
    kept.extend(held);
    kept.extend(inside.claims.iter().map(AsRawFd::as_raw_fd));
    descriptors::close_all_but(&mut kept).doing("cannot close what is not ours")
}

fn begin(go: &OwnedFd, told: &OwnedFd, inside: Inside) -> Result<Option<Parent>, NodeError> {
    let mut byte = [0];
    // Until then we have no user, no group and no network.
    if rustix::io::read(go, &mut byte).doing("cannot wait for our users")? == 0 {
        return Ok(None);
    }
    rustix::process::setsid().doing("cannot begin a session")?;
    become_root(inside.has_ranges)?;
    rustix::system::sethostname(inside.host_name.as_bytes()).doing("cannot set the host's name")?;
    inside.root.enter()?;
    let signals = block_signals()?;
    let (said, says) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .doing("cannot make a pipe for what the agent says")?;
    // The agent waits until it is heard.
    rustix::fs::fcntl_setfl(&says, rustix::fs::OFlags::empty())
        .doing("cannot make a pipe for what the agent says")?;
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"muster-node".as_ptr()) };
    let agent = start_agent(told, &says, &inside.arguments)?;
    let mut held = inside.claims;
    held.extend([inside.hub, inside.leash]);
    Ok(Some(Parent { agent, signals, said, log: inside.log, _held: held }))
}

pub(super) fn become_root(has_ranges: bool) -> Result<(), NodeError> {
    // SAFETY: plain system calls; we have one thread, so nobody keeps the old users.
    let done = unsafe {
        (!has_ranges || libc::setgroups(0, std::ptr::null()) == 0)
            && libc::setresgid(0, 0, 0) == 0
            && libc::setresuid(0, 0, 0) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        .doing("cannot become the node's root")
}

/// They are waited for, not handled: whenever one came, there is something to read here.
fn block_signals() -> Result<OwnedFd, NodeError> {
    // SAFETY: the set lives on our stack, and is filled before it is used; a new descriptor is nobody else's.
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

fn start_agent(told: &OwnedFd, says: &OwnedFd, arguments: &[CString]) -> Result<Pid, NodeError> {
    // SAFETY: we have one thread; the child only calls the kernel and then becomes another program.
    let pid = unsafe { libc::fork() };
    match Pid::from_raw(pid) {
        Some(agent) if pid > 0 => Ok(agent),
        None => {
            let failed = become_agent(says, arguments);
            let _ = rustix::io::write(told, failed.told().as_bytes());
            // SAFETY: as above.
            unsafe { libc::_exit(1) }
        }
        Some(_) => Err(std::io::Error::last_os_error()).doing("cannot start the agent"),
    }
}

/// Returns only if it failed.
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
    // SAFETY: all texts and both lists, which end with null, live until the call; it returns only if it failed.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
        libc::execve(program.as_ptr(), arguments.as_ptr(), variables.as_ptr());
    }
    Ok(())
}

/// What the first process is, once the agent runs.
struct Parent {
    agent: Pid,
    /// Those that came.
    signals: OwnedFd,
    /// What the agent says.
    said: OwnedFd,
    log: File,
    /// What lives as long as the node.
    _held: Vec<OwnedFd>,
}

impl Parent {
    /// Collects whatever ends in the node, passes on the wish to end, writes down what the agent says, and ends with the agent.
    fn stay(&self) -> i32 {
        if let Ok(null) = File::open("/dev/null") {
            // The helper's own output is not the node's to hold open.
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
            // It fails only if it is interrupted.
            let _ = poll(&mut [signals, said][..count], None);
            if heard != Heard::End {
                heard = self.listen();
            }
            self.pass_on();
            while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
                if pid == self.agent {
                    self.hear_last_words();
                    let killed = || status.terminating_signal().map_or(1, |signal| 128 + signal);
                    return status.exit_status().unwrap_or_else(killed);
                }
            }
        }
    }

    /// Writes down one piece of what the agent has said. What does not fit on the machine's disk is lost.
    fn listen(&self) -> Heard {
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

    /// Others may hold the agent's output as well, and go on.
    fn hear_last_words(&self) {
        let mut pieces = PIPE_MAX / PIECE;
        while pieces > 0 && self.listen() == Heard::Words {
            pieces -= 1;
        }
    }

    /// Asks the agent to end if we were asked to.
    fn pass_on(&self) {
        let mut signal = [0; size_of::<libc::signalfd_siginfo>()];
        while rustix::io::read(&self.signals, &mut signal).is_ok_and(|read| read == signal.len()) {
            // Its number comes first.
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
    /// Nobody can say anything any more.
    End,
}
