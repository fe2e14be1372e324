//! The one process that may make sandboxes. It blocks on its socket, on one thread, and ends with whoever started it; what
//! it made goes on, and the next helper finds it again.

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
    #[error("cannot make a user namespace of our own; see `muster doctor`")]
    UserNamespace(#[source] io::Error),
    #[error("cannot make or find the network of our nodes")]
    Hub(#[source] io::Error),
    #[error("cannot fork")]
    Slirp(#[source] io::Error),
    #[error("lost the socket to the server")]
    Socket(#[source] io::Error),
    #[error("cannot prepare {path}")]
    Folder { path: PathBuf, source: io::Error },
}

/// What a helper knows: where things are, and once it was told whom for, everything to make nodes with.
enum Post {
    Waiting(Box<HelperConfig>),
    Working(Box<NodeFactory>),
    /// It could not be set up; another helper may try again.
    Closed,
}

/// Serves until the other end of the socket is closed. Call it on the only thread of its process.
pub fn serve(socket: &OwnedFd, config: HelperConfig) -> Result<(), HelperError> {
    let mut post = Post::Waiting(Box::new(config));
    // Nodes that we made, by their first processes.
    let mut made: BTreeMap<u32, String> = BTreeMap::new();
    loop {
        let mut message = vec![0; MESSAGE_MAX];
        let length = match recv(socket, &mut message, RecvFlags::empty()) {
            Ok((0, _)) => return Ok(()),
            Ok((length, _)) => length,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(HelperError::Socket(error.into())),
        };
        note_ends(&post, &mut made);
        let answer = match Request::parse(&message[..length]) {
            Ok(request) => {
                let new = match &request {
                    Request::Make(plan) => Some(plan.node.clone()),
                    _ => None,
                };
                let answer = answer(&mut post, request);
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

/// Nodes that ended meanwhile, and what else of ours did.
fn note_ends(post: &Post, made: &mut BTreeMap<u32, String>) {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        let node = made.remove(&pid.as_raw_nonzero().get().unsigned_abs());
        let end = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => End::Code(code),
            (None, Some(signal)) => End::Signal(signal),
            (None, None) => continue,
        };
        if let (Post::Working(factory), Some(node)) = (post, node)
            && let Err(error) = factory.note_end(&node, end)
        {
            tracing::warn!(node, ?end, %error, "cannot write down how a node ended");
        }
    }
}

fn answer(post: &mut Post, request: Request) -> HelperReply {
    let failed = |message: &str| HelperReply::Failed { message: message.to_owned() };
    match (std::mem::replace(post, Post::Closed), request) {
        (Post::Waiting(config), Request::Begin(server)) => match begin(*config, server) {
            Ok(factory) => {
                *post = Post::Working(Box::new(factory));
                HelperReply::Done
            }
            Err(error) => failed(&told(&error)),
        },
        (Post::Working(factory), request) => {
            let done = work(&factory, &request);
            *post = Post::Working(factory);
            done.unwrap_or_else(|error| failed(&error.told()))
        }
        (Post::Waiting(config), _) => {
            *post = Post::Waiting(config);
            failed("nobody said whom the nodes are for; begin with that")
        }
        (Post::Closed, _) => failed("it could not be set up before; start another helper"),
    }
}

fn told(error: &HelperError) -> String {
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
    // What cannot be removed now is tried again with the next start; nodes can be made all the same.
    if let Err(error) = factory.remove_orphans() {
        tracing::warn!(error = error.told(), "something of nodes that are gone is left");
    }
    Ok(factory)
}

fn work(factory: &NodeFactory, request: &Request) -> Result<HelperReply, NodeError> {
    match request {
        Request::Begin(server) if *server == factory.server => Ok(HelperReply::Done),
        Request::Begin(_) => Ok(HelperReply::Failed {
            message: "this helper works for another server already; start another one".to_owned(),
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

/// What nodes lack that are made here, each in words with the reason.
pub(crate) fn missing(factory: &NodeFactory) -> Vec<String> {
    let Enforced { cpu, memory, pids } = factory.groups.enforced();
    let mut missing = Vec::new();
    if !factory.users.are_ranges() {
        missing.push("users of their own for each node (started without root)".to_owned());
    }
    for (what, state) in [("cores", cpu), ("memory", memory), ("number of processes", pids)] {
        missing.extend(state.err().map(|why| format!("{what} ({why})")));
    }
    if let Bound::Nothing(why) = &factory.bound {
        missing.push(format!("the space that each node takes of the disk ({why})"));
    }
    missing
}
