//! The strongest promises, about what really runs: no two attempts of a job have a live process at the same
//! moment, none outlives the end of its attempt, and what is recorded of a job is what its processes did.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::agent::Order;
use muster_core::ids::{Epoch, JobId};
use muster_core::model::{AttemptRecord, Exit, Failure, Job, JobState};

use crate::failure::{Broken, Held, promise};

#[derive(Default)]
pub(crate) struct Processes {
    jobs: BTreeMap<Epoch, JobId>,
    /// The ranks that run, by job and epoch.
    live: BTreeMap<(JobId, Epoch), BTreeSet<u32>>,
    /// With which code the processes of an attempt ended that ended by themselves.
    codes: BTreeMap<Epoch, BTreeMap<u32, i32>>,
    pub(crate) started: u64,
}

impl Processes {
    pub(super) fn granted(&mut self, epoch: Epoch, job: JobId) {
        self.jobs.insert(epoch, job);
    }

    pub(super) fn started(&mut self, order: &Order) -> Held<JobId> {
        let Some(job) = self.jobs.get(&order.epoch).copied() else {
            return Err(Broken(format!("{} runs and was never granted", order.epoch)));
        };
        let all = (job, Epoch(0))..=(job, Epoch(u64::MAX));
        let other = self.live.range(all).map(|((_, epoch), _)| *epoch).find(|e| *e != order.epoch);
        if let Some(other) = other {
            return Err(Broken(format!("{job} runs twice: {} and {other}", order.epoch)));
        }
        let ranks = self.live.entry((job, order.epoch)).or_default();
        promise(ranks.insert(order.rank), || {
            format!("rank {} of {} of {job} runs twice", order.rank, order.epoch)
        })?;
        self.started += 1;
        Ok(job)
    }

    /// A process ended, by itself or not.
    pub(crate) fn exited(&mut self, epoch: Epoch, rank: u32, exit: &Exit) {
        if let Exit::Code(code) = exit {
            self.codes.entry(epoch).or_default().insert(rank, *code);
        }
        self.ended(epoch, rank);
    }

    /// A process is gone, and nobody saw how it ended.
    pub(crate) fn ended(&mut self, epoch: Epoch, rank: u32) {
        let Some(job) = self.jobs.get(&epoch) else { return };
        let key = (*job, epoch);
        if let Some(ranks) = self.live.get_mut(&key) {
            ranks.remove(&rank);
            if ranks.is_empty() {
                self.live.remove(&key);
            }
        }
    }

    pub(super) fn on_attempt_ended(&self, record: &AttemptRecord) -> Held {
        let live = self.live.get(&(record.job, record.epoch));
        promise(live.is_none(), || {
            format!("{} of {} is over, but ranks {live:?} still run", record.epoch, record.job)
        })
    }

    /// A job ended: its last attempt must have done what the record says.
    pub(super) fn check_end(&self, job: &Job, last: Epoch) -> Held {
        let none = BTreeMap::new();
        let codes = self.codes.get(&last).unwrap_or(&none);
        let is_true = match &job.state {
            JobState::Completed { .. } => {
                codes.len() == job.nodes as usize && codes.values().all(|code| *code == 0)
            }
            JobState::Failed { why: Failure::Exit { exit, .. }, .. } => match exit {
                Exit::Code(code) => *code != 0 && codes.values().any(|seen| seen == code),
                Exit::TimedOut | Exit::NotStarted { .. } => true,
                // Only we end processes by a signal, and that is no failure of theirs.
                Exit::Signal(_) | Exit::Stopped => false,
            },
            JobState::Failed { why: Failure::NodesLost { .. }, .. }
            | JobState::Canceled { .. }
            | JobState::Queued
            | JobState::Starting(_)
            | JobState::Running(_)
            | JobState::CancelRequested(_) => true,
        };
        promise(is_true, || format!("{} is {:?}, its processes: {codes:?}", job.id, job.state))
    }

    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }
}
