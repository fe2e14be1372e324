//! Instances: clusters of one node that users start and stop themselves.

use crate::support::{self, Stage, apply, workspace};
use muster_core::model::{
    Category, Cluster, ClusterPhase, ComputeKind, JobPhase, NodePhase, OperationStatus, Power,
    Progress, QuotaName, QuotaScope, Tier,
};
use muster_core::refusal::{ClusterProperty, JobField};
use muster_core::why::{Remedy, why, why_cluster};
use muster_core::{Change, ClusterPatch, Input, InputResult, RefusalKind, Reply};

fn instance<'s>(stage: &'s Stage, name: &str) -> &'s Cluster {
    let id = stage.world.workspace(&workspace()).expect("made at the start").id;
    stage.world.cluster_by_name(id, name).expect("it exists")
}

/// The status of the operation that this answer names.
fn status(stage: &Stage, answer: &InputResult) -> OperationStatus {
    let (Ok(Reply::InstanceChanging { operation: id, .. })
    | Ok(Reply::Cluster { operation: id, .. })) = answer
    else {
        panic!("no operation: {answer:?}")
    };
    let told = stage.log.iter().rev().find_map(|change| match change {
        Change::OperationChanged(operation) if operation.id == *id => Some(operation.status),
        _ => None,
    });
    told.expect("an operation has a row")
}

fn started(name: &str) -> Stage {
    let mut stage = Stage::new();
    stage.put_instance(name).expect("a valid instance");
    stage.provide();
    stage
}

fn limit(stage: &mut Stage, vcpus: u64) {
    let limits = [(QuotaName::Region, Some(vcpus))].into_iter().collect();
    stage.say(Input::SetQuota { scope: QuotaScope::new("sub", "eastus"), limits }).expect("limits");
}

fn reserved(stage: &Stage) -> u64 {
    let uses = stage.world.quota_uses(&QuotaScope::new("sub", "eastus"));
    uses.and_then(|uses| uses.get(&QuotaName::Region)).map_or(0, |sum| sum.reserved)
}

#[test]
fn creation_is_done_when_its_one_node_is_up_and_it_stays_up() {
    let mut stage = Stage::new();
    let answer = stage.put_instance("box-one");
    assert_eq!(status(&stage, &answer), OperationStatus::InProgress);
    assert_eq!(instance(&stage, "box-one").phase, ClusterPhase::Creating);
    stage.provide();
    assert_eq!(status(&stage, &answer), OperationStatus::Succeeded);
    assert_eq!(stage.nodes(), [NodePhase::Idle]);
    let node = stage.world.nodes().next().unwrap();
    assert_eq!(node.tier, Tier::Dedicated);
    // Far beyond any idle time: only a stop ends it.
    stage.pass_s(3_600);
    assert_eq!(stage.nodes(), [NodePhase::Idle]);
}

#[test]
fn stop_start_and_restart_move_the_one_node() {
    let mut stage = started("box-one");
    let first = stage.world.nodes().next().unwrap().id;
    let stop = stage.power("box-one", Power::Stop);
    assert_eq!(status(&stage, &stop), OperationStatus::InProgress);
    assert_eq!(stage.nodes(), [NodePhase::Leaving]);
    stage.provide();
    assert_eq!(status(&stage, &stop), OperationStatus::Succeeded);
    assert_eq!(stage.nodes(), []);
    stage.pass_s(600);
    assert_eq!(stage.nodes(), [], "a stopped instance remains stopped");

    let start = stage.power("box-one", Power::Start);
    stage.provide();
    assert_eq!(status(&stage, &start), OperationStatus::Succeeded);
    let second = stage.world.nodes().next().unwrap().id;
    assert_ne!(first, second);

    let restart = stage.power("box-one", Power::Restart);
    assert_eq!(stage.nodes(), [NodePhase::Leaving]);
    stage.provide();
    assert_eq!(status(&stage, &restart), OperationStatus::InProgress);
    stage.provide();
    assert_eq!(status(&stage, &restart), OperationStatus::Succeeded);
    assert_ne!(second, stage.world.nodes().next().unwrap().id);
}

