//! The oracle: watches every committed change and every live process, and reports at once when a promise is broken. It
//! does not know how decisions are made.

mod bill;
mod jobs;
mod nodes;
mod processes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jobs::Jobs;
use muster_core::agent::Assignment;
use muster_core::ids::{JobId, NodeId, WorkspaceId};
use muster_core::model::{
    CancelReason, Job, JobEvent, JobPhase, JobState, NodeEvent, SpecHash, TreeId, parent_and_index,
};
use muster_core::time::Wall;
use muster_core::{Change, InputResult, Reply};
use muster_store::Revision;
use nodes::Nodes;
pub(crate) use nodes::Sums;
use processes::Processes;

use crate::failure::{Held, promise};
use crate::workload::{self, Act, Submit, workspace_key};

/// How many changes a failure shows.
const RECENT: usize = 20;

#[derive(Clone, Default)]
pub(crate) struct Oracle {
    jobs: Jobs,
    nodes: Nodes,
    pub(crate) processes: Processes,
    workspaces: BTreeMap<Box<str>, WorkspaceId>,
    /// Jobs that a user asked to cancel.
    cancels: BTreeSet<(usize, String)>,
    recent: VecDeque<(u64, Change)>,
    revision: u64,
    /// The largest number that was ever drawn for an ID. `floor` is its value when a backup was restored: no new ID may
    /// be below that.
    highest: u64,
    floor: u64,
}

impl Oracle {
    /// These changes are on disk now. The revision is unknown if an error was returned for them.
    pub(crate) fn on_committed(
        &mut self,
        changes: &[Change],
        wall: Wall,
        revision: Option<Revision>,
    ) -> Held {
        for change in changes {
            self.revision += 1;
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back((self.revision, change.clone()));
            self.check_ids(change)?;
            self.on_change(change, wall)?;
        }
        let Some(revision) = revision else { return Ok(()) };
        promise(self.revision == revision.0, || {
            format!("the log is at {} after {} changes", revision.0, self.revision)
        })
    }

    /// No new entity has a number that was drawn in the future that a restored backup forgot.
    fn check_ids(&mut self, change: &Change) -> Held {
        let drawn = match change {
            Change::JobSubmitted { job, .. } => {
                self.highest = self.highest.max(job.last_id().0);
                job.id.0
            }
            Change::JobChanged { event: JobEvent::Granted, job }
            | Change::ChildCreated { event: JobEvent::Granted, job } => {
                job.attempt().map_or(0, |attempt| attempt.epoch.0)
            }
            Change::NodeChanged { event: NodeEvent::Requested, node } => node.id.0,
            Change::EffectQueued(effect) => effect.id.0,
            Change::WorkspaceChanged(_)
            | Change::WorkspaceGone(_)
            | Change::GovernanceChanged(_)
            | Change::HostsChanged(_)
            | Change::DeploymentChanged(_)
            | Change::JobMetadataChanged { .. }
            | Change::JobGone { .. }
            | Change::DeploymentGone { .. }
            | Change::DatastoreChanged(_)
            | Change::AssetChanged(_)
            | Change::AssetGone { .. }
            | Change::AssetContainerChanged(_)
            | Change::AssetContainerGone { .. }
            | Change::DatastoreGone { .. }
            | Change::ActivityNoted(_)
            | Change::PrincipalSeen(_)
            | Change::ClusterChanged { .. }
            | Change::JobChanged { .. }
            | Change::ChildCreated { .. }
            | Change::NodeChanged { .. }
            | Change::AttemptEnded(_)
            | Change::TreeSaved(_)
            | Change::LedgerPosted(_)
            | Change::MemberChanged(_)
            | Change::AccountChanged(_)
            | Change::QuotaChanged(_)
            | Change::AccessChanged(_)
            | Change::OperationChanged(_)
            | Change::EffectSettled { .. } => return Ok(()),
        };
        self.highest = self.highest.max(drawn);
        promise(drawn > self.floor, || format!("an ID is used again: {change:?}"))
    }

    /// The store is back to the state when `then` was copied. What was acknowledged since is lost, which is intended;
    /// but used numbers remain used, and running processes continue.
    pub(crate) fn roll_back(&mut self, then: &Oracle) {
        self.jobs.roll_back(&then.jobs);
        self.nodes.roll_back(&then.nodes);
        self.processes.roll_back(&then.processes);
        self.workspaces = then.workspaces.clone();
        self.revision = then.revision;
        self.floor = self.highest;
    }

