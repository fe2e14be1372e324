//! A batch is either complete or absent, in order, and permanent.

use std::sync::atomic::{AtomicBool, Ordering};

use muster_core::Change;
use muster_core::ids::OperationId;
use muster_core::model::{Operation, OperationKind, OperationStatus, Scope};
use muster_core::time::{Span, Wall};

use super::claims::seen;
use super::stage::home;
use super::{Database, Stage};
use crate::{Event, Revision, StoreError};

pub fn a_refused_batch_leaves_nothing(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 0);
    stage.submit("one", "cpu", 1);
    let job = stage.live_job("one").expect("queued").clone();
    let spec = super::stage::specification("cpu", 1);
    // The same name again. The core never does this, and a store must not accept it.
    let mut twin = job.clone();
    twin.id.0 += 1_000;
    let batch = [seen(77), Change::JobSubmitted { job: twin.into(), spec: spec.into() }, seen(78)];
    let before = stage.store.load().expect("rows can be loaded");
    assert!(stage.store.commit(&batch, stage.now.wall).is_err());
    assert_eq!(stage.store.load().expect("rows can be loaded"), before);
    assert_eq!(stage.store.revision().expect("rows can be read"), Revision(stage.log.len() as u64));
    // The caller cannot know what was written, so this handle must not be used any more.
    let again = stage.store.commit(&[seen(77)], stage.now.wall);
    assert!(matches!(again, Err(StoreError::NotClaimed)), "{again:?}");
    let mut stage = stage.restart();
    stage.submit("two", "cpu", 1);
}

pub fn an_empty_batch_writes_nothing(database: &dyn Database) {
    let mut stage = Stage::new(database);
    let before = stage.store.load().expect("rows can be loaded");
    let later = stage.now.wall + Span::seconds(5);
    let revision = stage.store.commit(&[], later).expect("the claim is valid");
    assert_eq!(revision, Revision(stage.log.len() as u64));
    assert_eq!(stage.store.load().expect("rows can be loaded"), before);
}

pub fn the_log_has_every_change_in_order(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 1, 2);
    stage.pass_s(1);
    stage.provide();
    let expected: Vec<Box<str>> = stage.log.iter().map(text).collect();
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map_or(Revision(0), |event| event.revision);
        let more = stage.reader.events(after, 3).expect("rows can be read");
        assert!(more.len() <= 3);
        if more.is_empty() {
            break;
        }
        events.extend(more);
    }
    let texts: Vec<Box<str>> = events.iter().map(|event| event.change.clone()).collect();
    assert_eq!(texts, expected, "byte by byte");
    let revisions: Vec<u64> = events.iter().map(|event| event.revision.0).collect();
    assert_eq!(revisions, (1..=expected.len() as u64).collect::<Vec<_>>(), "without a gap");
    assert_eq!(events.first().map(|event| event.wall_us), Some(Stage::START.0));
    assert_eq!(events.last().map(|event| event.wall_us), Some(Stage::START.0 + 1_000_000));
}

pub(super) fn text(change: &Change) -> Box<str> {
    serde_json::to_string(change).expect("plain data").into()
}

pub fn time_and_sequence_only_grow(database: &dyn Database) {
    let mut store = database.store();
    store.claim(1).expect("claimed");
    store.commit(&[seen(41), seen(7)], Wall(900)).expect("the claim is valid");
    let rows = store.load().expect("rows can be loaded");
    assert_eq!((rows.next_sequence, rows.last_wall), (42, Wall(900)));
    store.commit(&[seen(8)], Wall(100)).expect("the claim is valid");
    let rows = database.store().load().expect("rows can be loaded");
    assert_eq!((rows.next_sequence, rows.last_wall), (42, Wall(900)));
}

/// Every commit moves node time from running meters to attempts and on to lines of the ledger. For any one moment the
/// total is constant, unless a reader mixes the rows of two commits.
pub fn readers_see_whole_commits(database: &dyn Database) {
    const JOBS: u64 = 60;
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 1, 1);
    stage.provide();
    let (start, end) = (stage.now.wall, stage.now.wall + Span::seconds(10 * JOBS));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut reader = database.reader();
            let mut looks = 0;
            while !is_over.load(Ordering::Acquire) {
                let sums = reader.ledger(&home(), end.0).expect("rows can be read");
                let total: u64 = sums.iter().map(|sum| sum.node_us).sum();
                assert_eq!(Span(total), end - start, "a mix of commits: {sums:?}");
                looks += 1;
            }
            looks
        });
        for number in 0..JOBS {
            let name = format!("job-{number}");
            stage.submit(&name, "cpu", 1);
            stage.pass_s(1);
            stage.run(&name);
            stage.pass_s(1);
            stage.finish(&name, 0);
            stage.pass_s(1);
        }
        is_over.store(true, Ordering::Release);
        assert!(watcher.join().expect("the watcher is content") > 0);
    });
}

pub fn old_operations_are_forgotten_a_few_at_a_time(database: &dyn Database) {
    const DAY: Span = Span::seconds(24 * 3_600);
    let (start, kept) = (Wall(1_000_000_000), 200);
    let ended = |id: u64, at: Option<Wall>| {
        Change::OperationChanged(Operation {
            id: OperationId(id),
            scope: Scope::Everything,
            by: None,
            kind: OperationKind::PutCluster,
            error: None,
            status: at.map_or(OperationStatus::InProgress, |_| OperationStatus::Succeeded),
            started_at: start,
            ended_at: at,
        })
    };
    let mut store = database.store();
    store.claim(1).expect("claimed");
    let mut all: Vec<Change> = (1..=kept).map(|id| ended(id, Some(start))).collect();
    all.push(ended(kept + 1, None));
    // A deployment may have requested the operation.
    let Change::OperationChanged(mut failed) = ended(9_000, Some(start)) else { unreachable!() };
    failed.status = OperationStatus::Failed;
    all.push(Change::OperationChanged(failed));
    store.commit(&all, start).expect("the claim is valid");
    let mut reader = database.reader();
    let mut left = |id: u64| reader.operation(OperationId(id)).expect("rows can be read").is_some();
    let mut count = |ids: u64| (1..=ids).filter(|id| left(*id)).count() as u64;
    assert_eq!(count(kept + 1), kept + 1);
    store.commit(&[seen(1_001)], start + DAY).expect("the claim is valid");
    assert_eq!(count(kept + 1), kept + 1, "exactly a day is not more than a day");
    let late = start + DAY + Span::seconds(1);
    store.commit(&[seen(1_002)], late).expect("the claim is valid");
    let after_one = count(kept + 1);
    assert!(
        0 < after_one && after_one < kept,
        "some are deleted, but not all at once: {after_one}"
    );
    for id in 0..kept {
        store.commit(&[seen(1_003 + id)], late).expect("the claim is valid");
    }
    assert_eq!(count(kept + 1), 1, "an operation in progress is kept");
}
