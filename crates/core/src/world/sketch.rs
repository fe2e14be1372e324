//! A World on which requests are tried: it has everything that a request for a workspace or a cluster is checked
//! against, but no jobs and nodes. So its cost depends on the number of clusters and workspaces only.

use std::sync::Arc;

use super::{World, WorldRows};
use crate::model::Quota;
use crate::time::Now;

impl World {
    pub(crate) fn sketch(&self, now: Now) -> World {
        let quota = |scope| {
            let limits = self.quota_limits(scope)?.clone();
            Some(Quota { scope: scope.clone(), limits })
        };
        let rows = WorldRows {
            next_sequence: self.next_sequence,
            last_wall: self.last_wall,
            principals: self.principals.values().cloned().collect(),
            workspaces: self.workspaces.values().cloned().collect(),
            quotas: self.quota_scopes().filter_map(quota).collect(),
            clusters: self.clusters().cloned().collect(),
            groups: self.governance.groups().map(|group| (**group).clone()).collect(),
            hosts: self.hosts.hosts().map(|host| (**host).clone()).collect(),
            locks: self.governance.locks().map(|lock| (**lock).clone()).collect(),
            ..WorldRows::default()
        };
        World::rebuild(rows, 0, self.settings.clone(), Arc::clone(&self.catalogue), now)
    }
}
