//! Deployments as answers.

use std::collections::BTreeMap;

use muster_core::model::{Deployed, Deployment, LeftOut, Operation};
use muster_core::time::{Span, Wall};
use serde::{Deserialize, Serialize};

use crate::JsonText;
use crate::error::{ArmError, ErrorDetail};
use crate::json::shorten;
use crate::operation::OperationDocument;
use crate::timestamp;

const KIND: &str = "Microsoft.Resources/deployments";
/// What a resource is told to be that nothing is made for.
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
    /// `Running` or `Succeeded`.
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
    /// What was made.
    #[serde(default)]
    pub output_resources: Vec<ResourceReference>,
    #[serde(default)]
    pub providers: Vec<ProviderReference>,
    #[serde(default)]
    pub dependencies: Vec<ResourceReference>,
    /// A warning for each resource that was left out.
    #[serde(default)]
    pub diagnostics: Vec<Diagnostic>,
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

/// The state that a list is asked for: `provisioningState eq 'Succeeded'`.
pub fn filter(text: &str) -> Result<String, ArmError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if let [name, eq, state] = words.as_slice()
        && name.eq_ignore_ascii_case("provisioningState")
        && eq.eq_ignore_ascii_case("eq")
        && let Some(state) = state.strip_prefix('\'').and_then(|state| state.strip_suffix('\''))
    {
        return Ok(state.to_owned());
    }
    Err(ArmError::invalid_property(
        "$filter",
        format!(
            "$filter is '{}'; give provisioningState eq 'Succeeded', or leave it out",
            shorten(text)
        ),
    ))
}

/// A deployment together with how far what it asked for is.
#[derive(Debug, Clone)]
pub struct Progress<'a> {
    pub deployment: &'a Deployment,
    /// Of the operations that it is waited for, those that are still known.
    pub operations: &'a [Operation],
    pub now: Wall,
}

impl Progress<'_> {
    /// When a resource was ready; `None` while it is not.
    fn ended(&self, made: &Deployed) -> Option<Wall> {
        let wanted = made.operation;
        match self.operations.iter().find(|known| Some(known.id) == wanted) {
            Some(operation) => operation.ended_at,
            // There was nothing to wait for, or it is long over.
            None => Some(self.deployment.at),
        }
    }

    fn all_ended(&self) -> Option<Wall> {
        let ends = self.deployment.made.iter().map(|made| self.ended(made));
        ends.fold(Some(self.deployment.at), |latest, end| Some(latest?.max(end?)))
    }

    fn duration(&self, ended: Option<Wall>) -> String {
        duration(Span(ended.unwrap_or(self.now).0.saturating_sub(self.deployment.at.0)))
    }
}

/// Azure's clients cut it at the dot, so there always is one.
fn duration(span: Span) -> String {
    format!("PT{}.{:06}S", span.0 / 1_000_000, span.0 % 1_000_000)
}

fn state(ended: Option<Wall>) -> String {
    if ended.is_some() { "Succeeded" } else { "Running" }.to_owned()
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
            provisioning_state: state(ended),
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
        },
    }
}

fn id(deployment: &Deployment) -> String {
    let Deployment { subscription, resource_group, name, .. } = deployment;
    format!("/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/{KIND}/{name}")
}

fn diagnostic(left_out: &LeftOut) -> Diagnostic {
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
            "{kind} was left out, no role was given: whoever needs one here gets it with muster role assignment create"
        );
    }
    format!("{kind} was left out: Muster uses none, and workspaces and computes work without it")
}

/// How a deployment goes, for whoever waits for it.
pub fn status(progress: &Progress<'_>) -> OperationDocument {
    let (deployment, ended) = (progress.deployment, progress.all_ended());
    OperationDocument {
        name: Some(deployment.id.to_string()),
        status: if ended.is_some() { "Succeeded" } else { "InProgress" }.to_owned(),
        start_time: Some(timestamp::format(deployment.at)),
        end_time: ended.map(timestamp::format),
        error: None,
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
    /// Says of what was left out that it was.
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

/// The resource, its type, when it was ready, and how it ended.
type Line<'a> = (&'a str, &'a str, Option<Wall>, &'static str, Option<StatusMessage>);

/// Everything that the template had, what was left out first: the rest seems to build on it.
pub fn operations(progress: &Progress<'_>) -> Vec<OperationLine> {
    let deployment = progress.deployment;
    let left_out = deployment.left_out.iter().map(|left_out| {
        let error = ErrorDetail::new(NOT_MADE, why_not(left_out));
        let message = StatusMessage { status: NOT_MADE.to_owned(), error };
        (&*left_out.resource, &*left_out.kind, Some(deployment.at), "NoContent", Some(message))
    });
    let made = deployment.made.iter().map(|made| {
        let ended = progress.ended(made);
        let code = match (ended, made.is_new) {
            (None, _) => "Accepted",
            (Some(_), true) => "Created",
            (Some(_), false) => "OK",
        };
        (&*made.resource, &*made.kind, ended, code, None)
    });
    let line = |(index, line): (usize, Line<'_>)| {
        let (resource, kind, ended, code, status_message) = line;
        let operation_id = format!("{:016X}", index + 1);
        OperationLine {
            id: format!("{}/operations/{operation_id}", id(deployment)),
            operation_id,
            properties: LineProperties {
                provisioning_operation: "Create".to_owned(),
                provisioning_state: state(ended),
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

/// A template that could be carried out.
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
    /// `Create`, `Deploy` for what is there and may change, or `Ignore`.
    pub change_type: String,
}

/// What would be made and what is there already. How what is there would change is not said.
pub fn what_if(tried: &Deployment) -> WhatIfDocument {
    let change = |resource: &str, change_type: &str| WhatIfChange {
        resource_id: resource.to_owned(),
        change_type: change_type.to_owned(),
    };
    let made = tried
        .made
        .iter()
        .map(|made| change(&made.resource, if made.is_new { "Create" } else { "Deploy" }));
    let left_out = tried.left_out.iter().map(|left_out| change(&left_out.resource, "Ignore"));
    WhatIfDocument {
        status: "Succeeded".to_owned(),
        properties: WhatIfProperties {
            changes: made.chain(left_out).collect(),
            diagnostics: tried.left_out.iter().map(diagnostic).collect(),
        },
    }
}
