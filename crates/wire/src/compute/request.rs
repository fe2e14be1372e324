//! A compute as requested by a client.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::ClusterPatch;
use muster_core::model::{AdminAccount, ComputeKind, Identity};
use muster_core::nearest::suggestion;
use muster_core::refusal::ClusterProperty;
use serde::Deserialize;
use serde_json::{Value, json};

use super::instance::Ssh;
use super::{KINDS, properties};
use crate::error::ArmError;
use crate::json::{Field, JsonText, Reads, parse_object, shorten};
use crate::notes::NOTE;

const IDENTITY_KINDS: [&str; 4] =
    ["None", "SystemAssigned", "UserAssigned", "SystemAssigned,UserAssigned"];

/// Where the properties of a cluster are, apart from those of any compute.
const AML: &str = "properties.properties.";

/// A property bag, all tags, a key and a hundred identities of maximum size take about half of it.
pub const BODY_BYTES_MAX: usize = 512 * 1024;

/// Properties that clients send back as they were shown, and properties that state what is always the case. They have
/// no effect, and none is expected.
const HARMLESS: [&str; 38] = [
    "id",
    "name",
    "type",
    "sku",
    "systemData",
    "identity.principalId",
    "identity.tenantId",
    "identity.userAssignedIdentities.*.clientId",
    "identity.userAssignedIdentities.*.principalId",
    "properties.createdOn",
    "properties.modifiedOn",
    "properties.isAttachedCompute",
    "properties.provisioningErrors",
    "properties.provisioningState",
    "properties.resourceId",
    "properties.properties.allocationState",
    "properties.properties.allocationStateTransitionTime",
    "properties.properties.currentNodeCount",
    "properties.properties.targetNodeCount",
    "properties.properties.nodeStateCounts",
    "properties.properties.errors",
    "properties.properties.note",
    // The properties of an instance.
    "properties.properties.applications",
    "properties.properties.connectivityEndpoints",
    "properties.properties.createdBy",
    "properties.properties.lastOperation",
    "properties.properties.state",
    "properties.properties.sshSettings.adminUserName",
    "properties.properties.sshSettings.sshPort",
    "properties.properties.osImageMetadata",
    "properties.properties.versions",
    // Everyone who may use the workspace may use its computes, and an instance is only for its owner.
    "properties.properties.applicationSharingPolicy",
    "properties.properties.enableRootAccess",
    "properties.properties.enableSSO",
    "properties.properties.computeInstanceAuthorizationType",
    "properties.properties.containers",
    "properties.properties.dataDisks",
    "properties.properties.dataMounts",
];

/// Reads the body of a PUT. `digest` turns a password into the digest that is stored; the clear text is not used
/// anywhere else.
pub fn parse_request(
    body: &[u8],
    digest: &dyn Fn(&str) -> String,
) -> Result<ClusterPatch, ArmError> {
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let reads = Reads::default();
    let root = Field::noted(&value, &reads);
    let kind = root.get("properties")?.get("computeType")?;
    if !kind.is_present() {
        return Err(kind.missing("give 'AmlCompute' or 'ComputeInstance'"));
    }
    let aml = root.get("properties")?.get("properties")?;
    let patch = read(&root, &aml, body, digest)?;
    Ok(ClusterPatch { ignored: reads.unread(&value, &HARMLESS), ..patch })
}

/// Reads the body of a PATCH. It has the form of a PUT's body with two exceptions: the kind of the compute may be
/// omitted, and clients of api-version 2020-08-01 omit the inner `properties`.
pub fn parse_patch(body: &[u8], digest: &dyn Fn(&str) -> String) -> Result<ClusterPatch, ArmError> {
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let reads = Reads::default();
    let root = Field::noted(&value, &reads);
    let outer = root.get("properties")?;
    let inner = outer.get("properties")?;
    let twice = outer.get("scaleSettings")?;
    if inner.is_present() && twice.is_present() {
        let message =
            format!("{} and {} are both given; give only one of them", twice.path, inner.path);
        return Err(twice.invalid(message));
    }
    let aml = if inner.is_present() { inner } else { outer };
    let patch = read(&root, &aml, body, digest)?;
    Ok(ClusterPatch { ignored: reads.unread(&value, &HARMLESS), ..patch })
}

