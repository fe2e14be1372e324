//! Resource groups, the locks on them and on what they contain, and what a lock forbids.
//!
//! Roles decide who may remove a lock. What a lock forbids is defined only here:
//!
//! | action | forbidden by |
//! |---|---|
//! | delete something | any lock on it, above it or below it |
//! | change something, submit jobs | a read-only lock on it or above it |
//! | create, change or grow a compute | a read-only lock on it or above it; any lock on its group or subscription |
//! | the same, in a network of another group | also any lock on the group of that network |
//!
//! The last two lines follow Azure, where a lock on the group of a workspace or of a network stops all scaling. Unlike
//! Azure, Muster says so, and stops only growth: idle nodes are still deleted and jobs can be canceled, so that a lock
//! never costs money.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{Lock, LockLevel, ResourceGroup, Scope};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Governance {
    /// Groups by scope.
    groups: BTreeMap<Scope, Arc<ResourceGroup>>,
    /// Locks by scope, then by lower-case name.
    locks: BTreeMap<Scope, BTreeMap<Box<str>, Arc<Lock>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GovernanceChange {
    Group(Arc<ResourceGroup>),
    GroupGone(Scope),
    Lock(Arc<Lock>),
    /// The name is in lower case.
    LockGone {
        scope: Scope,
        name: Box<str>,
    },
}

impl Governance {
    pub(crate) fn apply(&mut self, change: &GovernanceChange) {
        match change {
            GovernanceChange::Group(group) => {
                self.groups.insert(group.scope(), Arc::clone(group));
            }
            GovernanceChange::GroupGone(scope) => {
                self.groups.remove(scope);
            }
            GovernanceChange::Lock(lock) => {
                let name = lock.name.to_ascii_lowercase().into();
                self.locks.entry(lock.scope.clone()).or_default().insert(name, Arc::clone(lock));
            }
            GovernanceChange::LockGone { scope, name } => {
                if let Some(locks) = self.locks.get_mut(scope) {
                    locks.remove(name);
                    if locks.is_empty() {
                        self.locks.remove(scope);
                    }
                }
            }
        }
    }

    pub fn group(&self, subscription: &str, name: &str) -> Option<&Arc<ResourceGroup>> {
        self.groups.get(&Scope::group(subscription, name))
    }

    pub fn groups(&self) -> impl ExactSizeIterator<Item = &Arc<ResourceGroup>> {
        self.groups.values()
    }

    pub fn lock(&self, scope: &Scope, name: &str) -> Option<&Arc<Lock>> {
        self.locks.get(scope)?.get(name.to_ascii_lowercase().as_str())
    }

    /// All locks, ordered by scope and then by name.
    pub fn locks(&self) -> impl Iterator<Item = &Arc<Lock>> {
        self.locks.values().flat_map(BTreeMap::values)
    }

    pub fn has_locks(&self) -> bool {
        !self.locks.is_empty()
    }

    /// The lock that prevents the resource at `place` from being deleted.
    pub fn against_delete(&self, place: &Scope) -> Option<&Lock> {
        let below = |lock: &&Arc<Lock>| place.contains(&lock.scope);
        self.above(place).next().or_else(|| self.locks().find(below).map(|lock| &**lock))
    }

    /// The lock that prevents the resource at `place` from being changed.
    pub fn against_change(&self, place: &Scope) -> Option<&Lock> {
        self.above(place).find(|lock| lock.level == LockLevel::ReadOnly)
    }

    /// The lock that prevents a compute from being created, changed or grown. `network` is the group of the network
    /// that its nodes are in.
    pub fn against_scaling(&self, compute: &Scope, network: Option<&Scope>) -> Option<&Lock> {
        let is_group = |lock: &&Lock| {
            matches!(lock.scope, Scope::Group { .. } | Scope::Subscription(_) | Scope::Everything)
        };
        self.against_change(compute)
            .or_else(|| self.above(compute).find(is_group))
            .or_else(|| self.above(network?).next())
    }

    /// The locks on a place, then those on its parent, and so on.
    fn above(&self, place: &Scope) -> impl Iterator<Item = &Lock> {
        let mut next = if self.locks.is_empty() { None } else { Some(place.clone()) };
        let places = std::iter::from_fn(move || {
            let place = next.take()?;
            next = place.parent();
            Some(place)
        });
        places
            .filter_map(|place| self.locks.get(&place))
            .flat_map(|locks| locks.values().map(|lock| &**lock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WorkspaceKey;
    use crate::time::Wall;

    fn governance(locks: &[(&str, Scope, LockLevel)]) -> Governance {
        let mut governance = Governance::default();
        for (name, scope, level) in locks {
            let (name, scope, level) = ((*name).into(), scope.clone(), *level);
            let lock = Lock { name, scope, level, notes: None, created_at: Wall(0) };
            governance.apply(&GovernanceChange::Lock(Arc::new(lock)));
        }
        governance
    }

    fn name(lock: Option<&Lock>) -> Option<&str> {
        lock.map(|lock| &*lock.name)
    }

    #[test]
    fn each_lock_forbids_what_the_table_says_and_nothing_else() {
        use LockLevel::{CanNotDelete, ReadOnly};
        let key = WorkspaceKey::new("s", "g", "w");
        let (group, workspace) = (Scope::group("s", "g"), Scope::workspace(&key));
        let (compute, beside) = (Scope::compute(&key, "c"), Scope::compute(&key, "d"));
        let net = Scope::group("s", "net");
        let all = |governance: &Governance, place: &Scope| {
            [
                governance.against_delete(place).is_some(),
                governance.against_change(place).is_some(),
                governance.against_scaling(place, Some(&net)).is_some(),
            ]
        };
        let one = |scope: &Scope, level| governance(&[("L", scope.clone(), level)]);

        let found = one(&compute, CanNotDelete);
        assert_eq!(all(&found, &compute), [true, false, false]);
        assert_eq!(all(&found, &beside), [false; 3]);
        // Deleting the parent would delete it as well.
        assert!(
            found.against_delete(&workspace).is_some() && found.against_delete(&group).is_some()
        );

        assert_eq!(all(&one(&compute, ReadOnly), &compute), [true; 3]);
        assert_eq!(all(&one(&workspace, CanNotDelete), &compute), [true, false, false]);
        assert_eq!(all(&one(&workspace, ReadOnly), &compute), [true; 3]);
        assert_eq!(all(&one(&group, CanNotDelete), &compute), [true, false, true]);
        assert_eq!(
            all(&one(&Scope::subscription("s"), CanNotDelete), &compute),
            [true, false, true]
        );
        assert_eq!(all(&one(&net, CanNotDelete), &compute), [false, false, true]);
        assert_eq!(all(&one(&Scope::group("s", "other"), ReadOnly), &compute), [false; 3]);
        assert_eq!(one(&net, ReadOnly).against_scaling(&compute, None), None);
    }

    #[test]
    fn the_nearest_lock_is_named_and_names_have_no_case() {
        let key = WorkspaceKey::new("S", "G", "W");
        let (group, workspace) = (Scope::group("s", "g"), Scope::workspace(&key));
        let mut governance = governance(&[
            ("far", group, LockLevel::ReadOnly),
            ("Near", workspace.clone(), LockLevel::ReadOnly),
        ]);
        assert_eq!(name(governance.against_change(&Scope::compute(&key, "c"))), Some("Near"));
        assert!(governance.lock(&workspace, "NEAR").is_some());
        let gone = GovernanceChange::LockGone { scope: workspace.clone(), name: "near".into() };
        governance.apply(&gone);
        assert_eq!(name(governance.against_change(&workspace)), Some("far"));
    }
}
