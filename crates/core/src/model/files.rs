//! Files that a job brings, and leaves to its next attempt. Their bytes and their lists are elsewhere; here are only
//! their names.

use serde::{Deserialize, Serialize};

use super::TreeId;
use crate::ids::{Epoch, JobId, WorkspaceId};
use crate::time::Wall;

/// Where every job may leave its results, below its working folder. Azure's name for it.
pub const OUTPUTS_FOLDER: &str = "outputs";
/// The same for what programs log to files. Azure's name for it, too.
pub const LOGS_FOLDER: &str = "logs";
/// Where `${{outputs.x}}` lead, below its working folder: one folder each.
pub const NAMED_OUTPUTS_FOLDER: &str = ".outputs";

pub const PATH_BYTES_MAX: usize = 1_024;
/// What Linux takes for one name.
const NAME_BYTES_MAX: usize = 255;
const DEPTH_MAX: usize = 64;

/// What one member of a job left last: it finds it again in its next attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTree {
    pub job: JobId,
    pub rank: u32,
    pub workspace: WorkspaceId,
    pub epoch: Epoch,
    /// Which try it is from.
    pub attempt: u32,
    pub tree: TreeId,
    pub files: u32,
    pub bytes: u64,
    /// It had ended well, and this is all of it.
    #[serde(default)]
    pub is_final: bool,
    pub at: Wall,
}

/// Why a path is none of a file below a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    #[error("is empty")]
    Empty,
    #[error("is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
    #[error("has a control character in it")]
    Control,
    #[error("is not below the folder")]
    Absolute,
    #[error("has an empty name in it")]
    EmptyName,
    #[error("has '.' or '..' in it")]
    Dots,
    #[error("has a name of more than {NAME_BYTES_MAX} bytes in it")]
    LongName,
    #[error("is more than {DEPTH_MAX} folders deep")]
    TooDeep,
}

/// Whether a path stays below the folder that it is put into.
pub fn check_path(path: &str) -> Result<(), BadPath> {
    if path.is_empty() {
        return Err(BadPath::Empty);
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(BadPath::TooLong);
    }
    if path.chars().any(char::is_control) {
        return Err(BadPath::Control);
    }
    if path.starts_with('/') {
        return Err(BadPath::Absolute);
    }
    for name in path.split('/') {
        match name {
            "" => return Err(BadPath::EmptyName),
            "." | ".." => return Err(BadPath::Dots),
            name if name.len() > NAME_BYTES_MAX => return Err(BadPath::LongName),
            _ => {}
        }
    }
    if path.split('/').count() > DEPTH_MAX {
        return Err(BadPath::TooDeep);
    }
    Ok(())
}
