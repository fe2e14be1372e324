//! The messages between a joined host and the server. Each contains everything that the sender has or wants; none is a
//! command, so every message may be lost or repeated.

use std::fmt;

use muster_core::ids::ClusterId;
use muster_core::model::{Capacity, HostName, KeyDigest, Recipe, RecipeId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::check_name;

/// Unknown fields are ignored; a message with another meaning has another version.
pub const VERSION: u32 = 1;
/// The protocol to which a host's connection is upgraded in order to forward for one of its nodes.
pub const RELAY: &str = "muster-relay";
/// The largest message from a host. A node takes about 100 bytes in it.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// The largest reply.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;
/// The nodes of one host, as limited by its helper.
pub const NODES_MAX: usize = muster_sandbox::protocol::NODES_MAX as usize;
/// The longest error message, in characters.
pub const TROUBLE_MAX: usize = 1000;
/// There are fewer things to enforce.
const NOT_ENFORCED_MAX: usize = 16;
const SECRET_BYTES_MAX: usize = 1024;
/// Python environments that are wanted on one host at a time.
pub const ENVIRONMENTS_MAX: usize = 100;
/// The most lines of output about an environment that cannot be built.
const SAID_MAX: usize = 20;

/// The first request: exchanges the secret of a join token for a name and a key of the host's own.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    pub version: u32,
    pub secret: String,
    pub name: HostName,
    pub capacity: Capacity,
    /// The digest of the key that the host created. The key itself is sent only to authenticate later requests.
    pub key: KeyDigest,
}

/// What a host needs to know about the server and the settings of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The server's name for itself. In a node, this name and port lead to it.
    pub url: String,
    /// Whether nodes may reach more than their cluster and the server.
    pub has_internet: bool,
    /// The most that a job may write to its folder.
    pub job_disk_bytes: u64,
    /// Whether jobs share their node's sandbox instead of having one each.
    #[serde(default)]
    pub jobs_share: bool,
    #[serde(default)]
    pub environments: EnvironmentTerms,
}

/// How Python environments are built on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentTerms {
    /// The time limit of one build, in seconds.
    pub build_within_s: u64,
    /// The disk space that all of them may use.
    pub bytes_max: u64,
    /// The indexes that recipes may name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinReply {
    pub name: HostName,
    pub terms: Terms,
}

/// Identifies a list of wanted nodes: by the run of the server, and its number for this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    pub run: u64,
    pub count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncRequest {
    pub version: u32,
    /// Identifies the run of the host agent.
    pub generation: u64,
    /// Increases with the reports of one run.
    pub sequence: u64,
    pub wait_ms: u64,
    pub report: HostReport,
}

/// Everything that a host has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    /// The list that the host follows: it does nothing any more because of an older one.
    pub following: Option<Stamp>,
    pub capacity: Capacity,
    /// Descriptions of what its nodes do not enforce.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_enforced: Vec<String>,
    /// Nodes of which anything exists, or that are being created or removed.
    pub nodes: Vec<HeldNode>,
    /// The states of the environments that were last requested from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environments: Vec<HeldEnvironment>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldEnvironment {
    pub id: RecipeId,
    /// The cluster whose nodes see it.
    #[serde(default = "no_cluster")]
    pub cluster: ClusterId,
    pub state: EnvironmentState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnvironmentState {
    /// Ready, with notes for the user.
    Ready {
        notes: Vec<String>,
    },
    Building,
    Failed {
        message: String,
        said: Vec<String>,
    },
}

