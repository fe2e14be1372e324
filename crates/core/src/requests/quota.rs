//! Requests for other limits of a region.

use std::collections::BTreeMap;

use super::check_region;
use super::governance::locked;
use crate::change::Change;
use crate::input::{InputResult, Refused, Reply};
use crate::limits;
use crate::model::{DefaultLimits, Quota, QuotaName, QuotaScope, QuotaVerdict, Scope};
use crate::step::Transaction;

pub(crate) fn set(
    tx: &mut Transaction<'_>,
    scope: &QuotaScope,
    wanted: &BTreeMap<QuotaName, Option<u64>>,
) -> InputResult {
    if scope.location.is_empty() || scope.location.len() > limits::LOCATION_BYTES_MAX {
        return Err(Refused::invalid(
            "location",
            format!("location has {} bytes; name a region such as eastus", scope.location.len()),
        ));
    }
    check_region(tx.world, &scope.location)?;
    let place = Scope::subscription(&scope.subscription);
    if let Some(lock) = tx.world.governance().against_change(&place) {
        return Err(locked("quota", &scope.location, "changed", lock));
    }
    let before = tx.world.quota_limits(scope).cloned().unwrap_or_default();
    let mut now = before.clone();
    let mut verdicts = BTreeMap::new();
    for (name, limit) in wanted {
        let (known, verdict) = judge(tx, scope, name, *limit);
        if verdict == QuotaVerdict::Set {
            match limit {
                Some(limit) => now.insert(known.clone(), *limit),
                None => now.remove(&known),
            };
        }
        verdicts.insert(known, verdict);
    }
    let quota = Quota { scope: scope.clone(), limits: now };
    if quota.limits != before {
        let lowest = lowest_change(&before, &quota.limits, &tx.world.settings.quota);
        tx.emit(Change::QuotaChanged(quota.clone()));
        // Only clusters that have reserved more than a changed limit, old or new, can now grow or shrink by themselves.
        // Clusters that wait for others to release quota are served from the growth queue.
        for cluster in tx.world.clusters_beyond(scope, lowest) {
            tx.world.volatile.touch(cluster);
        }
        tx.world.volatile.growth.reconsider(scope);
    }
    Ok(Reply::Quota { quota, verdicts })
}

/// The lowest of all limits that changed, whether the old value or the new one.
fn lowest_change(
    before: &BTreeMap<QuotaName, u64>,
    now: &BTreeMap<QuotaName, u64>,
    defaults: &DefaultLimits,
) -> u64 {
    let changed = before.keys().chain(now.keys()).filter(|name| before.get(name) != now.get(name));
    let limits = changed.flat_map(|name| {
        [before, now].map(|limits| limits.get(name).copied().or_else(|| defaults.of(name)))
    });
    limits.flatten().min().unwrap_or(u64::MAX)
}

/// Each limit is judged separately, as on Azure: those that are valid are set. The family is returned as the catalogue
/// spells it.
fn judge(
    tx: &Transaction<'_>,
    scope: &QuotaScope,
    name: &QuotaName,
    limit: Option<u64>,
) -> (QuotaName, QuotaVerdict) {
    let name = match name {
        QuotaName::Family(family) => match tx.world.catalogue.family(family) {
            Some(family) => QuotaName::Family(family),
            None => return (name.clone(), QuotaVerdict::UnknownFamily),
        },
        QuotaName::Region | QuotaName::LowPriority => name.clone(),
    };
    let Some(limit) = limit else { return (name, QuotaVerdict::Set) };
    if limit > limits::QUOTA_VCPUS_MAX {
        return (name, QuotaVerdict::TooLarge { most: limits::QUOTA_VCPUS_MAX });
    }
    let minimum = tx.world.quota_minimum(scope, &name);
    if limit < minimum {
        return (name, QuotaVerdict::BelowMinimum { minimum });
    }
    (name, QuotaVerdict::Set)
}
