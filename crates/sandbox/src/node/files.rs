//! Small files and folders of nodes, and files that are read on behalf of a user with fewer privileges than ours.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FileType, fstat};

/// All public CAs take about 250 KiB.
const CERTIFICATES_MAX: u64 = 4 << 20;

pub(super) fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

pub(super) fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o644).custom_flags(libc::O_NOFOLLOW);
    options.open(&temporary)?.write_all(text)?;
    std::fs::rename(temporary, path)
}

/// Reads a file with certificates. Its owner may have replaced it with anything: a link to another user's secret, or a
/// pipe that never ends.
pub(super) fn read_of(path: &Path, owner: Option<u32>) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    check_owner(&file, owner)?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other(format!("{} is not a regular file", path.display())));
    }
    let mut text = Vec::new();
    File::take(file, CERTIFICATES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > CERTIFICATES_MAX {
        let message =
            format!("{} has more than {CERTIFICATES_MAX} bytes of certificates", path.display());
        return Err(io::Error::other(message));
    }
    Ok(text)
}

/// Checks the owner of something that is already open, so that it cannot be replaced afterwards.
pub(super) fn check_owner(held: impl AsFd, owner: Option<u32>) -> io::Result<()> {
    let found = fstat(held)?.st_uid;
    match owner {
        Some(owner) if found != owner => Err(io::Error::other(format!(
            "it belongs to user {found}, but only files of user {owner}, who requested this, are used"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_files_of_the_owner_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("ca.pem"), "certificate").unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(read_of(&at("ca.pem"), Some(own)).unwrap(), b"certificate");
        assert_eq!(read_of(&at("ca.pem"), None).unwrap(), b"certificate");
        let refused = read_of(&at("ca.pem"), Some(own + 1)).unwrap_err().to_string();
        assert!(refused.contains(&format!("belongs to user {own}")), "{refused}");

        std::os::unix::fs::symlink(at("ca.pem"), at("link")).unwrap();
        assert!(read_of(&at("link"), Some(own)).is_err(), "a link may lead anywhere");
        assert!(read_of(dir.path(), Some(own)).is_err(), "a folder");
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).unwrap();
        assert!(read_of(&at("pipe"), Some(own)).is_err(), "no process writes to it");
        let large = File::create(at("large")).unwrap();
        large.set_len(CERTIFICATES_MAX + 1).unwrap();
        assert!(read_of(&at("large"), Some(own)).is_err());
    }
}
