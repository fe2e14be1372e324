use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use muster_core::ids::WorkspaceId;
use muster_core::model::{BlobId, WorkspaceKey};
use muster_store::storage::{About, BlobPart, BlobRef, Done, Folder, Guard, ListQuery};

use super::*;
use crate::state_dir::StateDir;

/// A disk that can be full or read-only, and a commit that fails although it is on disk.
#[derive(Debug, Clone, Default)]
struct Disk {
    is_full: Arc<AtomicBool>,
    is_read_only: Arc<AtomicBool>,
    hides_a_commit: Arc<AtomicBool>,
    opened: Arc<AtomicUsize>,
}

struct OnDisk {
    inner: SqliteStorage,
    disk: Disk,
}

impl StorageWriter for OnDisk {
    fn apply(&mut self, commands: &[StorageCommand], now: Wall) -> Result<Applied, NotApplied> {
        if self.disk.is_full.load(Relaxed) {
            return Err(StoreError::Full { doing: "writing", path: "the rows".into() }.into());
        }
        if self.disk.is_read_only.load(Relaxed) {
            return Err(StoreError::ReadOnly { doing: "writing", path: "the rows".into() }.into());
        }
        let applied = self.inner.apply(commands, now)?;
        if !commands.is_empty() && self.disk.hides_a_commit.swap(false, Relaxed) {
            let failed = StoreError::Io { doing: "fsync", source: std::io::Error::other("?") };
            return Err(NotApplied { failed, at_commit: Some(applied) });
        }
        Ok(applied)
    }

    fn revision(&mut self) -> Result<Revision, StoreError> {
        self.inner.revision()
    }
}

struct Running {
    storage: Storage,
    thread: JoinHandle<()>,
    disk: Disk,
    _folder: tempfile::TempDir,
}

fn running() -> Running {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, disk) = (folder.path().join("storage.db"), Disk::default());
    let (own, its) = (path.clone(), disk.clone());
    let open: OpenStorage = Box::new(move || {
        its.opened.fetch_add(1, Relaxed);
        let inner = SqliteStorage::open(&own, Durability::None)?;
        Ok((Box::new(OnDisk { inner, disk: its.clone() }) as Box<dyn StorageWriter>, false))
    });
    let (storage, thread) =
        Storage::start(path, open, OnReserve::default()).expect("the storage starts");
    Running { storage, thread, disk, _folder: folder }
}

fn make(name: &str) -> StorageCommand {
    let owner = WorkspaceKey::new("s", "g", "w");
    StorageCommand::MakeContainer { name: name.into(), workspace: WorkspaceId(1), owner }
}

fn names(storage: &Storage) -> Vec<String> {
    let found = storage.readers.look_up(|reader| reader.containers()).expect("the read succeeds");
    found.into_iter().map(|container| container.name.to_string()).collect()
}