    fn on_change(&mut self, change: &Change, wall: Wall) -> Held {
        match change {
            Change::WorkspaceChanged(workspace) => {
                let before = self.workspaces.insert(workspace.key.name.clone(), workspace.id);
                promise(before.is_none(), || format!("{} was created twice", workspace.key.name))
            }
            Change::JobSubmitted { job, .. } => self.jobs.on_submitted(job),
            Change::JobChanged { event, job } | Change::ChildCreated { event, job } => {
                if matches!(change, Change::ChildCreated { .. }) {
                    self.jobs.on_child(job)?;
                }
                if let Some(epoch) = self.jobs.on_changed(*event, job)? {
                    self.processes.granted(epoch, job.id);
                }
                if let Some(last) = self.jobs.ended_with(job.id) {
                    self.processes.check_end(job, last)?;
                }
                self.check_wanted(job)
            }
            Change::AttemptEnded(record) => {
                self.jobs.on_attempt_ended(record)?;
                self.nodes.on_attempt_ended(record)?;
                self.processes.on_attempt_ended(record)
            }
            Change::TreeSaved(saved) => self.jobs.on_saved(saved),
            Change::JobGone { job, last, .. } => self.jobs.on_gone(*job, *last, wall),
            Change::ClusterChanged { cluster, .. } => self.nodes.on_cluster(cluster),
            Change::NodeChanged { event, node } => {
                let processes = &mut self.processes;
                self.jobs.on_node(node, |epoch, job| processes.granted(epoch, job))?;
                self.nodes.on_node(*event, node, wall)
            }
            Change::LedgerPosted(line) => self.nodes.on_ledger(line, wall),
            Change::PrincipalSeen(_)
            | Change::WorkspaceGone(_)
            | Change::GovernanceChanged(_)
            | Change::HostsChanged(_)
            | Change::DeploymentChanged(_)
            | Change::JobMetadataChanged { .. }
            | Change::DeploymentGone { .. }
            | Change::DatastoreChanged(_)
            | Change::AssetChanged(_)
            | Change::AssetGone { .. }
            | Change::AssetContainerChanged(_)
            | Change::AssetContainerGone { .. }
            | Change::DatastoreGone { .. }
            | Change::ActivityNoted(_)
            | Change::OperationChanged(_)
            | Change::MemberChanged(_)
            | Change::AccountChanged(_)
            | Change::QuotaChanged(_)
            | Change::AccessChanged(_)
            | Change::EffectQueued(_)
            | Change::EffectSettled { .. } => Ok(()),
        }
    }

    /// A user made a request: what ends because of it may do so from now on.
    pub(crate) fn on_asked(&mut self, act: &Act) {
        if let Act::CancelJob { workspace, name } = act {
            self.cancels.insert((*workspace, name.clone()));
        }
    }

    /// No job is canceled unless a user asked for that, or for the deletion of its cluster.
    fn check_wanted(&self, job: &Job) -> Held {
        let JobState::Canceled { why, .. } = &job.state else { return Ok(()) };
        let is_wanted = match why {
            CancelReason::Asked => workload::workspaces().enumerate().any(|(index, key)| {
                self.workspaces.get(&key.name) == Some(&job.workspace)
                    && self.is_cancel_asked(index, job)
            }),
            CancelReason::ParentTimedOut => job.parent.is_some(),
            // No client of the simulation has instances.
            CancelReason::InstanceStopped => false,
            CancelReason::ClusterDeleted => self.nodes.is_deleting(job.cluster),
        };
        promise(is_wanted, || format!("{} was canceled without a request", job.name))
    }

    /// Whether a user asked to cancel the job, its parent, or (of a parent) all of its children.
    fn is_cancel_asked(&self, workspace: usize, job: &Job) -> bool {
        let is_asked = |name: &str| self.cancels.contains(&(workspace, name.to_owned()));
        let parent = job.parent.and_then(|_| parent_and_index(&job.name)).map(|(name, _)| name);
        let mut children = (0..job.children()).filter_map(|position| job.child_at(position));
        let has_children = job.is_parent();
        is_asked(&job.name)
            || parent.is_some_and(is_asked)
            || (has_children
                && children.all(|child| job.child_name(child).is_some_and(|name| is_asked(&name))))
    }

