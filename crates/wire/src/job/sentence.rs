//! What a job is doing, or how it ended, as one sentence.

use muster_core::model::{CancelReason, JobState};

use super::array::counts_text;
use super::resource::failure_text;
use super::{Family, JobFacts};
use crate::timestamp;

impl JobFacts<'_> {
    pub fn sentence(&self) -> String {
        let name = &self.job.name;
        let started = || self.started_at().map(timestamp::format);
        match &self.job.state {
            JobState::Queued => {
                format!("job '{name}' was queued at {}", timestamp::format(self.job.submitted_at))
            }
            JobState::Starting(attempt) => {
                let since = timestamp::format(attempt.granted_at);
                format!("job '{name}' has had its nodes since {since} and is about to start")
            }
            JobState::Running(attempt) => {
                let since = started().unwrap_or_else(|| timestamp::format(attempt.granted_at));
                format!("job '{name}' has been running since {since}")
            }
            JobState::CancelRequested(attempt) => {
                let since = started().unwrap_or_else(|| timestamp::format(attempt.granted_at));
                format!("job '{name}' has been running since {since} and is being canceled")
            }
            JobState::Parent(parent) => {
                let since = timestamp::format(parent.since);
                let end = match parent.ending {
                    Some(_) => " and is being canceled",
                    None => "",
                };
                format!("job '{name}' has been running since {since}{end}{}", self.children())
            }
            JobState::Completed { at } => {
                format!("job '{name}' completed at {}", timestamp::format(*at))
            }
            JobState::Failed { at, why } => {
                let (class, at) = (why.class().as_str(), timestamp::format(*at));
                let why = failure_text(why, self.spec);
                format!("job '{name}' failed at {at} ({class}): {why}")
            }
            JobState::Canceled { at, why: CancelReason::Asked } => {
                format!("job '{name}' was canceled at {}", timestamp::format(*at))
            }
            JobState::Canceled { at, why: CancelReason::ClusterDeleted } => {
                let at = timestamp::format(*at);
                format!("job '{name}' was canceled at {at}, because its compute was deleted")
            }
            JobState::Canceled { at, why: CancelReason::ParentTimedOut } => {
                let at = timestamp::format(*at);
                format!(
                    "job '{name}' was canceled at {at}, because the time limit of its array was reached"
                )
            }
            JobState::Canceled { at, why: CancelReason::InstanceStopped } => {
                let at = timestamp::format(*at);
                format!("job '{name}' was canceled at {at}, because its compute was stopped")
            }
        }
    }

    fn children(&self) -> String {
        match self.family {
            Family::Parent { counts, .. } => format!(" ({})", counts_text(counts)),
            Family::Alone | Family::Child { .. } => String::new(),
        }
    }
}
