//! Jobs and their attempts.
//!
//! World holds a job only while it is live, and only what decisions need; its specification and every
//! finished job are rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    CancelReason, Capacity, CodeAsset, Cost, Distribution, Exit, Failure, JobEnvironment,
    JobIdentity, JobInput, JobOutput, JobService, JobTier, LedgerSegment, Lifecycle, Meter, Part,
    RecipeMark, SpecHash, TreeId, Use, Verdict, WorkspaceKey,
};
use crate::ids::{ClusterId, Epoch, JobId, NodeId, PrincipalId, WorkspaceId};
use crate::time::{Span, Wall};

/// What the user asked to run. Never held by World.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    pub command: Box<str>,
    /// The compute's name as the user wrote it; it outlives the cluster.
    pub compute: Box<str>,
    pub nodes: u32,
    pub display_name: Option<Box<str>>,
    pub experiment_name: Box<str>,
    pub description: Option<Box<str>>,
    pub tags: BTreeMap<String, String>,
    pub environment_variables: BTreeMap<String, String>,
    pub timeout: Option<Span>,
    #[serde(default, skip_serializing_if = "Priority::is_usual")]
    pub priority: Priority,
    /// The part of each node that it needs. Nothing named: whole nodes.
    #[serde(default, skip_serializing_if = "ShareRequest::is_whole")]
    pub share: ShareRequest,
    #[serde(default, skip_serializing_if = "OnEviction::is_usual")]
    pub on_eviction: OnEviction,
    /// The files that are in its working folder when it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<TreeId>,
    /// The folder, below its working folder, that is kept while it runs and is there again in its next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Box<str>>,
    /// The same as `code`, as clients of Azure name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_asset: Option<Box<CodeAsset>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, JobInput>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, JobOutput>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// The size of its `/dev/shm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_memory_mb: Option<u64>,
    /// What clients note about it, such as the state of its repository. Nothing follows from them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// Where it was submitted: its programs ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Box<WorkspaceKey>>,
    /// The size of its nodes, as it was written, if it names no compute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_tier: Option<JobTier>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Box<JobIdentity>>,
    /// The Python that its command finds; in a box, as it is large and many have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Box<JobEnvironment>>,
    /// What people open while it runs, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, JobService>,
}

impl JobSpec {
    /// Under this name its properties have what its owner should know although nothing is wrong.
    pub const NOTE: &str = "muster.note";

    /// A command on one whole node, with nothing else said.
    pub fn new(compute: &str, command: impl Into<Box<str>>) -> JobSpec {
        JobSpec {
            command: command.into(),
            compute: compute.into(),
            nodes: 1,
            display_name: None,
            experiment_name: "Default".into(),
            description: None,
            tags: BTreeMap::new(),
            environment_variables: BTreeMap::new(),
            timeout: None,
            priority: Priority::default(),
            share: ShareRequest::default(),
            on_eviction: OnEviction::default(),
            code: None,
            checkpoint: None,
            code_asset: None,
            inputs: BTreeMap::new(),
            outputs: BTreeMap::new(),
            distribution: None,
            shared_memory_mb: None,
            properties: BTreeMap::new(),
            workspace: None,
            instance_type: None,
            job_tier: None,
            identity: None,
            environment: None,
            services: BTreeMap::new(),
        }
    }
}

/// What becomes of a job whose low-priority node is taken away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnEviction {
    /// It waits again, before all others of its priority.
    #[default]
    Requeue,
    /// As Azure does it.
    Fail,
}

impl OnEviction {
    fn is_usual(&self) -> bool {
        *self == OnEviction::default()
    }
}

/// Whether a job suits nodes that can be taken away at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LowPriority {
    /// It goes on from its last checkpoint.
    Suits,
    /// It is tried again, from its beginning.
    BeginsAnew,
    /// It asked to fail then.
    Fails,
}

impl JobSpec {
    pub fn at_low_priority(&self) -> LowPriority {
        match (self.on_eviction, self.checkpoint.is_some()) {
            (OnEviction::Fail, _) => LowPriority::Fails,
            (OnEviction::Requeue, true) => LowPriority::Suits,
            (OnEviction::Requeue, false) => LowPriority::BeginsAnew,
        }
    }
}

