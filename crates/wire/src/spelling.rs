//! How the fields and remedies of refusals are spelled for Azure's clients. The `muster` command line gets the same
//! message in parts, so that it can use the names of its own flags and files.

use muster_core::refusal::{Field, JobField, Part, Target, Words};
use muster_core::why::{Listing, Reason, Remedy};
use serde::{Deserialize, Serialize};

use crate::compute::properties;

/// A request with this header gets the message of an error also in parts. Azure's clients do not send it: some of them
/// print every part of an error that they receive.
pub const PARTS_HEADER: &str = "muster-error-parts";

/// A part of a message: text, or a field by its path in Azure's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MessagePart {
    Text(String),
    Field { field: String },
}

/// The message with Azure's names.
pub fn message(words: &Words) -> String {
    words.parts().iter().map(text).collect()
}

fn text(part: &Part) -> String {
    match part {
        Part::Text(text) => text.to_string(),
        Part::Field(field) => name(*field).to_owned(),
        Part::Remedy(remedy) => command(remedy),
    }
}

/// The same message in parts; empty if it names no field.
pub(crate) fn parts(words: &Words) -> Vec<MessagePart> {
    let names_field = |part: &Part| matches!(part, Part::Field(_));
    if !words.parts().iter().any(names_field) {
        return Vec::new();
    }
    let spelled = |part: &Part| match part {
        Part::Field(field) => MessagePart::Field { field: place(*field).to_owned() },
        Part::Text(_) | Part::Remedy(_) => MessagePart::Text(text(part)),
    };
    words.parts().iter().map(spelled).collect()
}

/// The `target` of an error.
pub fn target(target: &Target) -> String {
    match target {
        Target::Named(name) => name.to_string(),
        Target::Field(field) => field_target(*field).to_owned(),
        Target::Below(field, entry) => format!("{}.{entry}", field_target(*field)),
    }
}

fn field_target(field: Field) -> &'static str {
    match field {
        Field::Cluster(_) | Field::AdminUserName | Field::AdminSshKey => name(field),
        _ => place(field),
    }
}

/// The name of a field in a message.
pub fn name(field: Field) -> &'static str {
    let place = place(field);
    match field {
        Field::AssetDescription | Field::AssetProperties => place,
        _ => place.rsplit('.').next().unwrap_or(place),
    }
}

/// The path of a field in Azure's JSON, without the envelopes that are all called `properties`.
pub fn place(field: Field) -> &'static str {
    match field {
        Field::Cluster(property) => properties::place(property).trim_start_matches("properties."),
        Field::Job(field) => job_place(field),
        Field::AdminUserName => "userAccountCredentials.adminUserName",
        Field::AdminSshKey => "userAccountCredentials.adminUserSshPublicKey",
        Field::FriendlyName => "friendlyName",
        Field::ManagedNetwork => "managedNetwork",
        Field::AssetDescription => "properties.description",
        Field::AssetProperties => "properties.properties",
        Field::ResourceGroup => "resourceGroup",
        Field::RolePrincipal => "principalId",
        Field::RoleDefinition => "roleDefinitionId",
        Field::TokenLifetime => "expiresIn",
    }
}

fn job_place(field: JobField) -> &'static str {
    match field {
        JobField::Command => "command",
        JobField::Compute => "computeId",
        JobField::Nodes => "resources.instanceCount",
        JobField::InstanceType => "resources.instanceType",
        JobField::Tier => "queueSettings.jobTier",
        JobField::Timeout => "limits.timeout",
        JobField::DisplayName => "displayName",
        JobField::ExperimentName => "experimentName",
        JobField::Description => "description",
        JobField::IsArchived => "isArchived",
        JobField::EnvironmentVariables => "environmentVariables",
        JobField::Checkpoint => "muster.checkpoint",
        JobField::ShareVcpus => "resources.cpus",
        JobField::ShareMemory => "resources.memory",
        JobField::ShareGpus => "resources.gpus",
        JobField::Processes => "distribution.processCountPerInstance",
        JobField::Workers => "distribution.workerCount",
        JobField::ClientId => "identity.clientId",
        JobField::ObjectId => "identity.objectId",
        JobField::ResourceId => "identity.resourceId",
        JobField::Inputs => "inputs",
        JobField::Outputs => "outputs",
        JobField::Services => "services",
        JobField::Properties => "properties",
    }
}

/// The field at a path of Azure's JSON, and the rest of the path below it. Fields of the same name in documents of
/// different kinds have the same name for `muster` too, so it does not matter which of them is found.
pub fn field_at(path: &str) -> Option<(Field, String)> {
    let bare = bare(path);
    let below = |field: Field| {
        let rest = bare.strip_prefix(place(field))?;
        let is_whole = rest.is_empty() || rest.starts_with(['.', '[']);
        is_whole.then(|| (field, rest.trim_start_matches('.').to_owned()))
    };
    Field::all().filter_map(below).min_by_key(|(_, rest)| rest.len())
}

/// The path without its envelopes: `properties.properties.vmSize` is `vmSize`.
pub fn bare(path: &str) -> String {
    let last = path.matches('.').count();
    let parts = path.split('.').enumerate();
    let kept = parts.filter(|(index, part)| *part != "properties" || *index == last);
    kept.map(|(_, part)| part).collect::<Vec<_>>().join(".")
}

/// A reason, ending with the command that would remove it.
pub fn reason(reason: &Reason) -> String {
    format!("{reason}: {}", command(&reason.remedy()))
}

/// The command that carries out a remedy, ready to be pasted into a shell.
pub fn command(remedy: &Remedy) -> String {
    const UPDATE: &str = "muster compute update --name";
    match remedy {
        Remedy::SetMaximum { cluster, nodes_max } => {
            format!("{UPDATE} {cluster} --max-instances {nodes_max}")
        }
        Remedy::SetMinimum { cluster, nodes_min } => {
            format!("{UPDATE} {cluster} --min-instances {nodes_min}")
        }
        Remedy::SetIdleTime { cluster, seconds } => {
            format!("{UPDATE} {cluster} --idle-time-before-scale-down {seconds}")
        }
        // Some families have spaces in their names.
        Remedy::SetQuota { location, name, limit } => {
            format!("muster quota update --location {location} --name '{name}' --limit {limit}")
        }
        Remedy::TryAgain { cluster } => format!("{UPDATE} {cluster}"),
        Remedy::GrowAtOnce { cluster } => format!("{UPDATE} {cluster} --scale-up immediate"),
        Remedy::JoinHost => "muster host token".to_owned(),
        Remedy::OpenHost { host } => format!("muster host uncordon {host}"),
        Remedy::DrainHost { host } => format!("muster host drain {host}"),
        Remedy::Unlock { lock } => format!("muster lock delete --ids {}", lock.id()),
        Remedy::Start { cluster } => format!("muster compute start --name {cluster}"),
        Remedy::Stop { cluster } => format!("muster compute stop --name {cluster}"),
        Remedy::Cancel { job } => format!("muster job cancel --name {job}"),
        Remedy::CheckServer => "muster doctor".to_owned(),
        Remedy::ListTasks { job } => format!("muster job list --parent-job-name {job}"),
        Remedy::Wait { cluster } => format!("muster compute list-nodes --name {cluster}"),
        Remedy::List(listing) => match listing {
            Listing::Computes => "muster compute list",
            Listing::Hosts => "muster host list",
            Listing::Jobs => "muster job list",
            Listing::Nodes => "muster compute list-nodes",
            Listing::Users => "muster user list",
        }
        .to_owned(),
    }
}

#[cfg(test)]
mod tests;
