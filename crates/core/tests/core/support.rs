//! A stage for scenarios: a World with a clock that the test moves, and a provider and agents that do what the test
//! tells them. After every input it checks the invariants.
#![allow(dead_code)] // Each test file uses a different part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::access::AccessChange;
use muster_core::agent::{AttemptPhase, AttemptReport, Desired, Report};
use muster_core::catalogue::Catalogue;
use muster_core::governance::GovernanceChange;
use muster_core::hosts::HostChange;
use muster_core::ids::{Epoch, JobId, NodeId};
use muster_core::model::{
    Caller, Capacity, ClusterName, ClusterPhase, ComputeKind, Exit, HostName, HostState, Job,
    JobPhase, JobSpec, JobState, KeyDigest, Lease, NodePhase, Power, Priority, QuotaScope,
    RoleAssignment, ScaleUp, Scope, ShareRequest, SpecHash, User, WorkspaceKey,
};
use muster_core::refusal::{Part, Refused};
use muster_core::time::{Elapsed, Now, Span, Wall};
use muster_core::why::Remedy;
use muster_core::{
    Change, ClusterPatch, EffectKind, GovernanceRequest, HostRequest, Input, InputResult,
    JobRequest, KnownJob, NewHost, Reply, Settings, TreeRows, World, WorldRows, decide,
    decide_everything, invariants, step,
};

pub struct Stage {
    pub world: World,
    pub now: Now,
    pub log: Vec<Change>,
}

pub fn workspace() -> WorkspaceKey {
    WorkspaceKey::new("sub", "group", "space")
}

pub fn someone() -> Caller {
    Caller { object_id: "someone".into(), name: "Some One".into() }
}

pub fn user(name: &str) -> Caller {
    Caller { object_id: name.into(), name: name.into() }
}

/// What a job requests.
#[derive(Debug, Clone, Copy)]
pub struct Wants {
    pub nodes: u32,
    pub priority: Priority,
    pub share: ShareRequest,
}

impl Default for Wants {
    fn default() -> Wants {
        Wants { nodes: 1, priority: Priority::Medium, share: ShareRequest::default() }
    }
}

pub fn request(name: &str, compute: &str, wants: Wants) -> JobRequest {
    let Wants { nodes, priority, share } = wants;
    let spec = JobSpec { nodes, priority, share, ..JobSpec::new(compute, "true") };
    JobRequest {
        workspace: workspace(),
        name: name.into(),
        spec_hash: SpecHash::made_up(&format!("{name} on {nodes}")),
        spec: Arc::new(spec),
        by: someone(),
        is_archived: None,
        existing: None,
        numbered: BTreeSet::new(),
    }
}

impl Stage {
    pub fn new() -> Stage {
        let now = Now { elapsed: Elapsed(5_000_000), wall: Wall(1_700_000_000_000_000) };
        let catalogue = Arc::new(Catalogue::builtin());
        let world = World::rebuild(WorldRows::default(), 1, Settings::default(), catalogue, now);
        let mut stage = Stage { world, now, log: Vec::new() };
        let create = Input::workspace(workspace(), "eastus", someone());
        stage.say(create).expect("a new workspace");
        stage
    }

    /// A stage with one cluster with these limits and this idle time in seconds.
    pub fn with_cluster(name: &str, min: u32, max: u32, idle_s: u64) -> Stage {
        let mut stage = Stage::new();
        stage.put_cluster(name, min, max, idle_s).expect("a valid cluster");
        stage
    }

    pub fn say(&mut self, input: Input) -> InputResult {
        let mut output = step(&mut self.world, &[input], self.now);
        self.log.append(&mut output.changes);
        self.check();
        output.answers.pop().expect("one answer per input")
    }

