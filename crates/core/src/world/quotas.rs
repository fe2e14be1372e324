//! Quota accounting: what is reserved and what is used, by region and by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::ClusterId;
use crate::model::{Cluster, DefaultLimits, Quota, QuotaName, QuotaScope};

/// The vCPUs that clusters have reserved, and those that their nodes use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaUse {
    pub reserved: u64,
    pub used: u64,
}

/// A limit that leaves too little room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaShort {
    pub name: QuotaName,
    pub limit: u64,
    /// How much of it is taken now.
    pub taken: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Quotas {
    limits: BTreeMap<QuotaScope, BTreeMap<QuotaName, u64>>,
    uses: Uses,
    bookings: BTreeMap<ClusterId, Booking>,
    /// Clusters by how many vCPUs their nodes can use at most.
    reserves: BTreeMap<QuotaScope, BTreeSet<(u64, ClusterId)>>,
}

/// The limits that one cluster counts towards, and how much.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Booking {
    scope: Arc<QuotaScope>,
    names: Vec<QuotaName>,
    reserved: u64,
    /// How many vCPUs its nodes can use at most. This is more than the reservation if nothing is reserved.
    reach: u64,
    used: u64,
}

impl Quotas {
    pub(super) fn set(&mut self, quota: &Quota) {
        if quota.limits.is_empty() {
            self.limits.remove(&quota.scope);
        } else {
            self.limits.insert(quota.scope.clone(), quota.limits.clone());
        }
    }

    pub(super) fn limits(&self, scope: &QuotaScope) -> Option<&BTreeMap<QuotaName, u64>> {
        self.limits.get(scope)
    }

    /// The limit that was set, or else the default.
    pub(super) fn limit(
        &self,
        scope: &QuotaScope,
        name: &QuotaName,
        defaults: &DefaultLimits,
    ) -> Option<u64> {
        let set = self.limits.get(scope).and_then(|limits| limits.get(name)).copied();
        set.or_else(|| defaults.of(name))
    }

    pub(super) fn uses(&self, scope: &QuotaScope) -> Option<&BTreeMap<QuotaName, QuotaUse>> {
        self.uses.get(scope)
    }

    /// Every scope that has a limit or any use.
    pub(super) fn scopes(&self) -> impl Iterator<Item = &QuotaScope> {
        let without_use = self.limits.keys().filter(|scope| !self.uses.contains_key(scope));
        self.uses.keys().chain(without_use)
    }

    pub(super) fn scope_of(&self, cluster: ClusterId) -> Option<&Arc<QuotaScope>> {
        self.bookings.get(&cluster).map(|booking| &booking.scope)
    }

    pub(super) fn clusters_beyond(&self, scope: &QuotaScope, vcpus: u64) -> Vec<ClusterId> {
        let Some(reserves) = self.reserves.get(scope) else { return Vec::new() };
        reserves.range((vcpus.saturating_add(1), ClusterId(0))..).map(|(_, id)| *id).collect()
    }

    pub(super) fn reserve(&mut self, cluster: &Cluster, subscription: &str) {
        let scope = QuotaScope::new(subscription, &cluster.spec.location);
        let vcpus = u64::from(cluster.capacity.vcpus);
        let reserved = u64::from(cluster.reserved_nodes()) * vcpus;
        let reach = reserved.max(u64::from(cluster.spec.scale.nodes_max) * vcpus);
        let booking = self.bookings.entry(cluster.id).or_insert_with(|| Booking {
            scope: Arc::new(scope),
            names: QuotaName::of(cluster.spec.tier, &cluster.family),
            reserved: 0,
            reach: 0,
            used: 0,
        });
        (booking.reserved, booking.reach) = (reserved, reach);
        let reserves = self.reserves.entry((*booking.scope).clone()).or_default();
        reserves.insert((reach, cluster.id));
        post(&mut self.uses, booking, |sum| sum.reserved += reserved);
    }

    /// Ends the reservation. What nodes use counts until they are deleted.
    pub(super) fn unreserve(&mut self, cluster: ClusterId) {
        let Some(booking) = self.bookings.get_mut(&cluster) else { return };
        let reserved = std::mem::take(&mut booking.reserved);
        let reach = std::mem::take(&mut booking.reach);
        if let Some(reserves) = self.reserves.get_mut(&*booking.scope) {
            reserves.remove(&(reach, cluster));
            if reserves.is_empty() {
                self.reserves.remove(&*booking.scope);
            }
        }
        post(&mut self.uses, booking, |sum| sum.reserved -= reserved);
    }