#[test]
fn what_is_so_already_succeeds_and_what_is_under_way_is_not_begun_twice() {
    let mut stage = started("box-one");
    let again = stage.power("box-one", Power::Start);
    assert_eq!(status(&stage, &again), OperationStatus::Succeeded);
    assert_eq!(stage.nodes(), [NodePhase::Idle]);
    let operation = |answer: InputResult| match answer {
        Ok(Reply::InstanceChanging { operation, .. }) => operation,
        other => panic!("{other:?}"),
    };
    let first = stage.power("box-one", Power::Stop);
    let second = stage.power("box-one", Power::Stop);
    assert_eq!(operation(first), operation(second));
    stage.provide();
    let stopped = stage.power("box-one", Power::Stop);
    assert_eq!(status(&stage, &stopped), OperationStatus::Succeeded);
    let refused = stage.power("box-one", Power::Restart).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    assert!(refused.to_string().contains("start it"), "{refused}");
}

#[test]
fn another_request_replaces_the_operation_under_way() {
    let mut stage = Stage::new();
    let create = stage.put_instance("box-one");
    let stop = stage.power("box-one", Power::Stop);
    assert_eq!(status(&stage, &create), OperationStatus::Canceled);
    let start = stage.power("box-one", Power::Start);
    assert_eq!(status(&stage, &stop), OperationStatus::Canceled);
    stage.provide();
    stage.provide();
    assert_eq!(status(&stage, &start), OperationStatus::Succeeded);
    // A changed tag is applied together with the rest, and undoes nothing.
    let restart = stage.power("box-one", Power::Restart);
    let tagged =
        stage.put("box-one", ClusterPatch { description: Some("d".into()), ..<_>::default() });
    assert_eq!(status(&stage, &tagged), OperationStatus::InProgress);
    stage.say(Input::DeleteCluster { workspace: workspace(), name: "box-one".into() }).unwrap();
    assert_eq!(status(&stage, &restart), OperationStatus::Canceled);
    stage.provide();
    assert_eq!(stage.world.clusters().len(), 0);
}

#[test]
fn a_stop_ends_what_runs_and_keeps_what_waits() {
    let mut stage = started("box-one");
    stage.submit("runs", "box-one", 1).unwrap();
    stage.run("runs");
    stage.submit("waits", "box-one", 1).unwrap();
    let stop = stage.power("box-one", Power::Stop);
    assert_eq!(stage.phase("runs"), JobPhase::CancelRequested);
    assert_eq!(status(&stage, &stop), OperationStatus::InProgress);
    stage.members_say(
        "runs",
        muster_core::agent::AttemptPhase::Ended(muster_core::model::Exit::Stopped),
    );
    stage.provide();
    assert_eq!(stage.phase("runs"), JobPhase::Canceled);
    assert_eq!(status(&stage, &stop), OperationStatus::Succeeded);
    assert_eq!(stage.phase("waits"), JobPhase::Queued);

    let reasons = why(&stage.world, stage.job("waits").unwrap().id);
    assert_eq!(reasons[0].code(), "InstanceStopped");
    assert!(matches!(reasons[0].remedy(), Remedy::Start { .. }));
    apply(&mut stage, &reasons[0].remedy());
    stage.provide();
    assert_eq!(stage.phase("waits"), JobPhase::Starting);
}

#[test]
fn an_instance_says_why_it_is_up_down_or_busy() {
    let mut stage = started("box-one");
    let id = instance(&stage, "box-one").id;
    let codes = |stage: &Stage| -> Vec<&str> {
        why_cluster(&stage.world, id).iter().map(|reason| reason.code()).collect()
    };
    assert_eq!(codes(&stage), ["InstanceStarted"]);
    stage.submit("runs", "box-one", 1).unwrap();
    stage.run("runs");
    stage.submit("waits", "box-one", 1).unwrap();
    let reasons = why(&stage.world, stage.job("waits").unwrap().id);
    assert_eq!(reasons[0].code(), "InstanceBusy");
    assert!(reasons.iter().all(|reason| !reason.to_string().contains("--max-instances")));
    stage.finish("runs");
    stage.run("waits");
    stage.finish("waits");
    stage.power("box-one", Power::Stop).unwrap();
    stage.provide();
    assert_eq!(codes(&stage), ["InstanceStopped"]);
}