    /// The job that a user submits, if it is already on disk.
    pub(crate) fn job_of(&self, act: &Act) -> Option<(JobId, &SpecHash)> {
        let Act::SubmitJob(submit) = act else { return None };
        let workspace = self.workspaces.get(&workspace_key(submit.workspace).name)?;
        self.jobs.by_name(*workspace, &submit.name)
    }

    /// A client got an answer, which must be true from now on. It describes the state when the request was processed:
    /// what was accepted since does not make a refusal wrong.
    pub(crate) fn on_answer(&mut self, act: &Act, answer: &InputResult, was_known: bool) -> Held {
        if let (Act::CancelJob { workspace, name }, Ok(_)) = (act, answer) {
            return self.on_cancel_accepted(*workspace, name);
        }
        let Act::SubmitJob(submit) = act else { return Ok(()) };
        let Submit { name, hash, .. } = &**submit;
        match (answer, self.job_of(act)) {
            (Ok(Reply::JobAccepted { job, .. }), Some((id, spec))) => {
                promise(job.id == id && spec == hash, || {
                    format!("'{name}' was acknowledged as {}, but is {id}", job.id)
                })?;
                self.jobs.acknowledge(id);
                Ok(())
            }
            // It was on disk at the time; then an older store replaced it while the answer was under way.
            (Ok(Reply::JobAccepted { job, .. }), None) if job.id.0 <= self.floor => Ok(()),
            (Ok(reply), _) => promise(false, || {
                format!("'{name}' was acknowledged and is not on disk: {reply:?}")
            }),
            (Err(refused), Some((_, spec))) if was_known => promise(spec != hash, || {
                format!("'{name}' is on disk, but submitting it again was refused: {refused}")
            }),
            (Err(_), Some(_) | None) => Ok(()),
        }
    }

    fn on_cancel_accepted(&self, workspace: usize, name: &str) -> Held {
        let workspace = self.workspaces.get(&workspace_key(workspace).name);
        let find = |name: &str| workspace.and_then(|key| self.jobs.by_name(*key, name));
        // A child without a record is canceled together with its parent.
        let known = find(name).or_else(|| find(parent_and_index(name)?.0));
        let is_on_its_way = known.is_some_and(|(id, _)| self.jobs.is_canceling(id));
        promise(is_on_its_way, || format!("'{name}' was reported as canceled, and is not"))
    }

    /// The provider reported that a create call succeeded.
    pub(crate) fn on_create_done(&mut self, node: NodeId) {
        self.nodes.on_create_done(node);
    }

    /// A process has started.
    pub(crate) fn on_process_started(&mut self, assignment: &Assignment) -> Held {
        let (job, is_excused) = self.processes.started(assignment)?;
        if is_excused { Ok(()) } else { self.jobs.check_assignment(job, assignment) }
    }

    /// The provider created a machine; `counted` are all machines that it has.
    pub(crate) fn on_machine_made(&self, counted: impl Iterator<Item = NodeId>) -> Held {
        self.nodes.check_ceilings(counted)
    }

    pub(crate) fn acknowledged(&self) -> impl Iterator<Item = (JobId, Option<JobPhase>)> {
        self.jobs.acknowledged()
    }

    /// The jobs that were removed because they had been kept for long enough.
    pub(crate) fn removed(&self) -> impl Iterator<Item = JobId> {
        self.jobs.removed()
    }

    /// The files that a job passes on to its next attempt, by rank.
    pub(crate) fn left_by(&self, job: JobId) -> &BTreeMap<u32, TreeId> {
        self.jobs.left_by(job)
    }

    pub(crate) fn orphan(&self) -> Option<&str> {
        self.jobs.orphan()
    }

    pub(crate) fn counts(&self) -> jobs::Counts {
        self.jobs.counts
    }

    pub(crate) fn sums(&self) -> &Sums {
        &self.nodes.sums
    }

    /// A node whose bill does not cover its whole life yet.
    pub(crate) fn unsettled(&self) -> Option<NodeId> {
        self.nodes.unsettled()
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The last changes as in the event log, oldest first.
    pub(crate) fn recent(&self) -> Vec<String> {
        let text = |change| serde_json::to_string(change).unwrap_or_else(|error| error.to_string());
        self.recent
            .iter()
            .map(|(revision, change)| format!("{revision} {}", text(change)))
            .collect()
    }
}
