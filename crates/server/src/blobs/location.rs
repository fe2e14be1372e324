//! Decides whether bytes are stored in the local folder or in an object store, and refuses to switch to another place.

use std::fs;
use std::io;
use std::path::Path;

use muster_core::ids::WorkspaceId;

use crate::pki::files;

/// A file in the local folder that contains the address of the object store in use.
const MARK: &str = crate::state_dir::names::ELSEWHERE_IN_BLOBS;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the object store {address:?} cannot be used: {why}; give blob-store as s3://BUCKET/PREFIX, az://CONTAINER/PREFIX \
         or gs://BUCKET/PREFIX, and its credentials in the usual environment variables (AWS_…, AZURE_…, GOOGLE_…)"
    )]
    Address { address: String, why: String },
    #[error(
        "blob-store is {address:?}, but this binary was built without support for object stores; build it with \
         `--features object-store`"
    )]
    NotBuilt { address: String },
    #[error(
        "the bytes of blobs are in {was}, but blob-store says {now}; set it back, or move them there under the same names \
         and then write that address into {mark}"
    )]
    Moved { was: String, now: String, mark: String },
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    File(#[from] files::FileError),
}

/// Records where bytes are stored, and refuses another place, because referenced bytes would be lost.
pub fn claim(root: &Path, elsewhere: Option<&str>) -> Result<(), OpenError> {
    let mark = root.join(MARK);
    let was = match fs::read_to_string(&mark) {
        Ok(text) => Some(text.trim().to_owned()),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => None,
        Err(other) => return Err(other.into()),
    };
    let is_same = was.as_deref() == elsewhere;
    if is_same {
        return Ok(());
    }
    let here = || format!("the folder {}", root.display());
    if was.is_some() || has_files(root)? {
        return Err(OpenError::Moved {
            was: was.unwrap_or_else(here),
            now: elsewhere.map_or_else(here, str::to_owned),
            mark: mark.display().to_string(),
        });
    }
    fs::create_dir_all(root)?;
    let text = elsewhere.unwrap_or_default();
    Ok(files::write(&mark, text.as_bytes(), 0o600)?)
}

fn has_files(root: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(other) => return Err(other),
    };
    for entry in entries {
        if entry?.file_name().to_string_lossy().parse::<WorkspaceId>().is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKET: &str = "s3://bucket/prefix";

    #[test]
    fn bytes_stay_where_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let fresh = dir.path().join("fresh");
        claim(&fresh, Some(BUCKET)).unwrap();
        claim(&fresh, Some(BUCKET)).unwrap();
        assert!(matches!(claim(&fresh, None), Err(OpenError::Moved { .. })));
        let other = claim(&fresh, Some("gs://bucket")).unwrap_err().to_string();
        assert!(other.contains(BUCKET) && other.contains("gs://bucket"), "{other}");

        let used = dir.path().join("used");
        claim(&used, None).unwrap();
        fs::create_dir_all(used.join(WorkspaceId(7).to_string())).unwrap();
        claim(&used, None).unwrap();
        assert!(matches!(claim(&used, Some(BUCKET)), Err(OpenError::Moved { .. })));
    }
}
