//! The requests to the helper. They contain names, sizes and slots but never paths or commands, so a client can create
//! nodes within the folders that the helper was started with, and nothing else.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cgroup::{Limits, Usage};
use crate::network::{HOSTS_MAX, NETWORKS_MAX};

/// A message is one packet. A log in which every byte has to be escaped fits, and the kernel accepts no more than about
/// 200 KiB at once.
pub const MESSAGE_MAX: usize = 160 * 1024;
/// Long enough for any cluster name with an id, and short enough for a host name or a file name with an extension.
pub const NAME_MAX: usize = 63;
/// The longest name of a server, as in DNS.
const HOST_MAX: usize = 253;
const SECRET_MAX: usize = 1024;
/// How much of an agent's log a post-mortem keeps.
pub const LOG_TAIL_MAX: usize = 64 * 1024;
/// The nodes in one reply. This many fit into a message, however long their names are and however many GPUs they have.
pub const LISTED_MAX: usize = 96;
/// The nodes of one host at a time; each has a range of users.
pub const NODES_MAX: u16 = 4096;
/// An agent cannot run with less.
pub const MEMORY_MIN: u64 = 32 * 1024 * 1024;
/// The GPUs of one node. No host has more.
pub const GPUS_MAX: usize = 64;
/// `GPU-` and 36 more characters.
const UUID_MAX: usize = 64;
const MILLICORES_MIN: u32 = 10;
const PIDS_MIN: u32 = 16;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Request {
    /// Names the server that the nodes belong to. Must be the first request, and only the first.
    Begin(Server),
    /// Creates a node, or confirms that it is alive already.
    Make(Box<NodePlan>),
    Signal {
        node: String,
        signal: Stop,
    },
    /// Removes what is left of a node that has ended.
    Remove {
        node: String,
    },
    /// Frees the disk space of a node that has ended. The rest of it is kept.
    Empty {
        node: String,
    },
    /// Allocates again the space that a node's disk has given back. A node for which there is not enough space is
    /// ended.
    Refill {
        node: String,
    },
    /// Returns what is known about a node, dead or alive, for a post-mortem.
    Examine {
        node: String,
    },
    /// Returns what this helper can enforce.
    Enforcement,
    /// Lists the nodes whose names come after this one, as many as fit into a reply.
    List {
        after: String,
    },
}

/// How nodes reach the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The URL as nodes see it, on their own loopback.
    pub url: String,
    /// The server's name for itself, which leads to the relay inside a node.
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
    /// The secret with which the node authenticates.
    pub secret: String,
    pub slot: NodeSlot,
    pub limits: Limits,
    /// The most that a job may write to its folder. The node's disk has the same size if there is room for it.
    pub job_disk_bytes: u64,
    /// Whether jobs share the node's sandbox instead of having one each.
    #[serde(default)]
    pub jobs_share: bool,
    /// Whether the node may reach more than its cluster and the server.
    pub has_internet: bool,
    /// Whether the node should have internet access but does not, because something is missing on this host.
    #[serde(default)]
    pub lacks_internet: bool,
    /// The number of GPUs of its size. `slot` lists those that have a device.
    #[serde(default)]
    pub gpu_slots: u32,
    /// The driver's names of the GPUs in `slot`, one for each, or none if it did not report them.
    #[serde(default)]
    pub gpu_uuids: Vec<String>,
}

/// What no two living nodes of a host share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSlot {
    /// The cluster of the network. It means nothing to the helper; the provider that assigns slots reads it back.
    pub cluster: u64,
    pub network: u16,
    /// The number of the address in the network, from 1.
    pub host: u16,
    /// The number of the range of users.
    pub users: u16,
    /// The numbers of its GPUs: `/dev/nvidiaN`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelperReply {
    /// The node is alive; this is its first process as the host sees it.
    Made {
        pid: u32,
    },
    /// The node was not created because nodes of other servers hold these.
    Taken(Taken),
    Done,
    Enforcement(Enforcement),
    Nodes(Vec<Seen>),
    Remains(Box<Remains>),
    Failed {
        message: String,
    },
}

