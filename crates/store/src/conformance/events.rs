//! The event log is as long as its retention allows, has no gap, and says where it begins.

use muster_core::time::{Span, Wall};

use super::claims::seen;
use super::{Database, Stage};
use crate::{Event, EventRetention, Reader, Revision, StoreError};

const DAY: Span = Span::seconds(24 * 3_600);
const START: Wall = Wall(1_000_000_000_000);

/// The revisions in the log, which must follow each other.
fn revisions(reader: &mut dyn Reader) -> Vec<u64> {
    let (floor, last) = reader.event_range().expect("rows can be read");
    let events = reader.events(floor, usize::MAX).expect("the floor itself can be read from");
    let found: Vec<u64> = events.iter().map(|event: &Event| event.revision.0).collect();
    assert_eq!(found, (floor.0 + 1..=last.0).collect::<Vec<_>>(), "without a gap");
    found
}

pub fn the_event_log_is_bounded_by_number(database: &dyn Database) {
    let mut store = database.store();
    store.claim(1).expect("claimed");
    let mut reader = database.reader();
    assert_eq!(reader.event_range().expect("rows can be read"), (Revision(0), Revision(0)));
    let many: Vec<_> = (1..=1_000).map(seen).collect();
    store.commit(&many, START).expect("the claim is valid");
    assert_eq!(revisions(&mut *reader).len(), 1_000, "nothing is deleted without a limit");
    store.limit_events(EventRetention { age: DAY, entries: 10 });
    store.commit(&[seen(2_000)], START).expect("the claim is valid");
    let left = revisions(&mut *reader).len();
    assert!(10 < left && left < 1_001, "some are deleted, but not all at once: {left}");
    for id in 0..100 {
        store.commit(&[seen(3_000 + id)], START).expect("the claim is valid");
    }
    assert_eq!(revisions(&mut *reader), (1_092..=1_101).collect::<Vec<_>>());
    // Reading from before the floor would leave out what happened in between, so it is refused.
    let pruned = reader.events(Revision(1_090), 5);
    assert!(
        matches!(pruned, Err(StoreError::EventsPruned { after: 1_090, floor: 1_091 })),
        "{pruned:?}"
    );
    assert_eq!(reader.events(Revision(1_091), 5).expect("the floor").len(), 5);
    assert_eq!(reader.events(Revision(1_101), 5).expect("the end"), []);
    // Large commits delete as much as they append, so the log does not outgrow its limit.
    for round in 0..5 {
        let more: Vec<_> = (1..=300).map(|id| seen(10_000 + 300 * round + id)).collect();
        store.commit(&more, START).expect("the claim is valid");
    }
    assert_eq!(revisions(&mut *reader).len(), 10);
}

pub fn the_event_log_is_bounded_by_age_and_has_no_gap(database: &dyn Database) {
    let mut store = database.store();
    store.claim(1).expect("claimed");
    let mut reader = database.reader();
    store.limit_events(EventRetention { age: DAY, entries: 1_000_000 });
    store.commit(&[seen(1), seen(2)], START).expect("the claim is valid");
    let later = START + Span::seconds(10);
    store.commit(&[seen(3)], later).expect("the claim is valid");
    // The clock was set back: this entry is younger than its time.
    store.commit(&[seen(4)], START).expect("the claim is valid");
    store.commit(&[seen(5)], START + DAY).expect("the claim is valid");
    assert_eq!(revisions(&mut *reader), [1, 2, 3, 4, 5], "exactly a day is not more than a day");
    store.commit(&[seen(6)], START + DAY + Span::seconds(5)).expect("the claim is valid");
    assert_eq!(revisions(&mut *reader), [3, 4, 5, 6]);
    store.commit(&[seen(7)], later + DAY + DAY + DAY).expect("the claim is valid");
    assert_eq!(revisions(&mut *reader), [7]);
    // After a time without commits, even the last entry is old. It shows where the log begins.
    let mut store = database.store();
    store.claim(1).expect("claimed");
    store.limit_events(EventRetention { age: Span(0), entries: 0 });
    store.commit(&[seen(8)], later + DAY + DAY + DAY + DAY).expect("the claim is valid");
    assert_eq!(revisions(&mut *reader), [8]);
    assert_eq!(reader.event_range().expect("rows can be read"), (Revision(7), Revision(8)));
}

pub fn a_shorter_log_changes_neither_rows_nor_the_world(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.store.limit_events(EventRetention { age: DAY, entries: 3 });
    stage.put_cluster("cpu", 1, 1);
    stage.provide();
    stage.submit("one", "cpu", 1);
    stage.run("one");
    stage.finish("one", 0);
    assert!(stage.log.len() > 10);
    assert_eq!(revisions(&mut *stage.reader).len(), 3);
    // The stage compares World with the rows after each commit, and again here.
    let mut stage = stage.restart();
    stage.submit("two", "cpu", 1);
    stage.run("two");
}
