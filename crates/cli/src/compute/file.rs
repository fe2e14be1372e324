//! A compute as a YAML document: the fields of Azure's schemas `amlCompute` and `computeInstance`, and one of Muster's
//! own.

use std::collections::BTreeMap;

use muster_core::ClusterPatch;
use muster_core::model::{ComputeKind, WorkspaceKey};
use muster_core::time::Span;
use muster_wire::compute::KINDS;
use serde_json::Value;

use super::put::{IdentityArgs, Network, People};
use crate::document::{Field, Fields, Kind, field};
use crate::failure::{CliResult, Failure, quoted};
use crate::values;

const BY_HAND: &str = "start and stop it by hand or from a program, and remove this field";
const AS_JOB: &str = "run it as a job on the compute instance, and remove this field";
const SSH: [Field; 4] = [
    field("ssh_port", Kind::Shown),
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
/// Why a user cannot create a compute instance for another user.
pub const NOT_ON_BEHALF: &str =
    "a compute instance belongs to its creator: let that user create it after `muster login`";
/// Azure's name for the administrator of every compute instance.
const INSTANCE_ADMIN: &str = "azureuser";
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
    field("release_quota_on_stop", Kind::Bool),
    field("schedules", Kind::Refused(BY_HAND)),
    field("idle_time_before_shutdown", Kind::Refused(BY_HAND)),
    field("idle_time_before_shutdown_minutes", Kind::Refused(BY_HAND)),
    field("setup_scripts", Kind::Refused(AS_JOB)),
    field("custom_applications", Kind::Refused(AS_JOB)),
    field("create_on_behalf_of", Kind::Refused(NOT_ON_BEHALF)),
    field(
        "enable_os_patching",
        Kind::Refused("nodes are new after every start; remove this field"),
    ),
    field("enable_root_access", Kind::Refused("nodes run as the server's user; remove this field")),
    field("enable_sso", Kind::Refused("there is no console to sign in to; remove this field")),
    field("resource_id", Kind::Refused("clusters are created here, not attached")),
    field("id", Kind::Shown),
    field("resourceGroup", Kind::Shown),
    field("created_on", Kind::Shown),
    field("provisioning_state", Kind::Shown),
    field("provisioning_errors", Kind::Shown),
    field("allocation_state", Kind::Shown),
    field("current_node_count", Kind::Shown),
    field("target_node_count", Kind::Shown),
    field("node_state_counts", Kind::Shown),
    field("state", Kind::Shown),
    field("last_operation", Kind::Shown),
    field("services", Kind::Shown),
    field("errors", Kind::Shown),
    field("note", Kind::Shown),
];

/// Checks that depend on the kind of compute. `now` is the kind of the existing compute.
pub fn settled(mut wanted: ComputeDraft, now: Option<ComputeKind>) -> CliResult<ComputeDraft> {
    wanted.patch.kind = wanted.patch.kind.or(now);
    let Some(admin) = &mut wanted.patch.admin else { return Ok(wanted) };
    if wanted.patch.kind.unwrap_or_default() == ComputeKind::Cluster {
        return match admin.user_name.is_empty() {
            true => Err(Failure::refused("an SSH key is given without an administrator")
                .hint("add --admin-username NAME")),
            false => Ok(wanted),
        };
    }
    let is_usual = admin.user_name.is_empty() || *admin.user_name == *INSTANCE_ADMIN;
    if !is_usual || wanted.password.is_some() {
        return Err(Failure::refused(format!(
            "the administrator of a compute instance is always {INSTANCE_ADMIN}, without a password; remove both"
        )));
    }
    admin.user_name = INSTANCE_ADMIN.into();
    // The server reports the administrator's name anyway.
    wanted.patch.admin.take_if(|admin| admin.ssh_public_key.is_none());
    Ok(wanted)
}

/// The changes that a document requests, and the administrator's password, which is not part of a patch.
pub struct ComputeDraft {
    pub patch: ClusterPatch,
    pub password: Option<String>,
}

