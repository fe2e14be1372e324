//! The only process that may create sandboxes. It blocks on its socket, on one thread, and ends when its socket is
//! closed. The nodes that it created keep running, and the next helper finds them again.

pub(crate) mod hub;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{WaitOptions, geteuid, wait};

use crate::cgroup::{Enforced, Groups};
pub use crate::node::HelperConfig;
use crate::node::disk::Bound;
use crate::node::{NodeError, NodeFactory, Users};
use crate::protocol::{End, Enforcement, HelperReply, LISTED_MAX, MESSAGE_MAX, Request, Server};
use crate::slirp::Slirp;

#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    #[error("cannot create a user namespace; see `muster doctor`")]
    UserNamespace(#[source] io::Error),
    #[error("cannot create or find the network of the nodes")]
    Hub(#[source] io::Error),
    #[error("cannot fork")]
    Slirp(#[source] io::Error),
    #[error("lost the socket to the server")]
    Socket(#[source] io::Error),
    #[error("cannot prepare {path}")]
    Folder { path: PathBuf, source: io::Error },
}

/// Whether the helper has been set up. Before that it only knows its folders; afterwards it can create nodes.
enum State {
    Waiting(Box<HelperConfig>),
    Working(Box<NodeFactory>),
    /// The setup failed. Another helper may attempt it again.
    Closed,
}

/// Serves until the other end of the socket is closed. Call it on the only thread of its process.
pub fn serve(socket: &OwnedFd, config: HelperConfig) -> Result<(), HelperError> {
    let mut state = State::Waiting(Box::new(config));
    // The nodes that we created, by the PIDs of their first processes.
    let mut made: BTreeMap<u32, String> = BTreeMap::new();
    loop {
        let mut message = vec![0; MESSAGE_MAX];
        let length = match recv(socket, &mut message, RecvFlags::empty()) {
            Ok((0, _)) => return Ok(()),
            Ok((length, _)) => length,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(HelperError::Socket(error.into())),
        };
        note_ends(&state, &mut made);
        let answer = match Request::parse(&message[..length]) {
            Ok(request) => {
                let new = match &request {
                    Request::Make(plan) => Some(plan.node.clone()),
                    _ => None,
                };
                let answer = answer(&mut state, request);
                if let (HelperReply::Made { pid }, Some(node)) = (&answer, new) {
                    made.insert(*pid, node);
                }
                answer
            }
            Err(bad) => HelperReply::Failed { message: bad.to_string() },
        };
        let text = serde_json::to_vec(&answer).unwrap_or_default();
        match send(socket, &text, SendFlags::NOSIGNAL) {
            Ok(_) => {}
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => return Ok(()),
            Err(error) => return Err(HelperError::Socket(error.into())),
        }
    }
}

/// Collects our child processes that have ended, and records how each node ended.
fn note_ends(state: &State, made: &mut BTreeMap<u32, String>) {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        let node = made.remove(&pid.as_raw_nonzero().get().unsigned_abs());
        let end = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => End::Code(code),
            (None, Some(signal)) => End::Signal(signal),
            (None, None) => continue,
        };
        if let (State::Working(factory), Some(node)) = (state, node)
            && let Err(error) = factory.note_end(&node, end)
        {
            tracing::warn!(node, ?end, %error, "cannot record how a node ended");
        }
    }
}

fn answer(state: &mut State, request: Request) -> HelperReply {
    let failed = |message: &str| HelperReply::Failed { message: message.to_owned() };
    match (std::mem::replace(state, State::Closed), request) {
        (State::Waiting(config), Request::Begin(server)) => match begin(*config, server) {
            Ok(factory) => {
                *state = State::Working(Box::new(factory));
                HelperReply::Done
            }
            Err(error) => failed(&describe(&error)),
        },
        (State::Working(factory), request) => {
            let done = work(&factory, &request);
            *state = State::Working(factory);
            done.unwrap_or_else(|error| failed(&error.describe()))
        }
        (State::Waiting(config), _) => {
            *state = State::Waiting(config);
            failed("the first request must name the server that the nodes belong to")
        }
        (State::Closed, _) => failed("this helper could not be set up; start another one"),
    }
}

fn describe(error: &HelperError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn begin(config: HelperConfig, server: Server) -> Result<NodeFactory, HelperError> {
    for path in [&config.nodes, &config.logs] {
        let made = std::fs::create_dir_all(path);
        made.map_err(|source| HelperError::Folder { path: path.clone(), source })?;
    }
    let is_root = geteuid().is_root();
    let slirp = Slirp::start().map_err(HelperError::Slirp)?;
    let hub = hub::enter(&config.nodes, is_root)?;
    let users = if is_root { Users::Ranges } else { Users::One };
    let bound = Bound::of(&config.nodes);
    let groups = Groups::find();
    let factory = NodeFactory { config, server, users, groups, bound, hub, slirp };
    // Leftovers that cannot be removed now are removed at the next start; nodes can be created anyway.
    if let Err(error) = factory.remove_orphans() {
        tracing::warn!(
            error = error.describe(),
            "cannot remove everything that earlier nodes left behind"
        );
    }
    Ok(factory)
}

fn work(factory: &NodeFactory, request: &Request) -> Result<HelperReply, NodeError> {
    match request {
        Request::Begin(server) if *server == factory.server => Ok(HelperReply::Done),
        Request::Begin(_) => Ok(HelperReply::Failed {
            message: "this helper already works for another server; start another one".to_owned(),
        }),
        Request::Make(plan) => factory.make(plan).map(|made| match made {
            Ok(pid) => HelperReply::Made { pid },
            Err(taken) => HelperReply::Taken(taken),
        }),
        Request::Signal { node, signal } => {
            factory.signal(node, *signal).map(|()| HelperReply::Done)
        }
        Request::Remove { node } => factory.remove(node).map(|()| HelperReply::Done),
        Request::Empty { node } => factory.empty(node).map(|()| HelperReply::Done),
        Request::Refill { node } => factory.refill(node).map(|()| HelperReply::Done),
        Request::Examine { node } => {
            factory.examine(node).map(|remains| HelperReply::Remains(Box::new(remains)))
        }
        Request::Enforcement => Ok(HelperReply::Enforcement(enforcement(factory))),
        Request::List { after } => factory.list().map(|mut seen| {
            seen.retain(|seen| seen.node > *after);
            seen.sort_by(|a, b| a.node.cmp(&b.node));
            seen.truncate(LISTED_MAX);
            HelperReply::Nodes(seen)
        }),
    }
}

fn enforcement(factory: &NodeFactory) -> Enforcement {
    let (missing, nodes) = (missing(factory), factory.config.nodes.clone());
    Enforcement { missing, why_no_internet: Slirp::check().err(), nodes }
}

/// Lists the limits that nodes created here lack, each with the reason.
pub(crate) fn missing(factory: &NodeFactory) -> Vec<String> {
    let Enforced { cpu, memory, pids } = factory.groups.enforced();
    let mut missing = Vec::new();
    if !factory.users.are_ranges() {
        missing.push("separate users for each node (started without root)".to_owned());
    }
    for (what, state) in [("cores", cpu), ("memory", memory), ("number of processes", pids)] {
        missing.extend(state.err().map(|why| format!("{what} ({why})")));
    }
    if let Bound::Nothing(why) = &factory.bound {
        missing.push(format!("the disk space of each node ({why})"));
    }
    missing
}
