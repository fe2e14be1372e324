//! Internet access for nodes. A process that remains in the host's network starts a `slirp4netns` for each node that
//! may have internet access.
//!
//! The helper itself is in the hub, which has no internet access, and without real root it could not leave it again.
//! Connections then come from this host: nothing is routed, nothing of the host is changed, and its loopback cannot be
//! reached. `slirp4netns` ends with the node, whose first process holds the other end of a pipe.

use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair,
};

use crate::context::cannot;
use crate::descriptors;

const PROGRAM: &str = "slirp4netns";
/// The device in the node and its name server. `slirp4netns` always uses these.
pub(crate) const DEVICE: &str = "tap0";
pub(crate) const RESOLVER: &str = "10.0.2.3";
const MESSAGE_MAX: usize = 4096;

#[derive(Debug)]
pub struct Slirp {
    socket: OwnedFd,
}

impl Slirp {
    /// Checks whether this host has what is needed. An error contains the remedy.
    pub fn check() -> Result<(), String> {
        let found = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).output();
        match found {
            Ok(done) if done.status.success() => Ok(()),
            Ok(_) => Err(format!("{PROGRAM} does not work here")),
            Err(_) => Err(format!("{PROGRAM} is not installed: apt install {PROGRAM}")),
        }
    }

    /// Forks the process. For a process with one thread, before it moves into the hub.
    pub fn start() -> io::Result<Slirp> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
        // SAFETY: we have one thread, so the child may do anything that we may.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(ours);
                serve(&theirs);
                // SAFETY: exits this process without running its parent's cleanup.
                unsafe { libc::_exit(0) }
            }
            _ => Ok(Slirp { socket: ours }),
        }
    }

    /// Gives the namespaces of this process internet access for as long as the other end of `leash` is open.
    pub fn let_out(&self, pid: u32, leash: BorrowedFd<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let leash = [leash];
        control.push(SendAncillaryMessage::ScmRights(&leash));
        let text = pid.to_string();
        sendmsg(&self.socket, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
        let mut answer = [0; MESSAGE_MAX];
        match recv(&self.socket, &mut answer, RecvFlags::empty())? {
            (0, _) => Err(io::ErrorKind::BrokenPipe.into()),
            (1, _) => Ok(()),
            (length, _) => {
                Err(io::Error::other(String::from_utf8_lossy(&answer[..length]).into_owned()))
            }
        }
    }
}

/// Serves requests until the helper has ended.
fn serve(socket: &OwnedFd) {
    let _ = descriptors::close_all_but(&mut [socket.as_raw_fd()]);
    // SAFETY: no memory is passed except a string of our own.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"muster-slirp".as_ptr()) };
    // Programs end with their nodes; the kernel reaps them.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    loop {
        let mut text = [0; MESSAGE_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(&mut text)];
        let length = match recvmsg(socket, slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) if message.bytes == 0 => return,
            Ok(message) => message.bytes,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        };
        let leash = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let pid = std::str::from_utf8(&text[..length]).ok().and_then(|text| text.parse().ok());
        let done = match (pid, leash) {
            (Some(pid), Some(leash)) => let_out(pid, &leash),
            _ => Err(io::ErrorKind::InvalidData.into()),
        };
        let answer = done.map_or_else(|error| format!("{error} "), |()| ".".to_owned());
        if send(socket, answer.as_bytes(), SendFlags::NOSIGNAL).is_err() {
            return;
        }
    }
}

fn let_out(pid: u32, leash: &OwnedFd) -> io::Result<()> {
    let (ready_in, ready_out) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let kept = [leash.as_raw_fd(), ready_out.as_raw_fd()];
    let mut command = Command::new(PROGRAM);
    command
        .args(["--configure", "--mtu=65520", "--disable-host-loopback"])
        .args(["--enable-sandbox", "--enable-seccomp"])
        .arg(format!("--exit-fd={}", kept[0]))
        .arg(format!("--ready-fd={}", kept[1]))
        .arg(format!("--userns-path=/proc/{pid}/ns/user"))
        .args(["--netns-type=path", &format!("/proc/{pid}/ns/net"), DEVICE])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: only system calls are made between fork and exec.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            for fd in kept {
                rustix::io::fcntl_setfd(BorrowedFd::borrow_raw(fd), rustix::io::FdFlags::empty())?;
            }
            Ok(())
        });
    }
    let mut child =
        command.spawn().map_err(|error| cannot(format_args!("start {PROGRAM}"), error))?;
    drop(ready_out);
    let mut byte = [0];
    match std::fs::File::from(ready_in).read(&mut byte) {
        Ok(1) => Ok(()),
        Ok(_) | Err(_) => {
            let _ = child.kill();
            Err(io::Error::other(format!("{PROGRAM} exited immediately")))
        }
    }
}
