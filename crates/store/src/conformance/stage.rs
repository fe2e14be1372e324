//! Runs the real core on a store, with a clock that the check moves and a provider and agents that do as they are told.
//! After every commit, World is compared with the rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::agent::{AttemptPhase, AttemptReport, Report};
use muster_core::catalogue::Catalogue;
use muster_core::ids::Epoch;
use muster_core::model::{Caller, Exit, Job, JobSpec, NodePhase, SpecHash, WorkspaceKey};
use muster_core::time::{Elapsed, Now, Span, Wall};
use muster_core::{Change, ClusterPatch, Input, InputResult, JobRequest, Settings, World, step};

use super::Database;
use crate::{Reader, Revision, Store};

pub struct Stage<'d> {
    database: &'d dyn Database,
    pub store: Box<dyn Store>,
    pub reader: Box<dyn Reader>,
    pub world: World,
    pub epoch: u64,
    pub now: Now,
    /// Every change that was committed.
    pub log: Vec<Change>,
}

/// The workspace of the checks.
pub fn home() -> WorkspaceKey {
    WorkspaceKey::new("Sub-1", "Group", "Space")
}

pub fn someone() -> Caller {
    Caller { object_id: "0b8e".into(), name: "Some One".into() }
}

impl<'d> Stage<'d> {
    pub const START: Wall = Wall(1_700_000_000_000_000);