/// Who goes first when not all can. Azure's three.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Priority {
    Low,
    #[default]
    Medium,
    High,
}

impl Priority {
    fn is_usual(&self) -> bool {
        *self == Priority::default()
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Priority::Low => "low",
            Priority::Medium => "medium",
            Priority::High => "high",
        }
    }
}

/// A part of a node as users ask for it. What is left out follows in proportion to what is named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
}

impl ShareRequest {
    pub fn is_whole(&self) -> bool {
        *self == ShareRequest::default()
    }

    /// The share of a node of this capacity; `None` for a whole one.
    pub fn of(self, node: Capacity) -> Option<Capacity> {
        if self.is_whole() {
            return None;
        }
        let named = [
            (self.vcpus.map(u64::from), u64::from(node.vcpus)),
            (self.memory_mb, node.memory_mb),
            (self.gpus.map(u64::from), u64::from(node.gpus)),
        ];
        // The largest part that is named, as a fraction.
        let (taken, all) = named
            .into_iter()
            .filter_map(|(taken, all)| Some((taken?, all)).filter(|(_, all)| *all > 0))
            .max_by(|(a, all_a), (b, all_b)| {
                (u128::from(*a) * u128::from(*all_b)).cmp(&(u128::from(*b) * u128::from(*all_a)))
            })
            .unwrap_or((0, 1));
        let fill = |named: Option<u64>, have: u64| {
            let in_proportion = u128::from(have) * u128::from(taken) / u128::from(all);
            named.unwrap_or_else(|| u64::try_from(in_proportion).unwrap_or(u64::MAX))
        };
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Some(Capacity {
            // Something always runs on a core.
            vcpus: small(fill(self.vcpus.map(u64::from), u64::from(node.vcpus))).max(1),
            memory_mb: fill(self.memory_mb, node.memory_mb).max(1),
            // GPUs only for those who ask for some.
            gpus: self.gpus.unwrap_or(0),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Drawn at submit, kept for life: first come is smallest id, so a job that lost its node goes back
    /// to where it stood, unless [`Job::is_returned`].
    pub id: JobId,
    pub workspace: WorkspaceId,
    pub cluster: ClusterId,
    pub name: Box<str>,
    pub principal: PrincipalId,
    pub nodes: u32,
    /// What it takes of each node; `None` is all of it. In a box, as hardly any job has one.
    pub share: Option<Box<Capacity>>,
    pub priority: Priority,
    pub spec: SpecHash,
    pub submitted_at: Wall,
    /// Attempts granted so far.
    pub attempts: u32,
    /// How many of them ended because a node was lost, evictions aside.
    pub losses: u32,
    #[serde(default, skip_serializing_if = "OnEviction::is_usual")]
    pub on_eviction: OnEviction,
    /// Its last attempt ended because a node was taken away: it waits before all others of its priority.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_returned: bool,
    /// What its Python is made of, if that has to be built: a host that has it is preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<RecipeMark>,
    pub state: JobState,
}

fn is_false(value: &bool) -> bool {
    !value
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    Queued,
    Starting(Box<Attempt>),
    Running(Box<Attempt>),
    CancelRequested(Box<Attempt>),
    Completed { at: Wall },
    Failed { at: Wall, why: Box<Failure> },
    Canceled { at: Wall, why: CancelReason },
}

/// One try at a job: the holder of its live epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub epoch: Epoch,
    pub number: u32,
    pub granted_at: Wall,
    pub started_at: Option<Wall>,
    /// Every member is ready, so that all may start. One alone need not wait; nor did any before there was
    /// this word.
    #[serde(default = "at_once")]
    pub go: bool,
    /// By rank.
    pub members: Vec<Member>,
    /// Set by the first thing that decides how it ends; from then on every member is asked to stop.
    pub verdict: Option<Verdict>,
    /// A node of it will be taken away: every member is told, and given the same time to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<NodeId>,
    /// How long it was thought to take when it was granted. Never used to end it.
    pub predicted: Span,
    /// What its principal was charged for that, to be taken back when the real use is known.
    pub charged: Use,
}

fn at_once() -> bool {
    true
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub node: NodeId,
    pub price_micro_usd_per_hour: u64,
    /// How much of the node it holds.
    #[serde(default)]
    pub part: Part,
    pub phase: MemberPhase,
    /// Runs while it holds its part of the node.
    pub meter: Option<Meter>,
    /// The node's time that went into this attempt, posted to the ledger when its outcome is known.
    pub spent: Vec<LedgerSegment>,
    /// From when to when the node was made, if this is the first that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<(Wall, Wall)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spans: Option<Spans>,
}

/// How long a member took, as its agent measured it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spans {
    /// Code and data, before it started.
    pub fetch: Span,
    /// Its processes.
    #[serde(default)]
    pub run: Span,
    /// What it left, after its processes had ended.
    pub finalise: Span,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberPhase {
    /// The node is (or will be) told to run it.
    Ordered,
    /// It could start, and waits for the others.
    Ready,
    Running,
    Exited(Exit),
    /// The node is lost, and with it what it ran.
    Lost,
}

impl MemberPhase {
    pub fn is_over(&self) -> bool {
        match self {
            MemberPhase::Ordered | MemberPhase::Ready | MemberPhase::Running => false,
            MemberPhase::Exited(_) | MemberPhase::Lost => true,
        }
    }
}

/// How an attempt ended, kept for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    pub job: JobId,
    pub epoch: Epoch,
    pub number: u32,
    pub granted_at: Wall,
    pub started_at: Option<Wall>,
    pub ended_at: Wall,
    pub members: Vec<Member>,
    pub outcome: super::AttemptOutcome,
}

impl Member {
    /// What it cost, up to now if it is not over.
    pub fn cost(&self, now: Wall) -> Cost {
        let mut cost = Cost::default();
        let open = self.meter.map(|meter| now - meter.since);
        for span in self.spent.iter().map(|piece| piece.to - piece.from).chain(open) {
            cost.add(self.part, span, self.price_micro_usd_per_hour);
        }
        cost
    }
}

impl JobState {
    /// The attempt of a state that has one.
    pub(crate) fn into_attempt(self) -> Attempt {
        match self {
            JobState::Starting(attempt)
            | JobState::Running(attempt)
            | JobState::CancelRequested(attempt) => *attempt,
            JobState::Queued
            | JobState::Completed { .. }
            | JobState::Failed { .. }
            | JobState::Canceled { .. } => unreachable!("a job that holds nodes has an attempt"),
        }
    }
}

impl Attempt {
    pub fn is_over(&self) -> bool {
        self.members.iter().all(|member| member.phase.is_over())
    }

