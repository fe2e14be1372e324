use std::process::Command;

use muster_core::Input;
use muster_core::ids::WorkspaceId;
use muster_core::model::{Caller, WorkspaceKey};
use muster_store::storage::StorageCommand;

use super::in_test::InTest;
use crate::Limits;

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
