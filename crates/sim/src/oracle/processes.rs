//! The strongest promises, which are about what really runs: no two attempts of a job have a live process at the same
//! moment, no process outlives its attempt, and the record of a job agrees with what its processes did.
//!
//! Two kinds of processes are excused, because they cannot be stopped in time: those on a machine that was paused for
//! longer than its lease, and those of attempts that a restored backup does not know. What they do must have no effect;
//! it is still checked that their ends are not recorded.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::agent::Assignment;
use muster_core::ids::{Epoch, JobId};
use muster_core::model::{AttemptRecord, Exit, Failure, Job, JobState};

use crate::failure::{Broken, Held, promise};

#[derive(Clone, Default)]
pub(crate) struct Processes {
    jobs: BTreeMap<Epoch, JobId>,
    /// The running ranks, by job and epoch.
    live: BTreeMap<(JobId, Epoch), BTreeSet<u32>>,
    /// The exit codes of processes that ended by themselves, by attempt and rank.
    codes: BTreeMap<Epoch, BTreeMap<u32, i32>>,
    /// The ranks that have been ready, for multi-node attempts.
    ready: BTreeMap<Epoch, BTreeSet<u32>>,
    pub(crate) started: u64,
    excused: BTreeSet<(Epoch, u32)>,
    /// Attempts that a restored backup does not know.
    forgotten: BTreeSet<Epoch>,
    /// Excused processes that existed when their attempt was over, or started after that.
    pub(crate) zombies: u64,
}

impl Processes {
    pub(super) fn granted(&mut self, epoch: Epoch, job: JobId) {
        self.jobs.insert(epoch, job);
    }

    /// Returns the job, and whether the process is excused.
    pub(super) fn started(&mut self, assignment: &Assignment) -> Held<(JobId, bool)> {
        let Some(job) = self.jobs.get(&assignment.epoch).copied() else {
            return Err(Broken(format!("{} runs, but was never granted", assignment.epoch)));
        };
        let is_excused = self.is_excused(assignment.epoch, assignment.rank);
        let all = (job, Epoch(0))..=(job, Epoch(u64::MAX));
        let others = self.live.range(all).filter(|((_, epoch), _)| *epoch != assignment.epoch);
        let other = others
            .flat_map(|((_, epoch), ranks)| ranks.iter().map(move |rank| (*epoch, *rank)))
            .find(|(epoch, rank)| !self.is_excused(*epoch, *rank));
        if let Some((other, _)) = other.filter(|_| !is_excused) {
            return Err(Broken(format!("{job} runs twice: {} and {other}", assignment.epoch)));
        }
        let ready = self.ready.get(&assignment.epoch).map_or(0, BTreeSet::len);
        promise(assignment.nodes == 1 || ready == assignment.nodes as usize, || {
            let (epoch, nodes) = (assignment.epoch, assignment.nodes);
            format!("a member of {epoch} started when {ready} of {nodes} were ready")
        })?;
        let ranks = self.live.entry((job, assignment.epoch)).or_default();
        promise(ranks.insert(assignment.rank), || {
            format!("rank {} of {} of {job} runs twice", assignment.rank, assignment.epoch)
        })?;
        self.started += 1;
        Ok((job, is_excused))
    }

    /// A member of a multi-node attempt is prepared.
    pub(crate) fn ready(&mut self, epoch: Epoch, rank: u32) {
        self.ready.entry(epoch).or_default().insert(rank);
    }

    fn is_excused(&self, epoch: Epoch, rank: u32) -> bool {
        self.is_forgotten(epoch) || self.excused.contains(&(epoch, rank))
    }

    /// Its machine is paused for longer than its lease.
    pub(crate) fn excuse(&mut self, epoch: Epoch, rank: u32) {
        self.excused.insert((epoch, rank));
    }

    /// Whether a restored backup does not know this attempt.
    pub(crate) fn is_forgotten(&self, epoch: Epoch) -> bool {
        self.forgotten.contains(&epoch)
    }

    /// The store is back to the state when `then` was copied: running processes continue, attempts that were granted
    /// since are forgotten.
    pub(super) fn roll_back(&mut self, then: &Processes) {
        let since = self.jobs.keys().filter(|epoch| !then.jobs.contains_key(epoch));
        let since: Vec<Epoch> = since.copied().collect();
        self.forgotten.extend(since);
    }

    /// A process ended, by itself or not.
    pub(crate) fn exited(&mut self, epoch: Epoch, rank: u32, exit: &Exit) {
        if let Exit::Code(code) = exit {
            self.codes.entry(epoch).or_default().insert(rank, *code);
        }
        self.ended(epoch, rank);
    }

    /// A process has ended without its exit code being seen.
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

    pub(super) fn on_attempt_ended(&mut self, record: &AttemptRecord) -> Held {
        let epoch = record.epoch;
        let live = self.live.get(&(record.job, epoch));
        let runs = |rank: &&u32| !self.is_excused(epoch, **rank);
        let running = live.and_then(|ranks| ranks.iter().find(runs));
        promise(running.is_none(), || {
            format!("{epoch} of {} is over, but rank {running:?} still runs", record.job)
        })?;
        self.zombies += live.map_or(0, BTreeSet::len) as u64;
        Ok(())
    }

    /// A job has ended: its last attempt must have done what the record says.
    pub(super) fn check_end(&self, job: &Job, last: Epoch) -> Held {
        let none = BTreeMap::new();
        let codes = self.codes.get(&last).unwrap_or(&none);
        // What its children did is checked with them.
        if job.is_parent() {
            return Ok(());
        }
        let is_true = match &job.state {
            JobState::Completed { .. } => {
                codes.len() == job.nodes as usize && codes.values().all(|code| *code == 0)
            }
            JobState::Failed { why, .. } => match &**why {
                Failure::NodesLost { .. } => true,
                Failure::Exit { exit: Exit::Code(code), .. } => {
                    *code != 0 && codes.values().any(|seen| seen == code)
                }
                Failure::Exit { exit: Exit::TimedOut | Exit::NotStarted { .. }, .. } => true,
                // Only the agent ends processes with a signal, which does not count as a failure.
                Failure::Exit {
                    exit:
                        Exit::Signal(_)
                        | Exit::Stopped
                        | Exit::Evicted
                        | Exit::OverLimit { .. }
                        | Exit::Data { .. },
                    ..
                } => false,
                // No job of the simulation asks for this.
                Failure::Evicted { .. } => false,
                // Only parents fail like this.
                Failure::Children { .. } | Failure::TreeTimedOut => false,
            },
            JobState::Canceled { .. }
            | JobState::Queued
            | JobState::Starting(_)
            | JobState::Running(_)
            | JobState::CancelRequested(_)
            | JobState::Parent(_) => true,
        };
        promise(is_true, || format!("{} is {:?}, its processes: {codes:?}", job.id, job.state))
    }

    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }
}
