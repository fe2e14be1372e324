//! Computes as azureml-core (SDK v1) reads them: the same JSON, but keys whose value it parses whenever they are
//! present must be absent instead of `null`.

use serde::Serialize;
use serde_json::{Map, Value};

use super::ComputeDocument;

const ABSENT_RATHER_THAN_NULL: [&str; 5] = [
    "identity",
    "userAccountCredentials",
    "createdOn",
    "modifiedOn",
    "allocationStateTransitionTime",
];

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct V1Compute(Value);

/// A page. The link to the next page is absent on the last one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct V1Computes {
    pub value: Vec<V1Compute>,
    #[serde(rename = "nextLink", skip_serializing_if = "Option::is_none")]
    pub next_link: Option<String>,
}

pub fn v1_document(document: &ComputeDocument) -> V1Compute {
    // Our own types can always be serialised.
    let mut value = serde_json::to_value(document).unwrap_or(Value::Null);
    if let Value::Object(resource) = &mut value {
        drop_nulls(resource);
    }
    V1Compute(value)
}

/// Applies to the resource, its properties, and the properties of its kind.
fn drop_nulls(object: &mut Map<String, Value>) {
    for key in ABSENT_RATHER_THAN_NULL {
        if object.get(key).is_some_and(Value::is_null) {
            object.remove(key);
        }
    }
    if let Some(Value::Object(inner)) = object.get_mut("properties") {
        drop_nulls(inner);
    }
}