/// The parts of a slot that other nodes on the host hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub users: bool,
    pub gpus: Vec<u16>,
}

/// What this helper cannot enforce on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// A description of each, with the reason.
    pub missing: Vec<String>,
    /// The reason if nodes cannot have internet access.
    pub why_no_internet: Option<String>,
    /// Contains a folder for each node, with the record of its first process.
    pub nodes: PathBuf,
}

impl Enforcement {
    /// The message for the operator of this host if nodes should have internet access but cannot, with the remedy.
    pub fn no_internet(&self, is_wanted: bool) -> Option<String> {
        let why = self.why_no_internet.as_ref().filter(|_| is_wanted)?;
        Some(format!("jobs cannot reach the internet, although egress is true, because {why}"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub node: String,
    /// `None` if the node was never completed.
    pub slot: Option<NodeSlot>,
    pub is_alive: bool,
}

/// What is left of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remains {
    /// How its first process ended, if the helper saw it. Its exit code is that of the agent, or 128 plus the signal
    /// that killed the agent.
    pub end: Option<End>,
    /// What its control group counted.
    pub usage: Option<Usage>,
    /// Free space on the disk of its folder.
    pub disk_free_bytes: Option<u64>,
    /// The end of its agent's log, at most [`LOG_TAIL_MAX`] bytes without control characters.
    pub log: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    Code(i32),
    Signal(i32),
}

#[derive(Debug, thiserror::Error)]
pub enum BadRequest {
    #[error("the request is not valid")]
    NotOurs(#[source] serde_json::Error),
    #[error(
        "{name:?} is not a valid node name: use a to z, 0 to 9 and dashes, not starting with a dash, at most {NAME_MAX} characters"
    )]
    Name { name: String },
    #[error(
        "the secret has {length} bytes or is not plain text; use at most {SECRET_MAX} visible ASCII characters"
    )]
    Secret { length: usize },
    #[error(
        "{url:?} with the name {host:?} is not a valid server: use https://127.0.0.1:PORT and a host name"
    )]
    Server { url: String, host: String },
    #[error(
        "{count} GPUs with {uuids} UUIDs are not valid: use at most {GPUS_MAX} GPUs, none twice, and a UUID for each or \
         none at all, of at most {UUID_MAX} letters, digits and dashes"
    )]
    Gpus { count: usize, uuids: usize },
    #[error("{what} is {value}, which is not between {least} and {most}")]
    OutOfRange { what: &'static str, value: u64, least: u64, most: u64 },
}

impl Request {
    /// Parses a request. Whatever arrives is untrusted until it has passed these checks.
    pub fn parse(bytes: &[u8]) -> Result<Request, BadRequest> {
        let request: Request = serde_json::from_slice(bytes).map_err(BadRequest::NotOurs)?;
        match &request {
            Request::Begin(server) => server.check()?,
            Request::Make(plan) => plan.check()?,
            Request::Signal { node, .. }
            | Request::Remove { node }
            | Request::Empty { node }
            | Request::Refill { node }
            | Request::Examine { node } => check_name(node)?,
            Request::Enforcement => {}
            Request::List { after } if after.is_empty() => {}
            Request::List { after } => check_name(after)?,
        }
        Ok(request)
    }
}

