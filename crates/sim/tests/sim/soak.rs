//! `make soak` goes on where it was interrupted.

use std::process::{Command, Output};

fn soak(record: &std::path::Path, numbers: [&str; 3]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muster-soak"))
        .arg(record)
        .args(numbers)
        .output()
        .expect("it can be started")
}

#[test]
fn an_interrupted_soak_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = folder.path().join("record");
    std::fs::write(&record, "700 3 1 2\n").expect("written");
    let done = soak(&record, ["900", "5", "1"]);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("going on after 2 of 3 seeds"), "{said}");
    assert!(said.ends_with("3 of 3 seeds, the last of them 702\n"), "{said}");
    assert!(!record.exists(), "what is finished is not resumed");
    let done = soak(&record, ["900", "1", "1"]);
    assert!(String::from_utf8_lossy(&done.stdout).ends_with("the last of them 900\n"));
}

#[test]
fn a_record_that_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = folder.path().join("record");
    std::fs::write(&record, "700 3\n").expect("written");
    let done = soak(&record, ["900", "1", "1"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("delete it to begin anew"));
    assert!(record.exists());
    for numbers in [["x", "1", "1"], ["0", "1", "0"], ["18446744073709551615", "1", "1"]] {
        assert_eq!(
            soak(&folder.path().join("none"), numbers).status.code(),
            Some(2),
            "{numbers:?}"
        );
    }
}
