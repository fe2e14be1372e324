//! How long ended jobs and their logs are kept: whether they may be removed follows from the job and the time alone.
//!
//! World does not hold ended jobs, so the driver looks for those that are due in the rows, in the order in which they
//! were submitted, and proposes a few at a time with [`Input::RemoveExpired`](crate::Input::RemoveExpired). The same
//! rule then decides about each of them again, with the rows and the time of the step that removes it.
//!
//! A job with children is kept and removed together with them. It ends when the last of its children has ended, so its
//! own end is the one that counts.

use crate::model::{Job, JobState};
use crate::time::{Span, Wall};

/// How long jobs and their logs are kept after the end of the job. `None` means for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobRetention {
    pub jobs: Option<Span>,
    /// Logs are removed with their job at the latest.
    pub logs: Option<Span>,
}

/// Whether something is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    Now,
    Later,
    /// Later, and so is everything of jobs that were submitted after this one.
    LaterWithAllThatFollow,
}

impl JobRetention {
    /// Whether this job is to be removed, together with its children.
    pub fn job(&self, job: &Job, now: Wall) -> Due {
        due(self.jobs, job, now)
    }

    /// Whether the logs of this job are to be removed, together with those of its children.
    pub fn logs(&self, job: &Job, now: Wall) -> Due {
        due(self.logs, job, now)
    }
}

fn due(kept: Option<Span>, job: &Job, now: Wall) -> Due {
    let Some(kept) = kept else { return Due::LaterWithAllThatFollow };
    if job.submitted_at + kept > now {
        return Due::LaterWithAllThatFollow;
    }
    match ended_at(job) {
        // Children are judged with their parent.
        Some(at) if at + kept <= now && job.parent.is_none() => Due::Now,
        Some(_) | None => Due::Later,
    }
}

fn ended_at(job: &Job) -> Option<Wall> {
    match &job.state {
        JobState::Completed { at }
        | JobState::Failed { at, .. }
        | JobState::Canceled { at, .. } => Some(*at),
        JobState::Queued
        | JobState::Starting(_)
        | JobState::Running(_)
        | JobState::CancelRequested(_)
        | JobState::Parent(_) => None,
    }
}
