//! A world of the size that it is designed for: every cluster is full, and a gang is at the head of every queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_core::agent::{AttemptPhase, AttemptReport, Report};
use muster_core::catalogue::Catalogue;
use muster_core::ids::Epoch;
use muster_core::model::{
    Caller, Exit, JobPhase, JobSpec, NodePhase, Priority, QuotaName, QuotaScope, SpecHash,
    WorkspaceKey,
};
use muster_core::time::{Elapsed, Now, Span, Wall};
use muster_core::why::why;
use muster_core::{
    ClusterPatch, Input, InputResult, JobRequest, Output, Settings, World, WorldRows, step,
};

use super::{heap, timed};
use crate::report::Samples;

#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub clusters: u32,
    pub nodes: u32,
    pub queued: u32,
}

pub struct Large {
    pub world: World,
    now: Now,
    size: Size,
    submitted: u64,
}

/// How often each kind of decision is measured.
const ROUNDS: u32 = 1_000;
const GANG: u32 = 8;
const USERS: u32 = 20;
/// The nodes have the default size.
const VCPUS: u64 = 4;

impl Large {
    /// With `spare`, every cluster may have this many more nodes, which the quota does not allow.
    pub fn new(size: Size, spare: u32) -> Large {
        let mut large = Large::empty(size);
        for cluster in 0..size.clusters {
            large.put(cluster, size.nodes / size.clusters + spare);
        }
        if spare > 0 {
            large.say(limit(u64::from(size.nodes) * VCPUS));
        }
        for cluster in 0..size.clusters {
            for _ in 0..size.nodes / size.clusters {
                large.submit(cluster, 1, Priority::High);
            }
        }
        large.bring_up();
        for number in 0..size.queued {
            let cluster = number % size.clusters;
            let is_first = number < size.clusters;
            let nodes = if is_first { GANG } else { 1 + number / size.clusters % 3 };
            let priority = if is_first { Priority::High } else { Priority::Medium };
            large.submit(cluster, nodes, priority);
        }
        large
    }

    fn empty(size: Size) -> Large {
        let now = Now { elapsed: Elapsed(1_000_000), wall: Wall(1_750_000_000_000_000) };
        let lease = Span::seconds(365 * 24 * 3_600);
        let settings = Settings { lease, ..Settings::default() };
        let catalogue = Arc::new(Catalogue::builtin());
        let world = World::rebuild(WorldRows::default(), 1, settings, catalogue, now);
        let mut large = Large { world, now, size, submitted: 0 };
        let create = Input::workspace(workspace(), "eastus", user(0));
        large.say(create);
        large
    }

    /// A first workspace with this many clusters; `commit` gets the changes that create them.
    fn begun(clusters: u32, nodes_max: u32, commit: &mut dyn FnMut(Output)) -> Large {
        let now = Now { elapsed: Elapsed(1_000_000), wall: Wall(1_750_000_000_000_000) };
        let catalogue = Arc::new(Catalogue::builtin());
        let world = World::rebuild(WorldRows::default(), 1, Settings::default(), catalogue, now);
        let size = Size { clusters, nodes: 0, queued: 0 };
        let mut large = Large { world, now, size, submitted: 0 };
        commit(large.say(Input::workspace(workspace(), "eastus", user(0))));
        for cluster in 0..clusters {
            commit(large.say(Large::put_input(cluster, nodes_max)));
        }
        large
    }

    fn say(&mut self, input: Input) -> Output {
        self.now.wall = self.now.wall + Span(1_000);
        self.now.elapsed = self.now.elapsed + Span(1_000);
        let output = step(&mut self.world, std::slice::from_ref(&input), self.now);
        assert!(output.answers.iter().all(InputResult::is_ok), "{:?}", output.answers);
        output
    }

    fn put_input(cluster: u32, nodes_max: u32) -> Input {
        Input::PutCluster {
            workspace: workspace(),
            name: name_of(cluster),
            wanted: Box::new(ClusterPatch { nodes_max: Some(nodes_max), ..<_>::default() }),
            by: user(0),
        }
    }

    fn put(&mut self, cluster: u32, nodes_max: u32) {
        self.say(Large::put_input(cluster, nodes_max));
    }

