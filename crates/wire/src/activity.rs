//! The activity log as Azure Monitor shows it. The names of its operations are in the table of routes.

mod filter;
mod record;

use std::collections::BTreeMap;

pub use filter::ActivityFilter;
use muster_core::model::{Activity, ActivityOutcome, Scope};
use serde::{Deserialize, Serialize};

use crate::timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivityDocument {
    pub id: String,
    pub event_data_id: String,
    pub correlation_id: String,
    pub operation_id: String,
    pub caller: String,
    pub channels: String,
    /// `Informational` or `Error`.
    pub level: String,
    pub category: Named,
    pub event_name: Named,
    pub operation_name: Named,
    pub status: Named,
    pub sub_status: Named,
    pub event_timestamp: String,
    pub submission_timestamp: String,
    #[serde(default)]
    pub subscription_id: String,
    #[serde(default)]
    pub resource_group_name: String,
    pub resource_id: String,
    pub resource_provider_name: Named,
    pub resource_type: Named,
    pub authorization: Authorization,
    /// `before` and `after` are documents as text; `number` and `digest` are the record's position in the chain.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Named {
    pub value: String,
    pub localized_value: String,
}

impl Named {
    fn new(value: &str) -> Named {
        Named { value: value.to_owned(), localized_value: value.to_owned() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authorization {
    pub action: String,
    pub scope: String,
}

/// `number` and `digest` are the record's position in the chain.
pub fn document(activity: &Activity, number: u64, digest: &str) -> ActivityDocument {
    let activity_request = &activity.request;
    let mut properties = BTreeMap::new();
    properties.insert("number".to_owned(), number.to_string());
    properties.insert("digest".to_owned(), digest.to_owned());
    properties.insert("callerObjectId".to_owned(), activity.by.object_id.to_string());
    let (status, sub_status) = match &activity.outcome {
        ActivityOutcome::Done { before, after } => {
            for (key, record) in [("before", before), ("after", after)] {
                if let Some(record) = record {
                    properties.insert(key.to_owned(), record::text(record));
                }
            }
            ("Succeeded", String::new())
        }
        ActivityOutcome::Refused { status, code, message } => {
            properties.insert("statusCode".to_owned(), code.to_string());
            properties.insert("statusMessage".to_owned(), message.to_string());
            ("Failed", format!("{code} (HTTP Status Code: {status})"))
        }
    };
    let at = timestamp::format(activity.at);
    let kind = activity_request
        .operation
        .rsplit_once('/')
        .map_or(&*activity_request.operation, |(kind, _)| kind);
    let (subscription, group) = home(&activity_request.scope);
    ActivityDocument {
        id: format!("{}/events/{number}", activity_request.resource),
        event_data_id: format!(
            "00000000-0000-0000-{:04x}-{:012x}",
            number >> 48,
            number & 0xffff_ffff_ffff
        ),
        correlation_id: activity_request.correlation.to_string(),
        operation_id: activity_request.correlation.to_string(),
        caller: activity.by.name.to_string(),
        channels: "Operation".to_owned(),
        level: if status == "Failed" { "Error" } else { "Informational" }.to_owned(),
        category: Named::new("Administrative"),
        event_name: Named::new("EndRequest"),
        operation_name: Named::new(&activity_request.operation),
        status: Named::new(status),
        sub_status: Named::new(&sub_status),
        event_timestamp: at.clone(),
        submission_timestamp: at,
        subscription_id: subscription.to_owned(),
        resource_group_name: group.to_owned(),
        resource_id: activity_request.resource.to_string(),
        resource_provider_name: Named::new(kind.split('/').next().unwrap_or(kind)),
        resource_type: Named::new(kind),
        authorization: Authorization {
            action: activity_request.operation.to_string(),
            scope: activity_request.scope.to_string(),
        },
        properties,
    }
}

/// The subscription and the resource group of a scope, empty where it has none.
fn home(scope: &Scope) -> (&str, &str) {
    match scope {
        Scope::Everything => ("", ""),
        Scope::Subscription(subscription) => (subscription, ""),
        Scope::Group { subscription, resource_group } => (subscription, resource_group),
        Scope::Workspace(key) | Scope::Compute { workspace: key, .. } => {
            (&key.subscription, &key.resource_group)
        }
    }
}

/// Whether the log is intact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChainDocument {
    pub entries: u64,
    /// If you keep a copy of this digest, you can prove later that no record up to here was changed.
    pub head: String,
    /// The number of the first record that does not follow from the one before; `None` if the chain is intact.
    #[serde(default)]
    pub broken_at: Option<u64>,
}