pub fn wanted(document: &Fields, workspace: &WorkspaceKey) -> CliResult<ComputeDraft> {
    let kind = parsed(text(document, "type"), "type", kind)?;
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
        kind,
        releases_quota_on_stop: boolean(document, "release_quota_on_stop"),
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
    Ok(ComputeDraft { patch, password: people.admin_password })
}

fn kind(text: &str) -> Result<ComputeKind, String> {
    let found = KINDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
    found.map(|(_, kind)| *kind).ok_or_else(|| "give amlcompute or computeinstance".to_owned())
}

pub fn text(document: &Fields, name: &str) -> Option<String> {
    document.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn boolean(document: &Fields, name: &str) -> Option<bool> {
    document.get(name).and_then(Value::as_bool)
}

fn count(document: &Fields, name: &str) -> CliResult<Option<u32>> {
    let Some(number) = document.get(name).and_then(Value::as_u64) else { return Ok(None) };
    u32::try_from(number).map(Some).map_err(|_| {
        Failure::refused(format!("{name} is {number}; give a whole number up to {}", u32::MAX))
    })
}

fn parsed<T>(
    text: Option<String>,
    name: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> CliResult<Option<T>> {
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use muster_core::refusal::ClusterProperty;
    use serde_json::json;

    use super::*;
    use crate::spelling;

    /// A value other than the default, as a file has it; `null` for a property that only other clients can set.
    fn sample(property: ClusterProperty) -> Value {
        match property {
            ClusterProperty::Kind => json!("computeinstance"),
            ClusterProperty::ReleasesQuotaOnStop | ClusterProperty::RemoteLogin => json!(true),
            ClusterProperty::EnableNodePublicIp => json!(false),
            ClusterProperty::VmSize | ClusterProperty::Location | ClusterProperty::Description => {
                json!("other")
            }
            ClusterProperty::Tags => json!({ "a": "b" }),
            ClusterProperty::Tier => json!("low_priority"),
            ClusterProperty::NodesMin | ClusterProperty::NodesMax => json!(9),
            ClusterProperty::IdleTime => json!(7),
            ClusterProperty::ScaleUp => json!("predictive"),
            ClusterProperty::Subnet => json!("/a/subnet"),
            ClusterProperty::Admin => json!({ "admin_username": "ada" }),
            ClusterProperty::Identity => json!({ "type": "system_assigned" }),
            ClusterProperty::OsType
            | ClusterProperty::VirtualMachineImage
            | ClusterProperty::IsolatedNetwork
            | ClusterProperty::DisableLocalAuth
            | ClusterProperty::PropertyBag => Value::Null,
        }
    }

    fn is_flag_of_create(flag: &str) -> bool {
        let create = crate::Cli::command();
        let create = create.find_subcommand("compute").and_then(|it| it.find_subcommand("create"));
        let mut args = create.expect("a command").get_arguments();
        args.any(|arg| arg.get_long() == flag.strip_prefix("--"))
    }

    #[test]
    fn every_property_has_a_field_in_files_its_flag_and_a_place_in_the_view() {
        let workspace = WorkspaceKey::new("s", "g", "w");
        for property in ClusterProperty::ALL {
            let spelling = spelling::of_cluster(*property);
            let top = spelling.yaml.split('.').next().unwrap();
            let sample = sample(*property);
            let is_field = FIELDS.iter().any(|field| field.name == top);
            assert_eq!(is_field, !sample.is_null(), "{top}");
            assert!(spelling.flag.is_none_or(is_flag_of_create), "{:?}", spelling.flag);
            if !is_field {
                continue;
            }
            let mut document = json!({});
            let at = spelling.yaml.split('.').fold(&mut document, |at, key| &mut at[key]);
            *at = sample;
            let Value::Object(document) = document else { unreachable!("made above") };
            let patch = wanted(&document, &workspace).unwrap().patch;
            for other in ClusterProperty::ALL {
                assert_eq!(patch.gives(*other), other == property, "{property:?} {other:?}");
            }
            let shown = super::super::view::tests::keys();
            assert!(shown.contains(top), "{top} is not in the view");
        }
    }
}
