//! How a provider asks the helper: one question at a time, each answered. A helper that died is started again.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt,
};

use crate::protocol::{Answer, MESSAGE_MAX, NodePlan, Request, Seen, Stop, Walls};

/// A node takes milliseconds; a machine that swaps takes longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("cannot start the helper {program}")]
    Start { program: String, source: io::Error },
    #[error("the helper ended; what it said is in the server's log")]
    Ended(#[source] io::Error),
    #[error("the helper answered with nonsense")]
    Nonsense,
    #[error("{message}")]
    Refused { message: String },
}

/// A helper that we start ourselves, and again when it is gone.
pub struct Link {
    /// The program and its arguments.
    command: Vec<std::ffi::OsString>,
    running: Mutex<Option<Running>>,
}

struct Running {
    child: Child,
    socket: OwnedFd,
}

impl Link {
    /// `command` gets the socket as its standard input. It is started by the first question.
    pub fn new(command: Vec<std::ffi::OsString>) -> Link {
        Link { command, running: Mutex::new(None) }
    }

    pub fn make(&self, plan: NodePlan) -> Result<(), LinkError> {
        self.ask(&Request::Make(Box::new(plan))).map(drop)
    }

    pub fn signal(&self, node: &str, signal: Stop) -> Result<(), LinkError> {
        self.ask(&Request::Signal { node: node.to_owned(), signal }).map(drop)
    }

    pub fn remove(&self, node: &str) -> Result<(), LinkError> {
        self.ask(&Request::Remove { node: node.to_owned() }).map(drop)
    }

    pub fn walls(&self) -> Result<Walls, LinkError> {
        match self.ask(&Request::Walls)? {
            Answer::Walls(walls) => Ok(walls),
            _ => Err(LinkError::Nonsense),
        }
    }

    pub fn list(&self) -> Result<Vec<Seen>, LinkError> {
        let mut all: Vec<Seen> = Vec::new();
        loop {
            let after = all.last().map(|seen| seen.node.clone()).unwrap_or_default();
            match self.ask(&Request::List { after })? {
                Answer::Nodes(seen) if seen.is_empty() => return Ok(all),
                Answer::Nodes(mut seen) => all.append(&mut seen),
                _ => return Err(LinkError::Nonsense),
            }
        }
    }

    /// Every request may be made twice: it says what should be, not what to do.
    fn ask(&self, request: &Request) -> Result<Answer, LinkError> {
        let text = serde_json::to_vec(request).map_err(|_| LinkError::Nonsense)?;
        let mut running = self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut is_second = false;
        loop {
            let helper = match &mut *running {
                Some(helper) => helper,
                None => running.insert(self.start()?),
            };
            match helper.ask(&text) {
                Ok(Answer::Failed { message }) => return Err(LinkError::Refused { message }),
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
        let program = self.command.first().cloned().unwrap_or_default();
        let failed = |source| {
            let program = program.to_string_lossy().into_owned();
            LinkError::Start { program, source }
        };
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let pair = socketpair(AddressFamily::UNIX, kind, flags, None);
        let (ours, theirs) = pair.map_err(|error| failed(error.into()))?;
        let patience = Some(ANSWER_WITHIN);
        sockopt::set_socket_timeout(&ours, sockopt::Timeout::Recv, patience)
            .map_err(|error| failed(error.into()))?;
        let mut command = Command::new(&program);
        command.args(&self.command[1..]).stdin(Stdio::from(theirs)).stdout(Stdio::null());
        Ok(Running { child: command.spawn().map_err(failed)?, socket: ours })
    }
}

impl Running {
    fn ask(&mut self, text: &[u8]) -> io::Result<Answer> {
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

    /// It ends by itself when its socket is closed; one that hangs does not.
    fn end(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(Running { mut child, socket }) = running.take() {
            drop(socket);
            let _ = child.wait();
        }
    }
}
