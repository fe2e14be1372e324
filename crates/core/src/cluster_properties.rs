//! The properties of a cluster, in one table. The patch, merging, what can never be changed, and which properties
//! instances have all follow from it.
//!
//! A new property is a row here and a field of [`ClusterSpec`] with its default in `ClusterSpec::new`. The compiler then
//! asks for the rest: every `match` on [`ClusterProperty`] is without a wildcard, in `wire` (its place, reader, writer and
//! note) and in `cli` (its flag and its name in files).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use crate::model::{
    AdminAccount, ClusterSpec, ComputeKind, Identity, OsType, RemoteLogin, ScaleUp, Tier,
};
use crate::refusal::FixedValue;
use crate::requests::shorten;
use crate::time::Span;

/// When a property of an existing cluster may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// By any update.
    Always,
    /// A request to change it is refused.
    Never,
    /// A PATCH that changes it is refused. A PUT is ignored: clients send back another value than they read.
    IgnoredByPut,
    /// By a PUT. A PATCH that changes it is refused.
    OnlyByPut,
}

/// What a property does. Whatever has no effect is named in a note, so nothing is accepted and then ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Decisions depend on it.
    Works,
    /// It is kept and returned to the client, and nothing else is expected of it.
    Shown,
    /// It is kept, but has no effect here. A note says so.
    Noted,
    /// Only its default is accepted.
    Refused,
}

/// Which kinds of compute have a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kinds {
    All,
    /// An instance is always one node.
    Clusters,
}

