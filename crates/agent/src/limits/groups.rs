//! The control groups of jobs that have a part of their node.
//!
//! The creation and the removal of a group cost more than everything else that a node does for a short job. A group
//! whose job has ended is therefore kept for the next job with the same limits, if nothing of the first job is left in
//! it. The second job must not notice this, and its predecessor must not be able to influence it:
//!
//! * No process is left. A job cannot put a process into the group later, because only the node's own root may move
//!   processes between groups.
//! * Hardly any memory is left. What a group keeps after its last process are caches, which the kernel reclaims when the
//!   next job needs the space, and files in `/dev/shm`, which it cannot reclaim.
//! * What is counted since the creation of the group (time, and processes killed for lack of memory) is compared with
//!   its value when the next job takes the group.
//! * The limits never change. A job that has used up its share of the cores in the current period leaves the next one
//!   without any for the rest of it, which is at most a tenth of a second.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use muster_core::model::Capacity;
use muster_sandbox::cgroup::{Group, Groups, Limits};

use super::{Memory, PROCESSES_MAX};
use crate::meter::Counted;

/// The most groups that are kept. As one is created only if none can be used again, there are not more with the same
/// limits than jobs that ran at the same time.
const KEPT_MAX: usize = 16;
/// How long a group is kept without a job.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// The most that a job may leave in its group, if the group is to be kept: this, and one part in this many of its limit.
const LEFT_BYTES_MAX: u64 = 4 << 20;
const LEFT_PART: u64 = 32;

/// Creates groups, and keeps a few for the next jobs.
#[derive(Debug)]
pub(crate) struct JobGroups {
    /// `None` if the node has no group of its own; the logs of its jobs then say what is not enforced.
    node: Option<NodeGroup>,
    kept: Mutex<Vec<Kept>>,
}

#[derive(Debug)]
struct NodeGroup {
    group: Group,
    millicores: Option<u32>,
    memory_bytes: Option<u64>,
}

#[derive(Debug)]
struct Kept {
    group: Group,
    limits: Limits,
    since: Instant,
}

/// The control group of a job: cores and memory that other jobs on the node cannot take from it, and beyond which it
/// gets none. It is kept for another job or removed when this is dropped; by then none of its processes is left.
#[derive(Debug)]
pub(crate) struct JobGroup {
    group: Group,
    limits: Limits,
    cpu_before_us: u64,
    oom_kills_before: u64,
    groups: Arc<JobGroups>,
}

impl JobGroups {
    /// Looks at the control groups of this node, once.
    pub(crate) fn of_this_node() -> JobGroups {
        let group = Groups::look().of_this_node();
        let (millicores, memory) = (group.millicores(), Memory::of(&group));
        // Without limits of its own this may be the host's group, where nothing is ours.
        let is_own = millicores.is_some() || memory.is_some();
        let memory_bytes = memory.map(|memory| memory.limit_bytes);
        JobGroups::below(is_own.then_some(NodeGroup { group, millicores, memory_bytes }))
    }

    fn below(node: Option<NodeGroup>) -> JobGroups {
        JobGroups { node, kept: Mutex::default() }
    }

    /// Returns a group for a job, a new one of this name if none can be used again. `None` if the node has no group of
    /// its own.
    pub(crate) fn take(
        self: &Arc<JobGroups>,
        name: &str,
        share: &Capacity,
    ) -> io::Result<Option<JobGroup>> {
        let Some(node) = &self.node else { return Ok(None) };
        let limits = node.limits(share);
        let group = match self.take_kept(&limits) {
            Some(kept) => kept.group,
            None => node.group.child(name, &limits)?,
        };
        let cpu_before_us = group.cpu_us().ok().flatten().unwrap_or(0);
        let oom_kills_before = oom_kills(&group);
        let groups = Arc::clone(self);
        Ok(Some(JobGroup { group, limits, cpu_before_us, oom_kills_before, groups }))
    }

    fn take_kept(&self, limits: &Limits) -> Option<Kept> {
        let mut kept = lock(&self.kept);
        // The last one is most likely to be in the caches of the processor.
        let index = kept.iter().rposition(|kept| kept.limits == *limits)?;
        Some(kept.remove(index))
    }

    /// Keeps a group whose job has ended, or removes it.
    fn give_back(&self, group: Group, limits: Limits) {
        if !is_as_new(&group, &limits) {
            return remove(&group);
        }
        let mut kept = lock(&self.kept);
        kept.push(Kept { group, limits, since: Instant::now() });
        let oldest = (kept.len() > KEPT_MAX).then(|| kept.remove(0));
        drop(kept);
        if let Some(oldest) = oldest {
            remove(&oldest.group);
        }
    }

    /// Removes groups that no job has needed for a while.
    pub(crate) async fn tidy(self: Arc<JobGroups>) {
        loop {
            tokio::time::sleep(KEPT_FOR).await;
            self.remove_older_than(KEPT_FOR);
        }
    }

    fn remove_older_than(&self, age: Duration) {
        let is_old = |kept: &mut Kept| kept.since.elapsed() >= age;
        let old: Vec<Kept> = lock(&self.kept).extract_if(.., is_old).collect();
        old.iter().for_each(|kept| remove(&kept.group));
    }
}

impl Drop for JobGroups {
    fn drop(&mut self) {
        self.remove_older_than(Duration::ZERO);
    }
}

impl NodeGroup {
    /// An old kernel refuses more than the node has, as on a host that is smaller than its node's size.
    fn limits(&self, share: &Capacity) -> Limits {
        let asked = share.vcpus.saturating_mul(1000);
        let memory_bytes = share.memory_mb.saturating_mul(1 << 20);
        Limits {
            millicores: self.millicores.map_or(asked, |cores| cores.min(asked)),
            memory_bytes: self.memory_bytes.map_or(memory_bytes, |node| node.min(memory_bytes)),
            pids: PROCESSES_MAX,
        }
    }
}

impl JobGroup {
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// The folders of the group in each hierarchy.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        self.group.folders().iter().map(|folder| folder.path.clone()).collect()
    }

    /// The job's memory, and what has happened to it since the job took the group.
    pub(crate) fn memory(&self) -> Memory {
        Memory {
            group: self.group.clone(),
            limit_bytes: self.limits.memory_bytes,
            oom_kills_before: Some(self.oom_kills_before),
        }
    }

    pub(crate) fn counted(&self) -> Counted {
        Counted::InItsGroup { group: self.group.clone(), cpu_before_us: self.cpu_before_us }
    }
}

impl Drop for JobGroup {
    fn drop(&mut self) {
        self.groups.give_back(self.group.clone(), self.limits);
    }
}

/// Returns true if the next job cannot tell that this group had another one.
fn is_as_new(group: &Group, limits: &Limits) -> bool {
    let left_max = LEFT_BYTES_MAX.min(limits.memory_bytes / LEFT_PART);
    let has_memory = || group.memory_bytes().is_ok_and(|left| left.unwrap_or(0) <= left_max);
    group.is_certainly_empty() && has_memory()
}

fn remove(group: &Group) {
    if let Err(error) = group.remove() {
        // It is removed with the node.
        tracing::warn!(%error, "cannot remove the control group of a job that has ended");
    }
}

pub(super) fn oom_kills(group: &Group) -> u64 {
    group.shortage().ok().flatten().and_then(|shortage| shortage.kills).unwrap_or(0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves nothing half-done here: the list has one group more or less.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
