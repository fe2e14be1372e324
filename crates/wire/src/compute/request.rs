//! A compute as requested by a client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::ClusterPatch;
use muster_core::model::{AdminAccount, ComputeKind, Identity};
use muster_core::nearest::suggestion;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{KINDS, OS_TYPES, REMOTE_LOGINS, SCALE_UPS, TIERS, word};
use crate::error::ArmError;
use crate::json::{Field, JsonText, Reads, parse_object, shorten};
use crate::notes::NOTE;

const IDENTITY_KINDS: [&str; 4] =
    ["None", "SystemAssigned", "UserAssigned", "SystemAssigned,UserAssigned"];

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

/// `aml` contains the properties of a cluster; the `properties` of `root` are those of any compute.
fn read(
    root: &Field<'_>,
    aml: &Field<'_>,
    body: &[u8],
    digest: &dyn Fn(&str) -> String,
) -> Result<ClusterPatch, ArmError> {
    let compute = root.get("properties")?;
    let kind = kind(&compute.get("computeType")?)?;
    let ssh = super::instance::ssh(aml)?;
    if kind == Some(ComputeKind::Instance) {
        super::instance::check_supported(aml)?;
    }
    let scale = aml.get("scaleSettings")?;
    // The compute's own location is more specific.
    let outer = root.get("location")?.location()?;
    let location = compute.get("computeLocation")?.location()?.or(outer);
    let patch = ClusterPatch {
        kind,
        releases_quota_on_stop: aml.get("releaseQuotaOnStop")?.boolean()?,
        location,
        description: compute.get("description")?.text()?,
        tags: tags_of(&root.get("tags")?)?,
        vm_size: aml.get("vmSize")?.text()?.map(Arc::from),
        tier: aml.get("vmPriority")?.choice(&TIERS)?,
        nodes_min: scale.get("minNodeCount")?.count()?,
        nodes_max: scale.get("maxNodeCount")?.count()?,
        idle_time: scale.get("nodeIdleTimeBeforeScaleDown")?.duration()?,
        scale_up: scale.get("scaleUp")?.choice(&SCALE_UPS)?,
        os_type: aml.get("osType")?.choice(&OS_TYPES)?,
        virtual_machine_image: reference(&aml.get("virtualMachineImage")?)?,
        isolated_network: aml.get("isolatedNetwork")?.boolean()?,
        subnet: subnet(&aml.get("subnet")?)?,
        admin: admin(&aml.get("userAccountCredentials")?, digest)?.or(ssh.admin),
        remote_login: aml.get("remoteLoginPortPublicAccess")?.choice(&REMOTE_LOGINS)?.or(ssh.login),
        enable_node_public_ip: aml.get("enableNodePublicIp")?.boolean()?,
        disable_local_auth: compute.get("disableLocalAuth")?.boolean()?,
        identity: identity(&root.get("identity")?)?,
        property_bag: property_bag(&aml.get("propertyBag")?, body)?,
        ignored: BTreeSet::new(),
    };
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

fn kind(field: &Field<'_>) -> Result<Option<ComputeKind>, ArmError> {
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
fn reference(field: &Field<'_>) -> Result<Option<Box<str>>, ArmError> {
    Ok(field.get("id")?.text()?.filter(|id| !id.is_empty()))
}

fn subnet(field: &Field<'_>) -> Result<Option<Box<str>>, ArmError> {
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

fn admin(
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

fn identity(field: &Field<'_>) -> Result<Option<Identity>, ArmError> {
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
fn property_bag(field: &Field<'_>, body: &[u8]) -> Result<Option<Box<str>>, ArmError> {
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
    let id = |id: &Option<Box<str>>| id.as_deref().map(|id| json!({ "id": id }));
    let admin = patch.admin.as_ref().map(|admin| {
        json!({
            "adminUserName": admin.user_name,
            "adminUserPassword": password,
            "adminUserSshPublicKey": admin.ssh_public_key,
        })
    });
    let body = json!({
        "location": patch.location,
        "tags": patch.tags,
        "identity": patch.identity.as_ref().map(super::resource::identity_body),
        "properties": {
            "computeType": super::kind_word(patch.kind.unwrap_or_default()),
            "description": patch.description,
            "disableLocalAuth": patch.disable_local_auth,
            "properties": {
                "vmSize": patch.vm_size,
                "releaseQuotaOnStop": patch.releases_quota_on_stop,
                "vmPriority": patch.tier.map(|tier| word(&TIERS, tier)),
                "scaleSettings": {
                    "minNodeCount": patch.nodes_min,
                    "maxNodeCount": patch.nodes_max,
                    "nodeIdleTimeBeforeScaleDown": patch.idle_time.map(crate::duration::format),
                    "scaleUp": patch.scale_up.map(|scale_up| word(&SCALE_UPS, scale_up)),
                },
                "osType": patch.os_type.map(|os_type| word(&OS_TYPES, os_type)),
                "virtualMachineImage": id(&patch.virtual_machine_image),
                "isolatedNetwork": patch.isolated_network,
                "subnet": id(&patch.subnet),
                "userAccountCredentials": admin,
                "remoteLoginPortPublicAccess":
                    patch.remote_login.map(|login| word(&REMOTE_LOGINS, login)),
                "enableNodePublicIp": patch.enable_node_public_ip,
                "propertyBag": patch.property_bag.as_deref().and_then(JsonText::new),
            },
        },
    });
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
