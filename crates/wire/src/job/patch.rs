//! Changes to a job after its submission: the body of a PATCH of its run.

use std::collections::BTreeMap;

use muster_core::JobPatch;

use super::property;
use crate::error::ArmError;
use crate::json::{Field, parse_object};

const BODY_BYTES_MAX: usize = 256 * 1024;

/// Other properties in the body belong to run history and are ignored.
pub fn parse_patch(body: &[u8]) -> Result<JobPatch, ArmError> {
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let run = Field::root(&value);
    let map = |name: &str| -> Result<BTreeMap<String, String>, ArmError> {
        Ok(run.get(name)?.string_map()?.unwrap_or_default())
    };
    let mut properties = map("properties")?;
    // Clients send back the properties that they read.
    properties.retain(|key, _| !key.starts_with(property::OURS));
    Ok(JobPatch {
        display_name: run.get("displayName")?.text()?,
        description: run.get("description")?.text()?,
        tags: map("tags")?,
        properties,
        is_archived: run.get("hidden")?.boolean()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_changes() {
        let patch = parse_patch(br#"{"hidden": true}"#).unwrap();
        assert_eq!(patch, JobPatch { is_archived: Some(true), ..JobPatch::default() });
        let body = br#"{"displayName": "new", "tags": {"a": "1", "b": null}, "description": null,
                        "properties": {"muster.attempts": "1", "mine": "x"}}"#;
        let patch = parse_patch(body).unwrap();
        assert_eq!(patch.display_name.as_deref(), Some("new"));
        assert_eq!(patch.description, None);
        assert_eq!(patch.tags.len(), 1);
        assert_eq!(patch.properties.keys().collect::<Vec<_>>(), ["mine"]);
        for bad in ["", "[]", r#"{"hidden": "yes"}"#, r#"{"tags": []}"#, r#"{"tags": {"a": 1}}"#] {
            assert_eq!(parse_patch(bad.as_bytes()).unwrap_err().status, 400, "{bad}");
        }
    }
}
