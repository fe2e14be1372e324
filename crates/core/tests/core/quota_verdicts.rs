//! Limits are judged one by one: those that are valid are set, and the others are refused with the reason.

use std::collections::BTreeMap;

use crate::support::Stage;
use muster_core::model::{DefaultLimits, QuotaName, QuotaScope, QuotaVerdict, Tier};
use muster_core::why::{Reason, why};
use muster_core::{ClusterPatch, Input, RefusalKind, Reply, limits};

#[test]
fn each_limit_gets_its_own_verdict_and_only_possible_ones_are_set() {
    // Two nodes of four vCPUs are always running.
    let mut stage = Stage::with_cluster("cpu", 2, 4, 60);
    let scope = QuotaScope::new("sub", "eastus");
    let family = |text: &str| QuotaName::Family(text.into());
    let own = "STANDARDDSV2FAMILY"; // Case does not matter.
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

/// If no limit was set, the operator's default applies to clusters and instances together.
#[test]
fn a_default_limit_counts_until_another_is_set() {
    let mut stage = Stage::new();
    stage.world.settings.quota =
        DefaultLimits { region: Some(12), family: Some(8), low_priority: Some(4) };
    stage.put_cluster("one", 0, 1, 60).expect("4 of 8");
    stage.put_instance("own").expect("8 of 8");
    let refused = stage.put_cluster("two", 0, 1, 60).expect_err("12 of 8");
    assert_eq!(refused.kind, RefusalKind::QuotaExceeded, "{refused}");
    assert!(refused.to_string().contains("its limit is 8 vCPUs, 8 are reserved"), "{refused}");
    let scope = QuotaScope::new("sub", "eastus");
    let family = QuotaName::Family("standardDSv2Family".into());
    let set = |stage: &mut Stage, limit| {
        let limits = BTreeMap::from([(family.clone(), limit)]);
        stage.say(Input::SetQuota { scope: scope.clone(), limits }).expect("it can be set");
    };
    set(&mut stage, Some(100));
    let refused = stage.put_cluster("two", 0, 2, 60).expect_err("16 of 12 in the region");
    assert!(refused.to_string().contains("TotalDedicatedCores"), "{refused}");
    stage.put_cluster("two", 0, 1, 60).expect("12 of 12");
    assert_eq!(stage.world.quota_limit(&scope, &family), Some(100));
    // Without it, the default applies again.
    set(&mut stage, None);
    assert_eq!(stage.world.quota_limit(&scope, &family), Some(8));
    let low =
        ClusterPatch { tier: Some(Tier::LowPriority), nodes_max: Some(2), ..Default::default() };
    let refused = stage.put("low", low).expect_err("8 of 4");
    assert!(refused.to_string().contains("TotalLowPriorityCores"), "{refused}");
}

/// New nodes wait for the default limit as for any other, and are created when it is raised.
#[test]
fn a_job_waits_for_a_default_limit() {
    let mut stage = Stage::new();
    stage.put_cluster("pool", 0, 4, 60).expect("nothing is limited yet");
    stage.world.settings.quota = DefaultLimits { family: Some(4), ..DefaultLimits::default() };
    stage.submit("gang", "pool", 2).expect("it is accepted");
    let waiting = stage.job("gang").expect("it is live").id;
    let reasons: Vec<String> = why(&stage.world, waiting).iter().map(Reason::to_string).collect();
    assert!(reasons.iter().any(|why| why.contains("standardDSv2Family")), "{reasons:?}");
    let scope = QuotaScope::new("sub", "eastus");
    let limits = BTreeMap::from([(QuotaName::Family("standardDSv2Family".into()), Some(8))]);
    stage.say(Input::SetQuota { scope, limits }).expect("it can be set");
    assert_eq!(stage.world.nodes().count(), 2);
}
