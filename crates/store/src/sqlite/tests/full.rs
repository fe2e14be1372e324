//! No space left.

use muster_core::time::Wall;

use super::{Scratch, seen};
use crate::{Revision, SqliteStore, Store, StoreError};

fn allow_pages(store: &SqliteStore, extra: u32) {
    let pages: u32 = store
        .connection
        .pragma_query_value(None, "page_count", |row| row.get(0))
        .expect("rows can be read");
    store.connection.pragma_update(None, "max_page_count", pages + extra).expect("it can be set");
}

#[test]
fn a_full_disk_leaves_no_half_commit_and_can_be_freed() {
    let scratch = Scratch::new();
    let mut store = scratch.open();
    store.claim(1).expect("claimed");
    store.commit(&[seen(1)], Wall(1)).expect("the commit succeeds");
    allow_pages(&store, 12);
    let mut done = 1;
    // Several changes per batch: the first ones fit where the last does not.
    let batch = |number: u64| -> Vec<_> { (0..5).map(|n| seen(number * 10 + n)).collect() };
    let failure = loop {
        match store.commit(&batch(done), Wall(done)) {
            Ok(_) => done += 1,
            Err(failure) => break failure,
        }
        assert!(done < 1_000, "the disk never fills up");
    };
    assert!(matches!(failure, StoreError::Full { .. }), "{failure:?}");
    assert!(done > 1, "something fits");
    let revision = Revision(1 + (done - 1) * 5);
    assert_eq!(store.revision().expect("rows can be read"), revision);
    assert_eq!(store.load().expect("rows can be loaded").principals.len() as u64, revision.0);
    assert!(matches!(store.commit(&batch(done), Wall(done)), Err(StoreError::NotClaimed)));
    // Still full: a claim needs no new page, but the commit does.
    store.claim(1).expect("claimed");
    assert!(matches!(store.commit(&batch(done), Wall(done)), Err(StoreError::Full { .. })));
    allow_pages(&store, 1_000);
    store.claim(1).expect("claimed");
    let after = store.commit(&batch(done), Wall(done)).expect("there is space again");
    assert_eq!(after, Revision(revision.0 + 5));
    drop(store);
    assert_eq!(scratch.open().load().expect("rows can be loaded").principals.len() as u64, after.0);
}
