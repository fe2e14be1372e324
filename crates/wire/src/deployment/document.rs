//! Deployments as responses.

use std::collections::BTreeMap;

use muster_core::model::{Deployed, Deployment, LeftOut, Operation, OperationStatus};
use muster_core::time::{Span, Wall};
use serde::{Deserialize, Serialize};

use crate::JsonText;
use crate::error::{ArmError, ErrorDetail};
use crate::json::shorten;
use crate::operation::{self, OperationDocument};
use crate::{odata, timestamp};

const KIND: &str = "Microsoft.Resources/deployments";
/// The status and the error code of a resource that Muster does not create.
const NOT_MADE: &str = "NotMadeHere";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentDocument {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub properties: DeploymentProperties,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentProperties {
    /// `Running`, `Succeeded`, `Failed` or `Canceled`.
    pub provisioning_state: String,
    #[serde(default)]
    pub correlation_id: Option<String>,
    #[serde(default)]
    pub timestamp: Option<String>,
    #[serde(default)]
    pub duration: Option<String>,
    pub mode: String,
    #[serde(default)]
    pub template_hash: Option<String>,
    #[serde(default)]
    pub outputs: Option<JsonText>,
    /// The resources that were created or updated.
    #[serde(default)]
    pub output_resources: Vec<ResourceReference>,
    #[serde(default)]
    pub providers: Vec<ProviderReference>,
    #[serde(default)]
    pub dependencies: Vec<ResourceReference>,
    /// A warning for each resource that was left out.
    #[serde(default)]
    pub diagnostics: Vec<Diagnostic>,
    /// Why the deployment failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDetail>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceReference {
    pub id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderReference {
    pub namespace: String,
    pub resource_types: Vec<TypeReference>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TypeReference {
    pub resource_type: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    pub level: String,
    pub code: String,
    pub message: String,
    pub target: String,
}

impl DeploymentDocument {
    pub fn is_in(&self, state: &str) -> bool {
        self.properties.provisioning_state.eq_ignore_ascii_case(state)
    }
}

/// The state that a list is filtered by: `provisioningState eq 'Succeeded'`.
pub fn filter(text: &str) -> Result<String, ArmError> {
    odata::equal_to(text, "provisioningState").ok_or_else(|| {
        let text = shorten(text);
        let message =
            format!("$filter is '{text}'; give provisioningState eq 'Succeeded', or leave it out");
        ArmError::invalid_property("$filter", message)
    })
}

/// A deployment, together with the progress of the operations that it started.
#[derive(Debug, Clone)]
pub struct Progress<'a> {
    pub deployment: &'a Deployment,
    /// The operations of the deployment's resources that are still on record.
    pub operations: &'a [Operation],
    pub now: Wall,
}

impl Progress<'_> {
    /// The operation of a resource, if it is still on record. Operations that did not succeed are kept forever, so a
    /// missing one succeeded.
    fn operation(&self, made: &Deployed) -> Option<&Operation> {
        self.operations.iter().find(|known| Some(known.id) == made.operation)
    }

    /// When the operation of a resource ended; `None` while it is still running.
    fn ended(&self, made: &Deployed) -> Option<Wall> {
        self.operation(made).map_or(Some(self.deployment.at), |operation| operation.ended_at)
    }

    fn all_ended(&self) -> Option<Wall> {
        let mut ends = self.deployment.made.iter().map(|made| self.ended(made));
        ends.try_fold(self.deployment.at, |latest, end| Some(latest.max(end?)))
    }

    fn status_of(&self, made: &Deployed) -> OperationStatus {
        self.operation(made).map_or(OperationStatus::Succeeded, |operation| operation.status)
    }

    /// A resource that fails does not stop the others, so the deployment waits for all of them.
    fn whole(&self) -> OperationStatus {
        let all = || self.deployment.made.iter().map(|made| self.status_of(made));
        let worst =
            [OperationStatus::InProgress, OperationStatus::Failed, OperationStatus::Canceled];
        let found = worst.into_iter().find(|status| all().any(|seen| seen == *status));
        found.unwrap_or(OperationStatus::Succeeded)
    }

    /// Why a resource failed.
    fn error_of(&self, made: &Deployed) -> Option<ErrorDetail> {
        let error = operation::document(self.operation(made)?).error?;
        Some(ErrorDetail { target: Some(made.resource.to_string()), ..error })
    }

    /// There is no error while an operation is still running, because clients treat an error as the end.
    fn error(&self) -> Option<ErrorDetail> {
        let (code, what) = match self.whole() {
            OperationStatus::InProgress | OperationStatus::Succeeded => return None,
            OperationStatus::Failed => ("DeploymentFailed", "failed"),
            OperationStatus::Canceled => ("DeploymentCanceled", "were canceled"),
        };
        let details: Vec<ErrorDetail> =
            self.deployment.made.iter().filter_map(|made| self.error_of(made)).collect();
        let message = format!(
            "{} of {} resources {what}; see details for the reasons; the other resources exist and are kept",
            details.len(),
            self.deployment.made.len()
        );
        Some(ErrorDetail { details, ..ErrorDetail::new(code, message) })
    }

    fn duration(&self, ended: Option<Wall>) -> String {
        duration(Span(ended.unwrap_or(self.now).0.saturating_sub(self.deployment.at.0)))
    }
}

/// Azure's clients split the text at the dot, so there always is one.
fn duration(span: Span) -> String {
    format!("PT{}.{:06}S", span.0 / 1_000_000, span.0 % 1_000_000)
}

fn state(status: OperationStatus) -> &'static str {
    match status {
        OperationStatus::InProgress => "Running",
        OperationStatus::Succeeded => "Succeeded",
        OperationStatus::Failed => "Failed",
        OperationStatus::Canceled => "Canceled",
    }
}

