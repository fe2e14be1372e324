//! What goes over the wire between an agent and the controller.

use serde::{Deserialize, Serialize};

use crate::ids::Epoch;
use crate::model::{Capacity, Exit, Spans, SpecHash};
use crate::time::Span;

/// Of the log of one rank of one attempt. A job that writes more is not stopped, its log is: the server takes no more,
/// and a node keeps no more.
pub const LOG_BYTES_MAX: u64 = 1 << 30;
/// The most that a server takes as the last of a log that it has no room for.
pub const LAST_LOG_BYTES_MAX: usize = 4 << 10;

/// Everything that an agent knows. Sent at least every few seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub boot_id: Box<str>,
    pub address: Box<str>,
    /// The highest epoch this node has ever taken on. An epoch at or below it that is not in `attempts`
    /// is over and forgotten here; above it, the order has not arrived yet.
    pub floor: Epoch,
    pub attempts: Vec<AttemptReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptReport {
    pub epoch: Epoch,
    pub phase: AttemptPhase,
    /// Said with its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spans: Option<Spans>,
}

impl AttemptReport {
    pub fn new(epoch: Epoch, phase: AttemptPhase) -> AttemptReport {
        AttemptReport { epoch, phase, spans: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptPhase {
    Preparing,
    /// Everything is there to start it, and it waits for the word: a member of several starts with all.
    Ready,
    Running,
    /// It runs, and has been told that a node is taken away.
    Leaving,
    /// Journalled by the agent and said again until it is acknowledged.
    Ended(Exit),
}

/// Everything that the controller wants of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desired {
    /// How long the agent may go on without hearing from us, counted from when it sent its report.
    pub lease: Span,
    /// What it should run. Anything else it holds must stop, if its epoch is below `as_of`.
    pub assignments: Vec<Assignment>,
    /// Epochs from here on had not been given out when this was made, so it says nothing about them: the
    /// answer to a newer report can have been made before an older one was answered.
    pub as_of: Epoch,
    /// Epochs up to here that the node has not taken on are void: it must never start them, even if an
    /// older message that orders them arrives later. Its next report shows that it knows.
    pub floor: Epoch,
    /// Endings that are on the controller's disk: the agent may forget them.
    pub acknowledged: Vec<Epoch>,
    /// The node is not wanted any more: stop everything and end.
    pub end: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub epoch: Epoch,
    pub job_name: Box<str>,
    /// Which try this is, from 1.
    pub attempt: u32,
    pub spec: SpecHash,
    /// This node's place among the members, from 0.
    pub rank: u32,
    pub nodes: u32,
    /// What it holds of this node, if not all of it: it may use no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Box<Capacity>>,
    /// Whether it may start as soon as it is prepared. With several members that is said once all are
    /// ready; a controller that does not know of this lets each start by itself.
    #[serde(default = "at_once")]
    pub go: bool,
    /// Where the members are, by rank. Empty for one node, and once this one has been prepared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Box<str>>,
    /// A node of it is taken away: it has this long to end by itself, from when its agent hears this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evict: Option<Span>,
}

fn at_once() -> bool {
    true
}

/// Above the ports of well-known services, and below those that Linux gives to outgoing connections.
const FIRST_MASTER_PORT: u16 = 20_000;
const MASTER_PORTS: u16 = 10_000;

/// Where the members of an attempt meet, on the node of rank 0: the same for all of them, as it follows from
/// the epoch. No two attempts that have their rank 0 on one node at the same time have the same.
pub fn master_port(epoch: Epoch) -> u16 {
    let offset = epoch.0 % u64::from(MASTER_PORTS);
    FIRST_MASTER_PORT + u16::try_from(offset).expect("below the number of ports")
}

impl Desired {
    /// Whether it differs from what a node that reports this does already.
    pub fn is_news_to(&self, report: &Report) -> bool {
        let held = |epoch: Epoch| report.attempts.iter().find(|held| held.epoch == epoch);
        let must_start = self.assignments.iter().any(|assignment| match held(assignment.epoch) {
            None => assignment.epoch > report.floor,
            Some(held) => assignment.go && held.phase == AttemptPhase::Ready,
        });
        let must_hear = self.assignments.iter().any(|assignment| {
            let runs = |held: &AttemptReport| held.phase == AttemptPhase::Running;
            assignment.evict.is_some() && held(assignment.epoch).is_some_and(runs)
        });
        let is_assigned =
            |epoch: Epoch| self.assignments.iter().any(|assignment| assignment.epoch == epoch);
        let must_stop = report.attempts.iter().any(|attempt| match attempt.phase {
            AttemptPhase::Preparing
            | AttemptPhase::Ready
            | AttemptPhase::Running
            | AttemptPhase::Leaving => !is_assigned(attempt.epoch),
            AttemptPhase::Ended(_) => false,
        });
        self.end
            || !self.acknowledged.is_empty()
            || self.floor > report.floor
            || must_start
            || must_hear
            || must_stop
    }
}

/// What an attempt is told about itself, for the programs in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFacts {
    /// What it proves itself with, while it is live.
    pub token: Box<str>,
    /// At the latest.
    pub token_ends_unix: u64,
    /// Where the server is, as jobs see it.
    pub endpoint: Box<str>,
    pub workspace_id: Box<str>,
    /// Of the cluster's own identity, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Box<str>>,
    /// By which the members of this attempt know each other, and nobody else knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members_key: Option<Box<str>>,
}

/// What an attempt reads: its code, or an input by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataList {
    /// One file, not a folder with one in it.
    pub is_file: bool,
    pub files: Vec<DataFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// Below the folder, with `/` between names.
    pub path: Box<str>,
    pub bytes: u64,
}
