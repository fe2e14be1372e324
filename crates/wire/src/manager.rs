//! What resource manager says about itself: tenants, subscriptions, regions, groups, and the providers whose
//! resources it serves.
//!
//! Nobody makes subscriptions or groups here: they are there as soon as a workspace is in them.

use serde::{Deserialize, Serialize};

use crate::error::ArmError;
use crate::json::shorten;

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
    /// Always empty; `az` goes through it.
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

pub fn no_such_subscription(subscription: &str) -> ArmError {
    ArmError::not_found(
        "subscription",
        format!(
            "subscription '{}' has no workspace; check its name, or use a workspace in it first",
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

/// Regions are names that users chose: there is no other one to display.
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
    pub tags: NoTags,
    pub properties: GroupProperties,
}

/// `{}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoTags {}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupProperties {
    pub provisioning_state: String,
}

pub fn resource_group(subscription: &str, name: &str, location: &str) -> ResourceGroup {
    ResourceGroup {
        id: format!("/subscriptions/{subscription}/resourceGroups/{name}"),
        name: name.to_owned(),
        resource_type: "Microsoft.Resources/resourceGroups".to_owned(),
        location: location.to_owned(),
        tags: NoTags {},
        properties: GroupProperties { provisioning_state: "Succeeded".to_owned() },
    }
}

pub fn no_such_group(subscription: &str, name: &str) -> ArmError {
    ArmError::group_not_found(format!(
        "resource group '{}' has no workspace in subscription '{}'; check its name, or use a workspace in it \
         first",
        shorten(name),
        shorten(subscription)
    ))
}

/// The provider of Azure ML itself; clients send any version, and generic ones take the first of these.
const ML_VERSIONS: &[&str] =
    &["2025-12-01", "2024-10-01", "2024-04-01", "2023-10-01", "2023-04-01", "2020-08-01"];
const RESOURCE_VERSIONS: &[&str] = &["2024-11-01", "2022-12-01"];
const COMPUTE_VERSIONS: &[&str] = &["2024-11-01", "2024-07-01"];

/// A namespace, its versions, and its types: only what is served.
type Offer = (&'static str, &'static [&'static str], &'static [&'static str]);

const OFFERS: &[Offer] = &[
    (
        "Microsoft.Compute",
        COMPUTE_VERSIONS,
        &["locations", "locations/usages", "locations/vmSizes"],
    ),
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
    /// Newest first. `az resource` uses the first that is no preview.
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
                "the provider '{}' is not served; there are {}",
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
        let group = resource_group("S", "Rg", "eastus");
        assert_eq!(
            crate::to_json(&group),
            r#"{"id":"/subscriptions/S/resourceGroups/Rg","name":"Rg","type":"Microsoft.Resources/resourceGroups","location":"eastus","tags":{},"properties":{"provisioningState":"Succeeded"}}"#
        );
        let error = no_such_group("S", "x");
        assert_eq!((error.status, error.code()), (404, "ResourceGroupNotFound"));
    }
}
