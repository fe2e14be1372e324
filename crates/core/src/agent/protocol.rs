//! The messages between an agent and the server.

use serde::{Deserialize, Serialize};

use crate::ids::Epoch;
use crate::model::{Capacity, Exit, Spans, SpecHash, child_name};
use crate::time::Span;

/// The largest log of one rank of one attempt. A job that writes more keeps running, but neither the server nor the
/// node keeps the rest of its log.
pub const LOG_BYTES_MAX: u64 = 1 << 30;
/// The most that a server accepts as the last part of a log that is already full.
pub const LAST_LOG_BYTES_MAX: usize = 4 << 10;

/// The largest log that is sent with a report, and the most bytes of logs in one report.
pub const SHORT_LOG_BYTES_MAX: usize = 4 << 10;
pub const REPORTED_LOGS_BYTES_MAX: usize = 128 << 10;

/// Everything that an agent knows. It is sent at least every few seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub boot_id: Box<str>,
    pub address: Box<str>,
    /// The highest epoch that this node has ever accepted. An epoch at or below it that is not in `attempts` has
    /// ended here and was forgotten; an assignment with a higher epoch has not arrived yet.
    pub floor: Epoch,
    pub attempts: Vec<AttemptReport>,
    /// Attempts that it accepted as part of a batch, and has not begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<EpochRange>,
}

/// Consecutive epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochRange {
    pub first: Epoch,
    pub last: Epoch,
}

/// The longest boot ID and address of a node, and the longest message of an attempt that is kept.
const NODE_TEXT_BYTES_MAX: usize = 256;
const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// The most ranges of epochs. A node has one for each batch.
const RANGES_MAX: usize = 1024;

impl Report {
    /// Whether a node may say this about itself. What it says is stored.
    pub fn is_reasonable(&self) -> bool {
        let is_short = |text: &str| text.len() <= NODE_TEXT_BYTES_MAX;
        is_short(&self.boot_id) && is_short(&self.address) && self.waiting.len() <= RANGES_MAX
    }

    /// Shortens the messages of attempts, which are stored as they are.
    pub fn shorten_messages(&mut self) {
        for attempt in &mut self.attempts {
            if let AttemptPhase::Ended(Exit::NotStarted { message } | Exit::Data { message, .. }) =
                &mut attempt.phase
                && message.len() > MESSAGE_BYTES_MAX
            {
                let end = message.floor_char_boundary(MESSAGE_BYTES_MAX);
                *message = message[..end].into();
            }
        }
    }

    /// What it says about an attempt that it holds and has begun.
    pub fn attempt(&self, epoch: Epoch) -> Option<&AttemptReport> {
        self.attempts.iter().find(|attempt| attempt.epoch == epoch)
    }

