//! The cost of a commit does not depend on the size of the store. It is counted in steps of SQLite's virtual machine,
//! so it is the same on any computer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use muster_core::catalogue::Catalogue;
use muster_core::model::{ActivityRequest, Caller, JobSpec, Scope, SpecHash, WorkspaceKey};
use muster_core::time::{Elapsed, Now, Span, Wall};
use muster_core::{ClusterPatch, Input, JobRequest, Settings, World, step};

use super::Scratch;
use crate::{SqliteStore, Store, look_up};

/// The store and the core as the writer uses them.
struct Stage {
    store: SqliteStore,
    world: World,
    now: Now,
    steps: Arc<AtomicU64>,
}

fn home(tenant: &str) -> WorkspaceKey {
    WorkspaceKey::new("s", "g", tenant)
}

fn user(tenant: &str) -> Caller {
    Caller { object_id: tenant.into(), name: tenant.into() }
}

impl Stage {
    fn new(scratch: &Scratch) -> Stage {
        let mut store = scratch.open();
        let now = Now { elapsed: Elapsed(1), wall: Wall(1_750_000_000_000_000) };
        let epoch = store.claim(now.wall.0 / 1_000).expect("claimed");
        let catalogue = Arc::new(Catalogue::builtin());
        let rows = store.load().expect("rows can be loaded");
        let world = World::rebuild(rows, epoch, Settings::default(), catalogue, now);
        let steps = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&steps);
        let count = move || {
            seen.fetch_add(1, Relaxed);
            false
        };
        store.connection.progress_handler(1, Some(count)).expect("a handler");
        Stage { store, world, now, steps }
    }

    /// Returns the cost.
    fn ask(&mut self, tenant: &str, inputs: Vec<Input>) -> u64 {
        let before = self.steps.load(Relaxed);
        self.now.wall = self.now.wall + Span::seconds(1);
        let scope = Scope::workspace(&home(tenant));
        let activity_request = ActivityRequest {
            operation: "write".into(),
            resource: "/r".into(),
            scope,
            correlation: "c".into(),
        };
        let asked = |input| Input::Asked {
            by: user(tenant),
            activity_request: Box::new(activity_request.clone()),
            input: Box::new(input),
        };
        let known = |input| look_up(&mut self.store, input).expect("it looks up");
        let inputs: Vec<Input> = inputs.into_iter().map(asked).map(known).collect();
        let output = step(&mut self.world, &inputs, self.now);
        assert!(output.answers.iter().all(Result::is_ok), "{:?}", output.answers);
        self.store.commit(&output.changes, output.wall).expect("the commit succeeds");
        self.steps.load(Relaxed) - before
    }

    fn settle(&mut self, tenant: &str) {
        let wanted = Box::new(ClusterPatch { nodes_max: Some(0), ..ClusterPatch::default() });
        let (workspace, name, by) = (home(tenant), tenant.to_owned(), user(tenant));
        self.ask(tenant, vec![Input::workspace(home(tenant), "eastus", user(tenant))]);
        self.ask(tenant, vec![Input::PutCluster { workspace, name, wanted, by }]);
    }

    fn submit(&mut self, tenant: &str, numbers: std::ops::Range<u64>) -> u64 {
        let job = |number: u64| {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
            Input::SubmitJob(Box::new(JobRequest {
                workspace: home(tenant),
                name: format!("j{number}"),
                spec: Arc::new(JobSpec::new(tenant, "true")),
                spec_hash: SpecHash(hash),
                by: user(tenant),
                is_archived: None,
                existing: None,
                numbered: <_>::default(),
            }))
        };
        self.ask(tenant, numbers.map(job).collect())
    }
}

/// Regression test: every record used to read the whole activity log, so with 35,000 jobs of one tenant, another's
/// submission took five times as long.
#[test]
fn a_submit_costs_the_same_however_many_jobs_there_are() {
    let scratch = Scratch::new();
    let mut stage = Stage::new(&scratch);
    stage.settle("noisy");
    stage.settle("quiet");
    stage.submit("noisy", 0..100);
    stage.submit("quiet", 0..1);
    let few = stage.submit("quiet", 1..2);
    stage.submit("noisy", 100..5_000);
    let many = stage.submit("quiet", 2..3);
    assert!(few > 100, "steps are counted: {few}");
    assert!(many <= few + few / 10, "{few} steps with 100 jobs, {many} with 5,000");
}