    fn submission(&mut self, cluster: u32, nodes: u32, priority: Priority, name: &str) -> Input {
        self.submitted += 1;
        let number = self.submitted;
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        Input::SubmitJob(Box::new(JobRequest {
            workspace: workspace(),
            name: format!("{name}-{number}"),
            spec: Arc::new(specification(cluster, nodes, priority)),
            spec_hash: SpecHash(hash),
            by: user(u32::try_from(number % u64::from(USERS)).unwrap_or(0)),
            is_archived: None,
            existing: None,
            numbered: <_>::default(),
        }))
    }

    fn submit(&mut self, cluster: u32, nodes: u32, priority: Priority) {
        let input = self.submission(cluster, nodes, priority, "job");
        self.say(input);
    }

    /// Every requested node starts, and every job that has nodes runs.
    fn bring_up(&mut self) {
        self.settle(&mut |_| ());
        for (node, epoch) in self.leases() {
            self.say(report(&node, Some((epoch, AttemptPhase::Running))));
        }
    }

    /// The provider has carried out its effects, and the new nodes have reported.
    fn settle(&mut self, commit: &mut dyn FnMut(Output)) {
        let effects: Vec<_> = self.world.effects().map(|effect| effect.id).collect();
        for effect in effects {
            commit(self.say(Input::EffectDone { effect, result: Ok(()) }));
        }
        let booting: Vec<String> = self
            .world
            .nodes()
            .filter(|node| node.phase() == NodePhase::Booting)
            .map(|node| node.name.to_string())
            .collect();
        for node in booting {
            commit(self.say(report(&node, None)));
        }
    }

    fn leases(&self) -> Vec<(String, Epoch)> {
        self.world
            .nodes()
            .flat_map(|node| node.leases().iter().map(|lease| (node.name.to_string(), lease.epoch)))
            .collect()
    }

    pub fn decisions(size: Size) -> Vec<(&'static str, Samples)> {
        let mut large = Large::new(size, 0);
        heap::warm_up();
        let submits = large.submits();
        let freed = large.freed();
        let raised = large.raised();
        drop(large);
        let mut large = Large::new(size, 15);
        heap::warm_up();
        let (one, many) = large.quotas();
        vec![
            ("submit", submits),
            ("node freed behind a blocked gang", freed),
            ("maximum raised", raised),
            ("quota of all clusters raised by a node", one),
            ("quota of all clusters raised by 100 nodes", many),
        ]
    }

    fn submits(&mut self) -> Samples {
        let mut samples = Samples::default();
        for round in 0..ROUNDS {
            let cluster = round * 7 % self.size.clusters;
            let input = self.submission(cluster, 1, Priority::Medium, "late");
            timed(&mut samples, || self.say(input));
        }
        samples
    }

    /// The gang at the head needs more nodes, and no job behind it would end in time.
    fn freed(&mut self) -> Samples {
        let running: Vec<(String, Epoch)> = (0..self.size.clusters)
            .filter_map(|cluster| {
                let workspace = self.world.workspace(&workspace())?.id;
                let pool = self
                    .world
                    .cluster_index(self.world.cluster_by_name(workspace, &name_of(cluster))?.id)?;
                let node = self.world.node(*pool.leased.first()?)?;
                Some((node.name.to_string(), node.leases().first()?.epoch))
            })
            .collect();
        let mut samples = Samples::default();
        for (node, epoch) in running {
            let ended = report(&node, Some((epoch, AttemptPhase::Ended(Exit::Code(0)))));
            timed(&mut samples, || self.say(ended));
        }
        samples
    }

    fn raised(&mut self) -> Samples {
        let mut samples = Samples::default();
        let nodes_max = self.size.nodes / self.size.clusters + 1;
        for cluster in 0..self.size.clusters {
            let input = Large::put_input(cluster, nodes_max);
            timed(&mut samples, || self.say(input));
        }
        samples
    }

