//! Datastores: names for places that hold blobs.
//!
//! The datastores of this server have an account name that contains a whole address, `HOST:PORT/muster`, so that
//! clients that concatenate `https://`, the account and a suffix reach this server without resolving any name.

use std::collections::BTreeMap;

use muster_core::ids::WorkspaceId;
use muster_core::model::{
    ARTIFACT_DATASTORE, AccountCredentials, DEFAULT_DATASTORE, Datastore, DatastoreSpec,
    ForeignAccount, Workspace, WorkspaceKey,
};
use serde::{Deserialize, Serialize};

use crate::SystemData;
use crate::blob::is_container_name;
use crate::error::ArmError;
use crate::json::{Field, Reads, parse_object, shorten};
use crate::notes::{self, NOTE};
use crate::path::workspace_id;

const BODY_BYTES_MAX: usize = 64 * 1024;
/// A host, a port and a word; the names of Azure's accounts have at most 24 characters.
const ACCOUNT_BYTES_MAX: usize = 300;
const SECRET_BYTES_MAX: usize = 4_096;
/// The lifetime of a signed URL for a container, in hours.
const LIFETIME_H: std::ops::RangeInclusive<u64> = 1..=24;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DatastoreResource {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub resource_type: String,
    pub properties: DatastoreProperties,
    #[serde(default)]
    pub system_data: Option<SystemData>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DatastoreProperties {
    pub datastore_type: String,
    #[serde(default)]
    pub account_name: Option<String>,
    #[serde(default)]
    pub container_name: Option<String>,
    #[serde(default)]
    pub endpoint: Option<String>,
    #[serde(default)]
    pub protocol: Option<String>,
    #[serde(default)]
    pub is_default: bool,
    pub credentials: CredentialsDocument,
    #[serde(default)]
    pub service_data_access_auth_identity: Option<String>,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

/// Never contains a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsDocument {
    pub credentials_type: String,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "secretsType", rename_all_fields = "camelCase")]
pub enum Secrets {
    Sas { sas_token: String },
    AccountKey { key: String },
}

/// The address of this server's own containers.
#[derive(Debug, Clone, Copy)]
pub struct Own<'o> {
    /// `HOST:PORT/muster`.
    pub account: &'o str,
    /// The suffix that clients append to the name of an account.
    pub suffix: &'o str,
}

/// The name of one of the two containers of a workspace; no other workspace has a container with this name.
pub fn own_container(workspace: WorkspaceId, is_default: bool) -> String {
    let kind = if is_default { "blobstore" } else { "artifacts" };
    format!("azureml-{kind}-{:016x}", workspace.0)
}

