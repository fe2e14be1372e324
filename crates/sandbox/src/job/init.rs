//! Process 1 of a job. It completes the sandbox from inside, starts the shell, reaps processes, and exits with the
//! shell.
//!
//! It is a fork of the spawner and never execs another program. Nothing of the job runs before it has given up all its
//! privileges. When it exits, the kernel kills all processes of the job before the exit becomes visible outside.

use std::convert::Infallible;
use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, set_parent_process_death_signal, setsid, wait};

use super::filter::Filter;
use super::mounts::Sources;
use super::protocol::{self, Request};
use super::{Ending, Event, USER, explain, privileges};
use crate::descriptors;

/// A message of this length fits into a packet, whatever its characters are.
const MESSAGE_CHARS_MAX: usize = 1000;

/// What the init inherits from its spawner.
pub(super) struct Inherited<'a> {
    pub(super) log: BorrowedFd<'a>,
    pub(super) line: BorrowedFd<'a>,
    /// Delivers one byte when our user namespace has its mapping. It is closed when the spawner dies.
    pub(super) lifeline: BorrowedFd<'a>,
    pub(super) filter: &'a Filter,
}

/// Runs the init until the job has ended. It never returns.
pub(super) fn run(request: &Request, inherited: &Inherited<'_>) -> ! {
    let code = match live(request, inherited) {
        Ok(ending) => {
            // If the agent has died there is no receiver; in that case the job is to end anyway.
            let _ = protocol::send(inherited.line, &Event::Ended(ending));
            0
        }
        Err(Failed::Orphaned) => 1,
        Err(Failed::Step(message)) => {
            // The message may quote text from a user.
            let message = message.chars().take(MESSAGE_CHARS_MAX).collect();
            let _ = protocol::send(inherited.line, &Event::NotStarted { message });
            1
        }
    };
    // SAFETY: exits this process at once, without running any cleanup that belongs to the spawner.
    unsafe { libc::_exit(code) }
}

enum Failed {
    Step(String),
    /// The spawner has died.
    Orphaned,
}

impl From<String> for Failed {
    fn from(message: String) -> Failed {
        Failed::Step(message)
    }
}

fn live(request: &Request, inherited: &Inherited<'_>) -> Result<Ending, Failed> {
    let Inherited { log, line, lifeline, filter } = *inherited;
    let kept = &mut [log.as_raw_fd(), line.as_raw_fd(), lifeline.as_raw_fd()];
    explain(descriptors::close_all_but(kept), || "close_range".into(), "")?;
    // The byte means that our users are mapped.
    if !matches!(rustix::io::read(lifeline, &mut [0; 1]), Ok(1)) {
        return Err(Failed::Orphaned);
    }
    super::join_group(&request.launch, log);
    privileges::prefer_as_oom_victim()?;
    let sources = Sources::take(&request.launch)?;
    privileges::become_user((USER, USER), request.has_range)?;
    sources.enter(&request.launch)?;
    privileges::lock_root_out()?;
    privileges::bar_capabilities()?;
    privileges::drop_capabilities()?;
    filter.apply()?;
    // A change of user resets this, so it comes last. The lifeline shows whether the spawner died before that.
    explain(
        set_parent_process_death_signal(Some(Signal::KILL)),
        || "prctl(PR_SET_PDEATHSIG)".into(),
        "",
    )?;
    privileges::become_opaque()?;
    let signals = explain(signals(), || "signalfd".into(), "")?;
    let shell = start_shell(request, log)?;
    explain(protocol::send(line, &Event::Started), || "report the start".into(), "")?;
    watch(shell, &signals, lifeline)
}

