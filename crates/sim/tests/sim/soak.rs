//! `make soak` resumes where it was interrupted, and keeps everything that it found.

use std::path::Path;
use std::process::{Command, Output};

fn soak(record: &Path, numbers: [&str; 3]) -> (Output, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_muster-soak"))
        .arg(record)
        .arg("1000")
        .args(numbers)
        .output()
        .expect("it can be started");
    let said = [&done.stdout[..], &done.stderr].concat();
    (done, String::from_utf8(said).expect("text"))
}

#[test]
fn an_interrupted_soak_resumes_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = folder.path().join("record");
    std::fs::write(&record, "700 3 1 2\n").expect("written");
    let (done, said) = soak(&record, ["", "3", ""]);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("resuming after 2 of 3 seeds"), "{said}");
    assert!(said.ends_with("3 of 3 seeds, the last of them 702\n"), "{said}");
    assert!(!record.exists(), "a finished soak is not resumed");
    let (done, said) = soak(&record, ["900", "1", "1"]);
    assert!(done.status.success() && said.ends_with("the last of them 900\n"), "{said}");
    let (done, said) = soak(&record, ["", "1", "1"]);
    assert!(done.status.success() && said.ends_with("the last of them 1000\n"), "{said}");
}

#[test]
fn a_seed_that_failed_before_the_interruption_is_named_in_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = folder.path().join("record");
    std::fs::write(&record, "700 3 1 2 701\n").expect("written");
    let (done, said) = soak(&record, ["", "", ""]);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("within 1 days: [701]"), "{said}");
}

#[test]
fn what_makes_no_sense_or_contradicts_the_record_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = folder.path().join("record");
    for (text, numbers, hint) in [
        ("700 3\n", ["", "", ""], "delete it to start over"),
        ("700 3 1 2\n", ["900", "", ""], "unfinished"),
        ("700 3 1 2\n", ["", "", "30"], "unfinished"),
    ] {
        std::fs::write(&record, text).expect("written");
        let (done, said) = soak(&record, numbers);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains(hint), "{said}");
        assert_eq!(std::fs::read_to_string(&record).expect("still there"), text);
    }
    for (numbers, wrong) in [
        (["x", "1", "1"], "FROM is 'x'"),
        (["0", "0", "1"], "SEEDS is '0'"),
        (["0", "1", "1.5"], "DAYS is '1.5'"),
        (["18446744073709551615", "1", "1"], "FROM is"),
    ] {
        let (done, said) = soak(&folder.path().join("none"), numbers);
        assert_eq!(done.status.code(), Some(2), "{numbers:?}: {said}");
        assert!(said.contains(wrong) && said.contains("whole number"), "{said}");
    }
}