/// Which of the workspace's own datastores this is; `true` for the default one.
pub fn is_own(name: &str) -> Option<bool> {
    let is = |own: &str| own.eq_ignore_ascii_case(name);
    match (is(DEFAULT_DATASTORE), is(ARTIFACT_DATASTORE)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

/// One of the two datastores that every workspace has.
pub fn own_resource(workspace: &Workspace, is_default: bool, own: Own<'_>) -> DatastoreResource {
    let name = if is_default { DEFAULT_DATASTORE } else { ARTIFACT_DATASTORE };
    let spec = DatastoreSpec {
        container: own_container(workspace.id, is_default).into(),
        ..DatastoreSpec::default()
    };
    let made = SystemData::new(workspace.created_at, None, workspace.created_at);
    document(&workspace.key, name, &spec, is_default, made, own)
}

pub fn resource(key: &WorkspaceKey, datastore: &Datastore, own: Own<'_>) -> DatastoreResource {
    let by = Some(&*datastore.created_by.name);
    let made = SystemData::new(datastore.created_at, by, datastore.changed_at);
    document(key, &datastore.name, &datastore.about, false, made, own)
}

fn document(
    key: &WorkspaceKey,
    name: &str,
    spec: &DatastoreSpec,
    is_default: bool,
    made: SystemData,
    own: Own<'_>,
) -> DatastoreResource {
    let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
    let (account, endpoint, protocol, opened_by) = match &spec.account {
        None => {
            let suffix = Some(own.suffix.to_owned());
            (own.account.to_owned(), suffix, Some("https".to_owned()), AccountCredentials::Sas)
        }
        Some(other) => {
            let (endpoint, protocol) = (text(&other.endpoint), text(&other.protocol));
            (other.name.to_string(), endpoint, protocol, other.opened_by)
        }
    };
    DatastoreResource {
        id: format!("{}/datastores/{name}", workspace_id(key)),
        name: name.to_owned(),
        resource_type: "Microsoft.MachineLearningServices/workspaces/datastores".to_owned(),
        properties: DatastoreProperties {
            datastore_type: "AzureBlob".to_owned(),
            account_name: Some(account),
            container_name: Some(spec.container.to_string()),
            endpoint,
            protocol,
            is_default,
            credentials: CredentialsDocument { credentials_type: opened_by.as_str().to_owned() },
            service_data_access_auth_identity: Some("None".to_owned()),
            description: text(&spec.description),
            tags: spec.tags.clone(),
            properties: spec.properties.clone(),
        },
        system_data: Some(made),
    }
}

/// The datastore that a client requests, and its secret in clear text, which must be sealed before it is stored.
pub struct DatastoreRequest {
    pub spec: DatastoreSpec,
    pub secret: Option<Box<str>>,
}

/// Properties that clients send back as they were shown, properties that state what is always the case, and credentials
/// for one of this server's own containers, which needs none.
const HARMLESS: [&str; 13] = [
    "id",
    "name",
    "type",
    "systemData",
    "properties.isDefault",
    "properties.credentials",
    "properties.endpoint",
    "properties.protocol",
    "properties.resourceGroup",
    "properties.subscriptionId",
    "properties.serviceDataAccessAuthIdentity=None",
    "properties.credentials.secrets.secretsType",
    "properties.credentials.secrets",
];

pub fn parse_request(body: &[u8], own: Own<'_>) -> Result<DatastoreRequest, ArmError> {
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let reads = Reads::default();
    let properties = Field::noted(&value, &reads).get("properties")?;
    let kind = properties.get("datastoreType")?;
    let named = kind.text()?.unwrap_or_default();
    if !named.eq_ignore_ascii_case("AzureBlob") {
        let message = format!(
            "the only supported type of datastore is AzureBlob, and this one is '{}'; {}",
            shorten(&named),
            instead_of(&named)
        );
        return Err(ArmError::not_supported("properties.datastoreType", message));
    }
    let container = properties.get("containerName")?;
    let name = container.text()?.ok_or_else(|| container.missing("name a container"))?;
    if !is_container_name(&name) {
        let rule = "the name of a container has 3 to 63 lower-case letters, digits and single hyphens between them";
        return Err(container.invalid(rule.to_owned()));
    }
    let account = properties.get("accountName")?;
    let account_name = account.text()?.filter(|name| !name.is_empty());
    if account_name.as_ref().is_some_and(|name| name.len() > ACCOUNT_BYTES_MAX) {
        let message = format!("the name of an account has at most {ACCOUNT_BYTES_MAX} bytes");
        return Err(account.invalid(message));
    }
    let (account, secret) = match account_name {
        Some(name) if !name.eq_ignore_ascii_case(own.account) => {
            let (opened_by, secret) = credentials(&properties)?;
            let (endpoint, protocol) =
                (properties.get("endpoint")?.text()?, properties.get("protocol")?.text()?);
            let account = ForeignAccount { name, endpoint, protocol, opened_by, secret: None };
            (Some(account), secret)
        }
        // This server's own containers need no secret.
        _ => (None, None),
    };
    let mut spec = DatastoreSpec {
        account,
        container: name,
        description: properties.get("description")?.text()?,
        tags: properties.get("tags")?.string_map()?.unwrap_or_default(),
        properties: properties.get("properties")?.string_map()?.unwrap_or_default(),
    };
    spec.properties.remove(NOTE);
    if let Some(note) = notes::without_effect(&reads.unread(&value, &HARMLESS)) {
        spec.properties.insert(NOTE.to_owned(), note);
    }
    Ok(DatastoreRequest { spec, secret })
}

/// What to use in place of a type of datastore that is not supported.
fn instead_of(kind: &str) -> &'static str {
    match kind.to_ascii_lowercase().as_str() {
        "azuredatalakegen2" => {
            "the file systems of the account are also containers: give AzureBlob, with the file system as containerName"
        }
        "azuredatalakegen1" => {
            "Azure has retired Data Lake Storage Gen1: copy the data to a container, and give AzureBlob"
        }
        "azurefile" => {
            "file shares are not supported: copy the files to a container of this server, and give AzureBlob"
        }
        "hdfs" | "onelake" => "copy the data to a container of this server, and give AzureBlob",
        _ => "give AzureBlob",
    }
}

fn credentials(properties: &Field<'_>) -> Result<(AccountCredentials, Option<Box<str>>), ArmError> {
    let credentials = properties.get("credentials")?;
    let kind = credentials.get("credentialsType")?;
    let kinds = AccountCredentials::ALL.map(|kind| (kind.as_str(), kind));
    let kind = kind.choice(&kinds)?.unwrap_or(AccountCredentials::None);
    let secrets = credentials.get("secrets")?;
    let field = match kind {
        AccountCredentials::None => return Ok((kind, None)),
        AccountCredentials::AccountKey => secrets.get("key")?,
        AccountCredentials::Sas => secrets.get("sasToken")?,
    };
    let secret = field.secret()?.ok_or_else(|| field.missing("give the secret of the account"))?;
    if secret.len() > SECRET_BYTES_MAX {
        return Err(field.invalid(format!("a secret has at most {SECRET_BYTES_MAX} bytes")));
    }
    Ok((kind, Some(secret.into())))
}

/// The lifetime of the signed URL for a container, in hours.
pub fn parse_secrets_request(body: &[u8]) -> Result<u64, ArmError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(*LIFETIME_H.start());
    }
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let hours = Field::root(&value).get("expireAfterHours")?.count()?.map(u64::from);
    Ok(hours.unwrap_or(*LIFETIME_H.start()).clamp(*LIFETIME_H.start(), *LIFETIME_H.end()))
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GarbageRequest {
    /// Only counts what would be deleted.
    pub dry_run: bool,
    /// Files that were uploaded or requested this recently are kept.
    pub grace_seconds: Option<u32>,
    /// Uncommitted blocks that are older are deleted.
    pub block_seconds: Option<u32>,
}

