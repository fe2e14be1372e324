//! Jobs and their attempts.
//!
//! World holds a job only while it is live, and only what decisions need; its specification and every
//! finished job are rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Lifecycle, Segment};
use crate::ids::{ClusterId, Epoch, JobId, NodeId, PrincipalId, WorkspaceId};
use crate::time::{Span, Wall};

/// SHA-256 of the specification's stored text, in hex: what an agent fetches it by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpecHash(pub Box<str>);

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
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Drawn at submit, kept for life: first come is smallest id, so a job that lost its node goes back
    /// to where it stood.
    pub id: JobId,
    pub workspace: WorkspaceId,
    pub cluster: ClusterId,
    pub name: Box<str>,
    pub principal: PrincipalId,
    pub nodes: u32,
    pub spec: SpecHash,
    pub submitted_at: Wall,
    /// Attempts granted so far.
    pub attempts: u32,
    pub state: JobState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    Queued,
    Starting(Attempt),
    Running(Attempt),
    CancelRequested(Attempt),
    Completed { at: Wall },
    Failed { at: Wall, why: Failure },
    Canceled { at: Wall, why: CancelReason },
}

/// One try at a job: the holder of its live epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub epoch: Epoch,
    pub number: u32,
    pub granted_at: Wall,
    pub started_at: Option<Wall>,
    pub members: Vec<Member>,
    /// Set by the first thing that decides how it ends; from then on every member is asked to stop.
    pub verdict: Option<Verdict>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub node: NodeId,
    pub price_micro_usd_per_hour: u64,
    pub phase: MemberPhase,
    /// The node's time that went into this attempt, posted to the ledger when its outcome is known.
    pub spent: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberPhase {
    /// The node is (or will be) told to run it.
    Ordered,
    Running,
    Exited(Exit),
    /// The node is lost, and with it what it ran.
    Lost,
}

impl MemberPhase {
    pub fn is_over(&self) -> bool {
        match self {
            MemberPhase::Ordered | MemberPhase::Running => false,
            MemberPhase::Exited(_) | MemberPhase::Lost => true,
        }
    }
}

/// How a process ended, as its agent saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// It ended because we asked it to.
    Stopped,
    TimedOut,
    /// It never ran: what the agent could not do.
    NotStarted {
        message: Box<str>,
    },
}

impl Exit {
    pub fn is_success(&self) -> bool {
        matches!(self, Exit::Code(0))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    Failed { node: NodeId, exit: Exit },
    NodeLost { node: NodeId },
    Canceled { why: CancelReason },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CancelReason {
    Asked,
    ClusterDeleted,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    Exit {
        node: NodeId,
        exit: Exit,
    },
    /// Its nodes were lost so often that it is not tried again: it may be what kills them.
    NodesLost {
        attempts: u32,
    },
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
    pub outcome: super::Outcome,
}

impl Attempt {
    pub fn is_over(&self) -> bool {
        self.members.iter().all(|member| member.phase.is_over())
    }

    pub fn member_mut(&mut self, node: NodeId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.node == node)
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
    /// Every member runs.
    Started,
    /// Something about a member or the verdict changed, the phase did not.
    Progressed,
    CancelAsked,
    Succeeded,
    Failed,
    Requeued,
    Canceled,
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
        JobEvent::Started,
        JobEvent::Progressed,
        JobEvent::CancelAsked,
        JobEvent::Succeeded,
        JobEvent::Failed,
        JobEvent::Requeued,
        JobEvent::Canceled,
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
                E::Started
                | E::Progressed
                | E::CancelAsked
                | E::Succeeded
                | E::Failed
                | E::Requeued,
            ) => None,
            (P::Starting, E::Started) => Some(P::Running),
            (P::Starting | P::Running | P::CancelRequested, E::Progressed) => Some(self),
            (P::Starting | P::Running, E::CancelAsked) => Some(P::CancelRequested),
            (P::Starting | P::Running | P::CancelRequested, E::Succeeded) => Some(P::Completed),
            (P::Starting | P::Running | P::CancelRequested, E::Failed) => Some(P::Failed),
            (P::Starting | P::Running, E::Requeued) => Some(P::Queued),
            (P::CancelRequested, E::Canceled) => Some(P::Canceled),
            (P::Starting, E::Submitted | E::Granted | E::Canceled) => None,
            (P::Running, E::Submitted | E::Granted | E::Started | E::Canceled) => None,
            // Once its end was asked for, a lost node cannot bring it back to the queue.
            (
                P::CancelRequested,
                E::Submitted | E::Granted | E::Started | E::CancelAsked | E::Requeued,
            ) => None,
            (
                P::Completed | P::Failed | P::Canceled,
                E::Submitted
                | E::Granted
                | E::Started
                | E::Progressed
                | E::CancelAsked
                | E::Succeeded
                | E::Failed
                | E::Requeued
                | E::Canceled,
            ) => None,
        }
    }
}