/// Signals have been blocked since before the fork; from now on they can be read.
fn signals() -> io::Result<OwnedFd> {
    // SAFETY: the first call initializes the set before it is used; the descriptor is new and only ours.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::sigaddset(&mut set, libc::SIGTERM);
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

fn watch(shell: Pid, signals: &OwnedFd, lifeline: BorrowedFd<'_>) -> Result<Ending, Failed> {
    loop {
        let mut fds = [
            PollFd::new(signals, PollFlags::IN),
            PollFd::from_borrowed_fd(lifeline, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Failed::Step(format!("poll: {error}"))),
        }
        if !fds[1].revents().is_empty() {
            return Err(Failed::Orphaned);
        }
        while let Some(signal) = next_signal(signals) {
            if signal == libc::SIGTERM.cast_unsigned() {
                // Signals every process in our PID namespace except this one.
                // SAFETY: takes numbers only; we are process 1, so the signal stays within the job.
                unsafe { libc::kill(-1, libc::SIGTERM) };
            }
        }
        // One signal may report several ended processes.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == shell {
                return Ok(match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Ending::Code(code),
                    (None, signal) => Ending::Signal(signal.unwrap_or(libc::SIGKILL)),
                });
            }
        }
    }
}

fn next_signal(signals: &OwnedFd) -> Option<u32> {
    let mut info = [0; size_of::<libc::signalfd_siginfo>()];
    let length = rustix::io::read(signals, &mut info).ok()?;
    // The structure starts with the signal number.
    let number: [u8; 4] = info[..length].get(..4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(number))
}

/// Starts the shell, and returns once it is running.
fn start_shell(request: &Request, log: BorrowedFd<'_>) -> Result<Pid, String> {
    let program = Program::new(request)?;
    let (failure, failing) =
        explain(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC), || "pipe2".into(), "")?;
    // SAFETY: this process has one thread, so its child may do anything that it may do.
    let child = match unsafe { libc::fork() } {
        -1 => return explain(Err(io::Error::last_os_error()), || "fork".into(), ""),
        0 => {
            let Err(message) = become_shell(request, &program, log);
            let _ = rustix::io::write(&failing, message.as_bytes());
            // SAFETY: as in `run`.
            unsafe { libc::_exit(127) }
        }
        child => Pid::from_raw(child).expect("a child has a PID"),
    };
    drop(failing);
    let mut message = String::new();
    // A shell that starts successfully closes the pipe without writing to it.
    let _ = std::fs::File::from(failure).read_to_string(&mut message);
    if message.is_empty() { Ok(child) } else { Err(message) }
}

/// The arguments of `execve`.
pub(super) struct Program {
    arguments: [CString; 3],
    variables: Vec<CString>,
}

impl Program {
    pub(super) fn new(request: &Request) -> Result<Program, String> {
        let text = |what: &str, text: String| {
            CString::new(text).map_err(|_| format!("{what} contains a zero byte"))
        };
        let variables = request.launch.variables.iter();
        Ok(Program {
            arguments: [
                c"/bin/sh".into(),
                c"-c".into(),
                text("the command", request.launch.command.clone())?,
            ],
            variables: variables
                .map(|(name, value)| text(&format!("variable {name:?}"), format!("{name}={value}")))
                .collect::<Result<_, _>>()?,
        })
    }
}

pub(super) fn become_shell(
    request: &Request,
    program: &Program,
    log: BorrowedFd<'_>,
) -> Result<Infallible, String> {
    explain(setsid(), || "setsid".into(), "")?;
    privileges::set_limits(&request.launch.limits)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let null = explain(std::fs::File::open("/dev/null"), || "open /dev/null".into(), "")?;
    explain(rustix::stdio::dup2_stdin(null.as_fd()), || "dup2".into(), "")?;
    explain(rustix::stdio::dup2_stdout(log), || "dup2".into(), "")?;
    explain(rustix::stdio::dup2_stderr(log), || "dup2".into(), "")?;
    let pointers = |texts: &[CString]| {
        let ends = [std::ptr::null()];
        texts.iter().map(|text| text.as_ptr()).chain(ends).collect::<Vec<_>>()
    };
    let (arguments, variables) = (pointers(&program.arguments), pointers(&program.variables));
    // SAFETY: the sets are initialized before they are used; both lists end with a null pointer and live until the
    // call. Our own descriptors are closed by `execve`, because all of them were opened that way.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::execve(arguments[0], arguments.as_ptr(), variables.as_ptr());
    }
    let help = "the command and each variable may take at most 128 KiB, and 2 MiB together";
    let error = io::Error::last_os_error();
    let help = if error.raw_os_error() == Some(libc::E2BIG) { help } else { "" };
    explain(Err(error), || "execve /bin/sh".into(), help)
}