pub fn parse_garbage(body: &[u8]) -> Result<GarbageRequest, ArmError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(GarbageRequest::default());
    }
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let root = Field::root(&value);
    let dry_run = root.get("dryRun")?.boolean()?.unwrap_or(false);
    let grace_seconds = root.get("graceSeconds")?.count()?;
    let block_seconds = root.get("blockSeconds")?.count()?;
    if dry_run && block_seconds.is_some() {
        let message = "a dry run deletes no blocks, so it cannot count the space that their files would free; leave out either dryRun or blockSeconds";
        return Err(ArmError::invalid_property("blockSeconds", message));
    }
    Ok(GarbageRequest { dry_run, grace_seconds, block_seconds })
}

/// What was deleted, or would be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collected {
    pub files: u64,
    pub bytes: u64,
    /// The number of files that were kept.
    #[serde(default)]
    pub kept: u64,
    pub dry_run: bool,
}

/// The body of a request for a datastore, as the command line writes it.
pub fn request_json(spec: &DatastoreSpec, secrets: Option<&Secrets>) -> String {
    let account = spec.account.as_ref();
    let kind = account.map_or(AccountCredentials::None, |account| account.opened_by);
    crate::to_json(&serde_json::json!({ "properties": {
        "datastoreType": "AzureBlob",
        "accountName": account.map(|account| &*account.name),
        "containerName": spec.container,
        "endpoint": account.and_then(|account| account.endpoint.as_deref()),
        "protocol": account.and_then(|account| account.protocol.as_deref()),
        "description": spec.description,
        "tags": spec.tags,
        "properties": spec.properties,
        "credentials": { "credentialsType": kind.as_str(), "secrets": secrets },
    }}))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Own<'static> = Own { account: "localhost:7444/muster", suffix: "muster.internal" };

    #[test]
    fn a_dry_run_cannot_count_what_dropped_blocks_would_free() {
        let parsed = |body: &str| parse_garbage(body.as_bytes());
        let wanted =
            parsed(r#"{"graceSeconds":5,"blockSeconds":7}"#).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(
            (wanted.dry_run, wanted.grace_seconds, wanted.block_seconds),
            (false, Some(5), Some(7))
        );
        assert!(parsed(r#"{"dryRun":true,"graceSeconds":5}"#).is_ok());
        let refused = parsed(r#"{"dryRun":true,"blockSeconds":7}"#).expect_err("both");
        assert!(
            refused.to_string().contains("leave out either dryRun or blockSeconds"),
            "{refused}"
        );
    }

    #[test]
    fn a_container_of_ours_needs_no_secret_and_a_foreign_one_does() {
        let ours = br#"{"properties":{"datastoreType":"azureblob","containerName":"data",
                        "accountName":"LOCALHOST:7444/muster","credentials":{"credentialsType":"Sas"}}}"#;
        let wanted = parse_request(ours, OWN).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((wanted.spec.account, wanted.secret), (None, None));
        let spec = DatastoreSpec {
            account: Some(ForeignAccount {
                name: "acc".into(),
                endpoint: None,
                protocol: None,
                opened_by: AccountCredentials::AccountKey,
                secret: None,
            }),
            container: "ccc".into(),
            ..DatastoreSpec::default()
        };
        let body = request_json(&spec, Some(&Secrets::AccountKey { key: "k".into() }));
        let wanted = parse_request(body.as_bytes(), OWN).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((&wanted.spec, wanted.secret.as_deref()), (&spec, Some("k")));
        let bare = request_json(&spec, None);
        let refused = parse_request(bare.as_bytes(), OWN).err();
        assert!(refused.is_some_and(|refused| refused.to_string().contains("key")));
    }

    #[test]
    fn what_is_no_datastore_of_blobs_is_refused() {
        for bad in [
            r#"{}"#,
            r#"{"properties":{"datastoreType":"AzureFile","containerName":"abc"}}"#,
            r#"{"properties":{"datastoreType":"AzureBlob"}}"#,
            r#"{"properties":{"datastoreType":"AzureBlob","containerName":"../x"}}"#,
        ] {
            let refused = parse_request(bad.as_bytes(), OWN).err();
            assert_eq!(refused.map(|refused| refused.status), Some(400), "{bad}");
        }
    }

    #[test]
    fn other_types_are_refused_with_what_to_do_instead() {
        for (kind, part) in [
            ("AzureDataLakeGen2", "the file system as containerName"),
            ("AzureDataLakeGen1", "Azure has retired"),
            ("AzureFile", "copy the files to a container of this server"),
            ("OneLake", "copy the data to a container of this server"),
            ("Mystery", "this one is 'Mystery'; give AzureBlob"),
        ] {
            let body = format!(r#"{{"properties":{{"datastoreType":"{kind}"}}}}"#);
            let refused = parse_request(body.as_bytes(), OWN).err().expect("the type is refused");
            assert!(refused.to_string().contains(part), "{refused}");
        }
    }

    #[test]
    fn an_address_is_given_out_for_a_day_at_most() {
        let hours = |body: &[u8]| parse_secrets_request(body).unwrap();
        assert_eq!((hours(b""), hours(br#"{"expireAfterHours":0}"#)), (1, 1));
        assert_eq!(hours(br#"{"expirableSecret":true,"expireAfterHours":8}"#), 8);
        assert_eq!(hours(br#"{"expireAfterHours":9999}"#), 24);
    }
}
