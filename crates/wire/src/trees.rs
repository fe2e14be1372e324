//! Files on their way: what the server still misses of a list of them.

use muster_core::model::BlobId;
use serde::{Deserialize, Serialize};

/// The answer to a list of files. Once nothing is missing, the list is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub missing: Vec<BlobId>,
}
