use std::net::TcpStream;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;

use muster_core::Input;
use muster_core::ids::WorkspaceId;
use muster_core::model::{Caller, WorkspaceKey};
use muster_store::storage::StorageCommand;
use tokio::runtime::Handle;

use super::background::Background;
use super::in_test::{self, InTest};
use super::{Part, Running};
use crate::Limits;
use crate::state_dir::StateDir;
use crate::storage::Storage;
use crate::writer;

const SMALL_DISK: &str = "MUSTER_SMALL_DISK";

#[test]
fn the_logs_of_both_stores_stay_small_on_a_small_disk() {
    let namespaces = Command::new("unshare").args(["-rm", "true"]).status();
    if !namespaces.is_ok_and(|status| status.success()) {
        return muster_testing::skip_or_fail("no user namespaces here");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("mount -t tmpfs -o size=64m none \"${SMALL_DISK}\" && exec \"$@\"");
    let output = Command::new("unshare")
        .args(["-rm", "sh", "-c", &script, "sh"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "run::tests::on_the_small_disk", "--nocapture"])
        .env(SMALL_DISK, folder.path())
        .env("TMPDIR", folder.path())
        .output()
        .expect("unshare runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("stayed small"), "{said}{output:?}");
}

/// Runs inside the namespace. As an ordinary test, it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_small_disk() {
    if std::env::var_os(SMALL_DISK).is_none() {
        return;
    }
    let server = InTest::open(Limits::default()).await;
    let app = server.app();
    let log = |name: &str| {
        let path = server.folder().join(format!("{name}-wal"));
        std::fs::metadata(path).expect("the store has a write-ahead log").len()
    };
    let key = |number: u64| WorkspaceKey::new("s", "g", &format!("w{number}"));
    for number in 0..300 {
        let by = Caller { object_id: "0b8e".into(), name: "Some One".into() };
        let input = Input::workspace(key(number), "eastus", by);
        app.writer.submit(input).await.expect("the write succeeds").expect("the input is accepted");
        let (name, workspace) = (format!("c{number}").into(), WorkspaceId(number + 1));
        let make = StorageCommand::MakeContainer { name, workspace, owner: key(number) };
        assert!(app.storage.submit(make).await.expect("the write succeeds").is_ok());
        for store in ["muster.db", "storage.db"] {
            assert!(log(store) < 1 << 20, "{store}: {} bytes after {number}", log(store));
        }
    }
    println!("stayed small");
}

/// What still works at one point of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Works {
    writer: bool,
    storage: bool,
    lock: bool,
}

fn works(state_dir: &StateDir, writer: &writer::Handle, storage: &Storage) -> Works {
    let (name, workspace) = ("c".into(), WorkspaceId(1));
    let make =
        StorageCommand::MakeContainer { name, workspace, owner: WorkspaceKey::new("s", "g", "w") };
    let (writer, storage) = tokio::task::block_in_place(|| {
        Handle::current().block_on(async { (writer.is_there().await, storage.submit(make).await) })
    });
    Works { writer: writer.is_ok(), storage: storage.is_ok(), lock: state_dir.take().is_err() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_closes_its_parts_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let state_dir = StateDir::new(folder.path());
    let config = in_test::config(&state_dir, Limits::default());
    let never = pin!(std::future::pending());
    let running = Running::open(config, never).await.expect("it opens").expect("it has space");
    let stores = &running.opened.server.stores;
    let (writer, storage) = (stores.writer.clone(), stores.storage.clone());
    let address = running.opened.listeners.api.local_addr().expect("an address");
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let shutdown = pin!(async { drop(stopped.await) });
    let on_ready = |_: &crate::config::Ready| {
        TcpStream::connect(address).expect("connections are accepted");
        stop.send(()).expect("the server waits for this");
    };
    let closing = running.serve(on_ready, shutdown).await.expect("it serves");
    assert!(TcpStream::connect(address).is_err(), "no connection is accepted any more");
    let everything = Works { writer: true, storage: true, lock: true };
    assert_eq!(works(&state_dir, &writer, &storage), everything, "requests could finish");

    let mut order = Vec::new();
    let closed = closing.close(|part| {
        order.push((part, works(&state_dir, &writer, &storage)));
    });
    closed.await.expect("it closes");
    let before_writer = everything;
    let after_writer = Works { writer: false, ..everything };
    let after_storage = Works { storage: false, ..after_writer };
    let nothing = Works { lock: false, ..after_storage };
    assert_eq!(
        order,
        [
            (Part::Background, before_writer),
            (Part::Work, before_writer),
            (Part::Readers, before_writer),
            (Part::Writer, after_writer),
            (Part::Storage, after_storage),
            (Part::Lock, nothing),
        ]
    );
}

/// The parts that are closed next would be missing to a task that still runs.
#[tokio::test]
async fn no_background_task_runs_any_more_when_they_have_ended() {
    let held = Arc::new(());
    let mut background = Background::default();
    for _ in 0..10 {
        let held = held.clone();
        background.start(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
    }
    assert_eq!(Arc::strong_count(&held), 11);
    background.end().await;
    assert_eq!(Arc::strong_count(&held), 1);
}