    /// How long after its predicted end an attempt counts as just ending: news takes its time.
    pub const GRACE: Span = Span::seconds(60);

    /// When it will probably free its nodes. Whoever has been wrong once is given twice the time.
    pub fn predicted_end(&self, now: Wall) -> Wall {
        let predicted = self.predicted.0.max(1_000_000);
        let so_far = (now - self.granted_at).0.saturating_sub(Attempt::GRACE.0);
        let doublings = (so_far / predicted + 1).next_power_of_two().trailing_zeros();
        let factor = 1u64.checked_shl(doublings).unwrap_or(u64::MAX);
        self.granted_at + Span(predicted.saturating_mul(factor))
    }
}

impl Job {
    pub fn phase(&self) -> JobPhase {
        match self.state {
            JobState::Queued => JobPhase::Queued,
            JobState::Starting(_) => JobPhase::Starting,
            JobState::Running(_) => JobPhase::Running,
            JobState::CancelRequested(_) => JobPhase::CancelRequested,
            JobState::Completed { .. } => JobPhase::Completed,
            JobState::Failed { .. } => JobPhase::Failed,
            JobState::Canceled { .. } => JobPhase::Canceled,
        }
    }

    /// What jobs that are placed alike have in common.
    pub fn shape(&self) -> Shape {
        Shape { nodes: self.nodes, share: self.share.as_deref().copied() }
    }

