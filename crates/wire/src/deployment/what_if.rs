//! The changes that a template would make, property by property.

use muster_core::model::{Deployment, Record};
use muster_core::{ClusterPatch, Foreseen};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::document::{Diagnostic, diagnostic};
use crate::JsonText;
use crate::compute::{request_value, without_nulls};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIfDocument {
    pub status: String,
    pub properties: WhatIfProperties,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIfProperties {
    pub changes: Vec<WhatIfChange>,
    #[serde(default)]
    pub diagnostics: Vec<Diagnostic>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfChange {
    pub resource_id: String,
    /// `Create`, `Modify`, `NoChange`, or `Ignore` for a resource that is left out.
    pub change_type: String,
    /// The properties that can be requested, in the form of a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<JsonText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<JsonText>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delta: Vec<PropertyChange>,
}

/// Clients expect both values to be present, and read `null` as none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PropertyChange {
    pub path: String,
    /// `Create`, `Modify` or `Delete`.
    pub property_change_type: String,
    pub before: Option<JsonText>,
    pub after: Option<JsonText>,
}

pub fn what_if(tried: &Deployment, foreseen: &[Foreseen]) -> WhatIfDocument {
    let made = tried.made.iter().map(|made| {
        let known = foreseen.iter().find(|known| known.resource == made.resource);
        change(&made.resource, known)
    });
    let left_out = tried.left_out.iter().map(|left_out| bare(&left_out.resource, "Ignore"));
    WhatIfDocument {
        status: "Succeeded".to_owned(),
        properties: WhatIfProperties {
            changes: made.chain(left_out).collect(),
            diagnostics: tried.left_out.iter().map(diagnostic).collect(),
        },
    }
}

fn bare(resource: &str, change_type: &str) -> WhatIfChange {
    WhatIfChange {
        resource_id: resource.to_owned(),
        change_type: change_type.to_owned(),
        before: None,
        after: None,
        delta: Vec::new(),
    }
}

fn change(resource: &str, foreseen: Option<&Foreseen>) -> WhatIfChange {
    let Some(foreseen) = foreseen else { return bare(resource, "NoChange") };
    let shown = |record: &Option<Record>| record.as_ref().map(|it| shape(resource, it));
    let (before, after) = (shown(&foreseen.before), shown(&foreseen.after));
    let mut delta = Vec::new();
    if let (Some(before), Some(after)) = (&before, &after) {
        compare("", before, after, &mut delta);
    }
    let change_type = match &before {
        None => "Create",
        Some(_) if delta.is_empty() => "NoChange",
        Some(_) => "Modify",
    };
    let text = |value: Option<Value>| value.as_ref().and_then(text);
    WhatIfChange { before: text(before), after: text(after), delta, ..bare(resource, change_type) }
}

fn text(value: &Value) -> Option<JsonText> {
    JsonText::new(&value.to_string())
}

/// The resource in the form of a template, without the properties that only the server sets.
fn shape(resource: &str, record: &Record) -> Value {
    let mut shape = match record {
        Record::Compute { spec, .. } => request_value(&ClusterPatch::of(spec), None),
        Record::Workspace { location, about, .. } => without_nulls(json!({
            "location": location,
            "tags": about.tags,
            "properties": {
                "friendlyName": about.friendly_name,
                "description": about.description,
            },
        })),
        // Templates create no other resources.
        Record::Group(_) | Record::Lock(_) | Record::Quota(_) | Record::User { .. } => json!({}),
        Record::Role(_) | Record::Host { .. } => json!({}),
    };
    shape["id"] = json!(resource);
    shape["name"] = json!(resource.rsplit('/').next());
    shape
}

/// A list is compared as one value, because its items cannot be matched reliably.
fn compare(path: &str, before: &Value, after: &Value, delta: &mut Vec<PropertyChange>) {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        if before != after {
            delta.push(property(path, Some(before), Some(after)));
        }
        return;
    };
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    for (key, before) in old {
        match new.get(key) {
            Some(after) => compare(&below(key), before, after, delta),
            None => delta.push(property(&below(key), Some(before), None)),
        }
    }
    for (key, after) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
        delta.push(property(&below(key), None, Some(after)));
    }
}

fn property(path: &str, before: Option<&Value>, after: Option<&Value>) -> PropertyChange {
    let kind = match (before, after) {
        (None, _) => "Create",
        (_, None) => "Delete",
        _ => "Modify",
    };
    PropertyChange {
        path: path.to_owned(),
        property_change_type: kind.to_owned(),
        before: before.and_then(text),
        after: after.and_then(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_named_by_its_path_and_nothing_else_is() {
        let before =
            json!({"same": 1, "tags": {"a": "b", "old": "x"}, "list": [1], "deep": {"n": 2}});
        let after =
            json!({"same": 1, "tags": {"a": "c", "new": "y"}, "list": [2], "deep": {"n": 2}});
        let mut delta = Vec::new();
        compare("", &before, &after, &mut delta);
        let mut found: Vec<String> = delta
            .iter()
            .map(|it| {
                let value = |side: &Option<JsonText>| {
                    side.as_ref().map_or("-".to_owned(), |it| it.as_str().to_owned())
                };
                let (before, after) = (value(&it.before), value(&it.after));
                format!("{} {} {before} {after}", it.property_change_type, it.path)
            })
            .collect();
        found.sort();
        assert_eq!(
            found,
            [
                "Create tags.new - \"y\"",
                "Delete tags.old \"x\" -",
                "Modify list [1] [2]",
                "Modify tags.a \"b\" \"c\"",
            ]
        );
        delta.clear();
        compare("", &before, &before.clone(), &mut delta);
        assert_eq!(delta, []);
    }
}
