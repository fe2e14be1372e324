//! Array jobs: their tasks read back whether they have rows or not, and are deleted with them.

use std::sync::Arc;

use muster_core::model::{ChildCounts, JobPhase, JobSpec, SpecHash};
use muster_core::{Change, Input, InputResult, JobAction, JobEdit, JobRequest};

use super::stage::{home, someone, specification};
use super::{Database, Stage};
use crate::{JobQuery, JobView, look_up};

fn submit(stage: &mut Stage<'_>, name: &str, indices: &str, limit: Option<u32>) -> InputResult {
    let plan = muster_core::model::ArrayPlan {
        indices: indices.parse().expect("indices"),
        concurrency: limit,
        timeout: None,
    };
    let spec = JobSpec { array: Some(Box::new(plan)), ..specification("cpu", 1) };
    let request = JobRequest {
        workspace: home(),
        name: name.to_owned(),
        spec: Arc::new(spec),
        spec_hash: SpecHash::made_up(&format!("array {indices}")),
        by: someone(),
        is_archived: None,
        existing: None,
        numbered: <_>::default(),
    };
    say(stage, Input::SubmitJob(Box::new(request)))
}

fn say(stage: &mut Stage<'_>, input: Input) -> InputResult {
    let input = look_up(stage.store.as_mut(), input).expect("rows can be read");
    stage.say(input)
}

fn view(stage: &mut Stage<'_>, name: &str) -> Option<JobView> {
    stage.reader.job(&home(), name).expect("rows can be read")
}

fn phase(stage: &mut Stage<'_>, name: &str) -> JobPhase {
    view(stage, name).unwrap_or_else(|| panic!("no job {name}")).job.phase()
}

/// The tasks of an array, page by page.
fn tasks(stage: &mut Stage<'_>, parent: &str) -> Vec<(String, JobPhase)> {
    let query = JobQuery { parent: Some(parent.into()), ..JobQuery::default() };
    let (mut tasks, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = stage.reader.jobs(&home(), &query, after.as_deref(), 3);
        let page = page.expect("rows can be read");
        tasks.extend(page.items.iter().map(|it| (it.job.name.to_string(), it.job.phase())));
        after = page.next;
        if after.is_none() {
            return tasks;
        }
    }
}

pub fn the_tasks_of_an_array_read_back(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 2);
    submit(&mut stage, "Sweep", "0-8:2", Some(2)).expect("an array");
    assert_eq!(tasks(&mut stage, "sweep").len(), 5, "before any of them has a row");
    stage.provide();
    stage.run("Sweep_0");
    stage.run("Sweep_2");
    stage.pass_s(10);
    stage.finish("Sweep_0", 0);
    let mut stage = stage.restart();
    stage.run("Sweep_4");
    stage.pass_s(5);
    stage.finish("Sweep_2", 7);

    let seen = view(&mut stage, "SWEEP_2").expect("a task");
    assert_eq!((seen.job.phase(), seen.attempts.len()), (JobPhase::Failed, 1));
    let parent = seen.parent.expect("it has a parent");
    assert_eq!((&*parent.name, parent.index), ("Sweep", 2));
    assert_eq!(seen.spec.array, None);
    assert_eq!(phase(&mut stage, "sweep_8"), JobPhase::Queued, "it has no row");
    for name in ["sweep_1", "sweep_10", "sweep_08", "sweep_"] {
        assert_eq!(view(&mut stage, name), None, "{name}");
    }
    let expected = [
        ("Sweep_0", JobPhase::Completed),
        ("Sweep_2", JobPhase::Failed),
        ("Sweep_4", JobPhase::Running),
        ("Sweep_6", JobPhase::Starting),
        ("Sweep_8", JobPhase::Queued),
    ];
    assert_eq!(tasks(&mut stage, "sweep"), expected.map(|(name, phase)| (name.to_owned(), phase)));
    let all = stage.reader.jobs(&home(), &JobQuery::default(), None, 10).expect("rows");
    assert_eq!(all.items.len(), 1, "tasks are not in the list of jobs");
    let children = all.items[0].children.clone().expect("it is a parent");
    let counts =
        ChildCounts { waiting: 1, live: 2, completed: 1, failed: 1, ..ChildCounts::default() };
    assert_eq!(children.counts, counts);

    let id = seen.job.id;
    assert_eq!(
        stage.reader.job_by_id(id).expect("rows").map(|job| job.name),
        Some("Sweep_2".into())
    );
    let nodes = stage.reader.nodes(&home(), "cpu").expect("rows");
    let mut busy: Vec<_> = nodes.into_iter().filter_map(|node| node.job).collect();
    busy.sort();
    assert_eq!(busy, ["Sweep_4".into(), "Sweep_6".into()] as [Box<str>; 2]);
}

