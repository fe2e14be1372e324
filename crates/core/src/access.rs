//! The directory of users and roles: who the caller is, and what the caller may do.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::ClusterId;
use crate::model::{Action, KeyDigest, RoleAssignment, Scope, User, UserKind};

/// All users and roles. World holds the directory; the server reads a copy, renewed after every commit that changes
/// it, so no request has to wait for the writer to identify its caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directory {
    /// Users by lower-case name.
    users: BTreeMap<Box<str>, Arc<User>>,
    /// User names by object ID, which is how tokens and role assignments refer to users.
    names: BTreeMap<Box<str>, Box<str>>,
    /// Names of managed identities, by the cluster that they belong to.
    identities: BTreeMap<ClusterId, Box<str>>,
    roles: BTreeMap<Box<str>, RoleAssignment>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessChange {
    User(Arc<User>),
    /// The lower-case name of the deleted user.
    UserGone(Box<str>),
    Role(RoleAssignment),
    RoleGone(Box<str>),
}

impl Directory {
    pub(crate) fn apply(&mut self, change: &AccessChange) {
        match change {
            AccessChange::User(user) => {
                let name: Box<str> = user.name.to_ascii_lowercase().into();
                self.names.insert(user.object_id.clone(), name.clone());
                if let UserKind::Managed(cluster) = user.kind {
                    self.identities.insert(cluster, name.clone());
                }
                self.users.insert(name, Arc::clone(user));
            }
            AccessChange::UserGone(name) => {
                if let Some(user) = self.users.remove(name) {
                    self.names.remove(&user.object_id);
                    if let UserKind::Managed(cluster) = user.kind {
                        self.identities.remove(&cluster);
                    }
                }
            }
            AccessChange::Role(role) => {
                self.roles.insert(role.name.to_ascii_lowercase().into(), role.clone());
            }
            AccessChange::RoleGone(name) => {
                self.roles.remove(name);
            }
        }
    }

    pub fn user(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name.to_ascii_lowercase().as_str())
    }

    pub fn user_by_object_id(&self, object_id: &str) -> Option<&Arc<User>> {
        self.users.get(self.names.get(object_id)?)
    }

    /// The managed identity that a cluster's nodes may act as.
    pub fn identity_of(&self, cluster: ClusterId) -> Option<&Arc<User>> {
        self.users.get(self.identities.get(&cluster)?)
    }

    /// The number of people and programs, not counting the managed identities of clusters.
    pub fn accounts(&self) -> usize {
        self.users.len() - self.identities.len()
    }

    /// All users, ordered by name.
    pub fn users(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.users.values()
    }

    pub fn role(&self, name: &str) -> Option<&RoleAssignment> {
        self.roles.get(name.to_ascii_lowercase().as_str())
    }

    pub fn roles(&self) -> impl ExactSizeIterator<Item = &RoleAssignment> {
        self.roles.values()
    }

    /// The user that holds this key. Every key is compared, and with the given function, so that the time it takes
    /// need not reveal which one matches.
    pub fn holder_of(
        &self,
        digest: &KeyDigest,
        is_same: impl Fn(&KeyDigest, &KeyDigest) -> bool,
    ) -> Option<&Arc<User>> {
        let mut found = None;
        for user in self.users.values() {
            if user.key.is_some_and(|key| is_same(&key.digest, digest)) {
                found = Some(user);
            }
        }
        found
    }

    /// The role assignments of a user.
    pub fn roles_of<'d>(&'d self, object_id: &'d str) -> impl Iterator<Item = &'d RoleAssignment> {
        self.roles.values().filter(move |role| *role.object_id == *object_id)
    }

    /// Whether this user may perform `action` at this scope.
    pub fn allows(&self, object_id: &str, action: Action, at: &Scope) -> bool {
        self.names.contains_key(object_id)
            && self.roles.values().any(|role| {
                *role.object_id == *object_id && role.role.allows(action) && role.scope.contains(at)
            })
    }

    /// Whether this user may read anything at this scope or below it.
    pub fn sees(&self, object_id: &str, at: &Scope) -> bool {
        self.names.contains_key(object_id)
            && self.roles.values().any(|role| {
                *role.object_id == *object_id
                    && (role.scope.contains(at) || at.contains(&role.scope))
            })
    }
}
