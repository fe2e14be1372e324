//! Who may write.

use muster_core::Change;
use muster_core::ids::PrincipalId;
use muster_core::model::Principal;
use muster_core::time::Wall;

use super::Database;
use crate::{Revision, StoreError};

pub(super) fn seen(id: u64) -> Change {
    let (object_id, name) = (format!("object {id}").into(), "someone".into());
    Change::PrincipalSeen(Principal { id: PrincipalId(id), object_id, name })
}

pub fn a_later_claim_fences_the_earlier(database: &dyn Database) {
    let (mut first, mut second) = (database.store(), database.store());
    let held = first.claim(1_000).expect("claimed");
    first.commit(&[seen(1)], Wall(1)).expect("the claim is valid");
    let now = second.claim(1_000).expect("claimed");
    assert!(now > held);
    for _ in 0..2 {
        match first.commit(&[seen(2), seen(3)], Wall(2)) {
            Err(StoreError::Fenced { held: h, now: n }) => assert_eq!((h, n), (held, now)),
            other => panic!("an old controller got {other:?}"),
        }
    }
    // Even an empty batch reports that the handle no longer owns the store.
    assert!(matches!(first.commit(&[], Wall(2)), Err(StoreError::Fenced { .. })));
    assert_eq!(second.revision().expect("rows can be read"), Revision(1));
    assert_eq!(second.commit(&[seen(2)], Wall(3)).expect("the claim is valid now"), Revision(2));
    assert_eq!(second.load().expect("rows can be loaded").principals.len(), 2);
    // The first handle may claim the store again, which fences the other one.
    assert!(first.claim(1_000).expect("claimed again") > now);
    assert_eq!(first.commit(&[seen(3)], Wall(4)).expect("the claim is valid again"), Revision(3));
    assert!(matches!(second.commit(&[seen(4)], Wall(5)), Err(StoreError::Fenced { .. })));
}

pub fn an_epoch_is_never_given_out_twice(database: &dyn Database) {
    let mut last = 0;
    for clock in [5_000, 5_000, 4_000, 0, 9_000, 8_999] {
        // A new handle each time, because the epochs that were issued must be known from the disk alone.
        let epoch = database.store().claim(clock).expect("claimed");
        assert_eq!(epoch, clock.max(last + 1));
        last = epoch;
    }
}

pub fn without_a_claim_nothing_is_written(database: &dyn Database) {
    let mut store = database.store();
    assert!(matches!(store.commit(&[seen(1)], Wall(1)), Err(StoreError::NotClaimed)));
    assert_eq!(store.revision().expect("rows can be read"), Revision(0));
    assert_eq!(store.load().expect("rows can be loaded"), muster_core::WorldRows::default());
}

pub fn an_impossible_epoch_is_refused(database: &dyn Database) {
    let mut store = database.store();
    assert!(matches!(store.claim(u64::MAX), Err(StoreError::Clock { .. })));
    assert!(matches!(store.claim(1 << 43), Err(StoreError::Clock { .. })));
    assert!(matches!(store.commit(&[seen(1)], Wall(1)), Err(StoreError::NotClaimed)));
    assert_eq!(store.claim(7).expect("claimed"), 7);
}