impl Server {
    /// Checks both, because they become arguments and lines of files.
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
        self.check_gpus()?;
        let NodeSlot { cluster: _, network, host, users, gpus: _ } = self.slot;
        let Limits { millicores, memory_bytes, pids } = self.limits;
        let upper = u64::from(u32::MAX);
        for (what, value, least, most) in [
            ("network", network.into(), 0, u64::from(NETWORKS_MAX) - 1),
            ("host", host.into(), 1, u64::from(HOSTS_MAX)),
            ("gpu_slots", self.gpu_slots.into(), 0, GPUS_MAX as u64),
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

    /// Checks the GPUs, because the numbers become names of devices and the UUIDs become arguments.
    fn check_gpus(&self) -> Result<(), BadRequest> {
        let (gpus, uuids) = (&self.slot.gpus, &self.gpu_uuids);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_name =
            |uuid: &String| (1..=UUID_MAX).contains(&uuid.len()) && uuid.bytes().all(is_plain);
        let different: BTreeSet<u16> = gpus.iter().copied().collect();
        let is_good = gpus.len() <= GPUS_MAX
            && different.len() == gpus.len()
            && (uuids.is_empty() || uuids.len() == gpus.len())
            && uuids.iter().all(is_name);
        let bad = || BadRequest::Gpus { count: gpus.len(), uuids: uuids.len() };
        is_good.then_some(()).ok_or_else(bad)
    }
}

/// Checks a name that becomes a folder, a host name and a group. Only the characters of our own names are accepted.
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
            slot: NodeSlot { cluster: 7, network: 0, host: 1, users: 0, gpus: vec![2, 0] },
            limits: Limits { millicores: 1000, memory_bytes: 1 << 30, pids: 1000 },
            job_disk_bytes: 1 << 30,
            jobs_share: false,
            has_internet: false,
            lacks_internet: true,
            gpu_slots: 2,
            gpu_uuids: vec!["GPU-2".into(), "GPU-0".into()],
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
        let slot = plan().slot;
        let limits = plan().limits;
        for slot in [
            NodeSlot { network: NETWORKS_MAX, ..slot.clone() },
            NodeSlot { host: 0, ..slot.clone() },
            NodeSlot { host: HOSTS_MAX + 1, ..slot.clone() },
            NodeSlot { users: NODES_MAX, ..slot },
        ] {
            let shown = format!("{slot:?}");
            assert!(sent(NodePlan { slot, ..plan() }).is_err(), "{shown}");
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

    #[test]
    fn gpus_are_different_and_their_names_are_plain() {
        let with = |gpus: &[u16], uuids: &[&str]| {
            let slot = NodeSlot { gpus: gpus.to_vec(), ..plan().slot };
            let gpu_uuids = uuids.iter().map(|uuid| (*uuid).to_owned()).collect();
            sent(NodePlan { slot, gpu_uuids, ..plan() }).is_ok()
        };
        assert!(with(&[], &[]) && with(&[7], &[]) && with(&[7, 255], &["GPU-a", "GPU-b"]));
        assert!(!with(&[1, 1], &[]), "twice");
        assert!(!with(&[1, 2], &["GPU-a"]), "one has no UUID");
        for bad in ["", "a b", "a,b", "../x", "ä", &"x".repeat(UUID_MAX + 1)] {
            assert!(!with(&[1], &[bad]), "{bad:?}");
        }
        let many: Vec<u16> = (0..).take(GPUS_MAX + 1).collect();
        assert!(!with(&many, &[]) && with(&many[1..], &[]));
        assert!(sent(NodePlan { gpu_slots: 65, ..plan() }).is_err());
    }

    #[test]
    fn a_full_answer_fits_into_a_message() {
        let gpus: Vec<u16> = (0..GPUS_MAX).map(|_| u16::MAX).collect();
        let most = u16::MAX;
        let slot = NodeSlot { cluster: u64::MAX, network: most, host: most, users: most, gpus };
        let seen = Seen { node: "x".repeat(NAME_MAX), slot: Some(slot), is_alive: false };
        let answer = HelperReply::Nodes(vec![seen; LISTED_MAX]);
        assert!(serde_json::to_vec(&answer).unwrap().len() <= MESSAGE_MAX);
        let log = "\"".repeat(LOG_TAIL_MAX);
        let answer = HelperReply::Remains(Box::new(Remains { log, ..Remains::default() }));
        assert!(serde_json::to_vec(&answer).unwrap().len() + 4096 <= MESSAGE_MAX);
    }
}
