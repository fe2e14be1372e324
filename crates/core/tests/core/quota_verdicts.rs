//! Limits are judged one by one: what is possible is set, and the rest says why not.

use std::collections::BTreeMap;

use crate::support::Stage;
use muster_core::model::{QuotaName, QuotaScope, QuotaVerdict};
use muster_core::{Input, Reply, limits};

#[test]
fn each_limit_gets_its_own_verdict_and_only_possible_ones_are_set() {
    // Two nodes of four vCPUs are always up.
    let mut stage = Stage::with_cluster("cpu", 2, 4, 60);
    let scope = QuotaScope::new("sub", "eastus");
    let family = |text: &str| QuotaName::Family(text.into());
    let own = "STANDARDDSV2FAMILY"; // In any case.
    let limits: BTreeMap<QuotaName, Option<u64>> = [
        (QuotaName::Region, Some(7)),
        (QuotaName::LowPriority, Some(0)),
        (family(own), Some(8)),
        (family("no such family"), Some(1)),
        (family("standardNCFamily"), Some(limits::QUOTA_VCPUS_MAX + 1)),
        (family("standardDSFamily"), None),
    ]
    .into();
    let before = stage.world.quota_limits(&scope).cloned();
    let answer = stage.say(Input::SetQuota { scope: scope.clone(), limits }).expect("an answer");
    let Reply::Quota { quota, verdicts } = answer else { panic!("{answer:?}") };
    let of = |text: &str| {
        let found = verdicts.iter().find(|(name, _)| name.to_string().eq_ignore_ascii_case(text));
        *found.unwrap_or_else(|| panic!("{text} in {verdicts:?}")).1
    };
    assert_eq!(of("TotalDedicatedCores"), QuotaVerdict::BelowMinimum { minimum: 8 });
    assert_eq!(of("TotalLowPriorityCores"), QuotaVerdict::Set);
    assert_eq!(of(own), QuotaVerdict::Set, "exactly the minimum is enough");
    assert_eq!(of("no such family"), QuotaVerdict::UnknownFamily);
    assert_eq!(of("standardNCFamily"), QuotaVerdict::TooLarge { most: limits::QUOTA_VCPUS_MAX });
    assert_eq!(before, None);
    let set: Vec<(String, u64)> =
        quota.limits.iter().map(|(name, limit)| (name.to_string(), *limit)).collect();
    assert_eq!(set.len(), 2, "{set:?}");
    assert!(set.iter().any(|(name, limit)| name.eq_ignore_ascii_case(own) && *limit == 8));
}
