//! Jobs and their attempts.
//!
//! World holds a job only while it is live, and only what decisions need. Its specification and every finished job are
//! only in rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    ArrayPlan, CancelReason, Capacity, CodeAsset, Cost, Distribution, Exit, Failure,
    JobEnvironment, JobIdentity, JobInput, JobKind, JobOutput, JobService, JobTier, LedgerSegment,
    Lifecycle, Meter, ParentState, Part, RecipeMark, SpecHash, TreeId, Use, Verdict, WorkspaceKey,
};
use crate::ids::{ClusterId, Epoch, JobId, NodeId, PrincipalId, WorkspaceId};
use crate::time::{Span, Wall};

/// What the user asked to run. World never holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    pub command: Box<str>,
    /// The name of the compute as the user wrote it. It is kept when the cluster is deleted.
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
    /// The part of each node that it needs. If nothing is named, it needs whole nodes.
    #[serde(default, skip_serializing_if = "ShareRequest::is_whole")]
    pub share: ShareRequest,
    #[serde(default, skip_serializing_if = "OnEviction::is_usual")]
    pub on_eviction: OnEviction,
    /// The files that are in its working folder when it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<TreeId>,
    /// The checkpoint folder, below its working folder. It is saved while the job runs and restored in its next
    /// attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Box<str>>,
    /// The code as Azure's clients name it.
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
    /// What clients attach to it, such as the state of its repository. Muster does not interpret it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// The workspace that it was submitted to, for its programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Box<WorkspaceKey>>,
    /// The size of its nodes as the user wrote it, if it names no compute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_tier: Option<JobTier>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Box<JobIdentity>>,
    /// The Python environment of its command. Boxed, because it is large and many jobs have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Box<JobEnvironment>>,
    /// The services that users can open while it runs, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, JobService>,
    /// Makes it an array: the command runs once for each index, with its own nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Box<ArrayPlan>>,
}

impl JobSpec {
    /// The property with a note for the job's owner, although nothing is wrong.
    pub const NOTE: &str = "muster.note";

    /// A command on one whole node, with defaults for everything else.
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
            array: None,
        }
    }
}

/// What happens to a job whose low-priority node is evicted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnEviction {
    /// It returns to the queue, ahead of all other jobs of its priority.
    #[default]
    Requeue,
    /// It fails, as on Azure.
    Fail,
}

impl OnEviction {
    fn is_usual(&self) -> bool {
        *self == OnEviction::default()
    }
}

/// Whether a job is suited for nodes that can be evicted at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LowPriority {
    /// It resumes from its last checkpoint.
    Suits,
    /// It starts over from the beginning.
    BeginsAnew,
    /// It asked to fail in that case.
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

    /// Whether its programs get tokens of the user who submitted it. Everyone who may run jobs in its workspace can open
    /// its services, and other jobs on its node share the connection on which the tokens are issued. In both cases
    /// others could act as that user, so such jobs get no tokens.
    pub fn acts_as_submitter(&self) -> bool {
        let is_alone = self.services.is_empty() && self.share.is_whole();
        self.identity.as_deref() == Some(&JobIdentity::User) && is_alone
    }
}

/// Which jobs go first when not all can run. These are Azure's three levels.
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

/// A part of a node as requested by a user. Values that are left out follow in proportion to those that are given.
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

    /// The share of a node of this capacity, or `None` for a whole node.
    pub fn of(self, node: Capacity) -> Option<Capacity> {
        if self.is_whole() {
            return None;
        }
        let named = [
            (self.vcpus.map(u64::from), u64::from(node.vcpus)),
            (self.memory_mb, node.memory_mb),
            (self.gpus.map(u64::from), u64::from(node.gpus)),
        ];
        // The largest requested part, as a fraction.
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
            // Every job needs at least one core.
            vcpus: small(fill(self.vcpus.map(u64::from), u64::from(node.vcpus))).max(1),
            memory_mb: fill(self.memory_mb, node.memory_mb).max(1),
            // GPUs are given only to jobs that ask for them.
            gpus: self.gpus.unwrap_or(0),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Drawn at submit and never changed. The earliest job has the smallest ID, so a job that lost its node returns to
    /// its old place in the queue, unless [`Job::is_returned`].
    pub id: JobId,
    pub workspace: WorkspaceId,
    pub cluster: ClusterId,
    pub name: Box<str>,
    #[serde(default, skip_serializing_if = "JobKind::is_command")]
    pub kind: JobKind,
    /// The job that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    pub principal: PrincipalId,
    pub nodes: u32,
    /// Its share of each node; `None` is the whole node. Boxed, because hardly any job has one.
    pub share: Option<Box<Capacity>>,
    pub priority: Priority,
    pub spec: SpecHash,
    pub submitted_at: Wall,
    /// Attempts granted so far.
    pub attempts: u32,
    /// How many of them ended because a node was lost, not counting evictions.
    pub losses: u32,
    #[serde(default, skip_serializing_if = "OnEviction::is_usual")]
    pub on_eviction: OnEviction,
    /// Its last attempt was evicted, so it waits ahead of all other jobs of its priority.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_returned: bool,
    /// Identifies its Python environment, if that has to be built. A host that already has it is preferred.
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
    /// It consists of other jobs, some of which have started.
    Parent(Box<ParentState>),
    Completed {
        at: Wall,
    },
    Failed {
        at: Wall,
        why: Box<Failure>,
    },
    Canceled {
        at: Wall,
        why: CancelReason,
    },
}

