use std::sync::atomic::AtomicU32;
use std::sync::mpsc::channel;
use std::thread;

use super::*;

const HERE: WorkspaceId = WorkspaceId(1);
const THERE: WorkspaceId = WorkspaceId(2);

fn used(usage: &Usage) -> (Option<u64>, u64) {
    let (share, _) = usage.share(HERE).unwrap();
    let counts = share.lock();
    (counts.used, counts.reserved)
}

#[test]
fn measuring_one_workspace_does_not_hold_up_another() {
    let usage = Usage::up_to(Some(10));
    let ((begun, has_begun), (go_on, may_go_on)) = (channel(), channel::<()>());
    thread::scope(|scope| {
        let measure = move |_: &Share| {
            begun.send(()).unwrap();
            may_go_on.recv().unwrap();
            Ok(7)
        };
        let usage = &usage;
        let slow =
            scope.spawn(|| usage.reserve(HERE, 3, Kind::OfJob, measure).map(|it| it.settle(3)));
        has_begun.recv().unwrap();
        // This would wait forever if all workspaces shared one lock.
        usage.reserve(THERE, 10, Kind::OfJob, |_| Ok(0)).unwrap().settle(10);
        go_on.send(()).unwrap();
        slow.join().unwrap().unwrap();
    });
    assert_eq!(used(&usage), (Some(10), 0));
    let again =
        usage.reserve(HERE, 1, Kind::OfJob, |_| panic!("the workspace is measured only once"));
    assert!(matches!(again, Err(BlobError::ShareUsed { used: 10, more: 1, limit: 10 })));
}

#[test]
fn what_is_reserved_is_used_or_given_back() {
    let usage = Usage::up_to(Some(10));
    let reserve = |bytes| usage.reserve(HERE, bytes, Kind::OfJob, |_| Ok(2));
    let mut first = reserve(5).unwrap();
    assert_eq!(used(&usage), (Some(2), 5));
    assert!(matches!(reserve(4), Err(BlobError::ShareUsed { used: 7, more: 4, .. })));
    first.grow_in_steps_to(6, 100).unwrap();
    assert!(first.grow_to(9).is_err());
    assert_eq!(used(&usage), (Some(2), 6), "a refusal changes nothing");
    drop(first);
    assert_eq!(used(&usage), (Some(2), 0));
    reserve(8).unwrap().settle(3);
    assert_eq!(used(&usage), (Some(5), 0), "holes take less than was announced");
    assert_eq!(usage.removing(HERE, || Some(4)), Some(4));
    assert_eq!(usage.removing(HERE, || None), None);
    assert_eq!(used(&usage), (Some(1), 0));
    let unlimited = Usage::up_to(None);
    unlimited
        .reserve(HERE, u64::MAX, Kind::OfJob, |_| panic!("without a limit, nothing is measured"))
        .unwrap()
        .settle(1);
}

#[test]
fn a_file_that_two_uploads_send_to_an_object_store_counts_once() {
    let usage = Usage::up_to(Some(10));
    let send = || usage.reserve(HERE, 3, Kind::OfJob, |_| Ok(0)).unwrap().sending(BlobId([7; 32]));
    let (one, two, failed) = (send(), send(), send());
    one.settle(3);
    drop(failed);
    two.settle(3);
    assert_eq!(used(&usage), (Some(3), 0));
    send().settle(0);
    assert_eq!(used(&usage), (Some(3), 0), "the object already existed");
    assert!(usage.share(HERE).unwrap().0.lock().sent.is_empty());
}

/// A log used to wait for the measurement of its workspace, which can take longer than a node can keep unsent bytes.
#[test]
fn a_log_does_not_wait_until_its_workspace_is_measured_and_is_counted() {
    let usage = Usage::up_to(Some(100));
    let append = |bytes| usage.reserve_for_log(HERE, bytes, Kind::OfJob);
    append(60).unwrap().settle(60);
    let ((begun, has_begun), (go_on, may_go_on)) = (channel(), channel::<()>());
    let measure = move |share: &Share| {
        begun.send(()).unwrap();
        may_go_on.recv().unwrap();
        share.begin_logs();
        begun.send(()).unwrap();
        may_go_on.recv().unwrap();
        Ok(70)
    };
    thread::scope(|scope| {
        let slow = scope.spawn(|| usage.reserve(HERE, 1, Kind::OfJob, measure).map(drop));
        // First while files are measured, then while logs are.
        for bytes in [10, 20] {
            has_begun.recv().unwrap();
            append(bytes).unwrap().settle(bytes);
            go_on.send(()).unwrap();
        }
        slow.join().unwrap().unwrap();
    });
    assert_eq!(
        used(&usage),
        (Some(90), 0),
        "the measured bytes and the bytes appended in the meantime"
    );
    assert!(matches!(append(11), Err(BlobError::ShareUsed { used: 90, more: 11, .. })));
    append(10).unwrap().settle(10);
    assert_eq!(used(&usage), (Some(100), 0));
}

/// Every append to a log causes a measurement, and each used to walk through all files.
#[tokio::test]
async fn a_workspace_that_cannot_be_measured_is_not_tried_again_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Arc::new(Blobs::new(dir.path().join("blobs"), None, Some(10)).unwrap());
    let tries = Arc::new(AtomicU32::new(0));
    let counted = tries.clone();
    blobs.count_also(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Err(BlobError::Io(std::io::Error::other("it cannot be read")))
    });
    let tries_after_one_more = async || {
        blobs.measure_soon(HERE);
        drop(blobs.hold_measuring(HERE).await);
        tries.load(Ordering::Relaxed)
    };
    assert_eq!(tries_after_one_more().await, 1);
    assert_eq!(tries_after_one_more().await, 1, "the last measurement has just failed");
    assert!(blobs.measured(HERE).await.is_err(), "a caller that needs the result gets the error");
    let (share, _) = blobs.usage.share(HERE).unwrap();
    *share.failed() = Instant::now().checked_sub(FAILED_PAUSE);
    assert_eq!(tries_after_one_more().await, 3);
}
