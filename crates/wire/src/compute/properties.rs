//! The properties of a cluster in Azure's JSON: where each is, how it is read and written, and the note for one that has
//! no effect. No `match` here has a wildcard, so a new property cannot be forgotten.

use muster_core::ClusterPatch;
use muster_core::model::{ClusterSpec, RemoteLogin};
use muster_core::refusal::ClusterProperty;
use serde_json::{Value, json};

use super::request::{Source, admin, identity, kind, property_bag, reference, subnet, tags_of};
use super::{OS_TYPES, REMOTE_LOGINS, SCALE_UPS, TIERS, word};
use crate::error::ArmError;
use crate::json::{Field, JsonText};

const NO_SSH: &str =
    "the SSH settings are stored but have no effect: nodes do not accept SSH connections";

/// The path of a property in the body of a PUT.
pub(crate) fn place(property: ClusterProperty) -> &'static str {
    match property {
        ClusterProperty::Kind => "properties.computeType",
        ClusterProperty::ReleasesQuotaOnStop => "properties.properties.releaseQuotaOnStop",
        ClusterProperty::VmSize => "properties.properties.vmSize",
        ClusterProperty::Location => "location",
        ClusterProperty::Description => "properties.description",
        ClusterProperty::Tags => "tags",
        ClusterProperty::Tier => "properties.properties.vmPriority",
        ClusterProperty::NodesMin => "properties.properties.scaleSettings.minNodeCount",
        ClusterProperty::NodesMax => "properties.properties.scaleSettings.maxNodeCount",
        ClusterProperty::IdleTime => {
            "properties.properties.scaleSettings.nodeIdleTimeBeforeScaleDown"
        }
        ClusterProperty::ScaleUp => "properties.properties.scaleSettings.scaleUp",
        ClusterProperty::OsType => "properties.properties.osType",
        ClusterProperty::VirtualMachineImage => "properties.properties.virtualMachineImage",
        ClusterProperty::IsolatedNetwork => "properties.properties.isolatedNetwork",
        ClusterProperty::Subnet => "properties.properties.subnet",
        ClusterProperty::Admin => "properties.properties.userAccountCredentials",
        ClusterProperty::RemoteLogin => "properties.properties.remoteLoginPortPublicAccess",
        ClusterProperty::EnableNodePublicIp => "properties.properties.enableNodePublicIp",
        ClusterProperty::DisableLocalAuth => "properties.disableLocalAuth",
        ClusterProperty::Identity => "identity",
        ClusterProperty::PropertyBag => "properties.properties.propertyBag",
    }
}

/// Reads a property from the field at its place.
pub(super) fn read(
    property: ClusterProperty,
    field: &Field<'_>,
    source: &Source<'_>,
    patch: &mut ClusterPatch,
) -> Result<(), ArmError> {
    match property {
        ClusterProperty::Kind => patch.kind = kind(field)?,
        ClusterProperty::ReleasesQuotaOnStop => patch.releases_quota_on_stop = field.boolean()?,
        ClusterProperty::VmSize => patch.vm_size = field.text()?.map(Into::into),
        ClusterProperty::Location => patch.location = source.location(field)?,
        ClusterProperty::Description => patch.description = field.text()?,
        ClusterProperty::Tags => patch.tags = tags_of(field)?,
        ClusterProperty::Tier => patch.tier = field.choice(&TIERS)?,
        ClusterProperty::NodesMin => patch.nodes_min = field.count()?,
        ClusterProperty::NodesMax => patch.nodes_max = field.count()?,
        ClusterProperty::IdleTime => patch.idle_time = field.duration()?,
        ClusterProperty::ScaleUp => patch.scale_up = field.choice(&SCALE_UPS)?,
        ClusterProperty::OsType => patch.os_type = field.choice(&OS_TYPES)?,
        ClusterProperty::VirtualMachineImage => patch.virtual_machine_image = reference(field)?,
        ClusterProperty::IsolatedNetwork => patch.isolated_network = field.boolean()?,
        ClusterProperty::Subnet => patch.subnet = subnet(field)?,
        ClusterProperty::Admin => {
            patch.admin = admin(field, source.digest)?.or_else(|| source.ssh.admin.clone());
        }
        ClusterProperty::RemoteLogin => {
            patch.remote_login = field.choice(&REMOTE_LOGINS)?.or(source.ssh.login);
        }
        ClusterProperty::EnableNodePublicIp => patch.enable_node_public_ip = field.boolean()?,
        ClusterProperty::DisableLocalAuth => patch.disable_local_auth = field.boolean()?,
        ClusterProperty::Identity => patch.identity = identity(field)?,
        ClusterProperty::PropertyBag => patch.property_bag = property_bag(field, source.body)?,
    }
    Ok(())
}

