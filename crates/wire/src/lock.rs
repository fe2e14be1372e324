//! Locks, as in Azure.

use muster_core::model::{Lock, LockLevel};
use serde::{Deserialize, Serialize};

use crate::error::ArmError;
use crate::json::{Field, parse_object};

/// Room for a level and a note.
const BODY_BYTES_MAX: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockDocument {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub properties: LockProperties,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockProperties {
    /// `CanNotDelete` or `ReadOnly`.
    pub level: String,
    #[serde(default)]
    pub notes: Option<String>,
}

pub fn document(lock: &Lock) -> LockDocument {
    LockDocument {
        id: lock.id(),
        name: lock.name.to_string(),
        kind: "Microsoft.Authorization/locks".to_owned(),
        properties: LockProperties {
            level: lock.level.as_str().to_owned(),
            notes: lock.notes.as_deref().map(str::to_owned),
        },
    }
}

pub fn parse_request(body: &[u8]) -> Result<(LockLevel, Option<Box<str>>), ArmError> {
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let properties = Field::root(&value).get("properties")?;
    let level = properties.get("level")?;
    let levels = LockLevel::ALL.map(|level| (level.as_str(), level));
    let found = level.choice(&levels)?;
    let found = found.ok_or_else(|| level.missing("give CanNotDelete or ReadOnly"))?;
    Ok((found, properties.get("notes")?.text()?))
}

pub fn request_json(level: LockLevel, notes: Option<&str>) -> String {
    let properties =
        LockProperties { level: level.as_str().to_owned(), notes: notes.map(str::to_owned) };
    crate::to_json(&serde_json::json!({ "properties": properties }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_asked_for_as_azure_does_and_nothing_else_is_taken() {
        let body = request_json(LockLevel::ReadOnly, Some("why"));
        assert_eq!(parse_request(body.as_bytes()), Ok((LockLevel::ReadOnly, Some("why".into()))));
        let shouted = br#"{"properties":{"level":"CANNOTDELETE"}}"#;
        assert_eq!(parse_request(shouted), Ok((LockLevel::CanNotDelete, None)));
        for bad in [&b"{}"[..], br#"{"properties":{"level":"Nothing"}}"#, b"[]", b""] {
            assert_eq!(parse_request(bad).expect_err("the level is missing").status, 400);
        }
    }
}