    pub fn is_waiting(&self, epoch: Epoch) -> bool {
        self.waiting.iter().any(|range| (range.first..=range.last).contains(&epoch))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptReport {
    pub epoch: Epoch,
    pub phase: AttemptPhase,
    /// Reported together with the end of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spans: Option<Spans>,
    /// How long an attempt that is part of a batch had its place on the node. Reported together with its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Span>,
}

impl AttemptReport {
    pub fn new(epoch: Epoch, phase: AttemptPhase) -> AttemptReport {
        AttemptReport { epoch, phase, spans: None, held: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptPhase {
    Preparing,
    /// It is prepared and waits for `go`: the members of a multi-node attempt start together.
    Ready,
    Running,
    /// It runs, and has been notified that one of its nodes will be evicted.
    Evicting,
    /// It has ended. The agent journals this, and reports it again until it is acknowledged.
    Ended(Exit),
}

/// Everything that a node should hold and do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desired {
    /// How long the agent may continue without hearing from the server, counted from when it sent its report.
    pub lease: Span,
    /// What the node should run. Anything else that it holds must stop, if its epoch is below `as_of`.
    pub assignments: Vec<Assignment>,
    /// Epochs from here on did not exist when this answer was created, so it has nothing to do with them. This matters
    /// because the answer to a newer report can be created before an older report is answered.
    pub as_of: Epoch,
    /// Epochs up to here that the node has not accepted are void: it must never start them, even if an older message
    /// that assigns them arrives later. Its next report confirms this.
    pub floor: Epoch,
    /// Endings that are on the server's disk, so the agent may forget them.
    pub acknowledged: Vec<Epoch>,
    /// The node is no longer needed: it must stop everything and end.
    pub end: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub epoch: Epoch,
    pub job_name: Box<str>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    pub spec: SpecHash,
    /// This node's number among the members, from 0.
    pub rank: u32,
    pub nodes: u32,
    /// The share of the node that the attempt holds, and may not exceed. `None` if it holds the whole node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Box<Capacity>>,
    /// Whether it may start as soon as it is prepared. With several members, this is set once all of them are ready;
    /// an older server that does not know this field lets each member start by itself.
    #[serde(default = "at_once")]
    pub go: bool,
    /// The addresses of the members, by rank. Empty for a single node, and once this member has been prepared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Box<str>>,
    /// One of its nodes will be evicted: it has this long to end by itself, from when the agent receives this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evict: Option<Span>,
    /// Set if the job is a task of an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Box<ArrayTask>>,
    /// The indices of the tasks of the same array that the node starts by itself in the same place, one after the other,
    /// when this one has ended. Their epochs follow this one's without gaps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub followers: Vec<u32>,
    /// The node has to return those of them that it has not begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_recalled: bool,
}

impl Assignment {
    /// The epoch of the last task that follows, or its own.
    pub fn last_epoch(&self) -> Epoch {
        Epoch(self.epoch.0 + self.followers.len() as u64)
    }

    /// Whether it is about this epoch: its own, or that of a task that follows.
    pub fn covers(&self, epoch: Epoch) -> bool {
        (self.epoch..=self.last_epoch()).contains(&epoch)
    }

    /// The assignments of the tasks that follow.
    pub fn of_followers(&self) -> impl Iterator<Item = Assignment> {
        let indices = self
            .task
            .iter()
            .flat_map(|task| self.followers.iter().map(move |index| (task, *index)));
        (1..).zip(indices).map(|(place, (task, index))| Assignment {
            epoch: Epoch(self.epoch.0 + place),
            job_name: child_name(&task.array, index),
            attempt: 1,
            task: Some(Box::new(ArrayTask { index, ..(**task).clone() })),
            followers: Vec::new(),
            is_recalled: false,
            evict: None,
            ..self.clone()
        })
    }
}

/// Which task of which array a job is. Its command finds this in its environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayTask {
    pub array: Box<str>,
    pub index: u32,
    /// The number of tasks of the array.
    pub count: u32,
}

fn at_once() -> bool {
    true
}

/// Above the ports of well-known services, and below those that Linux assigns to outgoing connections.
const FIRST_MASTER_PORT: u16 = 20_000;
const MASTER_PORTS: u16 = 10_000;

/// The port on the node of rank 0 at which the members of an attempt meet. It follows from the epoch, so all members
/// agree on it. Two attempts whose rank 0 is on the same node at the same time never have the same port.
pub fn master_port(epoch: Epoch) -> u16 {
    let offset = epoch.0 % u64::from(MASTER_PORTS);
    FIRST_MASTER_PORT + u16::try_from(offset).expect("below the number of ports")
}

impl Desired {
    /// Whether a node that sent this report has to do anything because of it.
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
            |epoch: Epoch| self.assignments.iter().any(|assignment| assignment.covers(epoch));
        // A node has few ranges, but their lengths are what it says.
        let must_return = report.waiting.iter().any(|range| {
            let known = self.as_of.0.saturating_sub(1).min(range.last.0);
            let mut may_wait = self.assignments.iter().filter(|assignment| !assignment.is_recalled);
            range.first.0 <= known
                && !may_wait.any(|one| one.covers(range.first) && one.covers(Epoch(known)))
        });
        let must_stop = report.attempts.iter().any(|attempt| match attempt.phase {
            AttemptPhase::Preparing
            | AttemptPhase::Ready
            | AttemptPhase::Running
            | AttemptPhase::Evicting => !is_assigned(attempt.epoch),
            AttemptPhase::Ended(_) => false,
        });
        self.end
            || !self.acknowledged.is_empty()
            || self.floor > report.floor
            || must_start
            || must_hear
            || must_stop
            || must_return
    }
}

/// The cloud's name for Azure's clients. It must differ from the names of Azure's own clouds, because clients prefer the
/// addresses that they have built in for those.
pub const CLOUD_NAME: &str = "Muster";

/// Facts about an attempt for the programs in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFacts {
    /// The token that the attempt authenticates with while it is live.
    pub token: Box<str>,
    /// When the token expires, unless the attempt ends earlier.
    pub token_ends_unix: u64,
    /// The address of the server, as seen by jobs.
    pub endpoint: Box<str>,
    pub workspace_id: Box<str>,
    /// The client ID of the cluster's managed identity, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Box<str>>,
    /// A secret that only the members of this attempt know, with which they recognise each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members_key: Option<Box<str>>,
}

/// A folder or file that an attempt reads: its code, or an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataList {
    /// Whether it is a single file, as opposed to a folder that contains one.
    pub is_file: bool,
    pub files: Vec<DataFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// The path below the folder, with `/` between names.
    pub path: Box<str>,
    pub bytes: u64,
}
