//! Private folders, which hold keys, logs and sockets that no other user of the host may access.
//!
//! The owner's permissions do not cover what happened before: another user may have planted files in a folder that was
//! open, or may replace it as a whole if they may rename entries of its parent. [`check_way`] and [`check_content`]
//! look for both, as `sshd` does before it trusts a file.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

const ONLY_OWNER: u32 = 0o700;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// In a folder with this bit, only the owner of an entry may rename or remove it.
const STICKY: u32 = 0o1000;
/// As many as the kernel follows.
const LINKS_MAX: usize = 40;
/// How many entries of a folder are checked, so that starting is fast. A folder with more was filled by a server.
const ENTRIES_MAX: usize = 10_000;

/// Like [`make`], for a folder whose contents decide what we do. If something was planted in it, or could be replaced
/// on the way to it, it is refused and nothing is changed.
pub fn adopt(path: &Path) -> io::Result<()> {
    check_way(path, None)?;
    let was_open = match path.metadata() {
        Ok(found) => {
            check_ours(&found)?;
            check_content(path)?;
            found.mode() & (GROUP_WRITES | OTHERS_WRITE) != 0
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    make(path)?;
    if was_open {
        // Something may have been planted between the check and the closing of the folder.
        check_content(path)?;
    }
    warn_of_groups(path);
    Ok(())
}

/// Group permissions are no reason to refuse: many users have a group of their own, and its other members are not known
/// here.
fn warn_of_groups(path: &Path) {
    let Ok(path) = path.canonicalize() else { return };
    let own = [0, rustix::process::getegid().as_raw()];
    for above in path.ancestors().skip(1) {
        let Ok(found) = above.metadata() else { continue };
        let is_shared = found.mode() & GROUP_WRITES != 0 && found.mode() & STICKY == 0;
        if is_shared && !own.contains(&found.gid()) {
            let (folder, group) = (above.display(), found.gid());
            tracing::warn!(%folder, group, "members of this group can replace the state directory: chmod g-w the folder");
        }
    }
}

/// Creates the folder and its parents if it does not exist. A folder that is open to others is closed. A folder of
/// another user is refused, because its owner could change everything in it.
pub fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(ONLY_OWNER).create(path)?;
    let found = path.metadata()?;
    check_ours(&found)?;
    if found.mode() & 0o777 & !ONLY_OWNER != 0 {
        tracing::warn!(path = %path.display(), "the folder was open to other users; it is closed now");
        std::fs::set_permissions(path, Permissions::from_mode(ONLY_OWNER))?;
    }
    Ok(())
}

fn check_ours(found: &Metadata) -> io::Result<()> {
    let (owner, us) = (found.uid(), rustix::process::geteuid().as_raw());
    if owner == us {
        return Ok(());
    }
    Err(refused(format!(
        "it belongs to user {owner}, who could read and change everything in it; give it to user {us}, who runs this \
         (chown), or choose another folder"
    )))
}

/// Refuses a folder that contains something of another user, at its top level or one level below. Root's and our own
/// files are fine; links are checked but not followed.
pub fn check_content(folder: &Path) -> io::Result<()> {
    for (path, found) in entries(folder)? {
        check_owner(&path, &found)?;
        if !found.is_dir() {
            continue;
        }
        match entries(&path) {
            Ok(inner) => inner.iter().try_for_each(|(path, found)| check_owner(path, found))?,
            // The folder belongs to root, so no other user could have put anything there.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn check_owner(path: &Path, found: &Metadata) -> io::Result<()> {
    if is_trusted(found, None) {
        return Ok(());
    }
    Err(refused(format!(
        "{} in it belongs to user {}, who may have put it there while the folder was open to others; check it and \
         remove it, or if it is your own, take it over: chown -hR {} {}",
        path.display(),
        found.uid(),
        rustix::process::geteuid().as_raw(),
        path.display()
    )))
}

/// Lists the entries of the folder. Entries that are removed meanwhile are left out.
fn entries(folder: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)?.take(ENTRIES_MAX) {
        let path = entry?.path();
        match std::fs::symlink_metadata(&path) {
            Ok(metadata) => found.push((path, metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Refuses a path of which another user could replace a part, because that user owns a folder above it, may rename
/// entries of one, or owns a link on the way. Missing parts are not checked. `also` is one more user who is trusted
/// like us.
pub fn check_way(path: &Path, also: Option<u32>) -> io::Result<()> {
    let mut at = PathBuf::from("/");
    let mut links = 0;
    let mut rest: VecDeque<OsString> = parts(&std::path::absolute(path)?);
    check_above(&at, &std::fs::symlink_metadata(&at)?, also)?;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(part);
        let found = match std::fs::symlink_metadata(&next) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if found.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Err(io::Error::other(format!("{} leads in a circle", next.display())));
            }
            if !is_trusted(&found, also) {
                return Err(refused(format!(
                    "the link {} on the way to it belongs to user {}, who could redirect it; remove the link, or \
                     choose another folder",
                    next.display(),
                    found.uid()
                )));
            }
            let target = std::fs::read_link(&next)?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            for part in parts(&target).into_iter().rev() {
                rest.push_front(part);
            }
            continue;
        }
        if !rest.is_empty() {
            check_above(&next, &found, also)?;
        }
        at = next;
    }
    Ok(())
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let named = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    named.map(|part| part.as_os_str().to_owned()).collect()
}

fn check_above(path: &Path, found: &Metadata, also: Option<u32>) -> io::Result<()> {
    let (owner, mode) = (found.uid(), found.mode());
    if !is_trusted(found, also) {
        return Err(refused(format!(
            "{} above it belongs to user {owner}, who could replace everything in it; choose a folder elsewhere, or run this \
             as that user",
            path.display()
        )));
    }
    if mode & STICKY != 0 {
        return Ok(());
    }
    if mode & OTHERS_WRITE != 0 {
        return Err(refused(format!(
            "every user may rename the entries of {} above it; close that (chmod o-w {}), or choose a folder elsewhere",
            path.display(),
            path.display()
        )));
    }
    Ok(())
}

/// Refuses a file that another user owns or may write to, because they could control what its reader does. A missing
/// file passes.
pub fn check_unshared(path: &Path, also: Option<u32>) -> io::Result<()> {
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !is_trusted(&found, also) {
        let (owner, us) = (found.uid(), rustix::process::geteuid().as_raw());
        return Err(refused(format!(
            "{} belongs to user {owner}, not to user {us}, who runs this; run it as that user (sudo -u '#{owner}'), or \
             choose another folder",
            path.display()
        )));
    }
    if found.mode() & (GROUP_WRITES | OTHERS_WRITE) != 0 {
        return Err(refused(format!(
            "other users may write to {}; check its contents, then close it: chmod go-w {}",
            path.display(),
            path.display()
        )));
    }
    Ok(())
}

fn is_trusted(found: &Metadata, also: Option<u32>) -> bool {
    let owner = found.uid();
    owner == 0
        || owner == rustix::process::geteuid().as_raw()
        || Some(owner) == also
        || is_unmapped(owner)
}

/// Inside a user namespace, the host's root may have no number. Other unmapped users then look the same and are trusted
/// too.
fn is_unmapped(owner: u32) -> bool {
    let number =
        |path| std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    if number("/proc/sys/kernel/overflowuid") != Some(owner) {
        return false;
    }
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    // All users have their own numbers: this is the host's own namespace.
    map.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"]
}

fn refused(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn a_folder_that_others_could_enter_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        for before in [0o755, 0o710, 0o777, 0o701] {
            std::fs::set_permissions(dir.path(), Permissions::from_mode(before)).unwrap();
            make(dir.path()).unwrap();
            assert_eq!(mode(dir.path()), 0o700, "{before:o}");
        }
        make(&dir.path().join("a/new/one")).unwrap();
        assert_eq!(mode(&dir.path().join("a/new/one")), 0o700);
    }

    #[test]
    fn a_folder_of_another_user_is_refused_and_left_unchanged() {
        if !rustix::process::geteuid().is_root() {
            return muster_testing::skip_or_fail(
                "not root: only root can give a folder to another user",
            );
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(dir.path(), Some(12_345), None).unwrap();
        let refused = make(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("belongs to user 12345"), "{refused}");
        assert_eq!(mode(dir.path()), 0o755);
    }

    fn is_root() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            muster_testing::skip_or_fail("not root: only root can give files to another user");
        }
        is_root
    }

    fn give_away(path: &Path) {
        std::os::unix::fs::lchown(path, Some(12_345), None).unwrap();
    }

    fn open_to_all(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_with_a_file_of_another_user_is_refused_and_left_unchanged() {
        if !is_root() {
            return;
        }
        type Plant = (&'static str, fn(&Path));
        let plant: [Plant; 5] = [
            ("muster.db", |path| std::fs::write(path, "theirs").unwrap()),
            ("pki", |path| std::fs::create_dir(path).unwrap()),
            ("keys", |path| std::os::unix::fs::symlink("/nowhere", path).unwrap()),
            ("blobs/incoming", |path| std::fs::create_dir_all(path).unwrap()),
            ("node-logs/link", |path| {
                std::fs::create_dir(path.parent().unwrap()).unwrap();
                std::os::unix::fs::symlink("/etc/passwd", path).unwrap();
            }),
        ];
        for (name, make) in plant {
            let dir = tempfile::tempdir().unwrap();
            let (folder, path) = (dir.path().join("state"), dir.path().join("state").join(name));
            std::fs::create_dir(&folder).unwrap();
            open_to_all(&folder, 0o777);
            make(&path);
            adopt(&folder).expect("all of it belongs to us");
            open_to_all(&folder, 0o777);
            give_away(&path);
            let refused = adopt(&folder).unwrap_err().to_string();
            let said = format!("{} in it belongs to user 12345", path.display());
            assert!(refused.contains(&said), "{refused}");
            assert!(refused.contains("chown -hR 0 "), "{refused}");
            assert_eq!(mode(&folder), 0o777, "{name}: changed");
        }
    }

    #[test]
    fn a_path_that_another_user_could_replace_is_refused() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let above = dir.path().join("above");
        let state = above.join("deeper/state");
        std::fs::create_dir_all(above.join("deeper")).unwrap();
        for (mode, is_good) in [(0o755, true), (0o777, false), (0o1777, true), (0o775, true)] {
            open_to_all(&above, mode);
            let said = check_way(&state, None).map_err(|why| why.to_string());
            assert_eq!(said.is_ok(), is_good, "{mode:o}: {said:?}");
            assert!(said.err().is_none_or(|said| said.contains("chmod o-w")));
        }
        open_to_all(&above, 0o755);
        give_away(&above);
        let refused = adopt(&state).unwrap_err().to_string();
        assert!(refused.contains("above it belongs to user 12345"), "{refused}");
        assert!(!state.exists());
        check_way(&state, Some(12_345)).expect("this user is trusted like us");
        // The same through a link of ours, and through a link of the other user.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("above/deeper", &link).unwrap();
        let refused = check_way(&link.join("state"), None).unwrap_err().to_string();
        assert!(refused.contains("above it belongs to user 12345"), "{refused}");
        std::os::unix::fs::lchown(&above, Some(0), None).unwrap();
        check_way(&link.join("state"), None).expect("all of it belongs to us");
        give_away(&link);
        let refused = check_way(&link.join("state"), None).unwrap_err().to_string();
        assert!(refused.contains("link on the way to it belongs to user 12345"), "{refused}");
    }

    #[test]
    fn links_in_a_circle_end() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("circle", dir.path().join("circle")).unwrap();
        let refused = check_way(&dir.path().join("circle/state"), None).unwrap_err();
        assert!(refused.to_string().contains("leads in a circle"), "{refused}");
    }

    #[test]
    fn what_others_may_write_to_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("connection.json");
        check_unshared(&file, None).expect("a missing file passes");
        std::fs::write(&file, "{}").unwrap();
        for (mode, is_good) in [(0o600, true), (0o644, true), (0o620, false), (0o602, false)] {
            open_to_all(&file, mode);
            assert_eq!(check_unshared(&file, None).is_ok(), is_good, "{mode:o}");
        }
        if is_root() {
            open_to_all(&file, 0o600);
            give_away(&file);
            let refused = check_unshared(&file, None).unwrap_err().to_string();
            assert!(refused.contains("belongs to user 12345"), "{refused}");
            check_unshared(&file, Some(12_345)).expect("this user is trusted like us");
        }
    }
}