/// The value of a property in the body of a PUT; `null` if it is not given. `password` is the administrator's, in clear
/// text.
pub(crate) fn write(
    property: ClusterProperty,
    patch: &ClusterPatch,
    password: Option<&str>,
) -> Value {
    let id = |id: &Option<Box<str>>| json!(id.as_deref().map(|id| json!({ "id": id })));
    match property {
        ClusterProperty::Kind => json!(super::kind_word(patch.kind.unwrap_or_default())),
        ClusterProperty::ReleasesQuotaOnStop => json!(patch.releases_quota_on_stop),
        ClusterProperty::VmSize => json!(patch.vm_size),
        ClusterProperty::Location => json!(patch.location),
        ClusterProperty::Description => json!(patch.description),
        ClusterProperty::Tags => json!(patch.tags),
        ClusterProperty::Tier => json!(patch.tier.map(|tier| word(&TIERS, tier))),
        ClusterProperty::NodesMin => json!(patch.nodes_min),
        ClusterProperty::NodesMax => json!(patch.nodes_max),
        ClusterProperty::IdleTime => json!(patch.idle_time.map(crate::duration::format)),
        ClusterProperty::ScaleUp => json!(patch.scale_up.map(|how| word(&SCALE_UPS, how))),
        ClusterProperty::OsType => json!(patch.os_type.map(|system| word(&OS_TYPES, system))),
        ClusterProperty::VirtualMachineImage => id(&patch.virtual_machine_image),
        ClusterProperty::IsolatedNetwork => json!(patch.isolated_network),
        ClusterProperty::Subnet => id(&patch.subnet),
        ClusterProperty::Admin => json!(patch.admin.as_ref().map(|admin| json!({
            "adminUserName": admin.user_name,
            "adminUserPassword": password,
            "adminUserSshPublicKey": admin.ssh_public_key,
        }))),
        ClusterProperty::RemoteLogin => {
            json!(patch.remote_login.map(|login| word(&REMOTE_LOGINS, login)))
        }
        ClusterProperty::EnableNodePublicIp => json!(patch.enable_node_public_ip),
        ClusterProperty::DisableLocalAuth => json!(patch.disable_local_auth),
        ClusterProperty::Identity => {
            json!(patch.identity.as_ref().map(super::resource::identity_body))
        }
        ClusterProperty::PropertyBag => {
            json!(patch.property_bag.as_deref().and_then(JsonText::new))
        }
    }
}

/// What its owner should know about a property that has no effect with this value.
pub(crate) fn note(property: ClusterProperty, spec: &ClusterSpec) -> Option<&'static str> {
    let (applies, note) = match property {
        ClusterProperty::VirtualMachineImage => (
            spec.virtual_machine_image.is_some(),
            "the virtual machine image is stored but not used: nodes use the file system of their host",
        ),
        ClusterProperty::IsolatedNetwork => (
            spec.isolated_network,
            "isolatedNetwork has no effect: nodes of different clusters can never reach each other",
        ),
        ClusterProperty::Subnet => (
            spec.subnet.is_some(),
            "the subnet is stored but has no effect: the nodes of each cluster are in a network of their own that \
             Muster creates, and they cannot reach that subnet",
        ),
        ClusterProperty::Admin => (spec.admin.is_some(), NO_SSH),
        ClusterProperty::RemoteLogin => {
            (spec.remote_login == RemoteLogin::Enabled && spec.admin.is_none(), NO_SSH)
        }
        ClusterProperty::EnableNodePublicIp => (
            !spec.enable_node_public_ip,
            "enableNodePublicIp=false has no effect: nodes never have a public address",
        ),
        ClusterProperty::Identity => (
            spec.identity.as_ref().is_some_and(|identity| !identity.user_assigned.is_empty()),
            "the user-assigned identities are stored but have no effect: jobs cannot get tokens for them; use a \
             system-assigned identity",
        ),
        ClusterProperty::Kind
        | ClusterProperty::ReleasesQuotaOnStop
        | ClusterProperty::VmSize
        | ClusterProperty::Location
        | ClusterProperty::Description
        | ClusterProperty::Tags
        | ClusterProperty::Tier
        | ClusterProperty::NodesMin
        | ClusterProperty::NodesMax
        | ClusterProperty::IdleTime
        | ClusterProperty::ScaleUp
        | ClusterProperty::OsType
        | ClusterProperty::DisableLocalAuth
        | ClusterProperty::PropertyBag => return None,
    };
    applies.then_some(note)
}

#[cfg(test)]
pub(crate) mod tests;
