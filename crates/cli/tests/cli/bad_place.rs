//! A state directory that is missing, damaged, in use or another server's: refused with a clear message, and not
//! changed.

use std::path::Path;

use crate::support::Site;

#[test]
fn where_no_server_was_ever_started_everything_is_not_found() {
    let site = Site::empty();
    for arguments in [
        &["env"][..],
        &["env", "--shell", "json"],
        &["cost"],
        &["compute", "list"],
        &["compute", "create", "-n", "cpu"],
        &["job", "list"],
        &["job", "stream", "-n", "x"],
    ] {
        let done = site.run(arguments);
        assert_eq!((done.code, done.stdout.len()), (3, 0), "{arguments:?}");
        assert!(done.stderr.contains("muster up"), "{}", done.stderr);
        assert!(done.stderr.contains(&site.state().display().to_string()), "{}", done.stderr);
    }
    assert!(!site.state().exists(), "looking for a server created its folder");
}

/// The state directory without its server, with one file changed.
fn damaged(site: &Site, file: &str, content: &[u8]) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a temporary folder");
    for name in ["connection.json", "keys/owner.key", "pki/ca.pem", "pki/ca-bundle.pem"] {
        let target = copy.path().join(name);
        std::fs::create_dir_all(target.parent().unwrap_or(Path::new("/"))).expect("a folder");
        std::fs::copy(site.state().join(name), &target).expect("a copy");
    }
    std::fs::write(copy.path().join(file), content).expect("a file");
    copy
}

#[test]
fn a_damaged_state_directory_is_reported_and_not_changed() {
    let site = Site::start();
    let wrong_key = format!("msk_{}\n", "0".repeat(64));
    let cases: [(&str, &[u8], &str); 8] = [
        ("connection.json", b"{", "start the server again"),
        ("connection.json", b"", "start the server again"),
        ("connection.json", b"\xff\xfe", "start the server again"),
        (
            "connection.json",
            br#"{"url":"http://localhost:1","port":1,"pid":1}"#,
            "'http://localhost:1', which is not https",
        ),
        (
            "connection.json",
            br#"{"url":"https://localhost:1","port":1,"pid":1}"#,
            "hint: is it running? start it: muster up --state-dir",
        ),
        ("keys/owner.key", b"\n", "contains no key"),
        ("keys/owner.key", wrong_key.as_bytes(), "does not accept the key"),
        ("pki/ca.pem", b"not a certificate", "ca.pem"),
    ];
    for (file, content, part) in cases {
        let copy = damaged(&site, file, content);
        let path = copy.path().display().to_string();
        let done = site.run(&["compute", "list", "--state-dir", &path]);
        assert_eq!((done.code, done.stdout.len()), (1, 0), "{file}: {}", done.stderr);
        assert!(done.stderr.contains(part), "{file}: {part:?} in {}", done.stderr);
        assert!(!done.stderr.contains("msk_"), "the message contains a key: {}", done.stderr);
        let left = std::fs::read(copy.path().join(file)).expect("still there");
        assert_eq!(left, content, "{file} was changed");
    }
}

#[test]
fn one_directory_has_one_server() {
    let site = Site::start();
    let second = site.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!((second.code, second.stdout.len()), (1, 0));
    assert!(second.stderr.contains("another server is using"), "{}", second.stderr);
    assert!(second.stderr.contains("--state-dir"), "{}", second.stderr);
}

#[test]
fn prices_that_cannot_be_read_are_refused_before_anything_is_served() {
    let site = Site::empty();
    std::fs::write(site.folder().join("prices.json"), "[{}]").expect("a file");
    let damaged = site.folder().join("prices.json").display().to_string();
    for file in ["/no/prices.json", damaged.as_str()] {
        let refused = site.run(&["up", "--listen", "127.0.0.1:0", "--prices", file]);
        assert_eq!((refused.code, refused.stdout.len()), (2, 0), "{}", refused.stderr);
        assert!(refused.stderr.contains(file), "{}", refused.stderr);
    }
    assert_eq!(site.run(&["compute", "list"]).code, 3, "no server was started");
}