/// What the properties of a compute are read from.
pub(super) struct Source<'a> {
    /// The `properties` of any compute.
    compute: Field<'a>,
    /// The settings of an instance that a cluster has in other places.
    pub(super) ssh: Ssh,
    pub(super) body: &'a [u8],
    pub(super) digest: &'a dyn Fn(&str) -> String,
}

impl Source<'_> {
    /// The compute's own location is more specific than that of the resource.
    pub(super) fn location(&self, outer: &Field<'_>) -> Result<Option<Box<str>>, ArmError> {
        let outer = outer.location()?;
        Ok(self.compute.get("computeLocation")?.location()?.or(outer))
    }
}

/// `aml` contains the properties of a cluster; the `properties` of `root` are those of any compute.
fn read(
    root: &Field<'_>,
    aml: &Field<'_>,
    body: &[u8],
    digest: &dyn Fn(&str) -> String,
) -> Result<ClusterPatch, ArmError> {
    let compute = root.get("properties")?;
    let ssh = super::instance::ssh(aml)?;
    if kind(&compute.get("computeType")?)? == Some(ComputeKind::Instance) {
        super::instance::check_supported(aml)?;
    }
    let source = Source { compute, ssh, body, digest };
    let mut patch = ClusterPatch::default();
    for property in ClusterProperty::ALL {
        let place = properties::place(*property);
        let field = match place.strip_prefix(AML) {
            Some(below) => aml.below(below)?,
            None => root.below(place)?,
        };
        properties::read(*property, &field, &source, &mut patch)?;
    }
    Ok(patch)
}

/// The tags without the note that was shown among them.
pub(crate) fn tags_of(field: &Field<'_>) -> Result<Option<BTreeMap<String, String>>, ArmError> {
    let mut tags = field.string_map()?;
    if let Some(tags) = &mut tags {
        tags.remove(NOTE);
    }
    Ok(tags)
}

pub(super) fn kind(field: &Field<'_>) -> Result<Option<ComputeKind>, ArmError> {
    let Some(text) = field.string()? else { return Ok(None) };
    let known = KINDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
    let unknown = || {
        let (path, shown) = (&field.path, shorten(text));
        let near = suggestion(text, KINDS.into_iter().map(|(word, _)| word));
        let message = format!(
            "{path} is '{shown}', which is not supported yet; only 'AmlCompute' and 'ComputeInstance' are{}",
            near.map(|near| format!("; {near}")).unwrap_or_default()
        );
        ArmError::not_supported(path, message)
    };
    known.map(|(_, kind)| Some(*kind)).ok_or_else(unknown)
}

/// `{"id": …}`. Clients that read a cluster and write it back send `{}`, which requests nothing.
pub(super) fn reference(field: &Field<'_>) -> Result<Option<Box<str>>, ArmError> {
    Ok(field.get("id")?.text()?.filter(|id| !id.is_empty()))
}

pub(super) fn subnet(field: &Field<'_>) -> Result<Option<Box<str>>, ArmError> {
    let Some(id) = reference(field)? else { return Ok(None) };
    let parts: Vec<&str> = id.strip_prefix('/').unwrap_or(&id).split('/').collect();
    let wanted = ["subscriptions", "resourcegroups", "providers", "virtualnetworks", "subnets"];
    let words = [0, 2, 4, 6, 8].map(|index| parts.get(index).map(|part| part.to_ascii_lowercase()));
    let is_id = parts.len() == 10
        && words.iter().zip(wanted).all(|(word, wanted)| word.as_deref() == Some(wanted))
        && parts[5].eq_ignore_ascii_case("Microsoft.Network")
        && parts.iter().all(|part| !part.is_empty());
    // Azure's client writes `None` for the network if only a subnet was given.
    let has_network = parts.get(7).is_none_or(|network| *network != "None");
    if is_id && has_network {
        return Ok(Some(id));
    }
    let path = format!("{}.id", field.path);
    let message = format!(
        "{path} is '{}'; give the id of a subnet, /subscriptions/…/resourceGroups/…/providers/\
         Microsoft.Network/virtualNetworks/<network>/subnets/<subnet>, \
         or both names: NetworkSettings(vnet_name=…, subnet=…)",
        shorten(&id)
    );
    Err(ArmError::invalid_property(&path, message))
}