    /// Every cluster would grow, but the quota that they share allows none to.
    fn quotas(&mut self) -> (Samples, Samples) {
        let mut nodes = self.world.nodes().len() as u64;
        let (mut one, mut many) = (Samples::default(), Samples::default());
        for _ in 0..ROUNDS {
            nodes += 1;
            let input = limit(nodes * VCPUS);
            timed(&mut one, || self.say(input));
        }
        for _ in 0..ROUNDS / 10 {
            nodes += 100;
            let input = limit(nodes * VCPUS);
            timed(&mut many, || self.say(input));
        }
        assert_eq!(self.world.nodes().len() as u64, nodes, "the whole quota is used");
        (one, many)
    }
}

fn limit(vcpus: u64) -> Input {
    let scope = QuotaScope::new("bench", "eastus");
    Input::SetQuota { scope, limits: [(QuotaName::Region, Some(vcpus))].into_iter().collect() }
}

/// How long the answer for the last of this many jobs takes.
pub fn why_the_last_waits(queued: u32) -> Duration {
    let mut large = Large::new(Size { clusters: 1, nodes: 10, queued }, 0);
    large.submit(0, 1, Priority::Low);
    let last = large.world.jobs().filter(|job| job.phase() == JobPhase::Queued).map(|job| job.id);
    let last = last.max().expect("there are waiting jobs");
    let started = Instant::now();
    let reasons = why(&large.world, last);
    let took = started.elapsed();
    assert!(!reasons.is_empty());
    took
}

/// How much World grows with each of this many jobs.
pub fn bytes_per_job(jobs: u32, name: &str) -> usize {
    let mut large = Large::empty(Size { clusters: 1, nodes: 0, queued: 0 });
    large.put(0, 0);
    large.submit(0, 1, Priority::Medium);
    let grown = heap::growth(|| {
        for _ in 0..jobs {
            let input = large.submission(0, 1, Priority::Medium, name);
            large.say(input);
        }
    });
    grown / jobs as usize
}

pub fn live_jobs(jobs: u32, commit: &mut dyn FnMut(Output)) {
    let mut large = Large::begun(1, 0, commit);
    for _ in 0..jobs {
        let input = large.submission(0, 1, Priority::Medium, "live");
        commit(large.say(input));
    }
}

pub fn clusters(clusters: u32, commit: &mut dyn FnMut(Output)) {
    Large::begun(clusters, 4, commit);
}

/// Every job has run and ended, and the nodes have been deleted again.
pub fn finished_jobs(jobs: u32, commit: &mut dyn FnMut(Output)) {
    const NODES: u32 = 10;
    let mut large = Large::begun(1, NODES, commit);
    for _ in 0..jobs / NODES {
        for _ in 0..NODES {
            let input = large.submission(0, 1, Priority::Medium, "finished");
            commit(large.say(input));
        }
        large.settle(commit);
        for phase in [AttemptPhase::Running, AttemptPhase::Ended(Exit::Code(0))] {
            for (node, epoch) in large.leases() {
                commit(large.say(report(&node, Some((epoch, phase.clone())))));
            }
        }
    }
    commit(large.say(Large::put_input(0, 0)));
    large.settle(commit);
    assert_eq!((large.world.jobs().len(), large.world.nodes().len()), (0, 0));
}

fn report(node: &str, attempt: Option<(Epoch, AttemptPhase)>) -> Input {
    let floor = attempt.as_ref().map_or(Epoch(0), |(epoch, _)| *epoch);
    let attempts =
        attempt.map(|(epoch, phase)| AttemptReport::new(epoch, phase)).into_iter().collect();
    let report = Report {
        boot_id: "boot".into(),
        address: "10.0.0.4".into(),
        floor,
        attempts,
        waiting: Vec::new(),
    };
    Input::Report { node: node.to_owned(), report }
}

fn specification(cluster: u32, nodes: u32, priority: Priority) -> JobSpec {
    JobSpec { nodes, priority, ..JobSpec::new(&name_of(cluster), "true") }
}

pub fn name_of(cluster: u32) -> String {
    format!("pool{cluster}x")
}

fn workspace() -> WorkspaceKey {
    WorkspaceKey::new("bench", "bench", "bench")
}

fn user(number: u32) -> Caller {
    let name: Box<str> = format!("user{number}").into();
    Caller { object_id: name.clone(), name }
}
