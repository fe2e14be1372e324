//! What a client reads before it requests its first resource: the cloud's metadata, the services of a workspace, and a
//! token.
//!
//! Every URL is built from a configured base URL, never from a request's Host header.

pub use muster_core::agent::CLOUD_NAME;
use serde::{Deserialize, Serialize};

/// Completes storage account names. The accounts that we hand out hold their whole address, so that this
/// is never looked up; `.internal` is reserved for such names.
pub const DOMAIN: &str = "muster.internal";
/// Since this year's api-versions, the metadata document is one object instead of a list.
const OBJECT_SINCE: u32 = 2022;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub portal: String,
    pub authentication: Authentication,
    pub graph_audience: String,
    pub resource_manager: String,
    pub gallery: String,
    pub batch: String,
    pub media: String,
    pub sql_management: String,
    pub vm_image_alias_doc: String,
    pub active_directory_data_lake: String,
    pub microsoft_graph_resource_id: String,
    pub suffixes: Suffixes,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authentication {
    pub login_endpoint: String,
    pub audiences: Vec<String>,
    pub tenant: String,
    pub identity_provider: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Suffixes {
    pub acr_login_server: String,
    pub key_vault_dns: String,
    pub storage: String,
    pub sql_server_hostname: String,
}

/// The response of `/metadata/endpoints`: a list for old api-versions, one object for new ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MetadataDocument {
    List(Vec<Metadata>),
    Object(Box<Metadata>),
}

pub fn metadata(base_url: &str, api_version: Option<&str>) -> MetadataDocument {
    // With the slash: clients look for exactly this text at the start of the metadata URL.
    let base = format!("{}/", base_url.trim_end_matches('/'));
    let metadata = Metadata {
        name: CLOUD_NAME.into(),
        portal: base.clone(),
        authentication: Authentication {
            login_endpoint: base.clone(),
            audiences: vec![base.clone()],
            tenant: "common".into(),
            identity_provider: "AAD".into(),
        },
        graph_audience: base.clone(),
        resource_manager: base.clone(),
        gallery: base.clone(),
        batch: base.clone(),
        media: base.clone(),
        sql_management: base.clone(),
        vm_image_alias_doc: base.clone(),
        active_directory_data_lake: base.clone(),
        microsoft_graph_resource_id: base,
        suffixes: Suffixes {
            acr_login_server: format!("azurecr.{DOMAIN}"),
            key_vault_dns: format!("vault.{DOMAIN}"),
            storage: DOMAIN.into(),
            sql_server_hostname: format!("database.{DOMAIN}"),
        },
    };
    let year = api_version.and_then(|version| version.get(..4)).and_then(|year| year.parse().ok());
    match year {
        Some(OBJECT_SINCE..) => MetadataDocument::Object(Box::new(metadata)),
        Some(_) | None => MetadataDocument::List(vec![metadata]),
    }
}

/// The services of a workspace. All of them are this server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discovery {
    pub api: String,
    pub catalog: String,
    pub experimentation: String,
    pub gallery: String,
    pub history: String,
    pub hyperdrive: String,
    pub labeling: String,
    pub modelmanagement: String,
    pub pipelines: String,
    pub studio: String,
    pub notebook: String,
    pub metric: String,
}

pub fn discovery(base_url: &str) -> Discovery {
    let base = || base_url.trim_end_matches('/').to_owned();
    Discovery {
        api: base(),
        catalog: base(),
        experimentation: base(),
        gallery: base(),
        history: base(),
        hyperdrive: base(),
        labeling: base(),
        modelmanagement: base(),
        pipelines: base(),
        studio: base(),
        notebook: base(),
        metric: base(),
    }
}

/// The response of the identity endpoint, in App Service's form.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenReply {
    pub access_token: String,
    /// Unix seconds as text, as in all of Azure's endpoints.
    pub expires_on: String,
    pub resource: String,
    pub token_type: String,
}

impl TokenReply {
    pub fn new(access_token: &str, expires_on_unix_s: u64, resource: &str) -> TokenReply {
        TokenReply {
            access_token: access_token.to_owned(),
            expires_on: expires_on_unix_s.to_string(),
            resource: resource.to_owned(),
            token_type: "Bearer".to_owned(),
        }
    }
}

impl std::fmt::Debug for TokenReply {
    /// Omits the token, because the output may be logged.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenReply")
            .field("expires_on", &self.expires_on)
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_a_list_before_2022_and_an_object_since() {
        for (version, is_list) in [
            (None, true),
            (Some("2019-05-01"), true),
            (Some("2021-12-31"), true),
            (Some("2022-09-01"), false),
            (Some("2030-01-01-preview"), false),
            (Some("x"), true),
            (Some("éééé"), true),
            (Some(""), true),
        ] {
            let document = metadata("https://localhost:8443", version);
            assert_eq!(matches!(document, MetadataDocument::List(_)), is_list, "{version:?}");
            let text = crate::to_json(&document);
            assert_eq!(text.starts_with('['), is_list, "{version:?}");
            assert_eq!(crate::from_json::<MetadataDocument>(text.as_bytes()).unwrap(), document);
        }
    }

    #[test]
    fn clients_find_every_key_that_they_need() {
        let text = crate::to_json(&metadata("https://localhost:8443/", Some("2022-09-01")));
        for part in [
            r#""resourceManager":"https://localhost:8443/""#,
            r#""portal":"https://localhost:8443/""#,
            r#""loginEndpoint":"https://localhost:8443/""#,
            r#""audiences":["https://localhost:8443/"]"#,
            r#""vmImageAliasDoc":"#,
            r#""microsoftGraphResourceId":"#,
            r#""acrLoginServer":"#,
            r#""keyVaultDns":"#,
            r#""sqlServerHostname":"#,
            r#""storage":"muster.internal""#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        for azures in ["AzureCloud", "AzureChinaCloud", "AzureUSGovernment"] {
            assert_ne!(CLOUD_NAME, azures);
        }
    }

    #[test]
    fn all_services_are_at_the_base_url() {
        let text = crate::to_json(&discovery("https://h:1/"));
        for service in
            ["api", "experimentation", "history", "hyperdrive", "modelmanagement", "studio"]
        {
            assert!(text.contains(&format!("\"{service}\":\"https://h:1\"")), "{service}");
        }
        assert_eq!(
            crate::from_json::<Discovery>(text.as_bytes()).unwrap(),
            discovery("https://h:1")
        );
    }

    #[test]
    fn a_token_is_given_but_never_logged() {
        let reply = TokenReply::new("header.body.signature", 1_794_858_732, "https://h:1");
        assert_eq!(
            crate::to_json(&reply),
            r#"{"access_token":"header.body.signature","expires_on":"1794858732","resource":"https://h:1","token_type":"Bearer"}"#
        );
        assert!(!format!("{reply:?}").contains("signature"));
    }
}
