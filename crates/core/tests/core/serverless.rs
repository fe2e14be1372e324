//! Jobs that name a size instead of a compute: Muster creates a cluster for them.

use std::sync::Arc;

use crate::support::{self, Stage, Wants, request, someone, workspace};
use muster_core::model::{
    Cluster, ClusterName, DefaultLimits, JobIdentity, JobSpec, JobTier, LockLevel, QuotaName,
    QuotaScope, SERVERLESS, Scope, SpecHash, Tier,
};
use muster_core::refusal::{JobField, Refused};
use muster_core::time::Span;
use muster_core::why::Remedy;
use muster_core::{
    ClusterPatch, GovernanceRequest, Input, InputResult, JobRequest, NewLock, RefusalKind, Reply,
    why,
};

fn job(name: &str, change: impl FnOnce(&mut JobSpec)) -> JobRequest {
    let mut wanted = request(name, SERVERLESS, Wants::default());
    let mut spec = (*wanted.spec).clone();
    change(&mut spec);
    wanted.spec_hash = SpecHash::made_up(&format!("{name} {spec:?}"));
    wanted.spec = Arc::new(spec);
    wanted
}

fn submit(stage: &mut Stage, name: &str, change: impl FnOnce(&mut JobSpec)) -> InputResult {
    stage.say(Input::SubmitJob(Box::new(job(name, change))))
}

fn serverless(stage: &Stage) -> Vec<&Cluster> {
    stage.world.clusters().filter(|cluster| cluster.is_serverless()).collect()
}

#[test]
fn a_cluster_is_created_with_its_first_job_and_shared() {
    let mut stage = Stage::new();
    submit(&mut stage, "a", |_| {}).expect("accepted");
    submit(&mut stage, "b", |spec| spec.instance_type = Some("STANDARD_DS3_V2".into()))
        .expect("the same size");
    let [cluster] = serverless(&stage)[..] else { panic!("{:?}", serverless(&stage)) };
    assert_eq!(cluster.name.as_str(), "serverless-ds3-v2");
    assert_eq!((&*cluster.spec.vm_size, cluster.spec.tier), ("Standard_DS3_v2", Tier::Dedicated));
    assert_eq!(cluster.spec.scale.nodes_min, 0);
    submit(&mut stage, "c", |spec| spec.job_tier = Some(JobTier::Spot)).expect("accepted");
    submit(&mut stage, "d", |spec| spec.instance_type = Some("Standard_D2s_v3".into()))
        .expect("accepted");
    let names: Vec<_> = serverless(&stage).iter().map(|cluster| cluster.name.to_string()).collect();
    assert_eq!(names, ["serverless-ds3-v2", "serverless-ds3-v2-spot", "serverless-d2s-v3"]);
    assert_eq!(serverless(&stage)[1].spec.tier, Tier::LowPriority);
    // Nodes are starting for each of them, and a waiting job can tell so.
    for name in ["a", "b", "c", "d"] {
        let id = stage.job(name).expect("it waits").id;
        let reasons = why::why(&stage.world, id);
        assert!(!reasons.is_empty(), "{name} waits without a reason");
        for reason in reasons {
            assert!(!reason.to_string().contains("compute update"), "{reason}");
        }
    }
}

#[test]
fn a_cluster_shrinks_back_to_zero() {
    let mut stage = Stage::new();
    submit(&mut stage, "a", |_| {}).expect("accepted");
    stage.provide();
    stage.run("a");
    stage.finish("a");
    let id = serverless(&stage)[0].id;
    assert_eq!(stage.world.cluster_index(id).expect("it exists").alive(), 1);
    stage.pass(Span::seconds(120));
    stage.provide();
    assert_eq!(stage.world.cluster_index(id).expect("it exists").alive(), 0);
}

