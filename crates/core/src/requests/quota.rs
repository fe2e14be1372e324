//! Asking for other limits of a region.

use std::collections::BTreeMap;

use super::estate::locked;
use crate::change::Change;
use crate::input::{Answer, Refused, Reply};
use crate::limits;
use crate::model::{Quota, QuotaName, QuotaScope, Scope};
use crate::step::Turn;

pub(crate) fn set(
    turn: &mut Turn<'_>,
    scope: &QuotaScope,
    wanted: &BTreeMap<QuotaName, Option<u64>>,
) -> Answer {
    if scope.location.is_empty() || scope.location.len() > limits::LOCATION_BYTES_MAX {
        return Err(Refused::invalid(
            "location",
            format!("location has {} bytes; name a region such as eastus", scope.location.len()),
        ));
    }
    let place = Scope::subscription(&scope.subscription);
    if let Some(lock) = turn.world.estate().against_change(&place) {
        return Err(locked("quota", &scope.location, "changed", lock));
    }
    let before = turn.world.quota_limits(scope).cloned().unwrap_or_default();
    let mut now = before.clone();
    for (name, limit) in wanted {
        let name = known_name(turn, name)?;
        match limit {
            Some(limit) if *limit > limits::QUOTA_VCPUS_MAX => {
                return Err(Refused::invalid(
                    "limit",
                    format!(
                        "the limit of {name} is {limit} vCPUs; give at most {}, or lift the limit",
                        limits::QUOTA_VCPUS_MAX
                    ),
                ));
            }
            Some(limit) => now.insert(name, *limit),
            None => now.remove(&name),
        };
    }
    let quota = Quota { scope: scope.clone(), limits: now };
    if quota.limits != before {
        let lowest = lowest_change(&before, &quota.limits);
        turn.emit(Change::QuotaChanged(quota.clone()));
        // Only whoever has reserved more than a limit, old or new, can now become larger or smaller by
        // itself. Whoever waits for others to give back is served from the list of wishes.
        for cluster in turn.world.clusters_beyond(scope, lowest) {
            turn.world.volatile.touch(cluster);
        }
        turn.world.volatile.wishes.reconsider(scope);
    }
    Ok(Reply::Quota(quota))
}

/// The lowest of all limits that are not what they were, old ones and new ones.
fn lowest_change(before: &BTreeMap<QuotaName, u64>, now: &BTreeMap<QuotaName, u64>) -> u64 {
    let changed = before.keys().chain(now.keys()).filter(|name| before.get(name) != now.get(name));
    let limits = changed.flat_map(|name| [before.get(name), now.get(name)]);
    limits.flatten().min().copied().unwrap_or(u64::MAX)
}

/// The family as the catalogue spells it.
fn known_name(turn: &Turn<'_>, name: &QuotaName) -> Result<QuotaName, Refused> {
    let QuotaName::Family(family) = name else { return Ok(name.clone()) };
    let known = turn.world.catalogue.family(family);
    known.map(QuotaName::Family).ok_or_else(|| {
        Refused::invalid(
            "name",
            format!(
                "the VM family '{}' is not known; `muster quota list --location REGION` shows them, and {} and {} \
                 are the totals of a region",
                super::shorten(family),
                QuotaName::Region,
                QuotaName::LowPriority
            ),
        )
    })
}
