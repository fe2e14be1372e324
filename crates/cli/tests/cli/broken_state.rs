//! A state directory whose databases are gone, cut off or damaged: refused with what, where and what to do, and left as it
//! is. A first start that was killed is none of these.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::support::{self, Site, ends, signal};

/// A server that has worked, stopped in peace.
fn stopped() -> Site {
    let mut site = Site::start();
    site.text(&support::CLUSTER);
    stop(&mut site);
    site
}

fn stop(site: &mut Site) {
    let mut server = site.take_server();
    signal("-TERM", &server);
    assert!(ends(&mut server) && server.wait().expect("ended").success());
}

/// What a server says that must not start.
fn refused(site: &Site) -> String {
    let said = site.folder().join("said");
    let file = fs::File::create(&said).expect("our own folder");
    let mut command = site.command(&["up", "--listen", "127.0.0.1:0"]);
    let mut server = command.stdout(Stdio::null()).stderr(file).spawn().expect("it starts");
    let has_ended = ends(&mut server);
    if !has_ended {
        let _ = server.kill();
    }
    let status = server.wait().expect("a child of ours");
    let said = fs::read_to_string(said).expect("text");
    assert!(has_ended && status.code() == Some(1), "{status}: {said}");
    said
}

fn log_of(path: &Path) -> PathBuf {
    path.with_extension("db-wal")
}

#[test]
fn a_database_that_is_gone_or_cut_off_is_not_made_anew() {
    let mut site = stopped();
    for name in ["muster.db", "storage.db"] {
        let path = site.state().join(name);
        let whole = fs::read(&path).expect("it is there");
        let half = (whole.len() / 8_192) * 4_096;
        for content in [None, Some(&whole[..0]), Some(&whole[..half]), Some(&whole[..half + 100])] {
            match content {
                Some(content) => fs::write(&path, content).expect("written"),
                None => fs::remove_file(&path).expect("removed"),
            }
            let said = refused(&site);
            assert!(said.contains(&path.display().to_string()), "{said}");
            assert!(said.contains("muster restore") && said.contains("away"), "{said}");
            assert_eq!(fs::read(&path).ok().as_deref(), content, "{name} was changed");
            assert!(!log_of(&path).exists() || fs::metadata(log_of(&path)).unwrap().len() == 0);
        }
        fs::write(&path, whole).expect("put back");
    }
    site.up();
    assert_eq!(site.json(&["compute", "show", "-n", "cpu"])["name"], "cpu", "as it was");
}

/// Wherever it is killed.
#[test]
fn a_first_start_that_was_killed_can_be_made_again() {
    let mut site = Site::empty();
    for after_ms in [0, 4, 8, 12, 16, 20, 25, 30, 40, 60, 80] {
        let mut command = site.command(&["up", "--listen", "127.0.0.1:0"]);
        let mut server =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(after_ms));
        server.kill().expect("it runs");
        server.wait().expect("it was killed");
        // Of another first start, halfway through the same.
        if after_ms % 8 == 4 {
            fs::remove_dir_all(site.state()).ok();
        }
    }
    site.up();
    site.text(&support::CLUSTER);
}

/// Large enough to be read through only after the server is up.
fn enlarge(path: &Path) {
    let rows = rusqlite::Connection::open(path).expect("it opens");
    rows.execute_batch(
        "CREATE TABLE filler (data); \
         INSERT INTO filler WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 40) \
         SELECT randomblob(1000000) FROM n",
    )
    .expect("it is large now");
}

#[test]
fn damage_in_a_large_database_ends_the_server_before_anything_is_written() {
    let mut site = stopped();
    for (name, index) in [("muster.db", "ledger_by_end"), ("storage.db", "staged_by_digest")] {
        let path = site.state().join(name);
        enlarge(&path);
        // Whole, it is served and written to.
        site.up();
        let update = ["compute", "update", "-n", "cpu", "--tags", "seen=yes"];
        let mut tried = 0;
        while site.run(&update).code != 0 {
            tried += 1;
            assert!(tried < 100, "a whole store takes no changes");
            std::thread::sleep(Duration::from_millis(50));
        }
        stop(&mut site);

        let whole = fs::read(&path).expect("it is there");
        let page: u64 = {
            let rows = rusqlite::Connection::open(&path).expect("it opens");
            let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
            rows.query_row(sql, [index], |row| row.get(0)).expect("it is there")
        };
        let file = fs::OpenOptions::new().write(true).open(&path).expect("it opens");
        file.write_all_at(&[0xff; 64], (page - 1) * 4_096).expect("written");
        drop(file);
        let damaged = fs::read(&path).expect("it is there");
        let said = refused(&site);
        assert!(said.contains(&format!("{} is damaged", path.display())), "{said}");
        assert!(said.contains("muster restore"), "{said}");
        assert!(fs::read(&path).expect("it is there") == damaged, "{name} was written to");
        fs::write(&path, whole).expect("put back");
    }
}
