use futures_util::FutureExt as _;
use muster_core::ids::WorkspaceId;

use super::*;
use crate::blobs::Blobs;

const LOG: LogKey = LogKey { job: JobId(1), epoch: Epoch(2), rank: 0 };
const HERE: WorkspaceId = WorkspaceId(1);

fn blobs(dir: &Path, share_max: Option<u64>) -> Arc<Blobs> {
    Arc::new(Blobs::new(dir.join("blobs"), None, share_max).unwrap())
}

fn with_reserve(dir: &Path, bytes: u64) -> Arc<Logs> {
    let room = Room::with_reserve(dir.to_owned(), bytes);
    Arc::new(Logs { room, ..Logs::new(dir.join("logs")) })
}

async fn append(
    (logs, blobs): (&Arc<Logs>, &Arc<Blobs>),
    log: LogKey,
    offset: u64,
    bytes: &[u8],
) -> Result<u64, AppendError> {
    append_as((logs, blobs), log, offset, bytes, false).await
}

async fn append_as(
    (logs, blobs): (&Arc<Logs>, &Arc<Blobs>),
    log: LogKey,
    offset: u64,
    bytes: &[u8],
    is_last: bool,
) -> Result<u64, AppendError> {
    let blobs = blobs.clone();
    blobs.measured(HERE).await.expect("measuring succeeds");
    let reserve = move |bytes, kind| blobs.reserve_for_log(HERE, bytes, kind);
    let bytes = Bytes::copy_from_slice(bytes);
    logs.append(log, (offset, is_last), bytes, || true, reserve).await
}

async fn removed(logs: &Arc<Logs>, job: JobId) -> u64 {
    let logs = logs.clone();
    let removed = tokio::task::spawn_blocking(move || logs.remove(job));
    removed.await.expect("no panic").expect("io")
}

#[tokio::test]
async fn without_room_bytes_are_refused_and_accepted_later() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let blobs = blobs(dir.path(), None);
    let full = with_reserve(dir.path(), u64::MAX);
    let refused = append((&full, &blobs), LOG, 0, b"hello").await.expect_err("no room");
    assert!(refused.is_full(), "{refused}");
    assert!(refused.to_string().contains("the server's disk is full"), "{refused}");
    assert_eq!(full.read(LOG, 0).expect("io").total, 0);
    let logs = with_reserve(dir.path(), 0);
    assert_eq!(append((&logs, &blobs), LOG, 0, b"hello").await.expect("there is room"), 5);
    // Bytes that exist already need no room.
    assert_eq!(
        append((&full, &blobs), LOG, 0, b"hello").await.expect("the bytes exist already"),
        5
    );
}

#[tokio::test]
async fn bytes_that_are_sent_twice_are_appended_once() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (logs, blobs) = (with_reserve(dir.path(), 0), blobs(dir.path(), None));
    let append =
        async |offset, bytes: &[u8]| append((&logs, &blobs), LOG, offset, bytes).await.expect("io");
    assert_eq!(append(0, b"hello ").await, 6);
    assert_eq!(append(0, b"hello ").await, 6, "the same again");
    assert_eq!(append(3, b"lo world").await, 11, "overlapping");
    assert_eq!(append(20, b"gap").await, 11, "a gap is not accepted");
    let piece = logs.read(LOG, 6).expect("io");
    assert_eq!((piece.bytes.as_slice(), piece.total), (b"world".as_slice(), 11));
    assert_eq!(logs.read(LogKey { rank: 1, ..LOG }, 0).expect("io").total, 0);
    assert!(logs.busy.is_idle());
}

/// The node deletes its copy of acknowledged bytes.
#[tokio::test]
async fn what_is_acknowledged_is_on_disk_with_its_name() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (logs, blobs) = (with_reserve(dir.path(), 0), blobs(dir.path(), None));
    let synced = |logs: &Logs| std::mem::take(&mut *lock(&logs.synced));
    let whole = |logs: &Logs| {
        vec![logs.path(LOG), logs.folder(LOG.job), logs.dir.clone(), dir.path().into()]
    };
    assert_eq!(append((&logs, &blobs), LOG, 0, b"hello").await.expect("io"), 5);
    assert_eq!(synced(&logs), whole(&logs));
    assert_eq!(append((&logs, &blobs), LOG, 5, b" world").await.expect("io"), 11);
    assert_eq!(synced(&logs), [logs.path(LOG)], "the name is on disk already");
    // A server that was killed before the bytes were on disk leaves the sync to the next.
    let logs = with_reserve(dir.path(), 0);
    assert_eq!(append((&logs, &blobs), LOG, 0, b"hello").await.expect("io"), 11);
    assert_eq!(synced(&logs), whole(&logs));
    assert_eq!(append((&logs, &blobs), LOG, 50, b"gap").await.expect("io"), 11);
    assert_eq!(synced(&logs), [logs.path(LOG)]);
}