    /// Deciding again changes nothing, with or without indexes, and every promise holds.
    pub fn check(&self) {
        assert_eq!(decide(&mut self.world.clone(), self.now), [], "decide is not settled");
        let everything = decide_everything(&mut self.world.clone(), self.now);
        assert_eq!(everything, [], "decide_everything finds more");
        invariants::check(&self.world, self.now, Span::ZERO).expect("what must always hold");
        let settings = self.world.settings.clone();
        let catalogue = self.world.catalogue.clone();
        let rebuilt = World::rebuild(rows(&self.log), 1, settings, catalogue, self.now);
        assert_eq!(self.world.difference(&rebuilt), None, "World differs from its changes");
    }

    /// Lets time pass, in steps that are short enough for running nodes to keep their leases.
    pub fn pass(&mut self, span: Span) {
        const STEP: Span = Span::seconds(30);
        let mut left = span;
        while left > Span::ZERO {
            let piece = left.min(STEP);
            self.silence(piece);
            self.report_all();
            left = Span(left.0 - piece.0);
        }
        self.say(Input::Tick).expect("a tick");
    }

    /// Lets time pass without any report.
    pub fn silence(&mut self, span: Span) {
        self.now.elapsed = self.now.elapsed + span;
        self.now.wall = self.now.wall + span;
    }

    pub fn pass_s(&mut self, seconds: u64) {
        self.pass(Span::seconds(seconds));
    }

    pub fn put_cluster(&mut self, name: &str, min: u32, max: u32, idle_s: u64) -> InputResult {
        let wanted = ClusterPatch {
            nodes_min: Some(min),
            nodes_max: Some(max),
            idle_time: Some(Span::seconds(idle_s)),
            ..ClusterPatch::default()
        };
        self.put(name, wanted)
    }

    pub fn put(&mut self, name: &str, wanted: ClusterPatch) -> InputResult {
        let (workspace, name) = (workspace(), name.to_owned());
        self.say(Input::PutCluster { workspace, name, wanted: Box::new(wanted), by: someone() })
    }

    pub fn patch(&mut self, name: &str, wanted: ClusterPatch) -> InputResult {
        let (workspace, name) = (workspace(), name.to_owned());
        self.say(Input::PatchCluster { workspace, name, wanted: Box::new(wanted) })
    }

    pub fn put_instance(&mut self, name: &str) -> InputResult {
        let kind = Some(ComputeKind::Instance);
        self.put(name, ClusterPatch { kind, ..ClusterPatch::default() })
    }

    pub fn power(&mut self, name: &str, power: Power) -> InputResult {
        let (workspace, name) = (workspace(), name.to_owned());
        self.say(Input::PowerInstance { workspace, name, power })
    }

    pub fn submit(&mut self, name: &str, compute: &str, nodes: u32) -> InputResult {
        self.submit_as(someone(), name, compute, Wants { nodes, ..Wants::default() })
    }

    pub fn submit_as(
        &mut self,
        by: Caller,
        name: &str,
        compute: &str,
        wants: Wants,
    ) -> InputResult {
        let request = JobRequest { by, ..request(name, compute, wants) };
        self.say(Input::SubmitJob(Box::new(request)))
    }

    pub fn cancel(&mut self, name: &str) -> InputResult {
        let (workspace, name) = (workspace(), name.to_owned());
        self.say(Input::CancelJob { workspace, name, known: None })
    }

    /// Adds a host that takes nodes of all clusters.
    pub fn join_host(&mut self, name: &str, capacity: Capacity) {
        self.join_host_for(name, capacity, Scope::Everything);
    }

    pub fn join_host_for(&mut self, name: &str, capacity: Capacity, intent: Scope) {
        let (ticket, key) = (KeyDigest::made_up(name), KeyDigest::made_up(name));
        let name = HostName::new(name).expect("a name");
        let good_for = Span::seconds(60);
        let issue = HostRequest::IssueTicket { digest: ticket, intent, host: None, good_for };
        let join = HostRequest::Join(NewHost { ticket, name, capacity, key });
        for request in [issue, join] {
            self.say(Input::ChangeHosts(Box::new(request))).expect("it can be done");
        }
    }

