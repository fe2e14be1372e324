//! The attempts of a job: when they ran, how they ended, what they cost, their logs, and the files that the last ones
//! left.

use std::collections::BTreeMap;

use muster_core::model::{AttemptOutcome, Cost, Failure, Job, JobState, Member, SavedTree};
use muster_core::time::Wall;
use serde::{Deserialize, Serialize};

use super::resource::failure_text;
use super::{Family, JobFacts, JobStatus, Phases};
use crate::timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempts {
    /// Oldest first.
    pub value: Vec<AttemptEntry>,
    /// The sums over all attempts.
    pub node_microseconds: u64,
    pub micro_usd: u64,
    /// The files that each member left last, by rank.
    #[serde(default)]
    pub saved: Vec<SavedEntry>,
    #[serde(default)]
    pub submitted_at: Option<String>,
    /// When the job ended, or the current time.
    #[serde(default)]
    pub until: Option<String>,
    #[serde(default)]
    pub status: Option<String>,
    /// The time in the queue after the last attempt, until now or until the job was canceled.
    #[serde(default)]
    pub waiting: Option<Phases>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptEntry {
    /// Counted from 1.
    pub number: u32,
    /// The outcome in the ledger's words, or the status of the job while the attempt is running.
    pub outcome: String,
    pub granted_at: String,
    #[serde(default)]
    pub started_at: Option<String>,
    #[serde(default)]
    pub ended_at: Option<String>,
    pub node_microseconds: u64,
    /// The costs of the attempts add up exactly to the cost of the job: each rounding error is carried over to the next
    /// attempt.
    pub micro_usd: u64,
    /// How the time of the attempt was spent.
    #[serde(default)]
    pub phases: Phases,
    /// The phase in which the attempt failed, and why, if it made the job fail or lost its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_in: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// File name → a URL that needs no token.
    #[serde(default)]
    pub log_files: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedEntry {
    pub rank: u32,
    /// The attempt that left the files.
    pub attempt: u32,
    pub saved_at: String,
    pub tree: String,
    pub files: u32,
    pub bytes: u64,
    /// The URL of the file list, which needs no token. With `/` and a digest appended to its path, it is the URL of one
    /// file.
    pub url: String,
}

/// An attempt, which may still be running.
struct Tried<'a> {
    number: u32,
    outcome: &'a str,
    granted_at: Wall,
    started_at: Option<Wall>,
    ended_at: Option<Wall>,
    members: &'a [Member],
}

/// `logs` has the URLs of the logs by attempt number; `url` returns the URL of a tree.
pub fn attempts(
    facts: &JobFacts<'_>,
    now: Wall,
    logs: &BTreeMap<u32, BTreeMap<String, String>>,
    saved: &[SavedTree],
    url: impl Fn(&SavedTree) -> String,
) -> Attempts {
    let mut total = Cost::default();
    let mut value = Vec::new();
    let until = ended_at(&facts.job.state).unwrap_or(now).max(facts.job.submitted_at);
    let mut since = facts.job.submitted_at;
    for tried in tried(facts) {
        let before = total;
        let to = tried.ended_at.unwrap_or(until).max(since);
        let phases = Phases::of(since, tried.granted_at, tried.started_at, to, tried.members);
        since = to;
        for member in tried.members {
            total.merge(member.cost(now));
        }
        // A parent has only one attempt, whose node time is that of its children.
        if let Family::Parent { cost, .. } = facts.family {
            total.merge(cost);
        }
        value.push(AttemptEntry {
            number: tried.number,
            outcome: tried.outcome.to_owned(),
            granted_at: timestamp::format(tried.granted_at),
            started_at: tried.started_at.map(timestamp::format),
            ended_at: tried.ended_at.map(timestamp::format),
            node_microseconds: total.node_us() - before.node_us(),
            micro_usd: total.micro_usd() - before.micro_usd(),
            phases,
            failed_in: failed_in(facts, &tried).map(str::to_owned),
            failure: failure(facts, &tried).map(|why| failure_text(why, facts.spec)),
            log_files: logs.get(&tried.number).cloned().unwrap_or_default(),
        });
    }
    let saved = saved.iter().map(|saved| SavedEntry {
        rank: saved.rank,
        attempt: saved.attempt,
        saved_at: timestamp::format(saved.at),
        tree: saved.tree.to_string(),
        files: saved.files,
        bytes: saved.bytes,
        url: url(saved),
    });
    let (node_microseconds, micro_usd) = (total.node_us(), total.micro_usd());
    Attempts {
        value,
        node_microseconds,
        micro_usd,
        saved: saved.collect(),
        submitted_at: Some(timestamp::format(facts.job.submitted_at)),
        until: Some(timestamp::format(until)),
        status: Some(JobStatus::of(&facts.job.state).as_str().to_owned()),
        waiting: (since < until).then(|| Phases::waiting(since, until)),
    }
}

/// Why the job failed, if this was its last attempt.
fn failure<'a>(facts: &'a JobFacts<'_>, tried: &Tried<'_>) -> Option<&'a Failure> {
    match &facts.job.state {
        JobState::Failed { why, .. } if tried.number == facts.job.attempts => Some(&**why),
        _ => None,
    }
}

fn failed_in(facts: &JobFacts<'_>, tried: &Tried<'_>) -> Option<&'static str> {
    let has_started = tried.started_at.is_some();
    let is_lost = [AttemptOutcome::Retried, AttemptOutcome::Evicted]
        .map(outcome_text)
        .contains(&tried.outcome);
    match failure(facts, tried) {
        Some(why) => Some(Phases::failed_in(why, has_started)),
        None => is_lost.then_some(if has_started { "run" } else { "prepare" }),
    }
}

fn ended_at(state: &JobState) -> Option<Wall> {
    match state {
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

fn tried<'a>(facts: &'a JobFacts<'_>) -> Vec<Tried<'a>> {
    let over = facts.attempts.iter().map(|record| Tried {
        number: record.number,
        outcome: outcome_text(record.outcome),
        granted_at: record.granted_at,
        started_at: record.started_at,
        ended_at: Some(record.ended_at),
        members: &record.members,
    });
    let live = Job::attempt(facts.job).map(|attempt| Tried {
        number: attempt.number,
        outcome: JobStatus::of(&facts.job.state).as_str(),
        granted_at: attempt.granted_at,
        started_at: attempt.started_at,
        ended_at: None,
        members: &attempt.members,
    });
    let parent = match &facts.job.state {
        JobState::Parent(parent) => Some(parent.since),
        _ => None,
    };
    let parent = parent.map(|since| Tried {
        number: 1,
        outcome: JobStatus::of(&facts.job.state).as_str(),
        granted_at: since,
        started_at: Some(since),
        ended_at: None,
        members: &[],
    });
    over.chain(live).chain(parent).collect()
}

/// The ledger calls the attempt `retried`, after what happened to the job; here it is called after what happened to the
/// node.
fn outcome_text(outcome: AttemptOutcome) -> &'static str {
    match outcome {
        AttemptOutcome::Retried => "lost",
        other => other.as_str(),
    }
}