/// The quota that the refusal advises to raise, and to which limit.
fn set_quota(refused: &Refused) -> (String, u64) {
    match support::remedy(refused) {
        Remedy::SetQuota { name, limit, .. } => (name.to_string(), limit),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_can_never_run_is_refused_and_makes_nothing() {
    let mut stage = Stage::new();
    let refused =
        submit(&mut stage, "a", |spec| spec.instance_type = Some("Standard_DS3_v22".into()));
    let refused = refused.expect_err("an unknown size");
    assert_eq!(refused.kind, RefusalKind::Invalid);
    assert!(refused.to_string().contains("did you mean Standard_DS3_v2?"), "{refused}");
    let refused = submit(&mut stage, "a", |spec| spec.nodes = 33).expect_err("too many");
    assert!(refused.to_string().contains("at most 32"), "{refused}");
    let refused = submit(&mut stage, "a", |spec| spec.share.gpus = Some(1));
    assert!(refused.expect_err("no GPU").to_string().contains("has 0"));
    let scope = QuotaScope::new(&workspace().subscription, "eastus");
    let limits = [(QuotaName::Region, Some(4))].into();
    stage.say(Input::SetQuota { scope, limits }).expect("a limit");
    let refused = submit(&mut stage, "a", |spec| spec.nodes = 2).expect_err("beyond the quota");
    assert_eq!(refused.kind, RefusalKind::QuotaExceeded);
    assert_eq!(set_quota(&refused), ("TotalDedicatedCores".to_owned(), 8));
    assert_eq!(serverless(&stage).len(), 0);
    submit(&mut stage, "a", |_| {}).expect("one node fits");
}

/// Otherwise the job would be accepted and wait for ever.
#[test]
fn a_job_beyond_the_default_limit_is_refused_too() {
    let mut stage = Stage::new();
    stage.world.settings.quota =
        DefaultLimits { region: Some(12), family: Some(8), low_priority: Some(4) };
    let refused = submit(&mut stage, "a", |spec| spec.nodes = 3).expect_err("12 of 8");
    assert_eq!(refused.kind, RefusalKind::QuotaExceeded, "{refused}");
    assert_eq!(set_quota(&refused), ("standardDSv2Family".to_owned(), 12));
    let spot = |spec: &mut JobSpec| {
        spec.job_tier = Some(JobTier::Spot);
        spec.nodes = 2;
    };
    let refused = submit(&mut stage, "a", spot).expect_err("8 of 4");
    assert_eq!(set_quota(&refused), ("TotalLowPriorityCores".to_owned(), 8));
    submit(&mut stage, "a", |spec| spec.nodes = 2).expect("8 of 8");
}

#[test]
fn users_can_change_neither_the_cluster_nor_take_its_name() {
    let mut stage = Stage::new();
    submit(&mut stage, "a", |_| {}).expect("accepted");
    let name = ClusterName::of_serverless("Standard_DS3_v2", Tier::Dedicated).to_string();
    let wanted = ClusterPatch { nodes_max: Some(1), ..ClusterPatch::default() };
    let put = |name: &str| Input::PutCluster {
        workspace: workspace(),
        name: name.into(),
        wanted: Box::new(wanted.clone()),
        by: someone(),
    };
    let inputs = [
        put(&name),
        Input::PatchCluster {
            workspace: workspace(),
            name: name.clone(),
            wanted: Box::new(wanted.clone()),
        },
        Input::DeleteCluster { workspace: workspace(), name: name.clone() },
    ];
    for input in inputs {
        let refused = stage.say(input).expect_err("it is a serverless cluster");
        assert_eq!(refused.kind, RefusalKind::Conflict);
    }
    for name in [SERVERLESS, "serverless-mine"] {
        assert_eq!(stage.say(put(name)).expect_err("reserved").kind, RefusalKind::Invalid);
    }
}

#[test]
fn it_is_deleted_with_its_workspace_and_a_lock_prevents_its_creation() {
    let mut stage = Stage::new();
    let scope = Scope::workspace(&workspace());
    let lock = NewLock { name: "l".into(), scope, level: LockLevel::ReadOnly, notes: None };
    let put = GovernanceRequest::PutLock(lock.clone());
    stage.say(Input::ChangeGovernance(Box::new(put))).expect("locked");
    assert_eq!(submit(&mut stage, "a", |_| {}).expect_err("locked").kind, RefusalKind::Locked);
    let unlock = GovernanceRequest::DeleteLock { scope: lock.scope, name: lock.name };
    stage.say(Input::ChangeGovernance(Box::new(unlock))).expect("unlocked");
    submit(&mut stage, "a", |_| {}).expect("accepted");
    let gone = stage.say(Input::DeleteWorkspace { key: workspace() });
    assert!(matches!(gone, Ok(Reply::Deleting { .. })), "{gone:?}");
    let refused = submit(&mut stage, "b", |_| {}).expect_err("too late");
    assert!(matches!(refused.kind, RefusalKind::Conflict | RefusalKind::NotFound), "{refused}");
}

/// The name of a node is that of its cluster with 17 more characters, and a host name has at most 63.
#[test]
fn every_size_makes_a_name_that_nodes_can_have() {
    let stage = Stage::new();
    let mut names = std::collections::BTreeSet::new();
    for size in stage.world.catalogue.iter() {
        for tier in [Tier::Dedicated, Tier::LowPriority] {
            let name = ClusterName::of_serverless(&size.name, tier);
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(name.as_str().len() <= 63 - 17, "{name}");
            assert!(name.as_str().chars().all(is_plain), "{name}");
            assert!(names.insert(name.folded()), "{name} twice");
        }
    }
}

type Change<'c> = &'c dyn Fn(&mut JobSpec);

#[test]
fn a_job_that_contradicts_the_compute_that_it_names_is_refused() {
    let mut stage = Stage::new();
    stage.put_cluster("cpu", 0, 4, 60).expect("made");
    let on = |change: &dyn Fn(&mut JobSpec)| {
        let mut wanted = request("j", "cpu", Wants::default());
        let mut spec = (*wanted.spec).clone();
        change(&mut spec);
        wanted.spec = Arc::new(spec);
        wanted
    };
    let size = stage.world.clusters().next().expect("just made").spec.vm_size.to_string();
    let managed = |client: Option<&str>| {
        let client = client.map(Box::from);
        Some(Box::new(JobIdentity::Managed { client, object: None, resource: None }))
    };
    let cases: [(Change<'_>, JobField, &str); 3] = [
        (
            &|spec| spec.instance_type = Some("Standard_NC6".into()),
            JobField::InstanceType,
            "out, name a compute of that size",
        ),
        (
            &|spec| spec.job_tier = Some(JobTier::Spot),
            JobField::Tier,
            " is 'Spot', but compute 'cpu' is dedicated",
        ),
        (
            &|spec| spec.identity = managed(Some("11111111-2222-3333-4444-555555555555")),
            JobField::ClientId,
            "which is no identity of compute 'cpu' (it has no identity)",
        ),
    ];
    for (change, target, words) in cases {
        let refused = stage.say(Input::SubmitJob(Box::new(on(change)))).expect_err("refused");
        assert_eq!((refused.kind, &refused.target), (RefusalKind::Invalid, &target.into()));
        assert!(refused.to_string().contains(words), "{refused}");
    }
    let same = on(&|spec| {
        spec.instance_type = Some(size.to_lowercase().into());
        spec.job_tier = Some(JobTier::Standard);
        spec.identity = managed(None);
    });
    stage.say(Input::SubmitJob(Box::new(same))).expect("it specifies what is true anyway");
}
