use super::*;

fn site() -> (tempfile::TempDir, StateDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let state_dir = StateDir::new(folder.path());
    (folder, state_dir)
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("the path has a parent")).expect("creating the folder");
    fs::write(path, text).expect("a file");
}

/// Wherever a first start is killed, the next one continues.
#[test]
fn a_first_start_can_be_continued() {
    let (_folder, state_dir) = site();
    // Files that may exist before any start.
    write(&state_dir.root().join("muster.toml"), "");
    write(&state_dir.root().join("lock"), "");
    prepare(&state_dir).expect("the first start");
    fs::remove_file(state_dir.storage()).expect("killed between the two databases");
    prepare(&state_dir).expect("again");
    fs::write(state_dir.storage(), "").expect("killed while the second database was created");
    prepare(&state_dir).expect("again");
    for path in [state_dir.storage(), state_dir.database()] {
        fs::remove_file(path).expect("killed before the first database");
    }
    fs::write(state_dir.database(), "").expect("killed while the first database was created");
    prepare(&state_dir).expect("again");
    write(&state_dir.keys().join("token.key"), "");
    prepare(&state_dir).expect("files that are created later make no difference");
}

/// Either database, missing or empty, next to anything that shows that it existed.
#[test]
fn an_installation_without_its_databases_is_not_a_new_one() {
    let log = format!("logs/{}/a1.0.log", JobId(1));
    let traces = [
        "keys/token.key",
        "keys/owner.key",
        "pki/ca.key",
        "blobs/w1/ab/cd",
        "blobs/elsewhere",
        log.as_str(),
        "post-mortems/node",
        "connection.json",
        "muster.db-wal",
    ];
    for trace in traces {
        for (is_database, is_empty) in [(true, true), (true, false), (false, true), (false, false)]
        {
            let (_folder, state_dir) = site();
            prepare(&state_dir).expect("the first start");
            write(&state_dir.root().join(trace), "something");
            let (lost, other) = match is_database {
                true => (state_dir.database(), state_dir.storage()),
                false if trace == "muster.db-wal" => continue,
                false => (state_dir.storage(), state_dir.database()),
            };
            fs::remove_file(&lost).expect("the file existed");
            if is_empty {
                fs::write(&lost, "").expect("emptied");
            }
            let refused = prepare(&state_dir).expect_err("this is not a first start").to_string();
            assert!(refused.contains(&lost.display().to_string()), "{refused}");
            assert!(refused.contains("muster restore") && refused.contains("away"), "{refused}");
            assert_eq!(fs::read(&lost).ok(), is_empty.then(Vec::new), "nothing was created");
            assert!(other.exists());
        }
    }
}

/// Each database shows that the other existed.
#[test]
fn one_database_is_enough_to_tell() {
    let (_folder, state_dir) = site();
    prepare(&state_dir).expect("the first start");
    fs::remove_file(state_dir.database()).expect("the file existed");
    assert!(prepare(&state_dir).is_err(), "the storage database is created second");
}