    /// The provider carries out everything in the outbox; new nodes report at once.
    pub fn provide(&mut self) {
        self.settle_effects(|_| true);
        let up: Vec<String> = self
            .world
            .nodes()
            .filter(|node| node.phase() == NodePhase::Booting)
            .map(|node| node.name.to_string())
            .collect();
        for name in up {
            self.report(&name, &[]);
        }
    }

    pub fn settle_effects(&mut self, which: impl Fn(&EffectKind) -> bool) {
        let effects: Vec<_> = self
            .world
            .effects()
            .filter(|effect| which(&effect.kind))
            .map(|effect| effect.id)
            .collect();
        for effect in effects {
            self.say(Input::EffectDone { effect, result: Ok(()) }).expect("noted");
        }
    }

    pub fn report(&mut self, node: &str, attempts: &[(Epoch, AttemptPhase)]) -> Desired {
        let floor = attempts.iter().map(|(epoch, _)| *epoch).max().unwrap_or(Epoch(0));
        let attempts = attempts
            .iter()
            .cloned()
            .map(|(epoch, phase)| AttemptReport::new(epoch, phase))
            .collect();
        let report = Report {
            boot_id: "boot".into(),
            address: "10.0.0.4".into(),
            floor,
            attempts,
            waiting: Vec::new(),
        };
        match self.say(Input::Report { node: node.into(), report }) {
            Ok(Reply::Desired(desired)) => *desired,
            other => panic!("an agent got {other:?}"),
        }
    }

    /// Every running node repeats its last report.
    pub fn report_all(&mut self) {
        let up: Vec<(String, Vec<(Epoch, AttemptPhase)>)> = self
            .world
            .nodes()
            .filter(|node| matches!(node.phase(), NodePhase::Idle | NodePhase::Leased))
            .map(|node| {
                let running = node.leases().iter().filter(|lease| {
                    self.world.job(lease.job).is_some_and(|job| job.phase() == JobPhase::Running)
                });
                let attempts = running.map(|lease| (lease.epoch, AttemptPhase::Running));
                (node.name.to_string(), attempts.collect())
            })
            .collect();
        for (name, attempts) in up {
            self.report(&name, &attempts);
        }
    }

    /// All members of the job report this.
    pub fn members_say(&mut self, job: &str, phase: AttemptPhase) {
        for (node, epoch) in self.members(job) {
            let node = self.world.node(node).expect("a member");
            // A node reports everything that it holds.
            let says = |lease: &Lease| {
                let is_running =
                    self.world.job(lease.job).is_some_and(|job| job.phase() == JobPhase::Running);
                let phase = match is_running {
                    _ if lease.epoch == epoch => phase.clone(),
                    true => AttemptPhase::Running,
                    false => AttemptPhase::Preparing,
                };
                (lease.epoch, phase)
            };
            let (name, held) =
                (node.name.to_string(), node.leases().iter().map(says).collect::<Vec<_>>());
            self.report(&name, &held);
        }
    }

    pub fn members(&self, job: &str) -> Vec<(NodeId, Epoch)> {
        let attempt = self.job(job).and_then(|job| job.attempt());
        let attempt = attempt.unwrap_or_else(|| panic!("{job} holds no nodes"));
        attempt.members.iter().map(|member| (member.node, attempt.epoch)).collect()
    }

    pub fn run(&mut self, job: &str) {
        self.members_say(job, AttemptPhase::Running);
    }

    pub fn finish(&mut self, job: &str) {
        self.members_say(job, AttemptPhase::Ended(Exit::Code(0)));
    }

    pub fn job(&self, name: &str) -> Option<&muster_core::model::Job> {
        let workspace = self.world.workspace(&workspace()).expect("made at the start").id;
        self.world.job(self.world.live_job_by_name(workspace, name)?.id)
    }

