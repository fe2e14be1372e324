//! What is removed when its time is over: jobs with everything that belongs to them, and the beginning of the activity
//! log. The ledger keeps every line.

use muster_core::ids::JobId;
use muster_core::model::{
    Activity, ActivityOutcome, ActivityRequest, Asset, AssetKind, AssetSpec, Job, Scope,
};
use muster_core::retention::JobRetention;
use muster_core::time::{Span, Wall};
use muster_core::{Change, ExpiredJobs, Input, Reply};

use super::stage::{home, someone};
use super::{Database, Stage};
use crate::size::Content;
use crate::{LedgerBy, LedgerQuery, LedgerSum, look_up};

const DAY_S: u64 = 86_400;

/// Proposes all jobs that have ended, page by page, as the server does.
fn remove_expired(stage: &mut Stage<'_>) -> Vec<JobId> {
    let (mut removed, mut after) = (Vec::new(), JobId(0));
    loop {
        let page = stage.reader.ended_jobs(after, 2).expect("rows can be read");
        let Some(last) = page.last() else { return removed };
        after = last.id;
        let jobs = page.iter().map(|job| job.id).collect();
        let input = Input::RemoveExpired(Box::new(ExpiredJobs { jobs, known: Vec::new() }));
        let input = look_up(stage.store.as_mut(), input).expect("rows can be read");
        match stage.say(input) {
            Ok(Reply::Removed(jobs)) => removed.extend(jobs),
            other => panic!("{other:?}"),
        }
    }
}

fn bills(stage: &mut Stage<'_>) -> Vec<Vec<LedgerSum>> {
    let groups = [LedgerBy::Cluster, LedgerBy::User, LedgerBy::Category, LedgerBy::Tag("x".into())];
    let mut bill = |by| {
        let query = LedgerQuery { by, since: None, now: stage.now.wall };
        stage.reader.ledger_by(&home(), &query).expect("rows can be read")
    };
    groups.into_iter().map(&mut bill).collect()
}

fn run_to_end(stage: &mut Stage<'_>, name: &str) -> JobId {
    stage.submit(name, "cpu", 1);
    // The node of an earlier job may have to be deleted first.
    for _ in 0..5 {
        if stage.live_job(name).is_some_and(|job| job.attempt().is_some()) {
            break;
        }
        stage.provide();
    }
    stage.run(name);
    stage.pass_s(10);
    let id = stage.live_job(name).expect("it runs").id;
    stage.finish(name, 0);
    id
}

fn exists(stage: &mut Stage<'_>, job: JobId) -> bool {
    stage.reader.job_by_id(job).expect("rows can be read").is_some()
}

pub fn jobs_are_removed_after_their_time_and_the_ledger_is_not(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.world.settings.retention = JobRetention { jobs: Some(Span::seconds(DAY_S)), logs: None };
    stage.put_cluster("cpu", 0, 1);
    let old: Vec<JobId> =
        ["a", "b", "c", "d", "e"].map(|name| run_to_end(&mut stage, name)).to_vec();
    stage.pass_s(DAY_S - 30);
    let young = run_to_end(&mut stage, "young");
    stage.submit("waiting", "cpu", 1);
    let waiting = stage.live_job("waiting").expect("it waits").id;
    // The earliest of them ended more than a day ago by now. Whatever else is due is decided first.
    stage.say(Input::Tick).expect("noted");
    let before = bills(&mut stage);
    let removed = remove_expired(&mut stage);
    assert!(!removed.is_empty() && removed.len() < old.len(), "{removed:?}");
    assert_eq!(removed, old[..removed.len()]);
    assert_eq!(bills(&mut stage), before);
    for (id, is_kept) in old.iter().map(|id| (*id, !removed.contains(id))) {
        assert_eq!(exists(&mut stage, id), is_kept, "{id}");
    }
    stage.pass_s(100);
    stage.say(Input::Tick).expect("noted");
    let before = bills(&mut stage);
    assert_eq!(remove_expired(&mut stage), old[removed.len()..]);
    assert_eq!(remove_expired(&mut stage), [], "there is nothing left to remove");
    assert_eq!(bills(&mut stage), before);
    assert!(exists(&mut stage, young) && exists(&mut stage, waiting));
    // After a restart, nothing of them comes back.
    let mut stage = stage.restart();
    assert_eq!(bills(&mut stage), before);
    let left: Vec<JobId> = stage
        .reader
        .ended_jobs(JobId(0), 10)
        .expect("rows can be read")
        .iter()
        .map(|job: &Job| job.id)
        .collect();
    assert_eq!(left, [young]);
}