#[tokio::test]
async fn an_append_that_comes_after_the_delete_of_its_job_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (logs, blobs) = (with_reserve(dir.path(), 0), blobs(dir.path(), None));
    assert_eq!(append((&logs, &blobs), LOG, 0, b"hello").await.expect("io"), 5);
    // The append came while the attempt was live, and waits for the one before it.
    let is_live = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (asked, own) = (is_live.clone(), blobs.clone());
    let first = logs.busy.turn(LOG).await;
    let late = logs.append(
        LOG,
        (5, false),
        Bytes::from_static(b" again"),
        move || asked.load(std::sync::atomic::Ordering::Relaxed),
        move |bytes, kind| own.reserve_for_log(HERE, bytes, kind),
    );
    let mut late = Box::pin(late);
    assert!(late.as_mut().now_or_never().is_none(), "the append waits");
    is_live.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(removed(&logs, LOG.job).await, 5);
    drop(first);
    let refused = late.await.expect_err("the job is deleted");
    assert!(matches!(refused, AppendError::Over), "{refused}");
    assert!(!logs.folder(LOG.job).exists());
}

#[tokio::test]
async fn only_logs_of_jobs_that_are_gone_are_removed() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (logs, blobs) = (with_reserve(dir.path(), 0), blobs(dir.path(), None));
    let other = LogKey { job: JobId(7), ..LOG };
    for log in [LOG, other] {
        assert_eq!(append((&logs, &blobs), log, 0, b"hello").await.expect("io"), 5);
    }
    fs::create_dir(dir.path().join("logs/else")).expect("io");
    let own = logs.clone();
    let removed = tokio::task::spawn_blocking(move || {
        let unknown = own.remove_if(|_| Err(io::Error::other("the lookup failed")));
        assert!(unknown.is_err());
        own.remove_if(|job| Ok(job == LOG.job)).expect("io")
    });
    assert_eq!(removed.await.expect("no panic"), 1);
    assert_eq!([LOG, other].map(|log| logs.read(log, 0).expect("io").total), [0, 5]);
    assert!(dir.path().join("logs/else").exists(), "other folders are left alone");
}

#[tokio::test]
async fn writing_one_log_does_not_delay_another() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (logs, blobs) = (with_reserve(dir.path(), 0), blobs(dir.path(), None));
    let slow = logs.busy.turn(LOG).await;
    // With one lock for all logs, this would wait forever.
    let other = LogKey { job: JobId(7), ..LOG };
    assert_eq!(append((&logs, &blobs), other, 0, b"other").await.expect("io"), 5);
    assert!(append((&logs, &blobs), LOG, 0, b"same").now_or_never().is_none(), "the append waits");
    let next = logs.busy.turn(LOG);
    drop(slow);
    drop(next.await);
    assert_eq!(append((&logs, &blobs), LOG, 0, b"same").await.expect("io"), 4);
    assert!(logs.busy.is_idle(), "no lock is left after writes and cancelled writes");
}

/// After a restart the workspace is measured, and nodes send the bytes that they could not send in the meantime.
#[tokio::test]
async fn a_log_is_accepted_while_its_workspace_is_measured() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (logs, files) = (with_reserve(dir.path(), 0), blobs(dir.path(), Some(100)));
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let (may_go_on, own) = (std::sync::Mutex::new(may_go_on), logs.clone());
    files.count_also(move |_| {
        may_go_on.lock().expect("one thread measures").recv().expect("the test continues");
        own.bytes_of(&[LOG.job].into()).map_err(BlobError::Io)
    });
    files.measure_soon(HERE);
    let reserving = files.clone();
    let reserve = move |bytes, kind| reserving.reserve_for_log(HERE, bytes, kind);
    let appended =
        logs.append(LOG, (0, false), Bytes::from_static(b"said meanwhile"), || true, reserve);
    let appended = tokio::time::timeout(std::time::Duration::from_secs(5), appended).await;
    assert_eq!(appended.expect("the append does not wait").expect("io"), 14);
    go_on.send(()).expect("the measurement waits");
    files.measured(HERE).await.expect("io");
    // Bytes that arrive while logs are being measured may count twice, so there is room for 72 or 86 bytes.
    let taken = append((&logs, &files), LOG, 14, &[b'x'; 100]).await.expect("a part fits");
    assert!(matches!(taken, 86 | 100), "{taken}");
    let more = append((&logs, &files), LOG, taken, b"x").await.expect_err("too much");
    assert!(more.is_full(), "{more}");
}