macro_rules! cluster_properties {
    ($($(#[$doc:meta])* $name:ident($field:ident: $type:ty) at $($place:ident).+, $changes:ident, $effect:ident,
       $kinds:ident;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ClusterProperty { $($(#[$doc])* $name,)* }

        /// The desired properties of a cluster. `None` keeps the current value, or the default for a new cluster:
        /// clients send back what they read, and that is not complete.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct ClusterPatch {
            $($(#[$doc])* pub $field: Option<$type>,)*
            /// The names of requested properties that have no effect in Muster.
            pub ignored: BTreeSet<Box<str>>,
        }

        impl ClusterProperty {
            pub const ALL: &[ClusterProperty] = &[$(ClusterProperty::$name,)*];

            pub fn changes(self) -> Changes {
                match self { $(ClusterProperty::$name => Changes::$changes,)* }
            }

            pub fn effect(self) -> Effect {
                match self { $(ClusterProperty::$name => Effect::$effect,)* }
            }

            pub fn kinds(self) -> Kinds {
                match self { $(ClusterProperty::$name => Kinds::$kinds,)* }
            }
        }

        impl ClusterPatch {
            /// A patch that requests everything in the specification.
            pub fn of(spec: &ClusterSpec) -> ClusterPatch {
                ClusterPatch {
                    $($field: Stored::get(&spec.$($place).+),)*
                    ignored: spec.ignored.clone(),
                }
            }

            pub fn gives(&self, property: ClusterProperty) -> bool {
                match property { $(ClusterProperty::$name => self.$field.is_some(),)* }
            }

            /// The values of this patch, and those of another where it has none.
            #[must_use]
            pub fn or(self, other: ClusterPatch) -> ClusterPatch {
                ClusterPatch {
                    $($field: self.$field.or(other.$field),)*
                    ignored: self.ignored,
                }
            }
        }

        impl ClusterSpec {
            /// Sets a property to the value that a patch gives, if any.
            pub fn set(&mut self, property: ClusterProperty, patch: &ClusterPatch) {
                match property {
                    $(ClusterProperty::$name => {
                        if let Some(value) = &patch.$field {
                            Stored::set(&mut self.$($place).+, value.clone());
                        }
                    })*
                }
            }

            /// What is wrong if a patch changes a property that cannot be changed.
            pub(crate) fn fixed_change(
                &self,
                property: ClusterProperty,
                patch: &ClusterPatch,
            ) -> Option<FixedValue> {
                let change = match property {
                    $(ClusterProperty::$name => patch.$field.as_ref().and_then(|new| {
                        let old: Option<$type> = Stored::get(&self.$($place).+);
                        Fixed::change(old.as_ref(), new)
                    }),)*
                };
                change.map(|(old, new)| FixedValue { property, old, new })
            }
        }
    };
}

cluster_properties! {
    Kind(kind: ComputeKind) at kind, Never, Works, All;
    ReleasesQuotaOnStop(releases_quota_on_stop: bool) at releases_quota_on_stop, Never, Works, All;
    VmSize(vm_size: Arc<str>) at vm_size, Never, Works, All;
    Location(location: Box<str>) at location, Never, Works, All;
    Description(description: Box<str>) at description, Always, Shown, All;
    Tags(tags: BTreeMap<String, String>) at tags, Always, Shown, All;
    Tier(tier: Tier) at tier, Never, Works, All;
    NodesMin(nodes_min: u32) at scale.nodes_min, Always, Works, Clusters;
    NodesMax(nodes_max: u32) at scale.nodes_max, Always, Works, Clusters;
    IdleTime(idle_time: Span) at scale.idle_time, Always, Works, Clusters;
    ScaleUp(scale_up: ScaleUp) at scale.scale_up, Always, Works, Clusters;
    OsType(os_type: OsType) at os_type, Never, Refused, All;
    VirtualMachineImage(virtual_machine_image: Box<str>) at virtual_machine_image, Never, Noted, All;
    IsolatedNetwork(isolated_network: bool) at isolated_network, Never, Noted, All;
    Subnet(subnet: Box<str>) at subnet, Never, Noted, All;
    Admin(admin: AdminAccount) at admin, Never, Noted, All;
    RemoteLogin(remote_login: RemoteLogin) at remote_login, Never, Noted, All;
    EnableNodePublicIp(enable_node_public_ip: bool) at enable_node_public_ip, Never, Noted, All;
    DisableLocalAuth(disable_local_auth: bool) at disable_local_auth, IgnoredByPut, Shown, All;
    /// A system-assigned identity works; those that users assign are named in a note.
    Identity(identity: Identity) at identity, Always, Works, All;
    PropertyBag(property_bag: Box<str>) at property_bag, OnlyByPut, Shown, All;
}

/// How [`ClusterSpec`] keeps the value of a property.
trait Stored<T> {
    fn get(&self) -> Option<T>;
    fn set(&mut self, value: T);
}

impl<T: Clone> Stored<T> for T {
    fn get(&self) -> Option<T> {
        Some(self.clone())
    }

    fn set(&mut self, value: T) {
        *self = value;
    }
}

impl<T: Clone> Stored<T> for Option<T> {
    fn get(&self) -> Option<T> {
        self.clone()
    }

    fn set(&mut self, value: T) {
        *self = Some(value);
    }
}

impl<T: Clone> Stored<T> for Arc<T> {
    fn get(&self) -> Option<T> {
        Some(T::clone(self))
    }

    fn set(&mut self, value: T) {
        *self = Arc::new(value);
    }
}

/// Whether a request changes a value, and how the old and the new one are shown.
trait Fixed {
    fn change(old: Option<&Self>, new: &Self) -> Option<(Box<str>, Box<str>)>;
}

fn shown(old: &str, new: &str) -> Option<(Box<str>, Box<str>)> {
    Some((shorten(old).into(), shorten(new).into()))
}

/// Values whose names here are the same as Azure's.
fn changed_word<T: PartialEq + Debug>(old: Option<&T>, new: &T) -> Option<(Box<str>, Box<str>)> {
    match old {
        Some(old) if old == new => None,
        Some(old) => shown(&format!("{old:?}"), &format!("{new:?}")),
        None => shown("none", &format!("{new:?}")),
    }
}

macro_rules! fixed_words {
    ($($type:ty),*) => {
        $(impl Fixed for $type {
            fn change(old: Option<&Self>, new: &Self) -> Option<(Box<str>, Box<str>)> {
                changed_word(old, new)
            }
        })*
    };
}
fixed_words!(bool, u32, ComputeKind, Tier, OsType, ScaleUp, Span, Identity, BTreeMap<String, String>);

fn changed_text(old: Option<&str>, new: &str) -> Option<(Box<str>, Box<str>)> {
    let is_same = old.is_some_and(|old| old.eq_ignore_ascii_case(new));
    if is_same { None } else { shown(old.unwrap_or("none"), new) }
}

impl Fixed for Box<str> {
    fn change(old: Option<&Self>, new: &Self) -> Option<(Box<str>, Box<str>)> {
        changed_text(old.map(|old| &**old), new)
    }
}

impl Fixed for Arc<str> {
    fn change(old: Option<&Self>, new: &Self) -> Option<(Box<str>, Box<str>)> {
        changed_text(old.map(|old| &**old), new)
    }
}

/// Clients turn NotSpecified into one of the other values when they send back what they read, and leave it unspecified
/// if their user does. Only a change from Enabled to Disabled or back is a real request.
impl Fixed for RemoteLogin {
    fn change(old: Option<&Self>, new: &Self) -> Option<(Box<str>, Box<str>)> {
        let says_something = |login: &&RemoteLogin| **login != RemoteLogin::NotSpecified;
        let old = old.filter(says_something)?;
        changed_word(Some(old), Some(new).filter(says_something)?)
    }
}

/// Passwords are stored salted, so it is not possible to tell whether one differs.
impl Fixed for AdminAccount {
    fn change(old: Option<&Self>, new: &Self) -> Option<(Box<str>, Box<str>)> {
        let Some(old) = old else { return shown("none", &new.user_name) };
        if old.user_name != new.user_name {
            return shown(&old.user_name, &new.user_name);
        }
        let key_differs = new.ssh_public_key.is_some() && new.ssh_public_key != old.ssh_public_key;
        if key_differs { shown(&old.user_name, "the same user with another key") } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare() -> ClusterSpec {
        ClusterSpec::new(ComputeKind::Cluster, "eastus")
    }

    /// Another value than the default for every property.
    fn full() -> ClusterPatch {
        let user_name = "ada".into();
        let patch = ClusterPatch {
            kind: Some(ComputeKind::Instance),
            releases_quota_on_stop: Some(true),
            vm_size: Some("other".into()),
            location: Some("westus".into()),
            description: Some("d".into()),
            tags: Some([("a".to_owned(), "b".to_owned())].into()),
            tier: Some(Tier::LowPriority),
            nodes_min: Some(1),
            nodes_max: Some(9),
            idle_time: Some(Span::seconds(7)),
            scale_up: Some(ScaleUp::Predictive),
            os_type: Some(OsType::Windows),
            virtual_machine_image: Some("i".into()),
            isolated_network: Some(true),
            subnet: Some("s".into()),
            admin: Some(AdminAccount { user_name, ssh_public_key: None, password_digest: None }),
            remote_login: Some(RemoteLogin::Enabled),
            enable_node_public_ip: Some(false),
            disable_local_auth: Some(true),
            identity: Some(Identity { system_assigned: true, user_assigned: BTreeSet::new() }),
            property_bag: Some("{}".into()),
            ignored: BTreeSet::new(),
        };
        assert!(ClusterProperty::ALL.iter().all(|property| patch.gives(*property)));
        patch
    }

    #[test]
    fn a_property_is_set_alone_and_read_back() {
        for property in ClusterProperty::ALL {
            let mut spec = bare();
            spec.set(*property, &full());
            assert_ne!(spec, bare(), "{property:?} is not set");
            for other in ClusterProperty::ALL {
                let mut same = spec.clone();
                same.set(*other, &ClusterPatch::of(&bare()));
                let is_optional = !ClusterPatch::of(&bare()).gives(*other);
                let is_back = same == bare();
                assert_eq!(is_back, other == property && !is_optional, "{property:?} {other:?}");
            }
            spec.set(*property, &ClusterPatch::of(&spec.clone()));
            assert!(ClusterPatch::of(&spec).gives(*property), "{property:?} is not read back");
        }
    }

    #[test]
    fn what_cannot_be_changed_is_noticed() {
        for property in ClusterProperty::ALL {
            if let Changes::Never | Changes::IgnoredByPut = property.changes() {
                let mut old = bare();
                old.remote_login = RemoteLogin::Disabled;
                let change = old.fixed_change(*property, &full()).expect("another value");
                assert_eq!(change.property, *property);
                old.set(*property, &full());
                assert_eq!(old.fixed_change(*property, &full()), None, "{property:?}");
                assert_eq!(old.fixed_change(*property, &ClusterPatch::default()), None);
            }
        }
    }

    #[test]
    fn a_patch_is_completed_by_another() {
        let empty = ClusterPatch::default();
        assert_eq!(empty.clone().or(full()), full());
        assert_eq!(full().or(ClusterPatch::of(&bare())), full());
        assert!(ClusterProperty::ALL.iter().all(|property| !empty.gives(*property)));
    }
}
