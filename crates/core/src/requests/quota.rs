//! Asking for other limits of a region.

use std::collections::BTreeMap;

use crate::change::Change;
use crate::input::{Answer, Refused, Reply};
use crate::limits;
use crate::model::{Quota, QuotaName, QuotaScope};
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
        let ceilings = ceilings(turn, scope);
        turn.emit(Change::QuotaChanged(quota.clone()));
        // The books show everyone the new limit; only who may now become larger or smaller by itself has
        // something to decide. Whoever waits for others to give back is served from the list of wishes.
        for (cluster, before) in ceilings {
            let now = turn.world.cluster(cluster).map(|now| turn.world.ceiling(now));
            if now != Some(before) {
                turn.world.volatile.touch(cluster);
            }
        }
        turn.world.volatile.wishes.reconsider(scope);
    }
    Ok(Reply::Quota(quota))
}

fn ceilings(turn: &Turn<'_>, scope: &QuotaScope) -> Vec<(crate::ids::ClusterId, u32)> {
    turn.world.clusters_in(scope).map(|cluster| (cluster.id, turn.world.ceiling(cluster))).collect()
}

/// The family as the catalogue spells it.
fn known_name(turn: &Turn<'_>, name: &QuotaName) -> Result<QuotaName, Refused> {
    let QuotaName::Family(family) = name else { return Ok(name.clone()) };
    let known = turn.world.catalogue.family(family);
    known.map(QuotaName::Family).ok_or_else(|| {
        Refused::invalid(
            "name",
            format!(
                "the VM family '{}' is not known; `muster compute list-sizes` shows them, and {} and {} \
                 are the totals of a region",
                super::shorten(family),
                QuotaName::Region,
                QuotaName::LowPriority
            ),
        )
    })
}
