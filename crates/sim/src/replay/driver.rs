//! The loop of virtual time around the core.
//!
//! Within one instant, jobs that end come first, then nodes that have booted, then submits, and last the core's own
//! timers: a node can run a job that arrives in the very second in which it becomes free or in which its idle time is
//! over. What the core decides along the way (a node to create or delete, a job to start) is answered in the same
//! instant, before anything else happens.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use muster_core::agent::{AttemptPhase, AttemptReport, Report};
use muster_core::catalogue::Catalogue;
use muster_core::ids::{EffectId, Epoch, JobId, NodeId};
use muster_core::model::{Caller, Exit, Job, JobEvent, JobSpec, SpecHash, WorkspaceKey};
use muster_core::time::Span;
use muster_core::{
    Change, ClusterPatch, Effect, EffectKind, Input, JobRequest, Settings, Wake, World, WorldRows,
    step,
};

use super::tally::Tally;
use super::{Figures, Setting, SettingError, Trace};
use crate::clock::{ControllerClock, Moment};

/// Longer than any trace: agents of the replay report only when they have news, and no lease may expire.
const FOREVER: Span = Span::seconds(1_000 * 366 * 24 * 3_600);
/// An idle time of zero is one tick of the clock; otherwise a node that becomes free would be deleted before a job of
/// the same second arrives. The tally subtracts that tick again.
pub(super) const IDLE_MIN: Span = Span(1);
const CLUSTER: &str = "pool";
/// The user of all jobs for which the trace names none.
const UNNAMED: &str = "-";

pub(super) fn run(
    trace: &Trace,
    setting: &Setting,
    watch: impl FnMut(Span, &Change),
) -> Result<Figures, SettingError> {
    let mut replay = Replay::new(trace, setting, watch);
    replay.prepare(setting)?;
    replay.play()?;
    Ok(replay.tally.figures(trace, setting))
}

/// What will happen: within one instant in this order, and among equal events the older one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    JobEnds(JobId),
    NodeIsUp(NodeId),
}

struct Replay<'t, W> {
    trace: &'t Trace,
    boot: Span,
    fair_share: bool,
    callers: Vec<Caller>,
    /// One specification for each number of nodes, because nothing else differs.
    specs: BTreeMap<u32, Arc<JobSpec>>,
    world: World,
    now: Moment,
    clock: ControllerClock,
    agenda: BinaryHeap<Reverse<(Moment, Event)>>,
    /// The row of the trace that is submitted next.
    next_row: usize,
    /// When the core has to step again.
    wake: Option<Moment>,
    /// What the provider and the agents report in this instant.
    inbox: Vec<Input>,
    tally: Tally,
    watch: W,
}

/// What comes next.
enum Next {
    Event,
    Submit,
    Tick,
}