pub fn document(progress: &Progress<'_>) -> DeploymentDocument {
    let deployment = progress.deployment;
    let ended = progress.all_ended();
    let mut types: BTreeMap<&str, Vec<TypeReference>> = BTreeMap::new();
    for made in &deployment.made {
        let (namespace, rest) = made.kind.split_once('/').unwrap_or((&made.kind, ""));
        let found = types.entry(namespace).or_default();
        let reference = TypeReference { resource_type: rest.to_owned() };
        if !found.contains(&reference) {
            found.push(reference);
        }
    }
    let providers = types.into_iter().map(|(namespace, resource_types)| ProviderReference {
        namespace: namespace.to_owned(),
        resource_types,
    });
    DeploymentDocument {
        id: id(deployment),
        name: deployment.name.to_string(),
        kind: KIND.to_owned(),
        properties: DeploymentProperties {
            provisioning_state: state(progress.whole()).to_owned(),
            correlation_id: Some(deployment.correlation.to_string()),
            timestamp: Some(timestamp::format(ended.unwrap_or(deployment.at))),
            duration: Some(progress.duration(ended)),
            mode: "Incremental".to_owned(),
            template_hash: Some(deployment.template_hash.to_string()),
            outputs: deployment.outputs.as_deref().and_then(JsonText::new),
            output_resources: deployment
                .made
                .iter()
                .map(|made| ResourceReference { id: made.resource.to_string() })
                .collect(),
            providers: providers.collect(),
            dependencies: Vec::new(),
            diagnostics: deployment.left_out.iter().map(diagnostic).collect(),
            error: progress.error(),
        },
    }
}

fn id(deployment: &Deployment) -> String {
    let Deployment { subscription, resource_group, name, .. } = deployment;
    format!("/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/{KIND}/{name}")
}

pub(super) fn diagnostic(left_out: &LeftOut) -> Diagnostic {
    Diagnostic {
        level: "Warning".to_owned(),
        code: NOT_MADE.to_owned(),
        message: why_not(left_out),
        target: left_out.resource.to_string(),
    }
}

fn why_not(left_out: &LeftOut) -> String {
    let kind = &left_out.kind;
    if kind.to_ascii_lowercase().ends_with("roleassignments") {
        return format!(
            "{kind} was left out, so no role was assigned; assign roles with muster role assignment create"
        );
    }
    format!(
        "{kind} was left out: Muster does not use it, and workspaces and computes work without it"
    )
}

/// The status of a deployment, for clients that wait for it.
pub fn status(progress: &Progress<'_>) -> OperationDocument {
    let (deployment, ended) = (progress.deployment, progress.all_ended());
    OperationDocument {
        name: Some(deployment.id.to_string()),
        status: match progress.whole() {
            OperationStatus::InProgress => "InProgress",
            over => state(over),
        }
        .to_owned(),
        start_time: Some(timestamp::format(deployment.at)),
        end_time: ended.map(timestamp::format),
        error: progress.error(),
    }
}