    pub fn attempt(&self) -> Option<&Attempt> {
        match &self.state {
            JobState::Starting(attempt)
            | JobState::Running(attempt)
            | JobState::CancelRequested(attempt) => Some(attempt),
            JobState::Queued
            | JobState::Completed { .. }
            | JobState::Failed { .. }
            | JobState::Canceled { .. } => None,
        }
    }
}

/// How many nodes, and how much of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    pub nodes: u32,
    pub share: Option<Capacity>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum JobPhase {
    Queued,
    Starting,
    Running,
    CancelRequested,
    Completed,
    Failed,
    Canceled,
}

impl JobPhase {
    pub fn is_terminal(self) -> bool {
        match self {
            JobPhase::Completed | JobPhase::Failed | JobPhase::Canceled => true,
            JobPhase::Queued
            | JobPhase::Starting
            | JobPhase::Running
            | JobPhase::CancelRequested => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobEvent {
    Submitted,
    Granted,
    /// Every one of several members is prepared: they may start.
    Ready,
    /// Every member runs.
    Started,
    CancelAsked,
    Succeeded,
    Failed,
    Requeued,
    Canceled,
    /// One of its nodes will be taken away.
    EvictionNoticed,
}

impl Lifecycle for JobPhase {
    type Event = JobEvent;
    const NAME: &'static str = "job";
    const INITIAL: Self = JobPhase::Queued;
    const PHASES: &'static [Self] = &[
        JobPhase::Queued,
        JobPhase::Starting,
        JobPhase::Running,
        JobPhase::CancelRequested,
        JobPhase::Completed,
        JobPhase::Failed,
        JobPhase::Canceled,
    ];
    const EVENTS: &'static [JobEvent] = &[
        JobEvent::Submitted,
        JobEvent::Granted,
        JobEvent::Ready,
        JobEvent::Started,
        JobEvent::CancelAsked,
        JobEvent::Succeeded,
        JobEvent::Failed,
        JobEvent::Requeued,
        JobEvent::Canceled,
        JobEvent::EvictionNoticed,
    ];

    fn after(self, event: JobEvent) -> Option<JobPhase> {
        use JobEvent as E;
        use JobPhase as P;
        match (self, event) {
            (P::Queued, E::Submitted) => Some(P::Queued),
            (P::Queued, E::Granted) => Some(P::Starting),
            (P::Queued, E::Canceled) => Some(P::Canceled),
            (
                P::Queued,
                E::Ready
                | E::Started
                | E::CancelAsked
                | E::Succeeded
                | E::Failed
                | E::Requeued
                | E::EvictionNoticed,
            ) => None,
            (P::Starting, E::Ready | E::EvictionNoticed) => Some(P::Starting),
            (P::Running, E::EvictionNoticed) => Some(P::Running),
            (P::Starting, E::Started) => Some(P::Running),
            (P::Starting | P::Running, E::CancelAsked) => Some(P::CancelRequested),
            (P::Starting | P::Running | P::CancelRequested, E::Succeeded) => Some(P::Completed),
            (P::Starting | P::Running | P::CancelRequested, E::Failed) => Some(P::Failed),
            (P::Starting | P::Running, E::Requeued) => Some(P::Queued),
            (P::CancelRequested, E::Canceled) => Some(P::Canceled),
            (P::Starting, E::Submitted | E::Granted | E::Canceled) => None,
            (P::Running, E::Submitted | E::Granted | E::Ready | E::Started | E::Canceled) => None,
            // Once its end was asked for, a lost node cannot bring it back to the queue.
            (
                P::CancelRequested,
                E::Submitted
                | E::Granted
                | E::Ready
                | E::Started
                | E::CancelAsked
                | E::Requeued
                | E::EvictionNoticed,
            ) => None,
            (
                P::Completed | P::Failed | P::Canceled,
                E::Submitted
                | E::Granted
                | E::Ready
                | E::Started
                | E::CancelAsked
                | E::Succeeded
                | E::Failed
                | E::Requeued
                | E::Canceled
                | E::EvictionNoticed,
            ) => None,
        }
    }
}