impl<'t, W: FnMut(Span, &Change)> Replay<'t, W> {
    fn new(trace: &'t Trace, setting: &Setting, watch: W) -> Replay<'t, W> {
        let now = Moment::default();
        let mut clock = ControllerClock::default();
        let settings = Settings { lease: FOREVER, boot_timeout: FOREVER, ..Settings::default() };
        let catalogue = Arc::new(Catalogue::builtin());
        let caller = |user: &str| {
            let name: Box<str> = if user.is_empty() { UNNAMED } else { user }.into();
            Caller { object_id: name.clone(), name }
        };
        Replay {
            trace,
            boot: setting.boot,
            fair_share: setting.fair_share,
            callers: trace.users().iter().map(|user| caller(user)).collect(),
            specs: BTreeMap::new(),
            world: World::rebuild(WorldRows::default(), 1, settings, catalogue, clock.now(now)),
            now,
            clock,
            agenda: BinaryHeap::new(),
            next_row: 0,
            wake: None,
            inbox: Vec::new(),
            tally: Tally::new(trace.jobs().len()),
            watch,
        }
    }

    fn prepare(&mut self, setting: &Setting) -> Result<(), SettingError> {
        let by = Caller { object_id: UNNAMED.into(), name: UNNAMED.into() };
        let wanted = cluster_patch(setting);
        let put = Input::PutCluster {
            workspace: workspace(),
            name: CLUSTER.to_owned(),
            wanted: Box::new(wanted),
            by: by.clone(),
        };
        let create = Input::workspace(workspace(), "eastus", by);
        self.inbox.extend([create, put]);
        self.settle()
    }

    fn play(&mut self) -> Result<(), SettingError> {
        while let Some((at, next)) = self.next() {
            self.now = at;
            match next {
                Next::Event => self.happen(),
                Next::Submit => self.submit(),
                Next::Tick => self.inbox.push(Input::Tick),
            }
            self.settle()?;
        }
        Ok(())
    }

    fn next(&self) -> Option<(Moment, Next)> {
        let event = self.agenda.peek().map(|Reverse((at, _))| (*at, Next::Event));
        let job = self.trace.jobs().get(self.next_row);
        let submit = job.map(|job| (Moment(job.submit.0), Next::Submit));
        let tick = self.wake.map(|at| (at.max(self.now), Next::Tick));
        // Among equal times the first is chosen.
        [event, submit, tick].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    fn happen(&mut self) {
        let Some(Reverse((_, event))) = self.agenda.pop() else { return };
        match event {
            Event::JobEnds(job) => {
                let job = self.world.job(job).expect("a job that runs is live");
                members_say(&self.world, &mut self.inbox, job, AttemptPhase::Ended(Exit::Code(0)));
            }
            Event::NodeIsUp(node) => {
                // It may have been deleted before it was up.
                if let Some(node) = self.world.node(node) {
                    self.inbox.push(report(&node.name, Epoch(0), None));
                }
            }
        }
    }

    /// Submits the next row. A job is named after its row, so that no table is needed to find it again.
    fn submit(&mut self) {
        let row = self.next_row;
        self.next_row += 1;
        let job = self.trace.jobs()[row];
        let user = if self.fair_share { job.user as usize } else { 0 };
        let spec =
            self.specs.entry(job.nodes).or_insert_with(|| Arc::new(specification(job.nodes)));
        let spec = Arc::clone(spec);
        self.inbox.push(Input::SubmitJob(Box::new(JobRequest {
            workspace: workspace(),
            name: row.to_string(),
            spec,
            spec_hash: SpecHash([0; 32]),
            by: self.callers[user].clone(),
            is_archived: None,
            existing: None,
            numbered: <_>::default(),
        })));
    }

    /// Lets the core decide, and answers its decisions, until nothing is left to do in this instant.
    fn settle(&mut self) -> Result<(), SettingError> {
        while !self.inbox.is_empty() {
            let output = step(&mut self.world, &self.inbox, self.clock.now(self.now));
            self.inbox.clear();
            for answer in output.answers {
                answer?;
            }
            for change in &output.changes {
                self.follow(change);
            }
            // No lease expires here, so only the wall clock matters.
            self.wake = self.clock.due(Wake { elapsed: None, ..output.wake });
        }
        Ok(())
    }

    fn follow(&mut self, change: &Change) {
        (self.watch)(Span(self.now.0), change);
        match change {
            Change::EffectQueued(Effect { id, kind, .. }) => self.carry_out(*id, kind),
            Change::JobChanged { event: JobEvent::Granted, job } => self.start(job),
            Change::LedgerPosted(line) => self.tally.post(line),
            Change::JobChanged { .. }
            | Change::ChildCreated { .. }
            | Change::PrincipalSeen(_)
            | Change::WorkspaceChanged(_)
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
            | Change::ClusterChanged { .. }
            | Change::JobSubmitted { .. }
            | Change::AttemptEnded(_)
            | Change::TreeSaved(_)
            | Change::NodeChanged { .. }
            | Change::MemberChanged(_)
            | Change::AccountChanged(_)
            | Change::QuotaChanged(_)
            | Change::AccessChanged(_)
            | Change::OperationChanged(_)
            | Change::EffectSettled { .. } => {}
        }
    }

    /// The provider accepts at once; a node that it creates needs its boot time.
    fn carry_out(&mut self, effect: EffectId, kind: &EffectKind) {
        match kind {
            EffectKind::CreateNode(order) => {
                let up = (self.now + self.boot, Event::NodeIsUp(order.node));
                self.agenda.push(Reverse(up));
            }
            EffectKind::DeleteNode { .. } => {}
        }
        self.inbox.push(Input::EffectDone { effect, result: Ok(()) });
    }

    /// All nodes of the job start it at once, and will end it when the trace says.
    fn start(&mut self, job: &Job) {
        let row: usize = job.name.parse().expect("jobs are named by their row");
        let traced = self.trace.jobs()[row];
        self.tally.start(Moment(traced.submit.0), self.now);
        self.agenda.push(Reverse((self.now + traced.duration, Event::JobEnds(job.id))));
        members_say(&self.world, &mut self.inbox, job, AttemptPhase::Running);
    }
}

fn members_say(world: &World, inbox: &mut Vec<Input>, job: &Job, phase: AttemptPhase) {
    let attempt = job.attempt().expect("a job that was granted nodes has an attempt");
    for member in &attempt.members {
        let node = world.node(member.node).expect("no node of the replay is ever lost");
        inbox.push(report(&node.name, attempt.epoch, Some(phase.clone())));
    }
}

/// A report of a node of the replay. It boots once and has no address, so it gives neither.
fn report(node: &str, epoch: Epoch, phase: Option<AttemptPhase>) -> Input {
    let attempts = phase.map(|phase| AttemptReport::new(epoch, phase)).into_iter().collect();
    let report = Report {
        boot_id: "".into(),
        address: "".into(),
        floor: epoch,
        attempts,
        waiting: Vec::new(),
    };
    Input::Report { node: node.to_owned(), report }
}

fn specification(nodes: u32) -> JobSpec {
    JobSpec { nodes, ..JobSpec::new(CLUSTER, "run") }
}

fn workspace() -> WorkspaceKey {
    WorkspaceKey::new("replay", "replay", "replay")
}

fn cluster_patch(setting: &Setting) -> ClusterPatch {
    ClusterPatch {
        scale_up: Some(setting.scale_up),
        vm_size: Some(setting.vm_size.clone()),
        nodes_min: Some(0),
        nodes_max: Some(setting.max_nodes),
        idle_time: Some(setting.idle.max(IDLE_MIN)),
        ..ClusterPatch::default()
    }
}