/// One resource of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationLine {
    pub id: String,
    pub operation_id: String,
    pub properties: LineProperties,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LineProperties {
    pub provisioning_operation: String,
    pub provisioning_state: String,
    pub timestamp: String,
    pub duration: String,
    pub status_code: String,
    /// Says that the resource was left out, or why it failed.
    #[serde(default)]
    pub status_message: Option<StatusMessage>,
    pub target_resource: TargetResource,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusMessage {
    pub status: String,
    pub error: ErrorDetail,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetResource {
    pub id: String,
    pub resource_type: String,
    pub resource_name: String,
}

/// The resource, its type, when it was ready, how it ended, the HTTP status as a word, and a message.
type Line<'a> =
    (&'a str, &'a str, Option<Wall>, OperationStatus, &'static str, Option<StatusMessage>);

/// Everything in the template. The resources that were left out come first, because the others usually depend on them.
pub fn operations(progress: &Progress<'_>) -> Vec<OperationLine> {
    let deployment = progress.deployment;
    let left_out = deployment.left_out.iter().map(|left_out| {
        let error = ErrorDetail::new(NOT_MADE, why_not(left_out));
        let message = StatusMessage { status: NOT_MADE.to_owned(), error };
        let (at, done) = (Some(deployment.at), OperationStatus::Succeeded);
        (&*left_out.resource, &*left_out.kind, at, done, "NoContent", Some(message))
    });
    let made = deployment.made.iter().map(|made| {
        let (ended, status) = (progress.ended(made), progress.status_of(made));
        let code = match (status, made.is_new) {
            (OperationStatus::InProgress, _) => "Accepted",
            (OperationStatus::Failed | OperationStatus::Canceled, _) => "Conflict",
            (OperationStatus::Succeeded, true) => "Created",
            (OperationStatus::Succeeded, false) => "OK",
        };
        let message = progress
            .error_of(made)
            .map(|error| StatusMessage { status: state(status).to_owned(), error });
        (&*made.resource, &*made.kind, ended, status, code, message)
    });
    let line = |(index, line): (usize, Line<'_>)| {
        let (resource, kind, ended, status, code, status_message) = line;
        let operation_id = format!("{:016X}", index + 1);
        OperationLine {
            id: format!("{}/operations/{operation_id}", id(deployment)),
            operation_id,
            properties: LineProperties {
                provisioning_operation: "Create".to_owned(),
                provisioning_state: state(status).to_owned(),
                timestamp: timestamp::format(ended.unwrap_or(deployment.at)),
                duration: progress.duration(ended),
                status_code: code.to_owned(),
                status_message,
                target_resource: TargetResource {
                    id: resource.to_string(),
                    resource_type: kind.to_string(),
                    resource_name: resource.rsplit('/').next().unwrap_or_default().to_owned(),
                },
            },
        }
    };
    left_out.chain(made).enumerate().map(line).collect()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidationDocument {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub properties: ValidationProperties,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ValidationProperties {
    pub provisioning_state: String,
    pub mode: String,
    pub template_hash: String,
    pub timestamp: String,
    pub correlation_id: String,
    #[serde(default)]
    pub validated_resources: Vec<ResourceReference>,
    #[serde(default)]
    pub diagnostics: Vec<Diagnostic>,
}

/// The response for a template that could be deployed.
pub fn validation(tried: &Deployment) -> ValidationDocument {
    let made = tried.made.iter().map(|made| &made.resource);
    let left_out = tried.left_out.iter().map(|left_out| &left_out.resource);
    ValidationDocument {
        id: id(tried),
        name: tried.name.to_string(),
        kind: KIND.to_owned(),
        properties: ValidationProperties {
            provisioning_state: "Succeeded".to_owned(),
            mode: "Incremental".to_owned(),
            template_hash: tried.template_hash.to_string(),
            timestamp: timestamp::format(tried.at),
            correlation_id: tried.correlation.to_string(),
            validated_resources: left_out
                .chain(made)
                .map(|id| ResourceReference { id: id.to_string() })
                .collect(),
            diagnostics: tried.left_out.iter().map(diagnostic).collect(),
        },
    }
}
