//! A cluster as its owner writes it: the fields of Azure's schema `amlCompute`, and one of our own.

use std::collections::BTreeMap;

use muster_core::ClusterPatch;
use muster_core::model::WorkspaceKey;
use muster_core::time::Span;
use serde_json::Value;

use super::put::{IdentityArgs, Network, People};
use crate::document::{Field, Fields, Kind, field};
use crate::failure::{Failure, Outcome, quoted};
use crate::values;

const SSH: [Field; 3] = [
    field("admin_username", Kind::Text),
    field("admin_password", Kind::Text),
    field("ssh_key_value", Kind::Text),
];
const NETWORK: [Field; 4] = [
    field("vnet_name", Kind::Text),
    field("subnet", Kind::Text),
    field("public_ip_address", Kind::Shown),
    field("private_ip_address", Kind::Shown),
];
const ASSIGNED: [Field; 4] = [
    field("resource_id", Kind::Text),
    field("principal_id", Kind::Shown),
    field("client_id", Kind::Shown),
    field("tenant_id", Kind::Shown),
];
const IDENTITY: [Field; 4] = [
    field("type", Kind::Text),
    field("user_assigned_identities", Kind::List(&ASSIGNED)),
    field("principal_id", Kind::Shown),
    field("tenant_id", Kind::Shown),
];
pub const FIELDS: &[Field] = &[
    field("name", Kind::Text),
    field("type", Kind::Text),
    field("location", Kind::Text),
    field("description", Kind::Text),
    field("tags", Kind::Texts),
    field("size", Kind::Text),
    field("tier", Kind::Text),
    field("min_instances", Kind::Whole),
    field("max_instances", Kind::Whole),
    field("idle_time_before_scale_down", Kind::Whole),
    field("ssh_public_access_enabled", Kind::Bool),
    field("ssh_settings", Kind::Object(&SSH)),
    field("network_settings", Kind::Object(&NETWORK)),
    field("identity", Kind::Object(&IDENTITY)),
    field("enable_node_public_ip", Kind::Bool),
    field("scale_up", Kind::Text),
    field("resource_id", Kind::Refused("clusters are made here, not attached")),
    field("id", Kind::Shown),
    field("resourceGroup", Kind::Shown),
    field("created_on", Kind::Shown),
    field("provisioning_state", Kind::Shown),
    field("provisioning_errors", Kind::Shown),
    field("allocation_state", Kind::Shown),
    field("current_node_count", Kind::Shown),
    field("target_node_count", Kind::Shown),
    field("node_state_counts", Kind::Shown),
    field("errors", Kind::Shown),
    field("note", Kind::Shown),
];

/// What a document asks for, and the administrator's password, which no patch holds.
pub struct Wanted {
    pub patch: ClusterPatch,
    pub password: Option<String>,
}

pub fn wanted(document: &Fields, workspace: &WorkspaceKey) -> Outcome<Wanted> {
    if let Some(kind) = text(document, "type")
        && !kind.eq_ignore_ascii_case("amlcompute")
    {
        return Err(Failure::refused(format!("type is {}; give amlcompute", quoted(&kind))));
    }
    let inner = |name: &str| match document.get(name) {
        Some(Value::Object(inner)) => inner.clone(),
        _ => Fields::new(),
    };
    let word = |name: &str| text(document, name);
    let (ssh, network, identity) =
        (inner("ssh_settings"), inner("network_settings"), inner("identity"));
    let people = People {
        identity: IdentityArgs {
            identity_type: text(&identity, "type"),
            user_assigned_identities: assigned(&identity),
        },
        admin_username: text(&ssh, "admin_username"),
        admin_password: text(&ssh, "admin_password"),
        ssh_key_value: text(&ssh, "ssh_key_value"),
        ssh_public_access_enabled: boolean(document, "ssh_public_access_enabled"),
    };
    let network = Network {
        vnet_name: text(&network, "vnet_name"),
        subnet: text(&network, "subnet"),
        enable_node_public_ip: boolean(document, "enable_node_public_ip"),
    };
    let patch = ClusterPatch {
        location: word("location").map(String::into),
        description: word("description").map(String::into),
        vm_size: word("size").map(String::into),
        tier: parsed(word("tier"), "tier", values::tier)?,
        tags: tags(document),
        nodes_min: count(document, "min_instances")?,
        nodes_max: count(document, "max_instances")?,
        idle_time: count(document, "idle_time_before_scale_down")?
            .map(|seconds| Span::seconds(u64::from(seconds))),
        scale_up: parsed(word("scale_up"), "scale_up", values::scale_up)?,
        subnet: network.subnet_id(workspace)?.map(String::into),
        enable_node_public_ip: network.enable_node_public_ip,
        identity: people.identity.read()?,
        remote_login: people.remote_login(),
        admin: people.admin(),
        ..ClusterPatch::default()
    };
    Ok(Wanted { patch, password: people.admin_password })
}

/// What flags say goes before what a file says.
pub fn merged(over: ClusterPatch, under: ClusterPatch) -> ClusterPatch {
    ClusterPatch {
        kind: over.kind.or(under.kind),
        releases_quota_on_stop: over.releases_quota_on_stop.or(under.releases_quota_on_stop),
        location: over.location.or(under.location),
        description: over.description.or(under.description),
        tags: over.tags.or(under.tags),
        vm_size: over.vm_size.or(under.vm_size),
        tier: over.tier.or(under.tier),
        nodes_min: over.nodes_min.or(under.nodes_min),
        nodes_max: over.nodes_max.or(under.nodes_max),
        idle_time: over.idle_time.or(under.idle_time),
        scale_up: over.scale_up.or(under.scale_up),
        os_type: over.os_type.or(under.os_type),
        virtual_machine_image: over.virtual_machine_image.or(under.virtual_machine_image),
        isolated_network: over.isolated_network.or(under.isolated_network),
        subnet: over.subnet.or(under.subnet),
        admin: over.admin.or(under.admin),
        remote_login: over.remote_login.or(under.remote_login),
        enable_node_public_ip: over.enable_node_public_ip.or(under.enable_node_public_ip),
        disable_local_auth: over.disable_local_auth.or(under.disable_local_auth),
        identity: over.identity.or(under.identity),
        property_bag: over.property_bag.or(under.property_bag),
    }
}

pub fn text(document: &Fields, name: &str) -> Option<String> {
    document.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn boolean(document: &Fields, name: &str) -> Option<bool> {
    document.get(name).and_then(Value::as_bool)
}

fn count(document: &Fields, name: &str) -> Outcome<Option<u32>> {
    let Some(number) = document.get(name).and_then(Value::as_u64) else { return Ok(None) };
    u32::try_from(number).map(Some).map_err(|_| {
        Failure::refused(format!("{name} is {number}; give a whole number up to {}", u32::MAX))
    })
}

fn parsed<T>(
    text: Option<String>,
    name: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Outcome<Option<T>> {
    let Some(text) = text else { return Ok(None) };
    parse(&text)
        .map(Some)
        .map_err(|why| Failure::refused(format!("{name} is {}; {why}", quoted(&text))))
}

fn tags(document: &Fields) -> Option<BTreeMap<String, String>> {
    let tags = document.get("tags")?.as_object()?;
    let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    Some(tags.iter().filter_map(pair).collect())
}

fn assigned(identity: &Fields) -> Option<String> {
    let items = identity.get("user_assigned_identities")?.as_array()?;
    let id = |item: &Value| item.get("resource_id").and_then(Value::as_str).map(str::to_owned);
    Some(items.iter().filter_map(id).collect::<Vec<_>>().join(","))
}
