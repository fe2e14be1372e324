//! The answer to somebody who takes a low-priority node away.

use muster_core::time::Span;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    pub node_id: String,
    /// How long what runs there has; 0 if nothing does.
    pub seconds: u64,
}

impl Eviction {
    pub fn new(node: &str, within: Span) -> Eviction {
        Eviction { node_id: node.to_owned(), seconds: within.as_seconds() }
    }
}