async fn continues(storage: &Storage) {
    let mut tried = 0;
    while storage.submit(make("later")).await.is_err() {
        tried += 1;
        assert!(tried < 300, "it continues when the rows can be written");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn stops(storage: Storage, thread: JoinHandle<()>) {
    let stopped = tokio::task::spawn_blocking(move || {
        storage.stop();
        thread.join()
    });
    stopped.await.expect("the thread is joined").expect("the writer did not panic");
}

async fn refuses(switch: impl Fn(&Disk, bool), why: Unavailable) {
    let Running { storage, thread, disk, _folder: _kept } = running();
    assert!(storage.submit(make("before")).await.expect("the write succeeds").is_ok());
    switch(&disk, true);
    const ORDERS: usize = 200;
    for number in 0..ORDERS {
        let refused = storage.submit(make(&format!("late{number}"))).await;
        assert_eq!(refused, Err(why), "{number}");
    }
    let opened = disk.opened.load(Relaxed);
    assert!(opened < ORDERS / 4, "commands do not each open the rows again: {opened} times");
    assert_eq!(names(&storage), ["before"], "existing rows can be read");
    switch(&disk, false);
    continues(&storage).await;
    assert_eq!(names(&storage), ["before", "later"], "refused commands were not carried out later");
    stops(storage, thread).await;
}

#[tokio::test]
async fn on_a_full_disk_commands_are_refused_at_once_and_never_carried_out() {
    refuses(|disk, is| disk.is_full.store(is, Relaxed), Unavailable::Full).await;
}

#[tokio::test]
async fn on_a_read_only_disk_commands_are_refused_at_once_and_never_carried_out() {
    refuses(|disk, is| disk.is_read_only.store(is, Relaxed), Unavailable::ReadOnly).await;
}

#[tokio::test]
async fn a_stop_works_while_the_disk_is_full() {
    let Running { storage, thread, disk, _folder: _kept } = running();
    disk.is_full.store(true, Relaxed);
    assert_eq!(storage.submit(make("late")).await, Err(Unavailable::Full));
    stops(storage, thread).await;
}

#[tokio::test]
async fn a_command_that_is_on_disk_after_all_is_acknowledged() {
    let Running { storage, thread, disk, _folder: _kept } = running();
    disk.hides_a_commit.store(true, Relaxed);
    let made = storage.submit(make("there")).await.expect("the state on disk decides");
    assert!(matches!(made, Ok(Done::Container(_))), "{made:?}");
    continues(&storage).await;
    assert_eq!(names(&storage), ["there", "later"]);
    stops(storage, thread).await;
}

const SMALL_DISK: &str = "MUSTER_SMALL_DISK_OF_ROWS";

/// Uses a disk that is really full: a small tmpfs in its own mount namespace. It is skipped if user namespaces are not
/// available.
#[test]
fn rows_on_a_full_disk_are_refused_until_there_is_space() {
    use std::process::Command;
    let namespaces = Command::new("unshare").args(["-rm", "true"]).status();
    if !namespaces.is_ok_and(|status| status.success()) {
        return muster_testing::skip_or_fail("no user namespaces here");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("mount -t tmpfs -o size=8m none \"${SMALL_DISK}\" && exec \"$@\"");
    let output = Command::new("unshare")
        .args(["-rm", "sh", "-c", &script, "sh"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "storage::tests::on_the_small_disk", "--nocapture"])
        .env(SMALL_DISK, folder.path())
        .output()
        .expect("unshare runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("survived"), "{said}{output:?}");
}

/// Runs inside the namespace. As an ordinary test, it does nothing.
#[tokio::test]
async fn on_the_small_disk() {
    let Ok(disk) = std::env::var(SMALL_DISK) else { return };
    let disk = Path::new(&disk);
    let path = disk.join("storage.db");
    drop(SqliteStorage::open(&path, Durability::Disk).expect("the database is created"));
    let (storage, thread) =
        Storage::open(path, ReserveFile::of(&StateDir::new(disk))).expect("the storage opens");
    assert!(storage.submit(make("before")).await.expect("the write succeeds").is_ok());
    let ballast = disk.join("ballast");
    let mut file = std::fs::File::create(&ballast).expect("there is space at first");
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    // The write-ahead log may have room for a few more commands.
    let mut fitted = Vec::new();
    let refused = loop {
        let name = format!("late{}", fitted.len());
        match storage.submit(make(&name)).await {
            Ok(made) => fitted.push(made.map(|_| name).expect("the name is new")),
            Err(refused) => break refused,
        }
        assert!(fitted.len() < 10_000, "the disk never fills up");
    };
    // `Full` when not even the reserve is left.
    let is_full = |refused| matches!(refused, Unavailable::Full | Unavailable::OnReserve);
    assert!(is_full(refused), "{refused}");
    assert!(storage.submit(make("too-late")).await.is_err_and(is_full));
    drop(file);
    std::fs::remove_file(ballast).expect("the file can be removed");
    continues(&storage).await;
    let expected: Vec<String> =
        ["before".to_owned()].into_iter().chain(fitted).chain(["later".to_owned()]).collect();
    assert_eq!(names(&storage), expected);
    stops(storage, thread).await;
    println!("survived");
}

#[tokio::test]
async fn blocks_of_a_refused_upload_are_dropped_when_its_last_request_has_ended() {
    let Running { storage, thread, _folder: _kept, .. } = running();
    let made = storage.submit(make("here")).await.expect("the write succeeds");
    let Ok(Done::Container(container)) = made else { panic!("{made:?}") };
    let (workspace, name) = (WorkspaceId(1), "large".into());
    let at = BlobRef { container: container.id, workspace, name };
    let stage = async |block: &str, number| {
        let segment = BlobPart { digest: BlobId([number; 32]), bytes: 5 };
        let command = StorageCommand::Stage { at: at.clone(), block: block.into(), segment };
        assert!(storage.submit(command).await.expect("the write succeeds").is_ok());
    };
    let waiting = || {
        let found = storage.readers.look_up(|reader| reader.blocks(container.id, "large"));
        found.expect("the read succeeds").uncommitted.len()
    };
    let [ends_well, refused, late] = [(); 3].map(|()| BlockUpload::begin(&storage, at.clone()));
    stage("YQ==", 1).await;
    drop(ends_well);
    refused.refuse();
    drop(refused);
    // A block that was already in transit still arrives.
    stage("Yg==", 2).await;
    assert_eq!(waiting(), 2);
    drop(late);
    storage.refused.news().await;
    assert_eq!(waiting(), 0);
    let dropped: Vec<_> = storage.refused.take_dropped().into_keys().collect();
    assert_eq!(dropped, [1, 2].map(|number| (workspace, BlobId([number; 32]))));

    // The next upload of the same name is a new one.
    let again = BlockUpload::begin(&storage, at.clone());
    stage("YQ==", 3).await;
    drop(again);
    continues(&storage).await;
    assert_eq!(waiting(), 1);
    stops(storage, thread).await;
}

/// The files of a deleted job used to be kept until there was space, although they are what takes the space.
#[tokio::test]
async fn on_the_reserve_a_folder_can_be_emptied_and_not_filled() {
    let Running { storage, thread, _folder: _kept, .. } = running();
    let made = storage.submit(make("here")).await.expect("the write succeeds");
    let Ok(Done::Container(container)) = made else { panic!("{made:?}") };
    let workspace = WorkspaceId(1);
    let segment = BlobPart { digest: BlobId([1; 32]), bytes: 5 };
    let at = BlobRef { container: container.id, workspace, name: "job/left".into() };
    let put = StorageCommand::Put { at, segment, about: About::default(), guard: Guard::default() };
    assert!(storage.submit(put).await.expect("the write succeeds").is_ok());
    let publish = |folders: &[Vec<(Box<str>, BlobPart)>]| {
        let folder = |files: &Vec<_>| Folder {
            container: container.id,
            name: "job".into(),
            files: files.clone(),
            is_all: true,
        };
        StorageCommand::Publish { workspace, folders: folders.iter().map(folder).collect() }
    };
    storage.on_reserve.set(true);
    let some = vec![("new".into(), segment)];
    let filled = storage.submit(publish(&[Vec::new(), some])).await;
    assert_eq!(filled, Err(Unavailable::OnReserve));
    assert_eq!(storage.submit(publish(&[Vec::new()])).await, Ok(Ok(Done::Nothing)));
    let all = ListQuery { limit: 10, ..ListQuery::default() };
    let left = storage.readers.look_up(|reader| reader.list(container.id, &all));
    assert_eq!(left.expect("the read succeeds").items, []);
    stops(storage, thread).await;
}