impl EnvironmentState {
    fn bounded(self) -> EnvironmentState {
        let lines = |mut lines: Vec<String>| {
            lines.truncate(SAID_MAX);
            lines.iter().map(|line| one_line(line)).collect()
        };
        match self {
            EnvironmentState::Ready { notes } => EnvironmentState::Ready { notes: lines(notes) },
            EnvironmentState::Building => EnvironmentState::Building,
            EnvironmentState::Failed { message, said } => {
                EnvironmentState::Failed { message: one_line(&message), said: lines(said) }
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldNode {
    pub name: String,
    pub is_alive: bool,
    /// The node was created, and certainly nothing of it is running any more. It is not created again.
    #[serde(default)]
    pub has_ended: bool,
    /// Why it could not be created or removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncAnswer {
    pub sequence: u64,
    pub stamp: Stamp,
    pub terms: Terms,
    /// Everything that the host should have, and nothing else.
    pub nodes: Vec<WantedNode>,
    /// Environments that jobs on its nodes are waiting for, or were waiting for recently.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environments: Vec<WantedEnvironment>,
}

/// An environment for the nodes of one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedEnvironment {
    #[serde(default = "no_cluster")]
    pub cluster: ClusterId,
    #[serde(flatten)]
    pub recipe: Recipe,
}

/// The cluster of an environment on a host whose older version showed everything to all clusters.
pub(super) fn no_cluster() -> ClusterId {
    ClusterId(0)
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedNode {
    pub name: String,
    pub cluster: ClusterId,
    pub capacity: Capacity,
    /// The secret with which the node authenticates.
    pub secret: String,
}

#[derive(Debug, thiserror::Error)]
pub enum BadBody {
    #[error("this is not a valid message between a host and its server")]
    NotOurs(#[source] serde_json::Error),
    #[error(
        "this is version {got} of the protocol, but this side has version {VERSION}; run the same muster on both hosts"
    )]
    Version { got: u32 },
    #[error("the message has {got} nodes; a host has at most {NODES_MAX}")]
    TooMany { got: usize },
    #[error("the message has a node without a valid name: {0}")]
    Name(#[from] crate::BadName),
    #[error("the secret has {got} bytes; it must have 1 to {SECRET_BYTES_MAX}")]
    Secret { got: usize },
    #[error("the message has a node twice")]
    Twice,
}

impl JoinRequest {
    pub fn parse(bytes: &[u8]) -> Result<JoinRequest, BadBody> {
        let request: JoinRequest = read(bytes)?;
        check_version(request.version)?;
        match request.secret.len() {
            1..=SECRET_BYTES_MAX => Ok(request),
            got => Err(BadBody::Secret { got }),
        }
    }
}

impl SyncRequest {
    pub fn parse(bytes: &[u8]) -> Result<SyncRequest, BadBody> {
        let mut request: SyncRequest = read(bytes)?;
        check_version(request.version)?;
        check_names(request.report.nodes.iter().map(|node| node.name.as_str()))?;
        request.report.not_enforced.truncate(NOT_ENFORCED_MAX);
        for what in &mut request.report.not_enforced {
            *what = one_line(what);
        }
        for trouble in request.report.nodes.iter_mut().filter_map(|node| node.trouble.as_mut()) {
            *trouble = one_line(trouble);
        }
        let environments = &mut request.report.environments;
        environments.truncate(ENVIRONMENTS_MAX);
        for held in environments.iter_mut() {
            let state = std::mem::replace(&mut held.state, EnvironmentState::Building);
            held.state = state.bounded();
        }
        Ok(request)
    }
}

impl SyncAnswer {
    pub fn parse(bytes: &[u8]) -> Result<SyncAnswer, BadBody> {
        let answer: SyncAnswer = read(bytes)?;
        check_names(answer.nodes.iter().map(|node| node.name.as_str()))?;
        let is_bad = |got: &usize| !(1..=SECRET_BYTES_MAX).contains(got);
        match answer.nodes.iter().map(|node| node.secret.len()).find(is_bad) {
            Some(got) => Err(BadBody::Secret { got }),
            None => Ok(answer),
        }
    }
}

impl JoinReply {
    pub fn parse(bytes: &[u8]) -> Result<JoinReply, BadBody> {
        read(bytes)
    }
}

/// Shortens an error message to one line that is fit for a log and a list.
pub fn one_line(trouble: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    trouble.chars().take(TROUBLE_MAX).map(plain).collect()
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadBody> {
    serde_json::from_slice(bytes).map_err(BadBody::NotOurs)
}

fn check_version(got: u32) -> Result<(), BadBody> {
    if got == VERSION { Ok(()) } else { Err(BadBody::Version { got }) }
}

fn check_names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Result<(), BadBody> {
    let got = names.len();
    if got > NODES_MAX {
        return Err(BadBody::TooMany { got });
    }
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        check_name(name)?;
        if !seen.insert(name) {
            return Err(BadBody::Twice);
        }
    }
    Ok(())
}

/// Secrets must not appear in debug output.
impl fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for WantedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WantedNode { name, cluster, capacity, secret: _ } = self;
        let mut shown = f.debug_struct("WantedNode");
        shown.field("name", name).field("cluster", cluster).field("capacity", capacity);
        shown.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(names: &[&str]) -> SyncRequest {
        let held = |name: &&str| HeldNode {
            name: (*name).to_owned(),
            is_alive: true,
            has_ended: false,
            trouble: Some("no\nroom".repeat(TROUBLE_MAX)),
        };
        SyncRequest {
            version: VERSION,
            generation: 3,
            sequence: 7,
            wait_ms: 10,
            report: HostReport {
                following: Some(Stamp { run: 1, count: 2 }),
                capacity: Capacity { gpus: 0, vcpus: 2, memory_mb: 4096 },
                not_enforced: vec!["a\nb".repeat(TROUBLE_MAX); 2 * NOT_ENFORCED_MAX],
                nodes: names.iter().map(held).collect(),
                environments: Vec::new(),
            },
        }
    }

    fn sent(request: &SyncRequest) -> Result<SyncRequest, BadBody> {
        SyncRequest::parse(&serde_json::to_vec(request).unwrap())
    }

    #[test]
    fn a_report_is_read_within_its_limits() {
        let read = sent(&request(&["pool-1", "pool-2"])).unwrap();
        let missing = &read.report.not_enforced;
        assert_eq!((missing.len(), missing[0].chars().count()), (NOT_ENFORCED_MAX, TROUBLE_MAX));
        assert!(!missing[0].contains('\n'));
        let trouble = read.report.nodes[0].trouble.as_deref().unwrap();
        assert_eq!((trouble.len(), trouble.contains('\n')), (TROUBLE_MAX, false));
        assert!(matches!(sent(&request(&["../up"])), Err(BadBody::Name(_))));
        assert!(matches!(sent(&request(&["a", "a"])), Err(BadBody::Twice)));
        let many: Vec<String> = (0..=NODES_MAX).map(|at| format!("n-{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(matches!(sent(&request(&many)), Err(BadBody::TooMany { .. })));
        let newer = SyncRequest { version: 2, ..request(&[]) };
        assert!(matches!(sent(&newer), Err(BadBody::Version { got: 2 })));
    }

    #[test]
    fn what_a_later_version_adds_is_passed_over() {
        let text = r#"{"version":1,"generation":1,"sequence":1,"wait_ms":0,"mood":"good",
            "report":{"following":null,"capacity":{"gpus":0,"vcpus":1,"memory_mb":1},"nodes":[]}}"#;
        assert!(SyncRequest::parse(text.as_bytes()).is_ok());
    }
}