/// One attempt to run a job, which holds its live epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub epoch: Epoch,
    pub number: u32,
    pub granted_at: Wall,
    pub started_at: Option<Wall>,
    /// Every member is ready, so all may start. A single member need not wait; nor did attempts that were stored before
    /// this field existed.
    #[serde(default = "at_once")]
    pub go: bool,
    /// The members by rank.
    pub members: Vec<Member>,
    /// Set by the first event that decides how it ends. From then on every member is asked to stop.
    pub verdict: Option<Verdict>,
    /// The node that will be evicted. Every member is notified and has the same time to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<NodeId>,
    /// How long it was predicted to take when it was granted. It is never stopped because of this.
    pub predicted: Span,
    /// What its user was charged for the prediction. It is replaced when the actual use is known.
    pub charged: Use,
}

fn at_once() -> bool {
    true
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub node: NodeId,
    pub price_micro_usd_per_hour: u64,
    /// The part of the node that it holds.
    #[serde(default)]
    pub part: Part,
    pub phase: MemberPhase,
    /// Open while it holds its part of the node.
    pub meter: Option<Meter>,
    /// The node time spent on this attempt, posted to the ledger when its outcome is known.
    pub spent: Vec<LedgerSegment>,
    /// When the node was requested and when it was ready, if this is its first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<(Wall, Wall)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spans: Option<Spans>,
}

/// How long the phases of a member took, as measured by its agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spans {
    /// Fetching code and data, before it started.
    pub fetch: Span,
    /// Running its processes.
    #[serde(default)]
    pub run: Span,
    /// Saving its outputs, after its processes had ended.
    pub finalise: Span,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberPhase {
    /// The node has been assigned to run it, or will be.
    Ordered,
    /// It is prepared and waits for the other members.
    Ready,
    Running,
    Exited(Exit),
    /// The node is lost, together with everything that it ran.
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

/// How an attempt ended. This record is kept as long as its job.
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
    /// Its cost, up to now if it has not ended.
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
            | JobState::Parent(_)
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

    /// How long after its predicted end an attempt still counts as just ending, because reports take a while.
    pub const GRACE: Span = Span::seconds(60);

    /// When it will probably free its nodes. Each time the prediction turns out too short, it is doubled.
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
            JobState::Parent(ref parent) if parent.ending.is_some() => JobPhase::CancelRequested,
            JobState::Parent(_) => JobPhase::Running,
            JobState::Completed { .. } => JobPhase::Completed,
            JobState::Failed { .. } => JobPhase::Failed,
            JobState::Canceled { .. } => JobPhase::Canceled,
        }
    }

    /// What jobs have in common that can be placed on the same nodes.
    pub fn shape(&self) -> Shape {
        Shape { nodes: self.nodes, share: self.share.as_deref().copied() }
    }

    pub fn attempt(&self) -> Option<&Attempt> {
        match &self.state {
            JobState::Starting(attempt)
            | JobState::Running(attempt)
            | JobState::CancelRequested(attempt) => Some(attempt),
            JobState::Queued
            | JobState::Parent(_)
            | JobState::Completed { .. }
            | JobState::Failed { .. }
            | JobState::Canceled { .. } => None,
        }
    }
}

/// The number of nodes, and the share of each.
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
    /// All members of a multi-node attempt are prepared, so they may start.
    Ready,
    /// Every member is running.
    Started,
    CancelAsked,
    Succeeded,
    Failed,
    Requeued,
    Canceled,
    /// One of its nodes will be evicted.
    EvictionNoticed,
    /// The first child of a parent has started.
    ChildStarted,
    /// Each child of a parent was canceled by itself.
    ChildrenCanceled,
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
        JobEvent::ChildStarted,
        JobEvent::ChildrenCanceled,
    ];

    fn after(self, event: JobEvent) -> Option<JobPhase> {
        use JobEvent as E;
        use JobPhase as P;
        match (self, event) {
            (P::Queued, E::Submitted) => Some(P::Queued),
            (P::Queued, E::Granted) => Some(P::Starting),
            (P::Queued, E::Canceled) => Some(P::Canceled),
            // Only parents know these two events.
            (P::Queued, E::ChildStarted) => Some(P::Running),
            (P::Running, E::ChildrenCanceled) => Some(P::Canceled),
            (
                P::Queued,
                E::Ready
                | E::Started
                | E::CancelAsked
                | E::Succeeded
                | E::Failed
                | E::Requeued
                | E::EvictionNoticed
                | E::ChildrenCanceled,
            ) => None,
            (P::Starting, E::Ready | E::EvictionNoticed) => Some(P::Starting),
            (P::Running, E::EvictionNoticed) => Some(P::Running),
            (P::Starting, E::Started) => Some(P::Running),
            (P::Starting | P::Running, E::CancelAsked) => Some(P::CancelRequested),
            (P::Starting | P::Running | P::CancelRequested, E::Succeeded) => Some(P::Completed),
            (P::Starting | P::Running | P::CancelRequested, E::Failed) => Some(P::Failed),
            (P::Starting | P::Running, E::Requeued) => Some(P::Queued),
            (P::CancelRequested, E::Canceled) => Some(P::Canceled),
            (
                P::Starting,
                E::Submitted | E::Granted | E::Canceled | E::ChildStarted | E::ChildrenCanceled,
            ) => None,
            (
                P::Running,
                E::Submitted | E::Granted | E::Ready | E::Started | E::Canceled | E::ChildStarted,
            ) => None,
            // Once a cancel was requested, a lost node cannot return the job to the queue.
            (
                P::CancelRequested,
                E::Submitted
                | E::Granted
                | E::Ready
                | E::Started
                | E::CancelAsked
                | E::Requeued
                | E::EvictionNoticed
                | E::ChildStarted
                | E::ChildrenCanceled,
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
                | E::EvictionNoticed
                | E::ChildStarted
                | E::ChildrenCanceled,
            ) => None,
        }
    }
}