pub fn the_cost_of_an_array_is_that_of_its_tasks(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 1);
    submit(&mut stage, "sweep", "0-2", None).expect("an array");
    stage.provide();
    for (task, seconds) in [("sweep_0", 7), ("sweep_1", 11), ("sweep_2", 13)] {
        stage.run(task);
        stage.pass_s(seconds);
        // A task that has not ended counts with its time until now.
        let now = stage.now.wall;
        let view = view(&mut stage, "sweep").expect("an array");
        let cost = view.children.expect("it is a parent").cost(now);
        let spent: u64 = match task {
            "sweep_0" => 7,
            "sweep_1" => 18,
            _ => 31,
        };
        assert_eq!(cost.node_us(), spent * 1_000_000, "{task}");
        stage.finish(task, 0);
    }
    let now = stage.now.wall;
    let parent = view(&mut stage, "sweep").expect("an array");
    assert_eq!((parent.job.phase(), parent.attempts.len()), (JobPhase::Completed, 1));
    let of_tree = parent.children.expect("it is a parent").cost(now);
    let mut sum = muster_core::model::Cost::default();
    for task in ["sweep_0", "sweep_1", "sweep_2"] {
        let attempts = view(&mut stage, task).expect("a task").attempts;
        attempts.iter().flat_map(|it| &it.members).for_each(|it| sum.merge(it.cost(now)));
    }
    assert_eq!(of_tree, sum);
}

pub fn an_array_is_deleted_with_its_tasks(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 1);
    stage.submit("sweep_7", "cpu", 1);
    submit(&mut stage, "sweep", "0-9", None).expect_err("the name of a task is taken");
    submit(&mut stage, "sweep", "0-5", None).expect("an array");
    let taken = stage.submission(home(), "SWEEP_3", "cpu", 1);
    stage.say(taken).expect_err("the name of a task without a row");
    stage.provide();
    stage.run("sweep_7");
    stage.finish("sweep_7", 0);
    stage.run("sweep_0");
    let cancel = Input::CancelJob { workspace: home(), name: "sweep".into(), known: None };
    say(&mut stage, cancel.clone()).expect("canceled");
    stage.finish("sweep_0", 1);
    assert_eq!(phase(&mut stage, "sweep"), JobPhase::Canceled);
    assert_eq!(phase(&mut stage, "sweep_5"), JobPhase::Canceled, "it never had a row");
    say(&mut stage, cancel).expect("again");
    let delete = |name: &str| {
        let action = JobAction::Delete;
        Input::EditJob(Box::new(JobEdit {
            workspace: home(),
            name: name.into(),
            action,
            known: None,
        }))
    };
    say(&mut stage, delete("sweep_5")).expect_err("only with its array");
    say(&mut stage, delete("sweep")).expect("deleted");
    assert!(matches!(stage.log.last(), Some(Change::JobGone { .. })));
    for name in ["sweep", "sweep_0", "sweep_5"] {
        assert_eq!(view(&mut stage, name), None, "{name}");
    }
    assert_eq!(phase(&mut stage, "sweep_7"), JobPhase::Completed, "a job of its own");
    assert_eq!(tasks(&mut stage, "sweep"), []);
    submit(&mut stage, "sweep", "0-5", None).expect("the names are free again");
}