#[test]
fn it_counts_in_the_same_quota_also_while_it_is_stopped() {
    let mut stage = Stage::new();
    limit(&mut stage, 4);
    stage.put_instance("box-one").unwrap();
    let refused = stage.put_cluster("pool", 0, 1, 60).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::QuotaExceeded);
    let refused = stage.put_instance("box-two").unwrap_err();
    assert_eq!(refused.kind, RefusalKind::QuotaExceeded);
    assert_eq!(refused.target, ClusterProperty::VmSize.into());
    assert!(matches!(support::remedy(&refused), Remedy::SetQuota { limit: 8, .. }), "{refused}");
    for part in ["limit is 4", "4 are reserved", "8 would be needed"] {
        assert!(refused.to_string().contains(part), "{part}: {refused}");
    }
    assert_eq!(stage.world.clusters().len(), 1, "nothing was created");
    stage.provide();
    stage.power("box-one", Power::Stop).unwrap();
    stage.provide();
    assert_eq!(reserved(&stage), 4);
}

#[test]
fn quota_is_given_back_on_stop_where_that_was_asked_for() {
    let mut stage = Stage::new();
    limit(&mut stage, 4);
    let wanted = ClusterPatch {
        kind: Some(ComputeKind::Instance),
        releases_quota_on_stop: Some(true),
        ..<_>::default()
    };
    stage.put("box-one", wanted).unwrap();
    stage.provide();
    stage.power("box-one", Power::Restart).unwrap();
    assert_eq!(reserved(&stage), 4, "a restart does not release the quota");
    stage.provide();
    stage.provide();
    stage.power("box-one", Power::Stop).unwrap();
    stage.provide();
    assert_eq!(reserved(&stage), 0);
    stage.put_cluster("pool", 0, 1, 60).unwrap();
    let before = instance(&stage, "box-one").clone();
    let refused = stage.power("box-one", Power::Start).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::QuotaExceeded);
    assert_eq!(instance(&stage, "box-one"), &before, "nothing changed");
}

#[test]
fn an_instance_that_does_not_come_up_fails_and_is_stopped_again() {
    let mut stage = Stage::new();
    let create = stage.put_instance("box-one");
    for _ in 0..3 {
        let effect = stage.world.effects().next().expect("a node is requested").id;
        let result = Err("no host".to_owned());
        stage.say(Input::EffectDone { effect, result }).unwrap();
        stage.settle_effects(|_| true);
        stage.pass_s(60);
    }
    assert_eq!(status(&stage, &create), OperationStatus::Failed);
    let failed = instance(&stage, "box-one");
    assert_eq!(failed.last.unwrap().progress, Progress::Failed);
    assert!(!failed.is_wanted_up());
    stage.pass_s(7_200);
    assert_eq!(stage.nodes(), [], "it does not try for ever");
    let start = stage.power("box-one", Power::Start);
    stage.provide();
    assert_eq!(status(&stage, &start), OperationStatus::Succeeded);
}

#[test]
fn clusters_and_instances_share_names_and_neither_becomes_the_other() {
    let mut stage = started("box-one");
    stage.put_cluster("pool", 0, 1, 60).unwrap();
    let to_cluster = ClusterPatch { kind: Some(ComputeKind::Cluster), ..<_>::default() };
    let refused = stage.put("box-one", to_cluster).unwrap_err();
    assert_eq!(refused.target, ClusterProperty::Kind.into());
    let refused = stage.put_instance("pool").unwrap_err();
    assert_eq!(refused.target, ClusterProperty::Kind.into());
    for power in [Power::Start, Power::Stop, Power::Restart] {
        let refused = stage.power("pool", power).unwrap_err();
        assert_eq!(
            (refused.kind, refused.target),
            (RefusalKind::Invalid, ClusterProperty::Kind.into())
        );
    }
    let many = ClusterPatch { nodes_max: Some(3), ..<_>::default() };
    assert_eq!(stage.put("box-one", many).unwrap_err().target, ClusterProperty::NodesMax.into());
    let refused = stage.submit("wide", "box-one", 2).unwrap_err();
    assert_eq!(refused.target, JobField::Nodes.into());
    let refused = stage.power("none", Power::Start).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::NotFound);
}

#[test]
fn every_second_of_an_instance_is_on_the_bill() {
    let mut stage = started("box-one");
    stage.pass_s(100);
    stage.power("box-one", Power::Stop).unwrap();
    stage.silence(muster_core::time::Span::seconds(7));
    stage.provide();
    let lines: Vec<(Category, u64)> = stage
        .log
        .iter()
        .filter_map(|change| match change {
            Change::LedgerPosted(line) => {
                Some((line.category, (line.to.0 - line.from.0) / 1_000_000))
            }
            _ => None,
        })
        .filter(|(_, seconds)| *seconds > 0)
        .collect();
    assert_eq!(lines, [(Category::Floor, 100), (Category::Stop, 7)]);
}
