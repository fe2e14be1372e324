//! The workspace resource.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::WorkspacePatch;
use muster_core::ids::WorkspaceId;
use muster_core::model::{About, Workspace};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::compute::{tags_of, with_note};
use crate::error::ArmError;
use crate::json::{Field, Reads, parse_object, shorten};
use crate::path::workspace_id;
use crate::{JsonText, SystemData, notes};

/// Azure's clients send some kilobytes of settings.
const BODY_BYTES_MAX: usize = 256 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceResource {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub resource_type: String,
    pub location: String,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    #[serde(default)]
    pub kind: Option<String>,
    #[serde(default)]
    pub sku: Option<Sku>,
    pub properties: WorkspaceProperties,
    #[serde(default)]
    pub system_data: Option<SystemData>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sku {
    pub name: String,
    pub tier: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceProperties {
    #[serde(default)]
    pub friendly_name: Option<String>,
    #[serde(default)]
    pub description: Option<String>,
    pub workspace_id: String,
    #[serde(default)]
    pub provisioning_state: Option<String>,
    pub discovery_url: String,
    #[serde(default)]
    pub ml_flow_tracking_uri: Option<String>,
    #[serde(default)]
    pub hbi_workspace: bool,
    #[serde(default)]
    pub public_network_access: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_network: Option<JsonText>,
    /// Muster's own: what its owner should know although nothing is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// `created_by` is the name of the principal who created it, if it is known.
pub fn resource(
    workspace: &Workspace,
    base_url: &str,
    created_by: Option<&str>,
) -> WorkspaceResource {
    let base = base_url.trim_end_matches('/');
    let id = workspace_id(&workspace.key);
    let about = &workspace.about;
    let state = if workspace.deletion.is_some() { "Deleting" } else { "Succeeded" };
    let note = note(about);
    let host = base.split_once("://").map_or(base, |(_, host)| host);
    WorkspaceResource {
        name: workspace.key.name.to_string(),
        resource_type: "Microsoft.MachineLearningServices/workspaces".into(),
        location: workspace.location.to_string(),
        tags: with_note(&workspace.about.tags, note.as_deref()),
        kind: Some("Default".into()),
        sku: Some(Sku { name: "Basic".into(), tier: "Basic".into() }),
        properties: WorkspaceProperties {
            friendly_name: Some(
                about.friendly_name.as_deref().unwrap_or(&workspace.key.name).to_owned(),
            ),
            description: Some(about.description.as_deref().unwrap_or_default().to_owned()),
            workspace_id: guid(workspace.id),
            provisioning_state: Some(state.into()),
            discovery_url: format!("{base}/discovery"),
            ml_flow_tracking_uri: Some(format!("azureml://{host}/mlflow/v1.0{id}")),
            hbi_workspace: false,
            public_network_access: Some("Enabled".into()),
            managed_network: about.managed_network.as_deref().and_then(JsonText::new),
            note: note.clone(),
        },
        system_data: Some(SystemData::new(workspace.created_at, created_by, workspace.created_at)),
        id,
    }
}

/// Properties that clients send back as they were shown, and properties that describe accounts in the cloud, which do
/// not exist here.
const HARMLESS: [&str; 29] = [
    "id",
    "name",
    "type",
    "kind",
    "sku",
    "etag",
    "systemData",
    "identity.type=SystemAssigned",
    "identity.principalId",
    "identity.tenantId",
    "properties.allowPublicAccessWhenBehindVnet",
    "properties.allowRoleAssignmentOnRG",
    "properties.applicationInsights",
    "properties.containerRegistry",
    "properties.discoveryUrl",
    "properties.keyVault",
    "properties.mlFlowTrackingUri",
    "properties.note",
    "properties.notebookInfo",
    "properties.privateEndpointConnections",
    "properties.privateLinkCount",
    "properties.provisionNetworkNow",
    "properties.provisioningState",
    "properties.storageAccount",
    "properties.storageHnsEnabled",
    "properties.publicNetworkAccess=Enabled",
    "properties.systemDatastoresAuthMode=AccessKey",
    "properties.tenantId",
    "properties.workspaceId",
];

/// The requested properties of a workspace.
pub fn parse_request(body: &[u8]) -> Result<WorkspacePatch, ArmError> {
    if body.is_empty() {
        return Ok(WorkspacePatch::default());
    }
    let value = parse_object(body, BODY_BYTES_MAX)?;
    wanted(&value)
}

/// Properties of a workspace that are not stored. They are checked anyway, to catch mistakes.
fn check_words(root: &Field<'_>, properties: &Field<'_>) -> Result<(), ArmError> {
    let network = properties.get("managedNetwork")?;
    let words: [(Field<'_>, &[&str]); 6] = [
        (root.get("kind")?, &["Default", "Hub", "Project", "FeatureStore"]),
        (root.get("sku")?.get("name")?, &["Basic", "Free", "Standard", "Premium", "Enterprise"]),
        (
            root.get("identity")?.get("type")?,
            &["None", "SystemAssigned", "UserAssigned", "SystemAssigned,UserAssigned"],
        ),
        (properties.get("publicNetworkAccess")?, &["Enabled", "Disabled"]),
        (
            network.get("isolationMode")?,
            &["Disabled", "AllowInternetOutbound", "AllowOnlyApprovedOutbound"],
        ),
        (
            properties.get("systemDatastoresAuthMode")?,
            &["accessKey", "identity", "userDelegationSAS"],
        ),
    ];
    for (field, allowed) in words {
        let Some(text) = field.string()?.filter(|text| !text.is_empty()) else { continue };
        // Clients write "SystemAssigned, UserAssigned", and "system_assigned".
        let plain = |text: &str| text.replace([' ', '_', '-'], "").to_ascii_lowercase();
        if !allowed.iter().any(|word| plain(word) == plain(text)) {
            return Err(field.unknown(text, allowed));
        }
    }
    Ok(())
}

pub(crate) fn wanted(body: &Value) -> Result<WorkspacePatch, ArmError> {
    let reads = Reads::default();
    let root = Field::noted(body, &reads);
    let properties = root.get("properties")?;
    let network = properties.get("managedNetwork")?;
    network.entries()?;
    check_words(&root.only_checked(), &properties.only_checked())?;
    let patch = WorkspacePatch {
        location: root.get("location")?.location()?,
        friendly_name: properties.get("friendlyName")?.text()?,
        description: properties.get("description")?.text()?,
        tags: tags_of(&root.get("tags")?)?,
        managed_network: network.value().map(|value| value.to_string().into()),
        ignored: BTreeSet::new(),
    };
    let identities = root.get("identity")?.get("userAssignedIdentities")?;
    let mut ignored = reads.unread(body, &HARMLESS);
    // The entries consist of nothing but their names.
    if identities.is_filled() {
        ignored.insert(identities.path.into());
    }
    Ok(WorkspacePatch { ignored, ..patch })
}

/// A note about requested properties that have no effect.
fn note(about: &About) -> Option<String> {
    let network = about.managed_network.as_deref().and_then(|text| {
        let value: Value = serde_json::from_str(text).ok()?;
        let mode = value.get("isolationMode").and_then(Value::as_str).unwrap_or("Disabled");
        (!mode.eq_ignore_ascii_case("Disabled")).then(|| {
            format!(
                "the managed network ({}) is stored but has no effect: internet access of nodes is configured with the \
                 server's setting egress",
                shorten(mode)
            )
        })
    });
    notes::joined(network.into_iter().chain(notes::without_effect(&about.ignored)))
}

pub fn request_json(wanted: &WorkspacePatch) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct WorkspaceBody<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        location: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tags: Option<&'a BTreeMap<String, String>>,
        properties: Properties<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Properties<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        friendly_name: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        managed_network: Option<JsonText>,
    }
    crate::to_json(&WorkspaceBody {
        location: wanted.location.as_deref(),
        tags: wanted.tags.as_ref(),
        properties: Properties {
            friendly_name: wanted.friendly_name.as_deref(),
            description: wanted.description.as_deref(),
            managed_network: wanted.managed_network.as_deref().and_then(JsonText::new),
        },
    })
}

/// Clients expect a GUID; our ids have 64 bits, so the other half is zero.
pub fn guid(id: WorkspaceId) -> String {
    format!("00000000-0000-0000-{:04x}-{:012x}", id.0 >> 48, id.0 & 0xffff_ffff_ffff)
}

#[cfg(test)]
mod tests {
    use muster_core::ids::PrincipalId;
    use muster_core::model::WorkspaceKey;
    use muster_core::time::Wall;

    use super::*;
    use crate::Page;

    fn workspace() -> Workspace {
        Workspace {
            id: WorkspaceId(0x1234_5678_9abc_def0),
            key: WorkspaceKey::new("s1", "Rg1", "ws1"),
            location: "eastus".into(),
            created_at: Wall(1_794_772_332_000_000),
            created_by: PrincipalId(1),
            about: Default::default(),
            deletion: None,
        }
    }

    #[test]
    fn a_workspace_has_what_clients_read() {
        let resource = resource(&workspace(), "https://localhost:8443/", Some("ada"));
        let id = "/subscriptions/s1/resourceGroups/Rg1/providers/\
                  Microsoft.MachineLearningServices/workspaces/ws1";
        assert_eq!(resource.id, id);
        assert_eq!(resource.properties.discovery_url, "https://localhost:8443/discovery");
        assert_eq!(resource.properties.workspace_id, "00000000-0000-0000-1234-56789abcdef0");
        assert_eq!(
            resource.properties.ml_flow_tracking_uri,
            Some(format!("azureml://localhost:8443/mlflow/v1.0{id}"))
        );
        let text = crate::to_json(&Page::whole(vec![resource.clone()]));
        for key in ["\"mlFlowTrackingUri\":", "\"discoveryUrl\":", "\"type\":\"Microsoft.Machine"] {
            assert!(text.contains(key), "{key} in {text}");
        }
        let read: Page<WorkspaceResource> = crate::from_json(text.as_bytes()).unwrap();
        assert_eq!(read.value, [resource]);
    }

    #[test]
    fn the_smallest_document_is_enough() {
        let text = br#"{"id":"i","name":"n","type":"t","location":"l",
            "properties":{"workspaceId":"w","discoveryUrl":"d","unknown":1}}"#;
        assert_eq!(crate::from_json::<WorkspaceResource>(text).unwrap().name, "n");
    }

    #[test]
    fn a_word_that_is_none_is_refused_with_the_nearest() {
        for (body, words) in [
            (r#"{"kind":"Default1"}"#, "kind is 'Default1'; did you mean 'Default'?"),
            (r#"{"sku":{"name":"Gold"}}"#, "sku.name is 'Gold'; give 'Basic', 'Free'"),
            (r#"{"identity":{"type":"SystemAssigned1"}}"#, "did you mean 'SystemAssigned'?"),
            (r#"{"properties":{"publicNetworkAccess":"Enable"}}"#, "did you mean 'Enabled'?"),
            (
                r#"{"properties":{"managedNetwork":{"isolationMode":"Sometimes"}}}"#,
                "give 'Disabled', 'AllowInternetOutbound' or 'AllowOnlyApprovedOutbound'",
            ),
            (r#"{"properties":{"systemDatastoresAuthMode":"acesskey"}}"#, "'accessKey'?"),
        ] {
            let refused = parse_request(body.as_bytes()).unwrap_err();
            assert!(refused.to_string().contains(words), "{words} in {refused}");
        }
        let fine = r#"{"kind":"default","sku":{"name":"Basic"},"identity":{"type":"system_assigned"},
            "properties":{"publicNetworkAccess":"Disabled"}}"#;
        parse_request(fine.as_bytes()).unwrap();
    }
}
