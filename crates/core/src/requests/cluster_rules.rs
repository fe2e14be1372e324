//! The rules about a cluster's properties: defaults, merging, what can never be changed, and valid ranges.

use std::fmt::Debug;
use std::sync::Arc;

use super::instance::check_wanted;
use super::{check_tags, check_text, shorten};
use crate::input::{ClusterPatch, Refused};
use crate::limits;
use crate::model::{
    AdminAccount, ClusterSpec, ComputeKind, OsType, RemoteLogin, ScaleSettings, Tier,
};
use crate::refusal::{ClusterProperty, ClusterRule, Field, FixedValue, Rule, Target};
use crate::requests::cluster::DEFAULT_VM_SIZE;
use crate::world::World;

const RESOURCE_ID_BYTES_MAX: usize = 2_048;
const PROPERTY_BAG_BYTES_MAX: usize = 16_384;
const IDENTITIES_MAX: usize = 100;

/// The properties of a new cluster: what the client requests, and Azure's defaults for the rest.
pub(super) fn new_spec(wanted: &ClusterPatch, home: &str) -> Result<ClusterSpec, Refused> {
    let kind = wanted.kind.unwrap_or_default();
    check_wanted(kind, wanted)?;
    let default = match kind {
        ComputeKind::Cluster => ScaleSettings::default(),
        ComputeKind::Instance => ScaleSettings::of_instance(true),
        ComputeKind::Serverless => ScaleSettings::of_serverless(),
    };
    let nodes_max = wanted.nodes_max.unwrap_or(default.nodes_max);
    Ok(ClusterSpec {
        kind,
        releases_quota_on_stop: wanted.releases_quota_on_stop.unwrap_or(false),
        location: wanted.location.clone().unwrap_or_else(|| home.into()),
        description: wanted.description.clone(),
        tags: Arc::new(wanted.tags.clone().unwrap_or_default()),
        vm_size: wanted.vm_size.clone().unwrap_or_else(|| DEFAULT_VM_SIZE.into()),
        tier: wanted.tier.unwrap_or(Tier::Dedicated),
        scale: ScaleSettings {
            nodes_min: wanted.nodes_min.unwrap_or(default.nodes_min),
            nodes_max,
            idle_time: wanted.idle_time.unwrap_or(default.idle_time),
            scale_up: wanted.scale_up.unwrap_or(default.scale_up),
        },
        os_type: wanted.os_type.unwrap_or(OsType::Linux),
        virtual_machine_image: wanted.virtual_machine_image.clone(),
        isolated_network: wanted.isolated_network.unwrap_or(false),
        subnet: wanted.subnet.clone(),
        admin: wanted.admin.clone(),
        remote_login: wanted.remote_login.unwrap_or(RemoteLogin::NotSpecified),
        enable_node_public_ip: wanted.enable_node_public_ip.unwrap_or(true),
        disable_local_auth: wanted.disable_local_auth.unwrap_or(false),
        identity: wanted.identity.clone(),
        property_bag: wanted.property_bag.clone(),
        ignored: wanted.ignored.clone(),
    })
}

/// The properties after an update. Clients send back what they read, which leaves out secrets and the subnet and
/// rewrites the remote login setting; none of these counts as a request to change them.
pub(super) fn merge(old: &ClusterSpec, wanted: &ClusterPatch) -> Result<ClusterSpec, Refused> {
    refuse_fixed(fixed_changes(old, wanted))?;
    check_wanted(old.kind, wanted)?;
    Ok(ClusterSpec {
        description: wanted.description.clone().or_else(|| old.description.clone()),
        tags: wanted.tags.clone().map_or_else(|| Arc::clone(&old.tags), Arc::new),
        scale: ScaleSettings {
            nodes_min: wanted.nodes_min.unwrap_or(old.scale.nodes_min),
            nodes_max: wanted.nodes_max.unwrap_or(old.scale.nodes_max),
            idle_time: wanted.idle_time.unwrap_or(old.scale.idle_time),
            scale_up: wanted.scale_up.unwrap_or(old.scale.scale_up),
        },
        identity: wanted.identity.clone().or_else(|| old.identity.clone()),
        property_bag: wanted.property_bag.clone().or_else(|| old.property_bag.clone()),
        ignored: wanted.ignored.clone(),
        ..old.clone()
    })
}