#[tokio::test]
async fn logs_count_towards_the_share_of_their_workspace() {
    const SHARE: u64 = 64 << 10;
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (logs, files) = (with_reserve(dir.path(), 0), blobs(dir.path(), Some(SHARE)));
    let large = vec![b'x'; 60 << 10];
    assert_eq!(append((&logs, &files), LOG, 0, &large).await.expect("it fits"), 60 << 10);
    assert!(files.check_share(HERE, 5 << 10).is_err(), "files get what logs leave");
    files.check_share(HERE, 4 << 10).expect("there is room");
    // If not all bytes fit, a part is accepted, and then no more, however few they are.
    let taken = append((&logs, &files), LOG, 60 << 10, &large).await.expect("a part fits");
    assert_eq!(taken, SHARE);
    for rest in [&large[..], &large[..1]] {
        let refused = append((&logs, &files), LOG, SHARE, rest).await.expect_err("full");
        assert!(refused.is_full() && refused.to_string().contains("workspace-storage-gb"));
    }
    // The lines that explain why the rest is missing may exceed the share, once for each log.
    let last = async |log, offset| append_as((&logs, &files), log, offset, &[b'y'; 512], true);
    let too_much = append_as((&logs, &files), LOG, SHARE, &large[..5 << 10], true).await;
    assert!(too_much.expect_err("these are not last lines").is_full());
    assert_eq!(last(LOG, SHARE).await.await.expect("there is room"), SHARE + 512);
    assert_eq!(last(LOG, SHARE).await.await.expect("sent again"), SHARE + 512);
    assert!(
        last(LOG, SHARE + 512)
            .await
            .await
            .expect_err("the log has its last lines already")
            .is_full()
    );
    let other = LogKey { rank: 1, ..LOG };
    assert_eq!(last(other, 0).await.await.expect("there is room"), 512);
    let third = LogKey { rank: 2, ..LOG };
    assert!(last(third, 0).await.await.expect_err("a 64th of the share is used up").is_full());

    // A server counts the logs that exist when it starts, and removed ones no longer count.
    let files = blobs(dir.path(), Some(SHARE));
    let own = logs.clone();
    files.count_also(move |_| own.bytes_of(&[LOG.job].into()).map_err(BlobError::Io));
    assert!(files.check_share(HERE, 1).is_err());
    assert_eq!(logs.bytes_of(&[JobId(7)].into()).expect("io"), 0);
    let (own, its) = (logs.clone(), files.clone());
    let removing = move || its.removing(HERE, || own.remove(LOG.job));
    tokio::task::spawn_blocking(removing).await.expect("no panic").expect("io");
    files.check_share(HERE, SHARE).expect("the whole share is free");
    assert_eq!(removed(&logs, LOG.job).await, 0);
}

/// A single lock used to be held while the disk created or removed a job's folder.
#[tokio::test]
async fn opening_one_log_does_not_delay_other_jobs() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (logs, blobs) = (with_reserve(dir.path(), 0), blobs(dir.path(), None));
    let ((begun, has_begun), (go_on, may_go_on)) =
        (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let (own, reserving) = (logs.clone(), blobs.clone());
    let slow = tokio::spawn(async move {
        let is_live = move || {
            begun.send(()).expect("the test waits");
            may_go_on.recv().is_ok()
        };
        let reserve = move |bytes, kind| reserving.reserve_for_log(HERE, bytes, kind);
        own.append(LOG, (0, false), Bytes::from_static(b"slow"), is_live, reserve).await
    });
    let has_begun = tokio::task::spawn_blocking(move || has_begun.recv());
    has_begun.await.expect("no panic").expect("the log is being opened");
    let other = LogKey { job: JobId(7), ..LOG };
    let others = async {
        assert_eq!(append((&logs, &blobs), other, 0, b"other").await.expect("io"), 5);
        assert_eq!(removed(&logs, other.job).await, 5);
    };
    let others = tokio::time::timeout(std::time::Duration::from_secs(5), others).await;
    go_on.send(()).expect("the append waits");
    assert_eq!(slow.await.expect("no panic").expect("io"), 4);
    others.expect("other jobs do not wait");
    assert!(logs.opening.is_idle());
}

#[tokio::test]
async fn last_lines_that_could_not_be_written_may_be_sent_again() {
    const SHARE: u64 = 64 << 10;
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (logs, blobs) = (with_reserve(dir.path(), 0), blobs(dir.path(), Some(SHARE)));
    let other = LogKey { rank: 1, ..LOG };
    let whole = vec![b'x'; SHARE as usize];
    assert_eq!(append((&logs, &blobs), other, 0, &whole).await.expect("it fits"), SHARE);
    std::os::unix::fs::symlink("/dev/full", logs.path(LOG)).expect("io");
    let full = append_as((&logs, &blobs), LOG, 0, b"the end", true).await.expect_err("full");
    assert!(matches!(full, AppendError::Io(_)) && full.is_full(), "{full}");
    fs::remove_file(logs.path(LOG)).expect("io");
    let written = append_as((&logs, &blobs), LOG, 0, b"the end", true).await;
    assert_eq!(written.expect("last lines have their own room"), 7);
}
