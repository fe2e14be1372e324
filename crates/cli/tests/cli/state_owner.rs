//! A state directory that another user of the machine has changed, or could change: no server and no command uses it.

use std::os::unix::fs::{PermissionsExt as _, lchown};
use std::path::Path;

use crate::support::Site;

/// A UID that is unused on most machines.
const OTHER: u32 = 34_567;
const UP: [&str; 5] = ["up", "--listen", "127.0.0.1:0", "--isolation", "none"];

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
}

#[test]
fn a_server_does_not_adopt_files_of_another_user() {
    if !is_root() {
        return muster_testing::skip_or_fail("not root: only root can give files away");
    }
    let site = Site::empty();
    let state = site.state();
    std::fs::create_dir_all(state.join("keys")).expect("ours");
    mode(&state, 0o777);
    std::fs::write(state.join("keys/owner.key"), "msk_planted\n").expect("ours");
    for planted in ["keys/owner.key", "keys"] {
        let planted = state.join(planted);
        lchown(&planted, Some(OTHER), None).expect("root may");
        let refused = site.run(&UP);
        assert_eq!((refused.code, refused.stdout.len()), (1, 0), "{}", refused.stderr);
        let named = format!("{} in it belongs to user {OTHER}", planted.display());
        assert!(refused.stderr.contains(&named), "{}", refused.stderr);
        lchown(&planted, Some(0), None).expect("root may");
        let left: Vec<_> = std::fs::read_dir(&state).expect("ours").flatten().collect();
        assert_eq!(left.len(), 1, "nothing was created: {left:?}");
    }
    // The parent folder: a user who may rename entries there may replace the whole directory.
    std::fs::remove_dir_all(&state).expect("ours");
    mode(site.folder(), 0o777);
    let refused = site.run(&UP);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("every user may rename the entries of"), "{}", refused.stderr);
    assert!(!state.exists());
}

#[test]
fn a_command_does_not_use_files_of_another_user() {
    let site = Site::start_plain();
    let state = site.state();
    let connection = state.join("connection.json");
    let list = ["compute", "list"];
    let refused = |part: &str| {
        for command in [&list[..], &["env"], &["status"], &["down"]] {
            let done = site.run(command);
            assert_eq!((done.code, done.stdout.len()), (1, 0), "{command:?}: {}", done.stderr);
            assert!(done.stderr.contains(part), "{command:?}: {}", done.stderr);
        }
    };
    for (path, open, closed) in [(&connection, 0o666, 0o600), (&state, 0o770, 0o700)] {
        mode(path, open);
        refused(&format!("chmod go-w {}", path.display()));
        mode(path, closed);
    }
    if is_root() {
        for path in [&connection, &state, &state.join("keys"), &state.join("pki/ca.pem")] {
            lchown(path, Some(OTHER), None).expect("root may");
            refused(&format!("{} belongs to user {OTHER}", path.display()));
            // With sudo, users use their own directory.
            let mut own = site.command(&list);
            assert!(own.env("SUDO_UID", OTHER.to_string()).status().expect("it runs").success());
            lchown(path, Some(0), None).expect("root may");
        }
    }
    assert_eq!(site.run(&list).code, 0);
}
