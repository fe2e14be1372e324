//! How a provider talks to the helper: one request at a time, each with a reply. A helper that died is started again,
//! or reconnected to if another process starts it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with, socketpair, sockopt,
};

use crate::protocol::{
    Enforcement, HelperReply, MESSAGE_MAX, NodePlan, Remains, Request, Seen, Server, Stop, Taken,
};

/// Creating a node takes milliseconds, but longer on a host that swaps.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("cannot start the helper {program}")]
    Start { program: String, source: io::Error },
    #[error("cannot reach the helper at {}; is it running? see `systemctl status muster-helper`", path.display())]
    Call { path: PathBuf, source: io::Error },
    #[error("the helper ended; its messages are in the server's log")]
    Ended(#[source] io::Error),
    #[error("the helper sent an invalid reply")]
    Nonsense,
    #[error("{message}")]
    Refused { message: String },
}

/// Where helpers come from.
#[derive(Debug, Clone)]
pub enum Helper {
    /// We start it: the program and its arguments. It gets the socket as its standard input.
    Started(Vec<OsString>),
    /// A process with more privileges starts it when we connect to this socket.
    Called(PathBuf),
}

/// The connection to one helper at a time, opened with the first request.
pub struct Link {
    helper: Helper,
    server: Server,
    running: Mutex<Option<Running>>,
}

struct Running {
    /// The process of the helper, if we started it.
    child: Option<Child>,
    socket: OwnedFd,
}

impl Link {
    pub fn new(helper: Helper, server: Server) -> Link {
        Link { helper, server, running: Mutex::new(None) }
    }

    /// Creates the node, unless other nodes hold what it needs.
    pub fn make(&self, plan: NodePlan) -> Result<Result<(), Taken>, LinkError> {
        match self.ask(&Request::Make(Box::new(plan)))? {
            HelperReply::Made { .. } => Ok(Ok(())),
            HelperReply::Taken(taken) => Ok(Err(taken)),
            _ => Err(LinkError::Nonsense),
        }
    }

    pub fn signal(&self, node: &str, signal: Stop) -> Result<(), LinkError> {
        self.ask(&Request::Signal { node: node.to_owned(), signal }).map(drop)
    }

    pub fn remove(&self, node: &str) -> Result<(), LinkError> {
        self.ask(&Request::Remove { node: node.to_owned() }).map(drop)
    }

    pub fn empty(&self, node: &str) -> Result<(), LinkError> {
        self.ask(&Request::Empty { node: node.to_owned() }).map(drop)
    }

    pub fn refill(&self, node: &str) -> Result<(), LinkError> {
        self.ask(&Request::Refill { node: node.to_owned() }).map(drop)
    }

    pub fn examine(&self, node: &str) -> Result<Remains, LinkError> {
        match self.ask(&Request::Examine { node: node.to_owned() })? {
            HelperReply::Remains(remains) => Ok(*remains),
            _ => Err(LinkError::Nonsense),
        }
    }

    pub fn enforcement(&self) -> Result<Enforcement, LinkError> {
        match self.ask(&Request::Enforcement)? {
            HelperReply::Enforcement(enforcement) => Ok(enforcement),
            _ => Err(LinkError::Nonsense),
        }
    }

    pub fn list(&self) -> Result<Vec<Seen>, LinkError> {
        let mut all: Vec<Seen> = Vec::new();
        loop {
            let after = all.last().map(|seen| seen.node.clone()).unwrap_or_default();
            match self.ask(&Request::List { after })? {
                HelperReply::Nodes(seen) if seen.is_empty() => return Ok(all),
                HelperReply::Nodes(mut seen) => all.append(&mut seen),
                _ => return Err(LinkError::Nonsense),
            }
        }
    }

    /// Sends a request, which may be repeated safely because it describes a desired state rather than an action.
    fn ask(&self, request: &Request) -> Result<HelperReply, LinkError> {
        let text = serde_json::to_vec(request).map_err(|_| LinkError::Nonsense)?;
        let mut running = self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut is_second = false;
        loop {
            let helper = match &mut *running {
                Some(helper) => helper,
                None => running.insert(self.start()?),
            };
            match helper.ask(&text) {
                Ok(HelperReply::Failed { message }) => return Err(LinkError::Refused { message }),
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    if let Some(helper) = running.take() {
                        helper.end();
                    }
                    if is_second {
                        return Err(LinkError::Ended(error));
                    }
                    is_second = true;
                }
            }
        }
    }

    fn start(&self) -> Result<Running, LinkError> {
        let (child, socket) = match &self.helper {
            Helper::Started(command) => {
                let program = command.first().cloned().unwrap_or_default();
                let failed = |source| {
                    let program = program.to_string_lossy().into_owned();
                    LinkError::Start { program, source }
                };
                let (child, socket) = start(&program, &command[1..]).map_err(failed)?;
                (Some(child), socket)
            }
            Helper::Called(path) => {
                let failed = |source| LinkError::Call { path: path.clone(), source };
                (None, call(path).map_err(failed)?)
            }
        };
        let mut running = Running { child, socket };
        let begin = serde_json::to_vec(&Request::Begin(self.server.clone()));
        let begun = begin.map_err(io::Error::from).and_then(|begin| running.ask(&begin));
        match begun {
            Ok(HelperReply::Done) => Ok(running),
            other => {
                running.end();
                Err(match other {
                    Ok(HelperReply::Failed { message }) => LinkError::Refused { message },
                    Ok(_) => LinkError::Nonsense,
                    Err(error) => LinkError::Ended(error),
                })
            }
        }
    }
}

fn start(program: &OsStr, arguments: &[OsString]) -> io::Result<(Child, OwnedFd)> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
    be_patient(&ours)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::from(theirs)).stdout(Stdio::null());
    Ok((command.spawn()?, ours))
}

fn call(path: &Path) -> io::Result<OwnedFd> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    be_patient(&socket)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn be_patient(socket: &OwnedFd) -> io::Result<()> {
    Ok(sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, Some(ANSWER_WITHIN))?)
}

impl Running {
    fn ask(&mut self, text: &[u8]) -> io::Result<HelperReply> {
        send(&self.socket, text, SendFlags::NOSIGNAL)?;
        let mut message = vec![0; MESSAGE_MAX];
        let length = loop {
            match recv(&self.socket, &mut message, RecvFlags::empty()) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((length, _)) => break length,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        Ok(serde_json::from_slice(&message[..length])?)
    }

    /// Ends the helper. It ends by itself when its socket is closed, unless it hangs. A helper that we did not start is
    /// ended by the process that started it, when we connect again.
    fn end(self) {
        if let Some(mut child) = self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(Running { child, socket }) = running.take() {
            drop(socket);
            if let Some(mut child) = child {
                let _ = child.wait();
            }
        }
    }
}