    /// A claimed store with one workspace.
    pub fn new(database: &'d dyn Database) -> Stage<'d> {
        let now = Now { elapsed: Elapsed(1), wall: Stage::START };
        let mut stage = Stage::open(database, now, Vec::new());
        stage.create_workspace(home());
        stage
    }

    fn open(database: &'d dyn Database, now: Now, log: Vec<Change>) -> Stage<'d> {
        let mut store = database.store();
        let epoch = store.claim(now.wall.0 / 1_000).expect("a store can be claimed");
        let world = rebuild(store.as_mut(), epoch, now);
        let reader = database.reader();
        Stage { database, store, reader, world, epoch, now, log }
    }

    /// Starts over as after a crash: nothing is kept except what is in the store.
    pub fn restart(self) -> Stage<'d> {
        let Stage { database, store, reader, world, now, log, .. } = self;
        drop((store, reader));
        let stage = Stage::open(database, now, log);
        assert_eq!(stage.world.difference(&world), None, "after a restart");
        stage
    }

    /// Steps, commits, and compares World with the rows.
    pub fn say_all(&mut self, inputs: &[Input]) -> Vec<InputResult> {
        let output = step(&mut self.world, inputs, self.now);
        let before = Revision(self.log.len() as u64);
        assert_eq!(self.store.revision().expect("rows can be read"), before);
        let revision =
            self.store.commit(&output.changes, output.wall).expect("the commit succeeds");
        assert_eq!(revision, Revision(before.0 + output.changes.len() as u64));
        self.log.extend(output.changes);
        let rows = rebuild(self.store.as_mut(), self.epoch, self.now);
        assert_eq!(self.world.difference(&rows), None, "after {inputs:?}");
        output.answers
    }

    pub fn say(&mut self, input: Input) -> InputResult {
        self.say_all(&[input]).pop().expect("one answer per input")
    }

    pub fn pass_s(&mut self, seconds: u64) {
        self.now.elapsed = self.now.elapsed + Span::seconds(seconds);
        self.now.wall = self.now.wall + Span::seconds(seconds);
    }

    pub fn create_workspace(&mut self, key: WorkspaceKey) {
        self.say(Input::workspace(key, "eastus", someone())).expect("a workspace");
    }

    pub fn put_cluster(&mut self, name: &str, nodes_min: u32, nodes_max: u32) {
        self.say(put_cluster(home(), name, nodes_min, nodes_max)).expect("a cluster");
    }

    pub fn submit(&mut self, name: &str, compute: &str, nodes: u32) {
        let input = self.submission(home(), name, compute, nodes);
        self.say(input).expect("a job");
    }

    /// The input for a client's submission, after checking in the rows whether the name is taken.
    pub fn submission(
        &mut self,
        workspace: WorkspaceKey,
        name: &str,
        compute: &str,
        nodes: u32,
    ) -> Input {
        let existing = self.store.find_job(&workspace, name).expect("rows can be read");
        let spec = Arc::new(specification(compute, nodes));
        let spec_hash = SpecHash::made_up(&format!("{nodes} on {compute}"));
        let (name, by) = (name.to_owned(), someone());
        let is_archived = None;
        let request = JobRequest {
            workspace,
            name,
            spec,
            spec_hash,
            by,
            is_archived,
            existing,
            numbered: <_>::default(),
        };
        Input::SubmitJob(Box::new(request))
    }

    /// The provider carries out the effects in the outbox, and the nodes that it created report.
    pub fn provide(&mut self) {
        let effects: Vec<_> = self.world.effects().map(|effect| effect.id).collect();
        for effect in effects {
            self.say(Input::EffectDone { effect, result: Ok(()) }).expect("noted");
        }
        for name in self.nodes_that_are(NodePhase::Booting) {
            self.say(report(&name, None)).expect("noted");
        }
    }

    pub fn nodes_that_are(&self, phase: NodePhase) -> Vec<String> {
        let nodes = self.world.nodes().filter(|node| node.phase() == phase);
        nodes.map(|node| node.name.to_string()).collect()
    }

    pub fn live_job(&self, name: &str) -> Option<&Job> {
        let workspace = self.world.workspace(&home()).expect("made at the start").id;
        self.world.job(self.world.live_job_by_name(workspace, name)?.id)
    }

    /// Every member of the job's attempt reports this.
    pub fn members_say(&mut self, job: &str, phase: &AttemptPhase) {
        let job = self.live_job(job).expect("a live job");
        let attempt = job.attempt().expect("it holds nodes").clone();
        for member in attempt.members {
            let node = self.world.node(member.node).expect("a member").name.to_string();
            self.say(report(&node, Some((attempt.epoch, phase.clone())))).expect("noted");
        }
    }

    pub fn run(&mut self, job: &str) {
        self.members_say(job, &AttemptPhase::Running);
    }

    pub fn finish(&mut self, job: &str, code: i32) {
        self.members_say(job, &AttemptPhase::Ended(Exit::Code(code)));
    }
}

pub fn rebuild(store: &mut dyn Store, epoch: u64, now: Now) -> World {
    let rows = store.load().expect("rows can be loaded");
    World::rebuild(rows, epoch, Settings::default(), Arc::new(Catalogue::builtin()), now)
}

pub fn put_cluster(workspace: WorkspaceKey, name: &str, min: u32, max: u32) -> Input {
    let wanted = Box::new(ClusterPatch {
        nodes_min: Some(min),
        nodes_max: Some(max),
        idle_time: Some(Span::seconds(120)),
        tags: Some(BTreeMap::from([("owner".to_owned(), "größe \"1\"".to_owned())])),
        ..ClusterPatch::default()
    });
    Input::PutCluster { workspace, name: name.to_owned(), wanted, by: someone() }
}

pub fn specification(compute: &str, nodes: u32) -> JobSpec {
    JobSpec {
        nodes,
        display_name: Some("schöner Lauf 🙂".into()),
        environment_variables: BTreeMap::from([("X".to_owned(), "a\tb\u{7f}c".to_owned())]),
        timeout: Some(Span::seconds(3_600)),
        ..JobSpec::new(compute, "printf '%s\\n' \"$X\" | tee out.txt")
    }
}

/// A node reports what it is doing.
pub fn report(node: &str, attempt: Option<(Epoch, AttemptPhase)>) -> Input {
    let floor = attempt.as_ref().map_or(Epoch(0), |(epoch, _)| *epoch);
    let attempts = attempt.map(|(epoch, phase)| AttemptReport::new(epoch, phase));
    let report = Report {
        boot_id: "boot".into(),
        address: "10.0.0.4".into(),
        floor,
        attempts: attempts.into_iter().collect(),
        waiting: Vec::new(),
    };
    Input::Report { node: node.to_owned(), report }
}

/// Pseudo-random numbers that are the same for the same seed (SplitMix64).
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub fn one_of<'t, T>(&mut self, all: &'t [T]) -> Option<&'t T> {
        (!all.is_empty()).then(|| &all[self.below(all.len() as u64) as usize])
    }
}
