//! What the helper can be asked for. Names, sizes and slots, never paths or commands: whoever may speak to it can make
//! nodes within the folders that it was started with, and nothing else.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cgroup::Limits;
use crate::network::{HOSTS_MAX, NETWORKS_MAX};

/// A message is one packet.
pub const MESSAGE_MAX: usize = 64 * 1024;
/// Long enough for any cluster's name and an id, short enough for a host's name and a file's with an ending.
pub const NAME_MAX: usize = 63;
/// Of the server's name, as in DNS.
const HOST_MAX: usize = 253;
const SECRET_MAX: usize = 1024;
/// In one answer.
pub const LISTED_MAX: usize = 256;
/// Of one machine at a time; each has a range of users.
pub const NODES_MAX: u16 = 4096;
/// Below these an agent cannot live.
pub const MEMORY_MIN: u64 = 32 * 1024 * 1024;
const MILLICORES_MIN: u32 = 10;
const PIDS_MIN: u32 = 16;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Request {
    /// Whom the nodes are for. The first request, and only the first.
    Begin(Server),
    /// Makes a node, or says that it lives already.
    Make(Box<NodePlan>),
    Signal {
        node: String,
        signal: Stop,
    },
    /// Removes what is left of a node that does not live any more.
    Remove {
        node: String,
    },
    /// What this helper keeps apart.
    Walls,
    /// The nodes whose names come after this one, as many as fit into an answer.
    List {
        after: String,
    },
}

/// Where nodes find the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// As nodes see it: on their own loopback.
    pub url: String,
    /// What it calls itself: inside a node this is the relay.
    pub host: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    Terminate,
    Kill,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePlan {
    pub node: String,
    /// What the node proves itself with.
    pub secret: String,
    pub place: Place,
    pub limits: Limits,
    /// The most that a job may write to its folder.
    pub job_disk_bytes: u64,
    /// Whether it may reach more than its cluster and the server.
    pub has_way_out: bool,
}

/// What no two living nodes of a machine share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Whose network it is. It means nothing here; whoever gives out the places wants to know it again.
    pub cluster: u64,
    pub network: u16,
    /// Which address in it, from 1.
    pub host: u16,
    /// Which range of users.
    pub users: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It lives; its first process as the machine sees it.
    Made {
        pid: u32,
    },
    Done,
    Walls(Walls),
    Nodes(Vec<Seen>),
    Failed {
        message: String,
    },
}

/// What cannot be enforced on this machine, by this helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walls {
    /// Each in words, with the reason.
    pub missing: Vec<String>,
    /// Why nodes can have no way out, if so.
    pub no_way_out: Option<String>,
    /// Holds a folder for each node, with the record of its first process.
    pub nodes: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub node: String,
    /// `None`: it was never made whole.
    pub place: Option<Place>,
    pub is_alive: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum BadRequest {
    #[error("the request is not one of ours")]
    NotOurs(#[source] serde_json::Error),
    #[error(
        "{name:?} is not a node's name: a to z, 0 to 9 and dashes, not first, at most {NAME_MAX}"
    )]
    Name { name: String },
    #[error(
        "the secret has {length} bytes or is not plain text; at most {SECRET_MAX} visible ASCII characters"
    )]
    Secret { length: usize },
    #[error(
        "{url:?} with the name {host:?} is no server: https://127.0.0.1:PORT, and a name for hosts"
    )]
    Server { url: String, host: String },
    #[error("{what} is {value}, which is not within {least} to {most}")]
    OutOfRange { what: &'static str, value: u64, least: u64, most: u64 },
}

impl Request {
    /// Whatever arrives is hostile until it has passed here.
    pub fn parse(bytes: &[u8]) -> Result<Request, BadRequest> {
        let request: Request = serde_json::from_slice(bytes).map_err(BadRequest::NotOurs)?;
        match &request {
            Request::Begin(server) => server.check()?,
            Request::Make(plan) => plan.check()?,
            Request::Signal { node, .. } | Request::Remove { node } => check_name(node)?,
            Request::Walls => {}
            Request::List { after } if after.is_empty() => {}
            Request::List { after } => check_name(after)?,
        }
        Ok(request)
    }
}

impl Server {
    /// Both become arguments and lines of files.
    fn check(&self) -> Result<(), BadRequest> {
        let port = self.url.strip_prefix("https://127.0.0.1:").map(str::parse::<u16>);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        let is_name = (1..=HOST_MAX).contains(&self.host.len()) && self.host.bytes().all(is_plain);
        match port {
            Some(Ok(1..)) if is_name => Ok(()),
            _ => Err(BadRequest::Server { url: self.url.clone(), host: self.host.clone() }),
        }
    }
}