/// Checks a patch. A patch contains only what is to change, so clients do not send other values back as they read them.
pub(super) fn check_only_changeable(
    old: &ClusterSpec,
    wanted: &ClusterPatch,
) -> Result<(), Refused> {
    let mut changes = fixed_changes(old, wanted);
    let property = ClusterProperty::DisableLocalAuth;
    changes.extend(flag(property, old.disable_local_auth, wanted.disable_local_auth));
    // Passwords are stored salted, so it is not possible to tell whether this one differs.
    if let Some(admin) = &wanted.admin
        && admin.password_digest.is_some()
    {
        let new = "the same user with a password";
        changes.push(fixed(ClusterProperty::Admin, &admin.user_name, new));
    }
    if let Some(bag) = &wanted.property_bag {
        // Clients that pass a bag on may change its white space, and a missing bag is shown as an empty one.
        let bare = |text: &str| text.split_whitespace().collect::<String>();
        let kept = old.property_bag.as_deref().unwrap_or("{}");
        if bare(kept) != bare(bag) {
            changes.push(fixed(ClusterProperty::PropertyBag, kept, bag));
        }
    }
    refuse_fixed(changes)
}

fn fixed(property: ClusterProperty, old: &str, new: &str) -> FixedValue {
    FixedValue { property, old: shorten(old).into(), new: shorten(new).into() }
}

/// For values whose names here are the same as Azure's.
fn fixed_word(property: ClusterProperty, old: impl Debug, new: impl Debug) -> FixedValue {
    fixed(property, &format!("{old:?}"), &format!("{new:?}"))
}

fn fixed_changes(old: &ClusterSpec, wanted: &ClusterPatch) -> Vec<FixedValue> {
    use ClusterProperty as P;
    let text = |property, old: Option<&str>, new: Option<&str>| {
        let new = new?;
        let is_same = old.is_some_and(|old| old.eq_ignore_ascii_case(new));
        (!is_same).then(|| fixed(property, old.unwrap_or("none"), new))
    };
    let tier = wanted.tier.filter(|tier| *tier != old.tier);
    let os_type = wanted.os_type.filter(|os_type| *os_type != old.os_type);
    let image = wanted.virtual_machine_image.as_deref();
    let kind = wanted.kind.filter(|kind| *kind != old.kind);
    let changes = [
        kind.map(|kind| fixed_word(P::Kind, old.kind, kind)),
        flag(P::ReleasesQuotaOnStop, old.releases_quota_on_stop, wanted.releases_quota_on_stop),
        text(P::VmSize, Some(&old.vm_size), wanted.vm_size.as_deref()),
        text(P::Location, Some(&old.location), wanted.location.as_deref()),
        tier.map(|tier| fixed_word(P::Tier, old.tier, tier)),
        os_type.map(|os_type| fixed_word(P::OsType, old.os_type, os_type)),
        text(P::VirtualMachineImage, old.virtual_machine_image.as_deref(), image),
        flag(P::IsolatedNetwork, old.isolated_network, wanted.isolated_network),
        text(P::Subnet, old.subnet.as_deref(), wanted.subnet.as_deref()),
        wanted.admin.as_ref().and_then(|admin| changed_admin(old.admin.as_ref(), admin)),
        wanted.remote_login.and_then(|login| changed_login(old.remote_login, login)),
        flag(P::EnableNodePublicIp, old.enable_node_public_ip, wanted.enable_node_public_ip),
    ];
    changes.into_iter().flatten().collect()
}

fn flag(property: ClusterProperty, old: bool, new: Option<bool>) -> Option<FixedValue> {
    let new = new.filter(|new| *new != old)?;
    Some(fixed_word(property, old, new))
}

/// Clients turn NotSpecified into one of the other values when they send back what they read, and leave it unspecified
/// if their user does. Only a change from Enabled to Disabled or back is a real request.
fn changed_login(old: RemoteLogin, new: RemoteLogin) -> Option<FixedValue> {
    let says_something = |login| login != RemoteLogin::NotSpecified;
    (old != new && says_something(old) && says_something(new))
        .then(|| fixed_word(ClusterProperty::RemoteLogin, old, new))
}

fn changed_admin(old: Option<&AdminAccount>, new: &AdminAccount) -> Option<FixedValue> {
    let property = ClusterProperty::Admin;
    let Some(old) = old else { return Some(fixed(property, "none", &new.user_name)) };
    let key_differs = new.ssh_public_key.is_some() && new.ssh_public_key != old.ssh_public_key;
    if old.user_name != new.user_name {
        return Some(fixed(property, &old.user_name, &new.user_name));
    }
    key_differs.then(|| fixed(property, &old.user_name, "the same user with another key"))
}