    /// The phase of a live job, or of the record that was logged when it ended.
    pub fn phase(&self, name: &str) -> JobPhase {
        let workspace = self.world.workspace(&workspace()).expect("made at the start").id;
        if let Some(job) = self.world.live_job_by_name(workspace, name) {
            return job.phase();
        }
        let ended = self.log.iter().rev().find_map(|change| match change {
            Change::JobChanged { job, .. } | Change::ChildCreated { job, .. }
                if &*job.name == name =>
            {
                Some(job.phase())
            }
            _ => None,
        });
        ended.unwrap_or_else(|| panic!("no job {name}"))
    }

    /// The jobs that have nodes and do not run yet.
    pub fn starting(&self) -> Vec<String> {
        let starting = self.world.jobs().filter(|job| job.phase() == JobPhase::Starting);
        starting.map(|job| job.name.to_string()).collect()
    }

    pub fn nodes(&self) -> Vec<NodePhase> {
        self.world.nodes().map(|node| node.phase()).collect()
    }

    pub fn count(&self, phase: NodePhase) -> usize {
        self.nodes().into_iter().filter(|other| *other == phase).count()
    }
}

/// What the rows would show of a job after these changes.
pub fn known_job(changes: &[Change], name: &str) -> Option<KnownJob> {
    let mut known: Option<KnownJob> = None;
    for change in changes {
        match change {
            Change::JobSubmitted { job, spec } if &*job.name == name => {
                known = Some(KnownJob { job: job.clone(), spec: spec.clone(), metadata: None });
            }
            Change::JobChanged { job, .. } => {
                if let Some(known) = known.as_mut().filter(|known| known.job.id == job.id) {
                    known.job = job.clone();
                }
            }
            Change::JobMetadataChanged { job, metadata } => {
                if let Some(known) = known.as_mut().filter(|known| known.job.id == *job) {
                    known.metadata = Some(metadata.clone());
                }
            }
            Change::JobGone { job, .. } if known.as_ref().is_some_and(|it| it.job.id == *job) => {
                known = None;
            }
            _ => {}
        }
    }
    known
}