impl NodePlan {
    fn check(&self) -> Result<(), BadRequest> {
        check_name(&self.node)?;
        let length = self.secret.len();
        if !(1..=SECRET_MAX).contains(&length) || !self.secret.bytes().all(|b| b.is_ascii_graphic())
        {
            return Err(BadRequest::Secret { length });
        }
        let Place { cluster: _, network, host, users } = self.place;
        let Limits { millicores, memory_bytes, pids } = self.limits;
        let upper = u64::from(u32::MAX);
        for (what, value, least, most) in [
            ("network", network.into(), 0, u64::from(NETWORKS_MAX) - 1),
            ("host", host.into(), 1, u64::from(HOSTS_MAX)),
            ("users", users.into(), 0, u64::from(NODES_MAX) - 1),
            ("millicores", millicores.into(), u64::from(MILLICORES_MIN), upper),
            ("memory_bytes", memory_bytes, MEMORY_MIN, 1 << 50),
            ("pids", pids.into(), u64::from(PIDS_MIN), upper),
        ] {
            if !(least..=most).contains(&value) {
                return Err(BadRequest::OutOfRange { what, value, least, most });
            }
        }
        Ok(())
    }
}

/// Names become folders, hosts and groups, so only what our own names are made of is let through.
pub fn check_name(name: &str) -> Result<(), BadRequest> {
    let is_ours = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_good =
        (1..=NAME_MAX).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(is_ours);
    if is_good { Ok(()) } else { Err(BadRequest::Name { name: name.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> NodePlan {
        NodePlan {
            node: "pool-1".into(),
            secret: "s3cret".into(),
            place: Place { cluster: 7, network: 0, host: 1, users: 0 },
            limits: Limits { millicores: 1000, memory_bytes: 1 << 30, pids: 1000 },
            job_disk_bytes: 1 << 30,
            has_way_out: false,
        }
    }

    fn sent(plan: NodePlan) -> Result<Request, BadRequest> {
        Request::parse(&serde_json::to_vec(&Request::Make(Box::new(plan))).unwrap())
    }

    #[test]
    fn what_is_sent_is_read() {
        assert_eq!(sent(plan()).unwrap(), Request::Make(Box::new(plan())));
        for bad in ["", "null", "{}", "\"Lists\"", "{\"Remove\":{\"node\":\"a\",\"path\":\"/\"}}"] {
            assert!(matches!(Request::parse(bad.as_bytes()), Err(BadRequest::NotOurs(_))), "{bad}");
        }
    }

    #[test]
    fn names_are_no_paths() {
        let longest = "x".repeat(NAME_MAX);
        for name in ["a", "0", "pool-1f", "a--b-", &longest] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let too_long = "x".repeat(NAME_MAX + 1);
        for name in ["", "-a", "A", "a_b", "a.b", "..", "a/b", "a b", "ä", "a\0", &too_long] {
            assert!(check_name(name).is_err(), "{name}");
            assert!(sent(NodePlan { node: name.into(), ..plan() }).is_err(), "{name}");
        }
    }

    #[test]
    fn a_server_is_on_loopback_and_has_a_plain_name() {
        let read = |url: &str, host: &str| {
            let begin = Request::Begin(Server { url: url.into(), host: host.into() });
            Request::parse(&serde_json::to_vec(&begin).unwrap()).is_ok()
        };
        assert!(read("https://127.0.0.1:7443", "localhost"));
        assert!(read("https://127.0.0.1:1", "gpu-1.example") && read("https://127.0.0.1:1", "::1"));
        for url in
            ["", "http://127.0.0.1:1", "https://127.0.0.1:0", "https://127.0.0.1:1/", "https://h:1"]
        {
            assert!(!read(url, "localhost"), "{url}");
        }
        for host in ["", "a b", "a\n0.0.0.0 b", "ä", &"x".repeat(HOST_MAX + 1)] {
            assert!(!read("https://127.0.0.1:1", host), "{host:?}");
        }
    }

    #[test]
    fn every_number_has_its_limits() {
        let place = plan().place;
        let limits = plan().limits;
        for place in [
            Place { network: NETWORKS_MAX, ..place },
            Place { host: 0, ..place },
            Place { host: HOSTS_MAX + 1, ..place },
            Place { users: NODES_MAX, ..place },
        ] {
            assert!(sent(NodePlan { place, ..plan() }).is_err(), "{place:?}");
        }
        for limits in [
            Limits { millicores: 0, ..limits },
            Limits { memory_bytes: MEMORY_MIN - 1, ..limits },
            Limits { memory_bytes: u64::MAX, ..limits },
            Limits { pids: 1, ..limits },
        ] {
            assert!(sent(NodePlan { limits, ..plan() }).is_err(), "{limits:?}");
        }
        for secret in ["", "a b", "a\n", "ä", &"x".repeat(SECRET_MAX + 1)] {
            assert!(sent(NodePlan { secret: secret.into(), ..plan() }).is_err(), "{secret}");
        }
    }
}