pub fn a_live_job_and_a_task_are_no_ended_jobs(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 1);
    let ended = run_to_end(&mut stage, "ended");
    stage.submit("waiting", "cpu", 1);
    let waiting = stage.live_job("waiting").expect("it waits").id;
    let mut find = |id| stage.store.ended_job(id).expect("rows can be read").map(|job| job.id);
    assert_eq!(find(ended), Some(ended));
    assert_eq!((find(waiting), find(JobId(u64::MAX))), (None, None));
    let from = |stage: &mut Stage<'_>, after| {
        let jobs = stage.reader.ended_jobs(after, 10).expect("rows can be read");
        jobs.iter().map(|job| job.id).collect::<Vec<_>>()
    };
    assert_eq!(from(&mut stage, JobId(0)), [ended]);
    assert_eq!(from(&mut stage, ended), []);
}

pub fn referenced_jobs_are_known(database: &dyn Database) {
    let mut stage = Stage::new(database);
    let workspace = stage.world.workspace(&home()).expect("made at the start").id;
    let names = |stage: &mut Stage<'_>| {
        let found = stage.reader.referenced_jobs(workspace).expect("rows can be read");
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(names(&mut stage), [""; 0]);
    let body = r#"{"modelUri":"azureml://jobs/Sweep_3/outputs/artifacts/paths/model"}"#;
    let asset = Asset {
        workspace,
        kind: AssetKind::Model,
        name: "m".into(),
        version: "1".into(),
        about: AssetSpec { body: body.into(), ..AssetSpec::default() },
        is_archived: true,
        created_at: Wall(1),
        created_by: someone(),
        changed_at: Wall(1),
        changed_by: someone(),
    };
    let wall = stage.now.wall;
    stage.store.commit(&[Change::AssetChanged(Box::new(asset))], wall).expect("written");
    assert_eq!(names(&mut stage), ["sweep", "sweep_3"], "and the array that a task belongs to");
}

fn note(at: Wall) -> Change {
    let request = ActivityRequest {
        operation: "write".into(),
        resource: "/r".into(),
        scope: Scope::Everything,
        correlation: "c".into(),
    };
    let outcome = ActivityOutcome::Refused { status: 403, code: "No".into(), message: "no".into() };
    Change::ActivityNoted(Box::new(Activity { at, by: someone(), request, outcome }))
}

pub fn the_activity_log_can_be_verified_after_its_beginning_was_deleted(database: &dyn Database) {
    let mut store = database.store();
    store.claim(1).expect("claimed");
    let mut reader = database.reader();
    let day = Span::seconds(DAY_S);
    let start = Stage::START;
    let many: Vec<Change> = (0..200).map(|number| note(start + Span::seconds(number))).collect();
    store.commit(&many, start).expect("the claim is valid");
    let late = start + day + day;
    store.commit(&[note(late)], late).expect("the claim is valid");
    let whole = reader.verify_activity().expect("rows can be read");
    assert_eq!((whole.entries, whole.broken_at), (201, None), "kept without a limit");
    store.limit_activity(day);
    let mut entries = Vec::new();
    for _ in 0..5 {
        // Any commit deletes some.
        store.commit(&[super::claims::seen(1)], late).expect("the claim is valid");
        let chain = reader.verify_activity().expect("rows can be read");
        assert_eq!((chain.broken_at, &chain.head), (None, &whole.head));
        entries.push(chain.entries);
    }
    assert_eq!(entries[4], 1, "{entries:?}");
    assert!(entries[0] > 100, "not all at once: {entries:?}");
    // The last entry is kept however old it is, as the next one follows it.
    store.commit(&[super::claims::seen(1)], late + day + day).expect("the claim is valid");
    assert_eq!(reader.verify_activity().expect("rows can be read").entries, 1);
    let later = late + day + day;
    store.commit(&[note(later)], later).expect("the claim is valid");
    let chain = reader.verify_activity().expect("rows can be read");
    assert_eq!(chain.broken_at, None);
    assert_ne!(chain.head, whole.head);
}

pub fn the_size_of_every_content_is_known(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 1);
    let submitted = stage.now.wall;
    run_to_end(&mut stage, "one");
    let size = stage.reader.size().expect("rows can be read");
    let of = |wanted| size.contents.iter().find(|size| size.content == wanted).copied();
    let jobs = of(Content::Jobs).expect("it is measured");
    assert_eq!((jobs.entries, jobs.oldest), (Some(1), Some(submitted)));
    let attempts = of(Content::Attempts).expect("it is measured");
    assert_eq!((attempts.entries, attempts.oldest), (Some(1), Some(submitted)));
    let events = of(Content::Events).expect("it is measured");
    assert_eq!(events.entries, Some(stage.log.len() as u64));
    assert_eq!(of(Content::Tasks).expect("it is measured").oldest, None);
    assert!(size.contents.iter().all(|size| size.bytes > 0), "{size:?}");
    assert!(of(Content::Ledger).and_then(|ledger| ledger.entries) > Some(0), "{size:?}");
}
