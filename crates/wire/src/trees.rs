//! File uploads: which files of a list the server does not have yet.

use muster_core::model::BlobId;
use serde::{Deserialize, Serialize};

/// The response to a file list. Once nothing is missing, the list is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub missing: Vec<BlobId>,
}