/// What a store would hold after these changes: the latest record of each entity that still exists.
pub fn rows(changes: &[Change]) -> WorldRows {
    fn put<K: Ord, V>(records: &mut BTreeMap<K, V>, key: K, record: V, is_there: bool) {
        if is_there {
            records.insert(key, record);
        } else {
            records.remove(&key);
        }
    }
    let mut rows = WorldRows::default();
    let (mut clusters, mut nodes, mut effects) =
        (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut jobs: BTreeMap<_, Arc<Job>> = BTreeMap::new();
    let mut trees: BTreeMap<JobId, BTreeMap<JobId, JobPhase>> = BTreeMap::new();
    let (mut accounts, mut quotas) = (BTreeMap::new(), BTreeMap::new());
    let (mut workspaces, mut groups, mut locks) =
        (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mut hosts, mut tickets) = (BTreeMap::new(), BTreeMap::new());
    let mut users: BTreeMap<String, Arc<User>> = BTreeMap::new();
    let mut roles: BTreeMap<String, RoleAssignment> = BTreeMap::new();
    for change in changes {
        rows.next_sequence = rows.next_sequence.max(change.highest_sequence() + 1);
        match change.clone() {
            Change::PrincipalSeen(principal) => rows.principals.push(principal),
            Change::WorkspaceChanged(workspace) => {
                put(&mut workspaces, workspace.id, workspace, true);
            }
            Change::WorkspaceGone(id) => {
                workspaces.remove(&id);
            }
            Change::ClusterChanged { cluster, .. } => {
                let is_there = cluster.phase != ClusterPhase::Gone;
                if !is_there {
                    accounts.retain(|(id, _), _| *id != cluster.id);
                }
                put(&mut clusters, cluster.id, cluster, is_there);
            }
            Change::JobSubmitted { job, .. }
            | Change::ChildCreated { job, .. }
            | Change::JobChanged { job, .. } => {
                if let Some(parent) = job.parent {
                    trees.entry(parent).or_default().insert(job.id, job.phase());
                }
                let is_live = !job.phase().is_terminal();
                put(&mut jobs, job.id, job, is_live);
            }
            Change::MemberChanged(change) => {
                let job = Arc::make_mut(jobs.get_mut(&change.job).expect("a live job"));
                if let JobState::Starting(attempt)
                | JobState::Running(attempt)
                | JobState::CancelRequested(attempt) = &mut job.state
                {
                    attempt.members[change.rank as usize] = change.member;
                    attempt.verdict = change.verdict;
                }
            }
            Change::AccountChanged(account) => {
                accounts.insert((account.cluster, account.principal), account);
            }
            Change::QuotaChanged(quota) => {
                quotas.insert(quota.scope.clone(), quota);
            }
            Change::AccessChanged(AccessChange::User(user)) => {
                users.insert(user.name.to_ascii_lowercase(), user);
            }
            Change::AccessChanged(AccessChange::UserGone(name)) => {
                users.remove(&*name);
            }
            Change::AccessChanged(AccessChange::Role(role)) => {
                roles.insert(role.name.to_ascii_lowercase(), role);
            }
            Change::AccessChanged(AccessChange::RoleGone(name)) => {
                roles.remove(&*name);
            }
            Change::NodeChanged { node, .. } => {
                let is_there = node.phase() != NodePhase::Gone;
                put(&mut nodes, node.id, node, is_there);
            }
            Change::EffectQueued(effect) => put(&mut effects, effect.id, effect, true),
            Change::EffectSettled { id } => {
                effects.remove(&id);
            }
            Change::GovernanceChanged(GovernanceChange::Group(group)) => {
                groups.insert(group.scope(), group);
            }
            Change::GovernanceChanged(GovernanceChange::GroupGone(scope)) => {
                groups.remove(&scope);
            }
            Change::GovernanceChanged(GovernanceChange::Lock(lock)) => {
                locks.insert((lock.scope.clone(), lock.name.to_ascii_lowercase()), lock);
            }
            Change::GovernanceChanged(GovernanceChange::LockGone { scope, name }) => {
                locks.remove(&(scope, name.into_string()));
            }
            Change::HostsChanged(HostChange::Host(host)) => {
                hosts.insert(host.name.clone(), host);
            }
            Change::HostsChanged(HostChange::HostGone(name)) => {
                hosts.remove(&name);
            }
            Change::HostsChanged(HostChange::Ticket(ticket)) => {
                tickets.insert(ticket.digest, ticket);
            }
            Change::HostsChanged(HostChange::TicketGone(digest)) => {
                tickets.remove(&digest);
            }
            Change::AttemptEnded(_)
            | Change::TreeSaved(_)
            | Change::LedgerPosted(_)
            | Change::OperationChanged(_)
            | Change::ActivityNoted(_)
            | Change::DeploymentChanged(_)
            | Change::JobMetadataChanged { .. }
            | Change::JobGone { .. }
            | Change::DeploymentGone { .. }
            | Change::DatastoreChanged(_)
            | Change::AssetChanged(_)
            | Change::AssetGone { .. }
            | Change::AssetContainerChanged(_)
            | Change::AssetContainerGone { .. }
            | Change::DatastoreGone { .. } => {}
        }
    }
    rows.workspaces = workspaces.into_values().collect();
    rows.groups = groups.into_values().map(Arc::unwrap_or_clone).collect();
    rows.locks = locks.into_values().map(Arc::unwrap_or_clone).collect();
    rows.hosts = hosts.into_values().map(Arc::unwrap_or_clone).collect();
    rows.tickets = tickets.into_values().collect();
    rows.clusters = clusters.into_values().map(Arc::unwrap_or_clone).collect();
    rows.nodes = nodes.into_values().map(Arc::unwrap_or_clone).collect();
    trees.retain(|parent, _| jobs.contains_key(parent));
    let tree = |(parent, children): (JobId, BTreeMap<JobId, JobPhase>)| TreeRows {
        parent,
        children: children.into_iter().collect(),
    };
    rows.trees = trees.into_iter().map(tree).collect();
    rows.jobs = jobs.into_values().map(Arc::unwrap_or_clone).collect();
    rows.accounts = accounts.into_values().collect();
    rows.quotas = quotas.into_values().collect();
    rows.users = users.into_values().map(Arc::unwrap_or_clone).collect();
    rows.roles = roles.into_values().collect();
    rows.effects = effects.into_values().collect();
    rows
}

/// The only remedy that a refusal names.
pub fn remedy(refused: &Refused) -> Remedy {
    let words = refused.words();
    let mut remedies = words.parts().iter().filter_map(|part| match part {
        Part::Remedy(remedy) => Some(remedy),
        Part::Text(_) | Part::Field(_) => None,
    });
    let remedy = remedies.next().unwrap_or_else(|| panic!("{refused} names no remedy"));
    assert!(remedies.next().is_none(), "{refused}");
    (**remedy).clone()
}

/// Does what the command of a remedy would do.
pub fn apply(stage: &mut Stage, remedy: &Remedy) {
    let update = |cluster: &ClusterName, wanted: ClusterPatch| (cluster.to_string(), wanted);
    let (name, wanted) = match remedy {
        Remedy::SetMaximum { cluster, nodes_max } => {
            update(cluster, ClusterPatch { nodes_max: Some(*nodes_max), ..<_>::default() })
        }
        Remedy::SetMinimum { cluster, nodes_min } => {
            update(cluster, ClusterPatch { nodes_min: Some(*nodes_min), ..<_>::default() })
        }
        Remedy::SetIdleTime { cluster, seconds } => {
            let idle_time = Some(Span::seconds(*seconds));
            update(cluster, ClusterPatch { idle_time, ..<_>::default() })
        }
        Remedy::GrowAtOnce { cluster } => {
            let scale_up = Some(ScaleUp::Immediate);
            update(cluster, ClusterPatch { scale_up, ..<_>::default() })
        }
        Remedy::Start { cluster } | Remedy::Stop { cluster } => {
            let is_start = matches!(remedy, Remedy::Start { .. });
            let power = if is_start { Power::Start } else { Power::Stop };
            stage.power(cluster.as_str(), power).expect("it can be done");
            return;
        }
        Remedy::TryAgain { cluster } => update(cluster, ClusterPatch::default()),
        Remedy::SetQuota { location, name, limit } => {
            let scope = QuotaScope::new("sub", location);
            let limits = [(name.clone(), Some(*limit))].into_iter().collect();
            stage.say(Input::SetQuota { scope, limits }).expect("it can be done");
            return;
        }
        Remedy::Cancel { job } => {
            stage.cancel(job).expect("it can be done");
            return;
        }
        Remedy::Unlock { lock } => {
            let (scope, name) = (lock.scope.clone(), lock.name.clone());
            let request = GovernanceRequest::DeleteLock { scope, name };
            stage.say(Input::ChangeGovernance(Box::new(request))).expect("it can be done");
            return;
        }
        Remedy::JoinHost => {
            stage.join_host("another", Capacity { gpus: 16, vcpus: 1024, memory_mb: 16 << 20 });
            return;
        }
        Remedy::OpenHost { host } => {
            let request = HostRequest::SetState { name: host.clone(), state: HostState::Open };
            stage.say(Input::ChangeHosts(Box::new(request))).expect("it can be done");
            return;
        }
        Remedy::CheckServer => {
            stage.world.set_store_trouble(None);
            stage.say(Input::Tick).expect("a tick");
            return;
        }
        Remedy::DrainHost { host } => {
            let request = HostRequest::SetState { name: host.clone(), state: HostState::Draining };
            stage.say(Input::ChangeHosts(Box::new(request))).expect("it can be done");
            return;
        }
        Remedy::Wait { .. } | Remedy::ListTasks { .. } | Remedy::List(_) => return,
    };
    // Raising a maximum may need a higher quota first; the next round tells.
    let _ = stage.put(&name, wanted);
}
