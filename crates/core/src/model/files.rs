//! The files that a job brings and passes on to its next attempt. This module only names them; their bytes and lists
//! are stored elsewhere.

use serde::{Deserialize, Serialize};

use super::TreeId;
use crate::ids::{Epoch, JobId, WorkspaceId};
use crate::time::Wall;

/// The folder for results, below the working folder of every job. The name is Azure's.
pub const OUTPUTS_FOLDER: &str = "outputs";
/// The folder for log files of programs. This name is Azure's, too.
pub const LOGS_FOLDER: &str = "logs";
/// The folder, below the working folder, that contains one folder for each `${{outputs.x}}`.
pub const NAMED_OUTPUTS_FOLDER: &str = ".outputs";

pub const PATH_BYTES_MAX: usize = 1_024;
/// The longest file name that Linux accepts.
const NAME_BYTES_MAX: usize = 255;
const DEPTH_MAX: usize = 64;

/// The files that one member of a job saved last. It finds them again in its next attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTree {
    pub job: JobId,
    pub rank: u32,
    pub workspace: WorkspaceId,
    pub epoch: Epoch,
    /// The number of the attempt that they are from.
    pub attempt: u32,
    pub tree: TreeId,
    pub files: u32,
    pub bytes: u64,
    /// The member had succeeded, and these are all of its files.
    #[serde(default)]
    pub is_final: bool,
    pub at: Wall,
}

/// Why a path does not name a file below a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    #[error("is empty")]
    Empty,
    #[error("is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
    #[error("contains a control character")]
    Control,
    #[error("is not below the folder")]
    Absolute,
    #[error("contains an empty name")]
    EmptyName,
    #[error("contains '.' or '..'")]
    Dots,
    #[error("contains a name longer than {NAME_BYTES_MAX} bytes")]
    LongName,
    #[error("is more than {DEPTH_MAX} folders deep")]
    TooDeep,
}

/// Checks that a path stays below the folder that it is placed in.
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
