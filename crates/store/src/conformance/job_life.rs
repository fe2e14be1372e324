//! Jobs after their submission: their metadata, the lists that they are in, and what is kept of deleted ones.

use std::sync::Arc;

use muster_core::model::{JobSpec, SpecHash};
use muster_core::{Input, InputResult, JobAction, JobEdit, JobPatch, JobRequest, Reply};

use super::stage::{home, someone, specification};
use super::{Database, Stage};
use crate::{Archived, JobQuery, LedgerBy, LedgerQuery, look_up};

fn edit(stage: &mut Stage<'_>, name: &str, action: JobAction) -> InputResult {
    let edit = JobEdit { workspace: home(), name: name.into(), action, known: None };
    let input =
        look_up(stage.store.as_mut(), Input::EditJob(Box::new(edit))).expect("rows can be read");
    stage.say(input)
}

fn patch(stage: &mut Stage<'_>, name: &str, patch: JobPatch) {
    edit(stage, name, JobAction::Patch(patch)).expect("it can be changed");
}

fn hide(is_archived: bool) -> JobPatch {
    JobPatch { is_archived: Some(is_archived), ..JobPatch::default() }
}

fn tagged(key: &str, value: &str) -> JobPatch {
    JobPatch { tags: [(key.to_owned(), value.to_owned())].into(), ..JobPatch::default() }
}

fn listed(stage: &mut Stage<'_>, archived: Archived, tag: Option<&str>) -> Vec<String> {
    let query = JobQuery { archived, tag: tag.map(Box::from), parent: None };
    let mut names = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page =
            stage.reader.jobs(&home(), &query, after.as_deref(), 2).expect("rows can be read");
        names.extend(page.items.iter().map(|view| view.job.name.to_string()));
        after = page.next;
        if after.is_none() {
            return names;
        }
    }
}

pub fn job_metadata_reads_back_and_lists_follow_it(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 1);
    for name in ["one", "two", "three", "four", "five"] {
        stage.submit(name, "cpu", 1);
    }
    let view = |stage: &mut Stage<'_>, name: &str| {
        stage.reader.job(&home(), name).expect("rows can be read").expect("the row exists")
    };
    let spec = view(&mut stage, "two").spec;
    patch(&mut stage, "Two", JobPatch { display_name: Some("2".into()), ..hide(true) });
    patch(&mut stage, "two", tagged("team", "red"));
    patch(&mut stage, "five", tagged("team", "blue"));
    patch(&mut stage, "four", hide(true));
    let seen = view(&mut stage, "two");
    assert!(seen.is_archived);
    assert_eq!(seen.spec.display_name.as_deref(), Some("2"));
    assert_eq!(seen.spec.command, spec.command, "its command is unchanged");
    let hash = seen.job.spec;
    assert_eq!(
        stage.reader.spec(&hash).expect("rows can be read"),
        Some(spec),
        "nodes read the same specification"
    );

    let mut check = |archived, tag, names: &[&str]| {
        assert_eq!(listed(&mut stage, archived, tag), names, "{archived:?} {tag:?}");
    };
    check(Archived::No, None, &["five", "three", "one"]);
    check(Archived::Yes, None, &["four", "two"]);
    check(Archived::Both, None, &["five", "four", "three", "two", "one"]);
    check(Archived::No, Some("team"), &["five"]);
    check(Archived::Both, Some("team"), &["five", "two"]);
    check(Archived::Both, Some("te"), &[]);

    let mut stage = stage.restart();
    assert!(view(&mut stage, "two").is_archived);
    patch(&mut stage, "two", hide(false));
    assert_eq!(view(&mut stage, "two").spec.display_name.as_deref(), Some("2"));
    assert_eq!(listed(&mut stage, Archived::Yes, None), ["four"]);
}

pub fn a_deleted_job_leaves_nothing_but_its_ledger_lines(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 1);
    let spec = JobSpec { tags: [("team".into(), "red".into())].into(), ..specification("cpu", 1) };
    let hash = SpecHash::made_up("red");
    let submit = |stage: &mut Stage<'_>, name: &str| {
        let request = JobRequest {
            workspace: home(),
            name: name.to_owned(),
            spec: Arc::new(spec.clone()),
            spec_hash: hash,
            by: someone(),
            is_archived: None,
            existing: None,
            numbered: <_>::default(),
        };
        stage.say(Input::SubmitJob(Box::new(request))).expect("a job");
        stage.provide();
        stage.run(name);
        stage.pass_s(10);
        stage.finish(name, 0);
    };
    submit(&mut stage, "one");
    submit(&mut stage, "two");
    patch(&mut stage, "two", tagged("team", "blue"));
    let bill = |stage: &mut Stage<'_>| {
        let by = LedgerBy::Tag("team".into());
        let query = LedgerQuery { by, since: None, now: stage.now.wall };
        stage.reader.ledger_by(&home(), &query).expect("rows can be read")
    };
    let before = bill(&mut stage);
    let groups: Vec<_> = before.iter().filter_map(|sum| sum.group.as_deref()).collect();
    assert!(groups.contains(&"red") && groups.contains(&"blue"), "{groups:?}");

    let job =
        stage.reader.job(&home(), "one").expect("rows can be read").expect("the row exists").job.id;
    assert_eq!(edit(&mut stage, "ONE", JobAction::Delete), Ok(Reply::Noted));
    assert_eq!(stage.reader.job(&home(), "one").expect("rows can be read"), None);
    assert_eq!(stage.reader.job_by_id(job).expect("rows can be read"), None);
    assert_eq!(listed(&mut stage, Archived::Both, None), ["two"]);
    assert!(
        stage.reader.spec(&hash).expect("rows can be read").is_some(),
        "another job has the same specification"
    );
    assert_eq!(edit(&mut stage, "two", JobAction::Delete), Ok(Reply::Noted));
    assert_eq!(stage.reader.spec(&hash).expect("rows can be read"), None);
    assert_eq!(bill(&mut stage), before);
    assert_eq!(edit(&mut stage, "two", JobAction::Delete), Ok(Reply::NothingToDelete));
    submit(&mut stage, "two");
    assert_eq!(listed(&mut stage, Archived::No, None), ["two"], "the name can be used again");
}
