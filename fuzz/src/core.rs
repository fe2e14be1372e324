//! A small World for what a parser accepted: one node is up, one is starting, one job is running and one is waiting.

use std::sync::Arc;

use muster_core::agent::{AttemptPhase, AttemptReport, Report};
use muster_core::catalogue::Catalogue;
use muster_core::ids::Epoch;
use muster_core::model::{Caller, JobSpec, SpecHash, WorkspaceKey};
use muster_core::time::{Elapsed, Now, Span, Wall};
use muster_core::{ClusterPatch, Input, JobRequest, Settings, World, WorldRows, invariants, step};

use crate::oracle;

pub const CLUSTER: &str = "pool";

pub struct Stage {
    world: World,
    now: Now,
}

pub fn key() -> WorkspaceKey {
    WorkspaceKey::new("s", "g", "w")
}

pub fn caller() -> Caller {
    Caller { object_id: "oid".into(), name: "ada".into() }
}

pub fn submission(name: &str, spec: JobSpec) -> Input {
    Input::SubmitJob(Box::new(JobRequest {
        workspace: key(),
        name: name.to_owned(),
        spec: Arc::new(spec),
        spec_hash: SpecHash([7; 32]),
        by: caller(),
        is_archived: None,
        existing: None,
        numbered: <_>::default(),
    }))
}

impl Stage {
    pub fn new() -> Stage {
        let now = Now { elapsed: Elapsed(1_000_000), wall: Wall(1_750_000_000_000_000) };
        let catalogue = Arc::new(Catalogue::builtin());
        let world = World::rebuild(WorldRows::default(), 1, Settings::default(), catalogue, now);
        Stage { world, now }
    }

    /// With a job on its first node.
    pub fn running() -> Stage {
        let mut stage = Stage::new();
        stage.say(Input::workspace(key(), "eastus", caller()));
        let wanted = ClusterPatch { nodes_max: Some(2), ..<_>::default() };
        stage.say(Input::PutCluster {
            workspace: key(),
            name: CLUSTER.to_owned(),
            wanted: Box::new(wanted),
            by: caller(),
        });
        stage.say(submission("first", JobSpec::new(CLUSTER, "true")));
        let effects: Vec<_> = stage.world.effects().map(|effect| effect.id).collect();
        for effect in effects {
            stage.say(Input::EffectDone { effect, result: Ok(()) });
        }
        let node = stage.first_node();
        stage.say(report(&node, Vec::new()));
        let lease =
            stage.world.nodes().flat_map(|node| node.leases()).map(|lease| lease.epoch).next();
        let epoch = lease.expect("the job has its node");
        stage.say(report(&node, vec![AttemptReport::new(epoch, AttemptPhase::Running)]));
        stage.say(submission("second", JobSpec::new(CLUSTER, "true")));
        stage
    }

    pub fn first_node(&self) -> String {
        self.world.nodes().next().expect("there is a node").name.to_string()
    }

    /// Passes an input to the core, and checks World afterwards. Returns whether the input was accepted.
    pub fn say(&mut self, input: Input) -> bool {
        self.now.wall = self.now.wall + Span(1_000);
        self.now.elapsed = self.now.elapsed + Span(1_000);
        let output = step(&mut self.world, std::slice::from_ref(&input), self.now);
        if let Err(broken) = invariants::check(&self.world, self.now, Span::seconds(1)) {
            panic!("{broken:?} after {input:?}");
        }
        let answer = output.answers.into_iter().next().expect("every input has its answer");
        if let Err(refused) = &answer {
            oracle::refusal(&refused.into());
        }
        answer.is_ok()
    }
}

pub fn report(node: &str, attempts: Vec<AttemptReport>) -> Input {
    let floor = attempts.iter().map(|attempt| attempt.epoch).max().unwrap_or(Epoch(0));
    let report = Report {
        boot_id: "boot".into(),
        address: "10.0.0.4".into(),
        floor,
        attempts,
        waiting: Vec::new(),
    };
    Input::Report { node: node.to_owned(), report }
}
