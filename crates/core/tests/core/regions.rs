//! Resources can only be created in a known region.

use std::collections::BTreeMap;

use crate::support::{Stage, someone, workspace};
use muster_core::model::{QuotaName, QuotaScope, WorkspaceKey};
use muster_core::{
    ClusterPatch, GovernanceRequest, GroupPatch, Input, InputResult, RefusalKind, Regions,
};

fn cluster(stage: &mut Stage, name: &str, location: &str) -> InputResult {
    let wanted = ClusterPatch { location: Some(location.into()), ..ClusterPatch::default() };
    stage.put(name, wanted)
}

fn quota(stage: &mut Stage, location: &str) -> InputResult {
    let scope = QuotaScope::new("sub", location);
    let limits = BTreeMap::from([(QuotaName::Region, Some(8))]);
    stage.say(Input::SetQuota { scope, limits })
}

fn group(stage: &mut Stage, name: &str, location: &str) -> InputResult {
    let wanted = GroupPatch { location: Some(location.into()), tags: None };
    let (subscription, name) = ("sub".into(), name.into());
    let request = GovernanceRequest::PutGroup { subscription, name, wanted };
    stage.say(Input::ChangeGovernance(Box::new(request)))
}

#[test]
fn a_region_that_does_not_exist_is_refused_with_the_nearest() {
    let mut stage = Stage::new();
    let space = Input::workspace(WorkspaceKey::new("sub", "other", "space"), "eastsu", someone());
    let before = stage.log.len();
    for (what, refused) in [
        ("cluster", cluster(&mut stage, "cpu", "eastsu")),
        ("workspace", stage.say(space)),
        ("quota", quota(&mut stage, "eastsu")),
        ("group", group(&mut stage, "new", "eastsu")),
    ] {
        let refused = refused.expect_err(what);
        assert_eq!(refused.kind, RefusalKind::Invalid, "{what}");
        assert_eq!(refused.target, "location".into(), "{what}");
        assert!(refused.to_string().contains("did you mean 'eastus'?"), "{what}: {refused}");
        assert!(refused.to_string().contains("regions = \"eastsu\""), "{what}: {refused}");
    }
    assert_eq!(stage.log.len(), before, "something changed");
}

#[test]
fn the_operator_adds_regions_and_what_is_there_goes_on() {
    let mut stage = Stage::new();
    stage.world.settings.regions = Regions::with(["on-prem"]);
    cluster(&mut stage, "cpu", "On-Prem").expect("it is configured");
    quota(&mut stage, "on-prem").expect("it is configured");
    // Without the setting, what was created there can still be read, changed and added to.
    stage.world.settings.regions = Regions::default();
    let wanted = ClusterPatch { nodes_max: Some(1), ..ClusterPatch::default() };
    stage.patch("cpu", wanted).expect("it is there");
    quota(&mut stage, "on-prem").expect("there are limits already");
    assert!(stage.world.workspace(&workspace()).is_some());
    let elsewhere = cluster(&mut stage, "gpu", "off-prem").expect_err("there is no such region");
    assert_eq!(elsewhere.kind, RefusalKind::Invalid);
}