pub(super) fn admin(
    field: &Field<'_>,
    digest: &dyn Fn(&str) -> String,
) -> Result<Option<AdminAccount>, ArmError> {
    if !field.is_filled() {
        return Ok(None);
    }
    let name = field.get("adminUserName")?;
    let Some(user_name) = name.text()? else {
        return Err(name.missing("give the user name of the administrator"));
    };
    let password = field.get("adminUserPassword")?;
    let password_digest = match password.secret()? {
        None => None,
        Some("") => {
            let message = format!("{} is empty; give a password, or leave it out", password.path);
            return Err(password.invalid(message));
        }
        Some(clear) => Some(digest(clear).into()),
    };
    let ssh_public_key =
        field.get("adminUserSshPublicKey")?.secret()?.filter(|key| !key.is_empty());
    Ok(Some(AdminAccount {
        user_name,
        ssh_public_key: ssh_public_key.map(Box::from),
        password_digest,
    }))
}

pub(super) fn identity(field: &Field<'_>) -> Result<Option<Identity>, ArmError> {
    let kind = field.get("type")?;
    let assigned = field.get("userAssignedIdentities")?;
    let mut user_assigned = BTreeSet::new();
    for (id, value) in assigned.entries()?.unwrap_or_default() {
        // `null` removes an identity; those that are kept are listed with an object.
        if value.is_present() {
            value.get("clientId")?;
            user_assigned.insert(id.to_owned());
        }
    }
    let Some(text) = kind.string()? else {
        if user_assigned.is_empty() {
            return Ok(None);
        }
        return Err(kind.missing("give 'UserAssigned' or 'SystemAssigned,UserAssigned'"));
    };
    let folded: String =
        text.to_ascii_lowercase().chars().filter(|c| !matches!(c, ' ' | '-' | '_')).collect();
    let (system_assigned, wants_users) = match folded.as_str() {
        "none" => (false, false),
        "systemassigned" => (true, false),
        "userassigned" => (false, true),
        "systemassigned,userassigned" | "userassigned,systemassigned" => (true, true),
        _ => {
            return Err(kind.unknown(text, &IDENTITY_KINDS));
        }
    };
    if wants_users == user_assigned.is_empty() {
        let count = user_assigned.len();
        return Err(assigned.invalid(format!(
            "{} lists {count} identities, but identity.type is '{}'; change one of them so that they agree",
            assigned.path,
            shorten(text)
        )));
    }
    Ok(Some(Identity { system_assigned, user_assigned }))
}

/// The original text of the bag, so that it is returned unchanged.
pub(super) fn property_bag(field: &Field<'_>, body: &[u8]) -> Result<Option<Box<str>>, ArmError> {
    #[derive(Deserialize)]
    struct Root {
        properties: Compute,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Compute {
        properties: Option<Aml>,
        /// Without the inner `properties`, as in some patches.
        property_bag: Option<JsonText>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Aml {
        property_bag: JsonText,
    }
    if field.entries()?.is_none() || field.value().is_none() {
        return Ok(None);
    }
    let root: Root = serde_json::from_slice(body).map_err(|_| {
        field.invalid(format!("{} is given more than once; give it once", field.path))
    })?;
    let Compute { properties: inner, property_bag: flat } = root.properties;
    Ok(inner.map(|aml| aml.property_bag).or(flat).map(|bag| bag.as_str().into()))
}

/// The body of a PUT that [`parse_request`] reads back as `patch`. `password` is sent in clear text, next to the
/// administrator's name; the digest that a patch may contain is not sent.
pub fn request_json(patch: &ClusterPatch, password: Option<&str>) -> String {
    request_value(patch, password).to_string()
}

pub(crate) fn request_value(patch: &ClusterPatch, password: Option<&str>) -> Value {
    let mut body = json!({ "properties": { "properties": { "scaleSettings": {} } } });
    for property in ClusterProperty::ALL {
        let place = properties::place(*property).split('.');
        let at = place.fold(&mut body, |at, key| &mut at[key]);
        *at = properties::write(*property, patch, password);
    }
    without_nulls(body)
}

/// Leaves out keys without a value, because some servers treat `null` as a value.
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_nulls(value)))
            .collect(),
        other => other,
    }
}
