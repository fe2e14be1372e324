//! What readers find, and in which order.

use muster_core::ids::{JobId, OperationId, PrincipalId};
use muster_core::model::{JobPhase, SpecHash, WorkspaceKey};
use muster_core::{Input, InputResult};

use super::stage::{home, put_cluster, someone, specification};
use super::{Database, Stage};
use crate::{JobQuery, Revision, StoreError};

pub fn jobs_are_found_by_any_spelling(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("CPU", 0, 1);
    stage.submit("Happy_Tree", "cpu", 1);
    let shouted = WorkspaceKey::new("SUB-1", "GROUP", "SPACE");
    let known = stage
        .store
        .find_job(&shouted, "HAPPY_tree")
        .expect("rows can be read")
        .expect("the row exists");
    let found = (*known.job).clone();
    assert_eq!((&*found.name, found.phase()), ("Happy_Tree", JobPhase::Queued));
    let view = stage
        .reader
        .job(&shouted, "happy_TREE")
        .expect("rows can be read")
        .expect("the row exists");
    assert_eq!((&view.job, &view.spec), (&found, &specification("cpu", 1)));
    assert_eq!(view.submitted_by.map(|by| by.name), Some(someone().name));
    assert_eq!(stage.reader.job_by_id(found.id).expect("rows can be read"), Some(found.clone()));
    let other = WorkspaceKey::new("sub-1", "group", "elsewhere");
    assert_eq!(stage.store.find_job(&other, "happy_tree").expect("rows can be read"), None);
    assert_eq!(stage.store.find_job(&home(), "happy").expect("rows can be read"), None);
    // A finished job is removed from World, but can still be found.
    stage.provide();
    stage.run("happy_tree");
    stage.finish("happy_tree", 0);
    assert!(stage.live_job("happy_tree").is_none());
    let known = stage
        .store
        .find_job(&home(), "happy_tree")
        .expect("rows can be read")
        .expect("the row exists");
    let found = (*known.job).clone();
    assert_eq!(found.phase(), JobPhase::Completed);
    let view =
        stage.reader.job(&home(), "happy_tree").expect("rows can be read").expect("the row exists");
    assert_eq!((view.job, view.attempts.len()), (found, 1));
}

pub fn jobs_are_listed_newest_first(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 1);
    let names: Vec<String> = (0..7).map(|number| format!("job-{number}")).collect();
    for name in &names {
        stage.submit(name, "cpu", 1);
    }
    // One job with attempts among others without.
    stage.provide();
    stage.run("job-0");
    stage.finish("job-0", 1);
    for limit in [1, 2, 3, 6, 7, 8] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = stage
                .reader
                .jobs(&home(), &JobQuery::default(), after.as_deref(), limit)
                .expect("rows can be read");
            assert!(!page.items.is_empty() && page.items.len() <= limit);
            listed.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let listed_names: Vec<&str> = listed.iter().map(|view| &*view.job.name).collect();
        let newest_first: Vec<&str> = names.iter().rev().map(String::as_str).collect();
        assert_eq!(listed_names, newest_first, "{limit} at a time");
        for view in &listed {
            let one = stage.reader.job(&home(), &view.job.name).expect("rows can be read");
            assert_eq!(one.as_ref(), Some(view));
            assert_eq!(view.attempts.len(), usize::from(&*view.job.name == "job-0"));
        }
    }
    for token in ["", "7", "j12", "c0000000000000001", "j000000000000000g"] {
        let refused = stage.reader.jobs(&home(), &JobQuery::default(), Some(token), 1);
        assert!(matches!(refused, Err(StoreError::BadPage { .. })), "{token:?}: {refused:?}");
    }
    // The largest number that an id can have is as good a page token as any: the page is empty or complete.
    assert!(stage.reader.jobs(&home(), &JobQuery::default(), Some("jffffffffffffffff"), 1).is_ok());
    assert_eq!(
        stage
            .reader
            .jobs(&home(), &JobQuery::default(), None, 0)
            .expect("rows can be read")
            .items
            .len(),
        1
    );
    assert_eq!(
        stage
            .reader
            .jobs(&home(), &JobQuery::default(), None, usize::MAX)
            .expect("rows can be read")
            .items
            .len(),
        7
    );
}

