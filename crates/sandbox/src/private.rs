//! Private folders: they hold keys, logs and sockets that no other user of the machine may reach.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

const ONLY_OWNER: u32 = 0o700;

/// Makes the folder, and those above it, if it is not there. One that was there before may be open to others and is
/// closed; one that belongs to somebody else is refused, for its owner could change everything in it.
pub fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(ONLY_OWNER).create(path)?;
    let found = path.metadata()?;
    let (owner, us) = (found.uid(), rustix::process::geteuid().as_raw());
    if owner != us {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "it belongs to user {owner}, who could read and change everything in it; give it to user {us}, who \
                 runs this (chown), or name another folder"
            ),
        ));
    }
    if found.mode() & 0o777 & !ONLY_OWNER != 0 {
        tracing::warn!(path = %path.display(), "others could enter the folder; now they cannot");
        std::fs::set_permissions(path, Permissions::from_mode(ONLY_OWNER))?;
    }
    Ok(())
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
    fn a_folder_of_somebody_else_is_refused_and_stays_as_it_is() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("not root: only root can give a folder away");
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(dir.path(), Some(12_345), None).unwrap();
        let refused = make(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("belongs to user 12345"), "{refused}");
        assert_eq!(mode(dir.path()), 0o755);
    }
}