    pub(super) fn forget(&mut self, cluster: ClusterId) {
        self.bookings.remove(&cluster);
    }

    pub(super) fn take(&mut self, cluster: ClusterId, vcpus: u32) {
        let Some(booking) = self.bookings.get_mut(&cluster) else { return };
        booking.used += u64::from(vcpus);
        post(&mut self.uses, booking, |sum| sum.used += u64::from(vcpus));
    }

    pub(super) fn give_back(&mut self, cluster: ClusterId, vcpus: u32) {
        let Some(booking) = self.bookings.get_mut(&cluster) else { return };
        booking.used = booking.used.saturating_sub(u64::from(vcpus));
        post(&mut self.uses, booking, |sum| {
            sum.used = sum.used.saturating_sub(u64::from(vcpus));
        });
    }

    /// The first limit that this many more vCPUs of the cluster would exceed.
    pub(super) fn short(
        &self,
        cluster: ClusterId,
        vcpus: u64,
        defaults: &DefaultLimits,
    ) -> Option<QuotaShort> {
        let booking = self.bookings.get(&cluster)?;
        self.shortage((&booking.scope, &booking.names), defaults, vcpus, |sum| sum.used)
    }

    /// The first limit that reserving this many more vCPUs would exceed.
    pub(super) fn short_to_reserve(
        &self,
        scope: &QuotaScope,
        names: &[QuotaName],
        vcpus: u64,
        defaults: &DefaultLimits,
    ) -> Option<QuotaShort> {
        self.shortage((scope, names), defaults, vcpus, |sum| sum.reserved)
    }

    fn shortage(
        &self,
        (scope, names): (&QuotaScope, &[QuotaName]),
        defaults: &DefaultLimits,
        vcpus: u64,
        taken: impl Fn(&QuotaUse) -> u64,
    ) -> Option<QuotaShort> {
        let uses = self.uses.get(scope);
        names.iter().find_map(|name| {
            let limit = self.limit(scope, name, defaults)?;
            let taken = uses.and_then(|uses| uses.get(name)).map_or(0, &taken);
            (taken.saturating_add(vcpus) > limit).then(|| QuotaShort {
                name: name.clone(),
                limit,
                taken,
            })
        })
    }

    /// How many more nodes with this many vCPUs the limits leave room for.
    pub(super) fn room(&self, cluster: ClusterId, vcpus: u32, defaults: &DefaultLimits) -> u32 {
        self.nodes_within(cluster, vcpus, defaults, |sum| sum.used)
    }

    /// How many nodes with this many vCPUs the limits would leave room for if no other node used any.
    pub(super) fn ceiling(&self, cluster: ClusterId, vcpus: u32, defaults: &DefaultLimits) -> u32 {
        self.nodes_within(cluster, vcpus, defaults, |_| 0)
    }

    fn nodes_within(
        &self,
        cluster: ClusterId,
        vcpus: u32,
        defaults: &DefaultLimits,
        taken: impl Fn(&QuotaUse) -> u64,
    ) -> u32 {
        if self.limits.is_empty() && *defaults == DefaultLimits::default() {
            return u32::MAX;
        }
        let Some(booking) = self.bookings.get(&cluster) else { return u32::MAX };
        let uses = self.uses.get(&booking.scope);
        let nodes = booking.names.iter().filter_map(|name| {
            let limit = self.limit(&booking.scope, name, defaults)?;
            let taken = uses.and_then(|uses| uses.get(name)).map_or(0, &taken);
            limit.saturating_sub(taken).checked_div(u64::from(vcpus))
        });
        nodes.min().map_or(u32::MAX, |nodes| u32::try_from(nodes).unwrap_or(u32::MAX))
    }
}

type Uses = BTreeMap<QuotaScope, BTreeMap<QuotaName, QuotaUse>>;

fn post(uses: &mut Uses, booking: &Booking, change: impl Fn(&mut QuotaUse)) {
    let names = uses.entry((*booking.scope).clone()).or_default();
    for name in &booking.names {
        let sum = names.entry(name.clone()).or_default();
        change(sum);
        if *sum == QuotaUse::default() {
            names.remove(name);
        }
    }
    if names.is_empty() {
        uses.remove(&*booking.scope);
    }
}