pub fn clusters_are_listed_by_name(database: &dyn Database) {
    let mut stage = Stage::new(database);
    for name in ["gpu-b", "CPU-a", "cpu-B", "abc"] {
        stage.put_cluster(name, 1, 2);
    }
    stage.provide();
    stage.submit("big", "abc", 2);
    stage.submit("next", "abc", 1);
    for limit in [1, 2, 3, 4, 5] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page =
                stage.reader.clusters(&home(), after.as_deref(), limit).expect("rows can be read");
            assert!(!page.items.is_empty() && page.items.len() <= limit);
            listed.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let names: Vec<&str> = listed.iter().map(|view| view.cluster.name.as_str()).collect();
        assert_eq!(names, ["abc", "CPU-a", "cpu-B", "gpu-b"], "{limit} at a time");
        for view in &listed {
            let name = view.cluster.name.as_str().to_uppercase();
            let one = stage.reader.cluster(&home(), &name).expect("rows can be read");
            assert_eq!(one.as_ref(), Some(view));
        }
        assert_eq!(listed[0].counts.preparing, 1);
        assert_eq!(listed[1].counts.idle, 1);
    }
    assert_eq!(stage.reader.cluster(&home(), "nothing").expect("rows can be read"), None);
}

pub fn workspaces_are_separate(database: &dyn Database) {
    let mut stage = Stage::new(database);
    let other = WorkspaceKey::new("sub-1", "other", "Space");
    let foreign = WorkspaceKey::new("sub-2", "group", "space");
    for key in [&other, &foreign] {
        stage.create_workspace(key.clone());
    }
    stage.put_cluster("mine", 0, 1);
    let answer: InputResult = stage.say(put_cluster(other.clone(), "theirs", 0, 1));
    answer.expect("a cluster");
    // Both workspaces have a job of the same name.
    stage.submit("same", "mine", 1);
    let theirs = stage.submission(other.clone(), "same", "theirs", 1);
    stage.say(theirs).expect("a job");
    let reader = &mut stage.reader;
    for (key, cluster) in [(home(), "mine"), (other.clone(), "theirs")] {
        let clusters = reader.clusters(&key, None, 10).expect("rows can be read").items;
        assert_eq!(clusters.len(), 1);
        assert_eq!(clusters[0].cluster.name.as_str(), cluster);
        let jobs =
            reader.jobs(&key, &JobQuery::default(), None, 10).expect("rows can be read").items;
        assert_eq!((jobs.len(), &*jobs[0].spec.compute), (1, cluster));
        assert_eq!(reader.nodes(&key, cluster).expect("rows can be read").len(), 1);
    }
    assert_eq!(reader.nodes(&other, "mine").expect("rows can be read"), []);
    assert_eq!(reader.cluster(&foreign, "mine").expect("rows can be read"), None);
    assert_eq!(
        reader.jobs(&foreign, &JobQuery::default(), None, 10).expect("rows can be read").items,
        []
    );
    let nowhere = WorkspaceKey::new("no", "such", "place");
    assert_eq!(reader.workspace(&nowhere).expect("rows can be read"), None);
    assert_eq!(reader.clusters(&nowhere, None, 10).expect("rows can be read").items, []);
    let mut groups = |subscription: &str, group: Option<&str>| -> Vec<String> {
        let listed = reader.workspaces(subscription, group).expect("rows can be read");
        listed.iter().map(|workspace| workspace.key.resource_group.to_string()).collect()
    };
    assert_eq!(groups("SUB-1", None), ["Group", "other"]);
    assert_eq!(groups("sub-1", Some("OTHER")), ["other"]);
    assert_eq!(groups("sub-3", None), [""; 0]);
}

pub fn unknown_ids_find_nothing(database: &dyn Database) {
    let mut reader = Stage::new(database).reader;
    for number in [0, 1, i64::MAX as u64, 1 << 63, u64::MAX] {
        assert_eq!(reader.job_by_id(JobId(number)).expect("rows can be read"), None);
        assert_eq!(reader.operation(OperationId(number)).expect("rows can be read"), None);
        assert_eq!(reader.principal(PrincipalId(number)).expect("rows can be read"), None);
    }
    assert_eq!(reader.events(Revision(u64::MAX), usize::MAX).expect("rows can be read"), []);
}

pub fn a_specification_is_found_by_its_hash(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 1);
    stage.submit("first", "cpu", 1);
    stage.submit("second", "cpu", 1);
    let hash = stage.live_job("second").expect("queued").spec;
    let spec = stage.reader.spec(&hash).expect("rows can be read");
    assert_eq!(spec, Some(specification("cpu", 1)));
    assert_eq!(stage.reader.spec(&SpecHash::made_up("no such")).expect("rows can be read"), None);
    let by = stage.live_job("second").expect("queued").principal;
    let principal = stage.reader.principal(by).expect("rows can be read").expect("the row exists");
    assert_eq!(principal.object_id, someone().object_id);
    // The specification is kept after the job has ended.
    for name in ["first", "second"] {
        let (workspace, name) = (home(), name.to_owned());
        stage.say(Input::CancelJob { workspace, name, known: None }).expect("canceled");
    }
    assert!(stage.reader.spec(&hash).expect("rows can be read").is_some());
}
