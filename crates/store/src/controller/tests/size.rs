//! How much a finished job adds to the file. IDs, times and names are as long as those of a real server.

use muster_core::agent::{AttemptPhase, AttemptReport, Desired};
use muster_core::model::{
    ActivityRequest, ArrayPlan, Exit, JobSpec, Scope, ShareRequest, Spans, SpecHash,
};
use muster_core::{JobRequest, Reply};

use super::*;

const START_US: u64 = 1_795_031_110_033_009;
const SUBSCRIPTION: &str = "0b1f6471-1bf0-4dda-aec3-cb9272f09590";
/// As many jobs run at once as the node has cores.
const SLOTS: usize = 4;
const JOBS: usize = 1_000;
const BYTES_MAX: u64 = 5_000;

struct Stage {
    controller: Tested,
    path: std::path::PathBuf,
    _folder: tempfile::TempDir,
    now: Now,
    node: String,
    floor: Epoch,
    by: Caller,
    workspace: WorkspaceKey,
}

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("muster.db");
        let store = SqliteStore::open(&path, Durability::None).expect("the store opens");
        let now = Now { wall: Wall(START_US), elapsed: Elapsed(1) };
        let loaded = Loaded::claim(store, START_US / 1_000).expect("it can be claimed");
        let catalogue = Arc::new(Catalogue::builtin());
        let controller = Tested::new(loaded, Settings::default(), catalogue, now);
        let mut stage = Stage {
            controller,
            path,
            _folder: folder,
            now,
            node: String::new(),
            floor: Epoch(0),
            by: Caller {
                object_id: "be99ab60-c057-8761-86cf-e7d7822fe9bf".into(),
                name: "somebody@example.com".into(),
            },
            workspace: WorkspaceKey::new(SUBSCRIPTION, "my-group", "my-workspace"),
        };
        stage.settle();
        stage
    }

    /// Creates a cluster with one node, which joins.
    fn settle(&mut self) {
        let (workspace, by) = (self.workspace.clone(), self.by.clone());
        let nodes = (Some(1), Some(1));
        let wanted = ClusterPatch { nodes_min: nodes.0, nodes_max: nodes.1, ..Default::default() };
        let put = Input::PutCluster {
            workspace: workspace.clone(),
            name: "cpu-cluster".into(),
            wanted: Box::new(wanted),
            by: by.clone(),
        };
        self.pass(Input::workspace(workspace, "eastus", by)).expect("a workspace");
        self.pass(put).expect("a cluster");
        let world = self.controller.world().expect("there is a World");
        self.node = world.nodes().next().expect("there is a node").name.to_string();
        self.report(Vec::new());
    }

    fn pass(&mut self, input: Input) -> InputResult {
        let step = Span(1_733);
        self.now = Now { wall: self.now.wall + step, elapsed: self.now.elapsed + step };
        super::pass(&mut self.controller, input, self.now).1
    }

    fn report(&mut self, attempts: Vec<AttemptReport>) -> Desired {
        let (boot_id, address) =
            ("5813c9bc-bf8d-49a1-898b-7d0b69ab81ee-2-123065".into(), "100.64.0.2".into());
        let report = Report { boot_id, address, floor: self.floor, attempts, waiting: Vec::new() };
        match self.pass(Input::Report { node: self.node.clone(), report }) {
            Ok(Reply::Desired(desired)) => *desired,
            other => panic!("an agent got {other:?}"),
        }
    }

    fn submit(&mut self, name: &str, array: Option<ArrayPlan>) {
        let share = ShareRequest { vcpus: Some(1), ..ShareRequest::default() };
        let array = array.map(Box::new);
        let spec = JobSpec { share, array, ..JobSpec::new("cpu-cluster", "true") };
        let scope = Scope::workspace(&self.workspace);
        let resource = format!(
            "/subscriptions/{SUBSCRIPTION}/resourceGroups/my-group/providers/\
             Microsoft.MachineLearningServices/workspaces/my-workspace/jobs/{name}"
        );
        let activity_request = Box::new(ActivityRequest {
            operation: "Microsoft.MachineLearningServices/workspaces/jobs/write".into(),
            resource: resource.into(),
            scope,
            // Different in each request.
            correlation: format!("983938d5-4c11-8137-8fa5-{:012x}", self.now.wall.0).into(),
        });
        let request = JobRequest {
            workspace: self.workspace.clone(),
            name: name.to_owned(),
            spec: Arc::new(spec),
            spec_hash: SpecHash([0x5a; 32]),
            by: self.by.clone(),
            is_archived: None,
            existing: None,
            numbered: <_>::default(),
        };
        let input = Box::new(Input::SubmitJob(Box::new(request)));
        let by = self.by.clone();
        self.pass(Input::Asked { by, activity_request, input }).expect("it is accepted");
    }

    /// Lets everything run that the node has been given, one attempt after the other. Returns how many there were.
    fn run(&mut self) -> usize {
        let given = self.report(Vec::new()).assignments;
        let mut epochs: Vec<Epoch> = given.iter().map(|assignment| assignment.epoch).collect();
        self.floor = epochs.iter().copied().max().unwrap_or(self.floor);
        let running = |epoch: &Epoch| AttemptReport::new(*epoch, AttemptPhase::Running);
        self.report(epochs.iter().map(running).collect());
        let done = epochs.len();
        while let Some(epoch) = epochs.pop() {
            let spans = Spans { fetch: Span(705), run: Span(1_091), finalise: Span(155) };
            let ended = AttemptPhase::Ended(Exit::Code(0));
            let ended = AttemptReport { spans: Some(spans), ..AttemptReport::new(epoch, ended) };
            // What it is given in return is accepted by the next report, above.
            self.report(epochs.iter().map(running).chain([ended]).collect());
        }
        done
    }

    fn bytes(&self) -> u64 {
        let connection = rusqlite::Connection::open(&self.path).expect("another connection");
        let sql = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
        connection.query_row(sql, (), |row| row.get::<_, i64>(0)).expect("a size").cast_unsigned()
    }
}

#[track_caller]
fn check(what: &str, bytes: u64, jobs: usize) {
    let each = bytes / jobs as u64;
    assert!(each <= BYTES_MAX, "{what} costs {each} bytes of the store; at most {BYTES_MAX}");
}

/// Regression guard: it was 9 kB when every entry of the event log repeated a record as JSON.
#[test]
fn a_finished_job_costs_at_most_five_kilobytes() {
    let mut stage = Stage::new();
    let mut submitted = 0;
    let mut round = |stage: &mut Stage| {
        for _ in 0..SLOTS {
            stage.submit(&format!("quiet_river_{submitted:04}"), None);
            submitted += 1;
        }
        assert_eq!(stage.run(), SLOTS);
    };
    // The first ones fill pages that exist already.
    (0..25).for_each(|_| round(&mut stage));
    let before = stage.bytes();
    (0..JOBS / SLOTS).for_each(|_| round(&mut stage));
    check("a finished job", stage.bytes() - before, JOBS);
}

#[test]
fn a_finished_task_of_an_array_costs_at_most_three_kilobytes() {
    let mut stage = Stage::new();
    let indices = format!("0-{}", JOBS - 1).parse().expect("indices");
    let before = stage.bytes();
    stage.submit("sweep", Some(ArrayPlan { indices, concurrency: None, timeout: None }));
    let mut done = 0;
    while done < JOBS {
        done += stage.run();
    }
    check("a finished task", stage.bytes() - before, JOBS);
}
