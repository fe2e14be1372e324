//! The activity log as Azure Monitor shows it, and the names of its operations.

mod filter;
mod record;

use std::collections::BTreeMap;

pub use filter::ActivityFilter;
use muster_core::model::{Activity, ActivityOutcome, Scope};
use serde::{Deserialize, Serialize};

use crate::path::{
    AccessRoute, ComputeAction, DeploymentRoute, GovernanceRoute, HistoryRoute, HostRoute, Manager,
    Route, StorageRoute,
};
use crate::timestamp;

/// The operation that a request performs, in Azure's words; `None` if it changes nothing.
pub fn operation(method: &str, route: &Route) -> Option<String> {
    if matches!(method, "GET" | "HEAD") {
        return None;
    }
    let ml = |rest: &str| format!("Microsoft.MachineLearningServices/{rest}");
    let (kind, action) = match route {
        Route::Workspace(_) => (ml("workspaces"), None),
        Route::Compute { .. } => (ml("workspaces/computes"), None),
        Route::ComputeAction { action: ComputeAction::ListKeys, .. } => return None,
        Route::ComputeAction { action, .. } => (ml("workspaces/computes"), Some(action.as_str())),
        Route::Job { .. } => (ml("workspaces/jobs"), None),
        Route::EvictNode { .. } => {
            ("Muster.Rehearsal/computes/nodes".to_owned(), Some("evict"))
        }
        Route::JobCancel { .. } => (ml("workspaces/jobs"), Some("cancel")),
        Route::UpdateQuotas { .. } => (ml("locations/updateQuotas"), Some("")),
        Route::Access(route) => match route {
            AccessRoute::RoleAssignment { .. } => {
                ("Microsoft.Authorization/roleAssignments".to_owned(), None)
            }
            AccessRoute::User { .. } => ("Muster.Identity/users".to_owned(), None),
            AccessRoute::RotateKey { .. } => {
                ("Muster.Identity/users".to_owned(), Some("rotateKey"))
            }
            AccessRoute::RevokeKey { .. } => {
                ("Muster.Identity/users".to_owned(), Some("revokeKey"))
            }
            AccessRoute::Me
            | AccessRoute::Users
            | AccessRoute::RoleAssignments(_)
            | AccessRoute::RoleDefinitions(_) => return None,
        },
        Route::Hosts(HostRoute::Host { .. }) => ("Muster.Hosts/hosts".to_owned(), None),
        Route::Hosts(HostRoute::HostAction { action, .. }) => {
            ("Muster.Hosts/hosts".to_owned(), Some(action.as_str()))
        }
        Route::Hosts(HostRoute::HostToken) => ("Muster.Hosts/token".to_owned(), Some("")),
        Route::Governance(GovernanceRoute::Lock { .. }) => {
            ("Microsoft.Authorization/locks".to_owned(), None)
        }
        Route::History(HistoryRoute::Run { .. }) => (ml("workspaces/jobs"), None),
        Route::Storage(route) => match route {
            StorageRoute::Datastore { .. } => (ml("workspaces/datastores"), None),
            StorageRoute::DatastoreSecrets { .. } => {
                (ml("workspaces/datastores"), Some("listSecrets"))
            }
            StorageRoute::CollectGarbage => ("Muster.Storage/collectGarbage".to_owned(), Some("")),
            StorageRoute::Datastores(_) => return None,
        },
        Route::Assets(route) => {
            let (kind, activity_request) = route.operation()?;
            (ml(&format!("workspaces/{kind}")), activity_request)
        }
        Route::Deployments(DeploymentRoute::One { .. }) => {
            ("Microsoft.Resources/deployments".to_owned(), None)
        }
        Route::Manager(Manager::ResourceGroup { .. }) => {
            ("Microsoft.Resources/subscriptions/resourceGroups".to_owned(), None)
        }
        Route::Metadata
        | Route::Token
        | Route::Login(_)
        | Route::Discovery
        | Route::WorkspacesOfSubscription { .. }
        | Route::WorkspacesOfGroup { .. }
        | Route::WorkspaceAction { .. }
        | Route::Computes(_)
        | Route::ComputeNodes { .. }
        | Route::Jobs(_)
        | Route::Operation { .. }
        | Route::History(_)
        | Route::V1(_)
        | Route::Ledger(_)
        | Route::WorkspaceUsages(_)
        | Route::WhyJob { .. }
        | Route::WhyCompute { .. }
        | Route::PostMortems { .. }
        | Route::PostMortem { .. }
        | Route::JobAttempts { .. }
        | Route::JobCheck { .. }
        // Uploaded bytes and file lists have no effect by themselves; the job that uses them is recorded.
        | Route::Tree { .. }
        | Route::Blob { .. }
        | Route::Usages { .. }
        | Route::VmSizes { .. }
        | Route::Quotas { .. }
        | Route::Governance(_)
        | Route::Hosts(HostRoute::Hosts)
        // Validation and what-if change nothing.
        | Route::Deployments(_)
        | Route::Manager(_)
        | Route::Unknown => return None,
    };
    Some(match (action, method) {
        (Some(""), _) => format!("{kind}/action"),
        (Some(action), _) => format!("{kind}/{action}/action"),
        (None, "DELETE") => format!("{kind}/delete"),
        (None, _) => format!("{kind}/write"),
    })
}

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
