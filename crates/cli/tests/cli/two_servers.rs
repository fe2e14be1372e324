//! A second server in the same folder, and a second writer of the same store.

use crate::support::{self, Site, ends};
use muster_store::{Durability, SqliteStore, Store};

#[test]
fn a_folder_has_one_server() {
    let site = Site::start();
    let second = site.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.code, 1, "{}", second.stderr);
    assert!(
        second.stderr.contains("another server is using the state directory"),
        "{}",
        second.stderr
    );
    assert!(second.stderr.contains("--state-dir"), "it says what to do: {}", second.stderr);
    site.text(&["compute", "list"]);
}

#[test]
fn a_server_whose_store_was_taken_over_ends_and_writes_nothing() {
    let mut site = Site::start();
    site.text(&support::CLUSTER);
    let mut usurper =
        SqliteStore::open(site.state().join("muster.db"), Durability::Disk).expect("the store");
    usurper.claim(0).expect("taken over");
    let before = usurper.revision().expect("read");
    let refused = site.run(&["compute", "create", "--name", "other"]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    let mut server = site.take_server();
    assert!(ends(&mut server), "it ends without its store");
    assert!(!server.wait().expect("ended").success());
    assert_eq!(usurper.revision().expect("read"), before, "nothing was written by the old one");
}
