//! Resource manager's own resources: tenants, subscriptions, regions, groups, and the providers whose resources it
//! serves.
//!
//! Subscriptions are not created: one exists as soon as it contains something.

use std::collections::BTreeMap;

use muster_core::{GroupPatch, model};
use serde::{Deserialize, Serialize};

use crate::error::ArmError;
use crate::json::{Field, parse_object, shorten};

/// Room for a location and tags.
const GROUP_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tenant {
    pub id: String,
    pub tenant_id: String,
    pub tenant_category: String,
    pub display_name: String,
}

pub fn tenant(tenant_id: &str) -> Tenant {
    Tenant {
        id: format!("/tenants/{tenant_id}"),
        tenant_id: tenant_id.to_owned(),
        tenant_category: "Home".to_owned(),
        display_name: crate::cloud::CLOUD_NAME.to_owned(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscription {
    pub id: String,
    pub subscription_id: String,
    pub tenant_id: String,
    pub display_name: String,
    pub state: String,
    pub authorization_source: String,
    /// Always empty; `az` iterates over it.
    #[serde(default)]
    pub managed_by_tenants: Vec<Tenant>,
}

pub fn subscription(subscription: &str, tenant_id: &str) -> Subscription {
    Subscription {
        id: format!("/subscriptions/{subscription}"),
        subscription_id: subscription.to_owned(),
        tenant_id: tenant_id.to_owned(),
        display_name: subscription.to_owned(),
        state: "Enabled".to_owned(),
        authorization_source: "RoleBased".to_owned(),
        managed_by_tenants: Vec::new(),
    }
}

/// The placeholders for a subscription id in documents and examples. azureml-core refuses to look for a workspace in a
/// subscription that is not listed, so these are listed if workspaces are created on first use.
pub const PLACEHOLDERS: [&str; 4] =
    ["your_subscription_id", "your-subscription-id", "subscription_id", "my-subscription"];

/// A subscription that contains nothing yet. A client that does not find its subscription prints the names of all that
/// are listed, so the name has a hint.
pub fn placeholder(id: &str, tenant_id: &str) -> Subscription {
    let display_name = format!(
        "{id} (an example; to use another id, run: muster workspace create --subscription ID --resource-group GROUP \
         --name NAME)"
    );
    Subscription { display_name, ..subscription(id, tenant_id) }
}

pub fn no_such_subscription(subscription: &str) -> ArmError {
    ArmError::not_found(
        "subscription",
        format!(
            "subscription '{}' has no resource group; check its name, or create a workspace in it first",
            shorten(subscription)
        ),
    )
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Location {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub display_name: String,
    pub regional_display_name: String,
    pub metadata: LocationMetadata,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocationMetadata {
    pub region_type: String,
    pub region_category: String,
}

/// Regions are names that users chose, so there is no separate display name.
pub fn location(subscription: &str, name: &str) -> Location {
    Location {
        id: format!("/subscriptions/{subscription}/locations/{name}"),
        name: name.to_owned(),
        kind: "Region".to_owned(),
        display_name: name.to_owned(),
        regional_display_name: name.to_owned(),
        metadata: LocationMetadata {
            region_type: "Physical".to_owned(),
            region_category: "Recommended".to_owned(),
        },
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceGroup {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub resource_type: String,
    pub location: String,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    pub properties: GroupProperties,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupProperties {
    pub provisioning_state: String,
}

pub fn resource_group(group: &model::ResourceGroup) -> ResourceGroup {
    let state = if group.deletion.is_some() { "Deleting" } else { "Succeeded" };
    ResourceGroup {
        id: format!("/subscriptions/{}/resourceGroups/{}", group.subscription, group.name),
        name: group.name.to_string(),
        resource_type: "Microsoft.Resources/resourceGroups".to_owned(),
        location: group.location.to_string(),
        tags: group.tags.clone(),
        properties: GroupProperties { provisioning_state: state.to_owned() },
    }
}

/// The properties of a group. A PUT must name the location and replaces the tags; a PATCH keeps what it omits.
pub fn parse_group(body: &[u8], is_put: bool) -> Result<GroupPatch, ArmError> {
    let value = parse_object(body, GROUP_BYTES_MAX)?;
    let root = Field::root(&value);
    let location = root.get("location")?;
    let tags = root.get("tags")?.string_map()?;
    let wanted = GroupPatch { location: location.location()?, tags };
    if is_put && wanted.location.is_none() {
        return Err(location.missing("give the location of the group, for example eastus"));
    }
    Ok(wanted)
}

pub fn group_json(location: Option<&str>, tags: Option<&BTreeMap<String, String>>) -> String {
    #[derive(Serialize)]
    struct GroupBody<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        location: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tags: Option<&'a BTreeMap<String, String>>,
    }
    crate::to_json(&GroupBody { location, tags })
}

pub fn no_such_group(subscription: &str, name: &str) -> ArmError {
    ArmError::group_not_found(format!(
        "resource group '{}' does not exist in subscription '{}'; check its name, or create it: muster group \
         create",
        shorten(name),
        shorten(subscription)
    ))
}

/// The versions of Azure ML's own provider. Clients send any version, and generic clients use the first of these.
const ML_VERSIONS: &[&str] =
    &["2025-12-01", "2024-10-01", "2024-04-01", "2023-10-01", "2023-04-01", "2020-08-01"];
const RESOURCE_VERSIONS: &[&str] = &["2024-11-01", "2022-12-01"];
const AUTHORIZATION_VERSIONS: &[&str] = &["2022-04-01", "2020-05-01", "2016-09-01"];
const INSIGHTS_VERSIONS: &[&str] = &["2015-04-01"];
const COMPUTE_VERSIONS: &[&str] = &["2024-11-01", "2024-07-01"];

/// A namespace, its versions, and its types. Only those that are served are listed.
type Offer = (&'static str, &'static [&'static str], &'static [&'static str]);

const OFFERS: &[Offer] = &[
    (
        "Microsoft.Authorization",
        AUTHORIZATION_VERSIONS,
        &["locks", "roleAssignments", "roleDefinitions"],
    ),
    (
        "Microsoft.Compute",
        COMPUTE_VERSIONS,
        &["locations", "locations/usages", "locations/vmSizes"],
    ),
    ("Microsoft.Insights", INSIGHTS_VERSIONS, &["eventtypes"]),
    (
        "Microsoft.MachineLearningServices",
        ML_VERSIONS,
        &[
            "workspaces",
            "workspaces/computes",
            "workspaces/jobs",
            "locations",
            "locations/computeOperationsStatus",
            "locations/quotas",
            "locations/updateQuotas",
            "locations/usages",
            "locations/vmSizes",
        ],
    ),
    (
        "Microsoft.Resources",
        RESOURCE_VERSIONS,
        &[
            "tenants",
            "subscriptions",
            "subscriptions/locations",
            "subscriptions/providers",
            "subscriptions/resources",
            "subscriptions/resourceGroups",
            "resourceGroups",
            "deployments",
            "deployments/operations",
            "resources",
            "locations",
            "providers",
        ],
    ),
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provider {
    pub id: String,
    pub namespace: String,
    pub registration_state: String,
    pub registration_policy: String,
    pub resource_types: Vec<ResourceType>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceType {
    pub resource_type: String,
    pub locations: Vec<String>,
    /// Newest first. `az resource` uses the first version that is not a preview.
    pub api_versions: Vec<String>,
    pub default_api_version: String,
    pub capabilities: String,
}

pub fn providers(subscription: &str, locations: &[&str]) -> Vec<Provider> {
    OFFERS.iter().map(|offer| provider_document(subscription, locations, offer)).collect()
}

pub fn provider(
    subscription: &str,
    namespace: &str,
    locations: &[&str],
) -> Result<Provider, ArmError> {
    let found = OFFERS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(namespace));
    found.map(|offer| provider_document(subscription, locations, offer)).ok_or_else(|| {
        let names: Vec<&str> = OFFERS.iter().map(|(name, ..)| *name).collect();
        ArmError::not_found(
            "namespace",
            format!(
                "the provider '{}' is not supported; the supported ones are {}",
                shorten(namespace),
                names.join(", ")
            ),
        )
    })
}

fn provider_document(
    subscription: &str,
    locations: &[&str],
    (namespace, versions, types): &Offer,
) -> Provider {
    let texts = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let resource_type = |name: &&str| ResourceType {
        resource_type: (*name).to_owned(),
        locations: texts(locations),
        api_versions: texts(versions),
        default_api_version: versions[0].to_owned(),
        capabilities: "None".to_owned(),
    };
    Provider {
        id: format!("/subscriptions/{subscription}/providers/{namespace}"),
        namespace: (*namespace).to_owned(),
        registration_state: "Registered".to_owned(),
        registration_policy: "RegistrationFree".to_owned(),
        resource_types: types.iter().map(resource_type).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_lists_types_and_versions_newest_first() {
        let found = provider("S", "microsoft.MACHINELearningServices", &["eastus"]).unwrap();
        assert_eq!(found.namespace, "Microsoft.MachineLearningServices");
        let computes =
            found.resource_types.iter().find(|kind| kind.resource_type == "workspaces/computes");
        let computes = computes.unwrap();
        assert_eq!(computes.locations, ["eastus"]);
        assert_eq!(computes.api_versions[0], "2025-12-01");
        let text = crate::to_json(&found);
        assert!(text.contains(r#""registrationState":"Registered""#), "{text}");
        assert_eq!(crate::from_json::<Provider>(text.as_bytes()).unwrap(), found);

        for provider in providers("S", &[]) {
            for kind in provider.resource_types {
                let mut sorted = kind.api_versions.clone();
                sorted.sort_by(|a, b| b.cmp(a));
                assert_eq!(kind.api_versions, sorted);
                assert!(!kind.api_versions[0].contains("preview"));
            }
        }
        let error = provider("S", "Microsoft.Nothing", &[]).unwrap_err();
        assert_eq!(error.status, 404);
        assert!(error.to_string().contains("Microsoft.Compute"));
    }

    #[test]
    fn a_subscription_has_what_az_reads() {
        let text = crate::to_json(&subscription("S", "T"));
        for key in ["\"subscriptionId\":\"S\"", "\"tenantId\":\"T\"", "\"managedByTenants\":[]"] {
            assert!(text.contains(key), "{key} in {text}");
        }
        assert_eq!(tenant("T").id, "/tenants/T");
        assert_eq!(location("S", "eastus").id, "/subscriptions/S/locations/eastus");
    }

    #[test]
    fn a_group_has_tags_and_a_state() {
        let group = resource_group(&model::ResourceGroup {
            subscription: "S".into(),
            name: "Rg".into(),
            location: "eastus".into(),
            tags: BTreeMap::new(),
            created_at: muster_core::time::Wall(0),
            deletion: None,
        });
        assert_eq!(
            crate::to_json(&group),
            r#"{"id":"/subscriptions/S/resourceGroups/Rg","name":"Rg","type":"Microsoft.Resources/resourceGroups","location":"eastus","tags":{},"properties":{"provisioningState":"Succeeded"}}"#
        );
        let error = no_such_group("S", "x");
        assert_eq!((error.status, error.code()), (404, "ResourceGroupNotFound"));
    }
}
