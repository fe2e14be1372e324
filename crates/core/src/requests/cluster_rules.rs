//! The rules about a cluster's properties: defaults, merge, what is fixed for life, what is in range.

use std::sync::Arc;

use super::{check_tags, check_text, shorten};
use crate::input::{ClusterPatch, Refused};
use crate::limits;
use crate::model::{AdminAccount, ClusterSpec, OsType, RemoteLogin, ScaleSettings, Tier};
use crate::requests::cluster::DEFAULT_VM_SIZE;
use crate::world::World;

const RESOURCE_ID_BYTES_MAX: usize = 2_048;
const PROPERTY_BAG_BYTES_MAX: usize = 16_384;
const IDENTITIES_MAX: usize = 100;

/// A new cluster's properties: what the client wants, Azure's defaults for the rest.
pub(super) fn new_spec(wanted: &ClusterPatch, home: &str) -> Result<ClusterSpec, Refused> {
    let default = ScaleSettings::default();
    let nodes_max = wanted.nodes_max.unwrap_or(default.nodes_max);
    Ok(ClusterSpec {
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
    })
}

/// The properties after an update. Clients send back what they read, and that leaves out secrets and the
/// subnet and rewrites the remote login setting: none of these counts as a wish to change them.
pub(super) fn merge(old: &ClusterSpec, wanted: &ClusterPatch) -> Result<ClusterSpec, Refused> {
    let same_text = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    if let Some(size) = &wanted.vm_size
        && !same_text(size, &old.vm_size)
    {
        return Err(fixed("vmSize", &old.vm_size, size));
    }
    if let Some(location) = &wanted.location
        && !same_text(location, &old.location)
    {
        return Err(fixed("location", &old.location, location));
    }
    if let Some(tier) = wanted.tier
        && tier != old.tier
    {
        return Err(fixed("vmPriority", &format!("{:?}", old.tier), &format!("{tier:?}")));
    }
    if let Some(os_type) = wanted.os_type
        && os_type != old.os_type
    {
        return Err(fixed("osType", &format!("{:?}", old.os_type), &format!("{os_type:?}")));
    }
    if let Some(subnet) = &wanted.subnet
        && !old.subnet.as_ref().is_some_and(|old| same_text(old, subnet))
    {
        return Err(fixed("subnet", old.subnet.as_deref().unwrap_or("none"), subnet));
    }
    if let Some(admin) = &wanted.admin {
        check_admin_unchanged(old.admin.as_ref(), admin)?;
    }
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
        ..old.clone()
    })
}

fn fixed(target: &str, old: &str, new: &str) -> Refused {
    Refused::invalid(
        target,
        format!(
            "{target} cannot be changed after creation: it is '{old}', not '{}'; \
             delete the cluster and create it anew",
            shorten(new)
        ),
    )
}

fn check_admin_unchanged(old: Option<&AdminAccount>, new: &AdminAccount) -> Result<(), Refused> {
    let key_differs = |old: &AdminAccount| {
        new.ssh_public_key.is_some() && new.ssh_public_key != old.ssh_public_key
    };
    match old {
        Some(old) if old.user_name == new.user_name && !key_differs(old) => Ok(()),
        Some(old) => Err(fixed("userAccountCredentials", &old.user_name, &new.user_name)),
        None => Err(fixed("userAccountCredentials", "none", &new.user_name)),
    }
}

pub(super) fn check_spec(world: &World, spec: &ClusterSpec) -> Result<(), Refused> {
    check_scale(&spec.scale)?;
    check_size(world, spec)?;
    check_tags(&spec.tags)?;
    check_text("location", Some(&spec.location), limits::LOCATION_BYTES_MAX)?;
    check_text("description", spec.description.as_deref(), limits::DESCRIPTION_BYTES_MAX)?;
    check_text("subnet", spec.subnet.as_deref(), RESOURCE_ID_BYTES_MAX)?;
    check_text(
        "virtualMachineImage",
        spec.virtual_machine_image.as_deref(),
        RESOURCE_ID_BYTES_MAX,
    )?;
    check_text("propertyBag", spec.property_bag.as_deref(), PROPERTY_BAG_BYTES_MAX)?;
    if spec.location.is_empty() {
        return Err(Refused::invalid(
            "location",
            "location is empty; name a region such as eastus",
        ));
    }
    if spec.os_type == OsType::Windows {
        return Err(Refused::invalid(
            "osType",
            "osType 'Windows' is not supported: nodes run Linux; use 'Linux'",
        ));
    }
    check_people(spec)
}

fn check_scale(scale: &ScaleSettings) -> Result<(), Refused> {
    if scale.nodes_max > limits::CLUSTER_NODES_MAX {
        return Err(Refused::invalid(
            "maxNodeCount",
            format!(
                "maxNodeCount is {}; a cluster has at most {} nodes, so lower it",
                scale.nodes_max,
                limits::CLUSTER_NODES_MAX
            ),
        ));
    }
    if scale.nodes_min > scale.nodes_max {
        return Err(Refused::invalid(
            "minNodeCount",
            format!(
                "minNodeCount is {}, more than maxNodeCount, which is {}; lower one or raise the other",
                scale.nodes_min, scale.nodes_max
            ),
        ));
    }
    if scale.idle_time > limits::IDLE_TIME_MAX {
        return Err(Refused::invalid(
            "nodeIdleTimeBeforeScaleDown",
            format!(
                "nodeIdleTimeBeforeScaleDown is {} s; at most {} s are allowed, so shorten it",
                scale.idle_time.as_seconds(),
                limits::IDLE_TIME_MAX.as_seconds()
            ),
        ));
    }
    Ok(())
}

fn check_size(world: &World, spec: &ClusterSpec) -> Result<(), Refused> {
    if world.catalogue.get(&spec.vm_size).is_some() {
        return Ok(());
    }
    let hint = match world.catalogue.nearest(&spec.vm_size) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("use one of the known sizes, for example {DEFAULT_VM_SIZE}"),
    };
    Err(Refused::invalid(
        "vmSize",
        format!("the VM size {:?} is not known; {hint}", shorten(&spec.vm_size)),
    ))
}

fn check_people(spec: &ClusterSpec) -> Result<(), Refused> {
    if let Some(admin) = &spec.admin {
        let name = &admin.user_name;
        let fits = (1..=32).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        if !fits {
            return Err(Refused::invalid(
                "adminUserName",
                format!(
                    "adminUserName {:?} is no Linux user name: 1 to 32 letters, digits, '_' or '-', \
                     a small letter first",
                    shorten(name)
                ),
            ));
        }
        check_text("adminUserSshPublicKey", admin.ssh_public_key.as_deref(), 16_384)?;
    }
    if let Some(identity) = &spec.identity {
        if identity.user_assigned.len() > IDENTITIES_MAX {
            return Err(Refused::invalid(
                "identity",
                format!(
                    "there are {} user-assigned identities; at most {IDENTITIES_MAX} are allowed",
                    identity.user_assigned.len()
                ),
            ));
        }
        for id in &identity.user_assigned {
            check_text("identity", Some(id), RESOURCE_ID_BYTES_MAX)?;
        }
    }
    Ok(())
}
