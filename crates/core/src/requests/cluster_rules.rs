//! The rules about a cluster's properties: defaults, merging, what can never be changed, and valid ranges.

use super::instance::check_wanted;
use super::{check_tags, check_text, shorten};
use crate::cluster_properties::Changes;
use crate::input::{ClusterPatch, Refused};
use crate::limits;
use crate::model::{ClusterSpec, DEFAULT_VM_SIZE, OsType, ScaleSettings};
use crate::refusal::{ClusterProperty, ClusterRule, Field, FixedValue, Rule, Target};
use crate::world::World;

const RESOURCE_ID_BYTES_MAX: usize = 2_048;
const PROPERTY_BAG_BYTES_MAX: usize = 16_384;
const IDENTITIES_MAX: usize = 100;

/// The properties of a new cluster: what the client requests, and Azure's defaults for the rest.
pub(super) fn new_spec(wanted: &ClusterPatch, home: &str) -> Result<ClusterSpec, Refused> {
    let kind = wanted.kind.unwrap_or_default();
    check_wanted(kind, wanted)?;
    let mut spec = ClusterSpec::new(kind, home);
    for property in ClusterProperty::ALL {
        spec.set(*property, wanted);
    }
    spec.ignored.clone_from(&wanted.ignored);
    Ok(spec)
}

/// The properties after an update. Clients send back what they read, which leaves out secrets and the subnet and
/// rewrites the remote login setting; none of these counts as a request to change them.
pub(super) fn merge(old: &ClusterSpec, wanted: &ClusterPatch) -> Result<ClusterSpec, Refused> {
    refuse_fixed(fixed_changes(old, wanted, &[Changes::Never]))?;
    check_wanted(old.kind, wanted)?;
    let mut spec = old.clone();
    for property in ClusterProperty::ALL {
        match property.changes() {
            Changes::Always | Changes::OnlyByPut => spec.set(*property, wanted),
            Changes::Never | Changes::IgnoredByPut => {}
        }
    }
    spec.ignored.clone_from(&wanted.ignored);
    Ok(spec)
}

/// Checks a patch. A patch contains only what is to change, so clients do not send other values back as they read them.
pub(super) fn check_only_changeable(
    old: &ClusterSpec,
    wanted: &ClusterPatch,
) -> Result<(), Refused> {
    let mut changes = fixed_changes(old, wanted, &[Changes::Never, Changes::IgnoredByPut]);
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

fn fixed_changes(old: &ClusterSpec, wanted: &ClusterPatch, fixed: &[Changes]) -> Vec<FixedValue> {
    let all = ClusterProperty::ALL.iter().filter(|property| fixed.contains(&property.changes()));
    all.filter_map(|property| old.fixed_change(*property, wanted)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ComputeKind;
    use crate::time::Span;

    /// A property that may change and is forgotten by an update would never change.
    #[test]
    fn an_update_changes_every_property_that_may_change() {
        let old = ClusterSpec::new(ComputeKind::Cluster, "eastus");
        let wanted = ClusterPatch {
            description: Some("d".into()),
            tags: Some([("a".to_owned(), "b".to_owned())].into()),
            nodes_min: Some(1),
            nodes_max: Some(9),
            idle_time: Some(Span::seconds(7)),
            scale_up: Some(crate::model::ScaleUp::Predictive),
            identity: Some(crate::model::Identity {
                system_assigned: true,
                user_assigned: Default::default(),
            }),
            property_bag: Some("{}".into()),
            ..ClusterPatch::default()
        };
        let new = merge(&old, &wanted).expect("all of them may change");
        for property in ClusterProperty::ALL {
            let may_change = matches!(property.changes(), Changes::Always | Changes::OnlyByPut);
            assert_eq!(wanted.gives(*property), may_change, "{property:?} is not tested");
            let has_changed = old.fixed_change(*property, &ClusterPatch::of(&new)).is_some();
            assert_eq!(has_changed, may_change, "{property:?}");
        }
    }
}
