//! Who created a resource, and when.

use muster_core::time::Wall;
use serde::{Deserialize, Serialize};

use crate::timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemData {
    #[serde(default)]
    pub created_at: Option<String>,
    #[serde(default)]
    pub created_by: Option<String>,
    #[serde(default)]
    pub created_by_type: Option<String>,
    #[serde(default)]
    pub last_modified_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified_by_type: Option<String>,
}

impl SystemData {
    pub fn new(created_at: Wall, created_by: Option<&str>, modified_at: Wall) -> SystemData {
        SystemData {
            created_at: Some(timestamp::format(created_at)),
            created_by: created_by.map(str::to_owned),
            created_by_type: created_by.map(|_| "User".to_owned()),
            last_modified_at: Some(timestamp::format(modified_at)),
            last_modified_by: None,
            last_modified_by_type: None,
        }
    }

    /// Adds the user who changed the resource last, where that is known.
    pub fn modified_by(self, name: &str) -> SystemData {
        SystemData {
            last_modified_by: Some(name.to_owned()),
            last_modified_by_type: Some("User".to_owned()),
            ..self
        }
    }
}
