//! The response to a request to evict a low-priority node.

use muster_core::time::Span;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    pub node_id: String,
    /// How long the jobs on the node have left; 0 if there are none.
    pub seconds: u64,
}

impl Eviction {
    pub fn new(node: &str, within: Span) -> Eviction {
        Eviction { node_id: node.to_owned(), seconds: within.as_seconds() }
    }
}