/// Names every such value, so that the request can be corrected at once.
fn refuse_fixed(changes: Vec<FixedValue>) -> Result<(), Refused> {
    let Some(first) = changes.first() else { return Ok(()) };
    Err(Refused::invalid(first.property, ClusterRule::Fixed(changes)))
}

pub(super) fn check_spec(world: &World, spec: &ClusterSpec) -> Result<(), Refused> {
    check_scale(&spec.scale)?;
    check_size(world, spec)?;
    check_tags(&spec.tags)?;
    use ClusterProperty as P;
    check_text(P::Location, Some(&spec.location), limits::LOCATION_BYTES_MAX)?;
    check_text(P::Description, spec.description.as_deref(), limits::DESCRIPTION_BYTES_MAX)?;
    check_text(P::Subnet, spec.subnet.as_deref(), RESOURCE_ID_BYTES_MAX)?;
    let image = spec.virtual_machine_image.as_deref();
    check_text(P::VirtualMachineImage, image, RESOURCE_ID_BYTES_MAX)?;
    check_text(P::PropertyBag, spec.property_bag.as_deref(), PROPERTY_BAG_BYTES_MAX)?;
    if spec.location.is_empty() {
        let advice = "name a region such as eastus";
        return Err(Refused::invalid(P::Location, Rule::Empty { advice }));
    }
    if spec.os_type == OsType::Windows {
        return Err(Refused::invalid(P::OsType, ClusterRule::NotLinux));
    }
    check_people(spec)
}

fn check_scale(scale: &ScaleSettings) -> Result<(), Refused> {
    if scale.nodes_max > limits::CLUSTER_NODES_MAX {
        let (nodes, max) = (scale.nodes_max, limits::CLUSTER_NODES_MAX);
        let rule = ClusterRule::TooManyNodes { nodes, max };
        return Err(Refused::invalid(ClusterProperty::NodesMax, rule));
    }
    if scale.nodes_min > scale.nodes_max {
        let (min, max) = (scale.nodes_min, scale.nodes_max);
        let rule = ClusterRule::MinimumAboveMaximum { min, max };
        return Err(Refused::invalid(ClusterProperty::NodesMin, rule));
    }
    if scale.idle_time > limits::IDLE_TIME_MAX {
        let (seconds, max) = (scale.idle_time.as_seconds(), limits::IDLE_TIME_MAX.as_seconds());
        let rule = ClusterRule::IdleTooLong { seconds, max };
        return Err(Refused::invalid(ClusterProperty::IdleTime, rule));
    }
    Ok(())
}

fn check_size(world: &World, spec: &ClusterSpec) -> Result<(), Refused> {
    check_known_size(world, ClusterProperty::VmSize, &spec.vm_size)
}

pub(super) fn check_known_size(
    world: &World,
    target: impl Into<Target>,
    vm_size: &str,
) -> Result<(), Refused> {
    if world.catalogue.get(vm_size).is_some() {
        return Ok(());
    }
    let hint = match world.catalogue.nearest(vm_size) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("use one of the known sizes, for example {DEFAULT_VM_SIZE}"),
    };
    Err(Refused::invalid(
        target,
        format!("the VM size {:?} is not known; {hint}", shorten(vm_size)),
    ))
}

fn check_people(spec: &ClusterSpec) -> Result<(), Refused> {
    if let Some(admin) = &spec.admin {
        let name = &admin.user_name;
        let fits = (1..=32).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        if !fits {
            let rule = ClusterRule::NotAUserName { name: shorten(name).into() };
            return Err(Refused::invalid(Field::AdminUserName, rule));
        }
        check_text(Field::AdminSshKey, admin.ssh_public_key.as_deref(), 16_384)?;
    }
    if let Some(identity) = &spec.identity {
        if identity.user_assigned.len() > IDENTITIES_MAX {
            return Err(Refused::invalid(
                ClusterProperty::Identity,
                format!(
                    "there are {} user-assigned identities; at most {IDENTITIES_MAX} are allowed",
                    identity.user_assigned.len()
                ),
            ));
        }
        for id in &identity.user_assigned {
            check_text(ClusterProperty::Identity, Some(id), RESOURCE_ID_BYTES_MAX)?;
        }
    }
    Ok(())
}
