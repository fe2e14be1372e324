//! Why a job waits, and why a cluster has its current size: hand-made states with their exact reasons, and a check that
//! each reason's remedy removes it.

use crate::support::{self, Stage, Wants, user};
use muster_core::agent::AttemptPhase;
use muster_core::model::{
    Exit, NodePhase, Priority, QuotaName, QuotaScope, ScaleUp, ShareRequest, Tier,
};
use muster_core::time::Span;
use muster_core::why::{Reason, why, why_cluster};
use muster_core::{ClusterPatch, Input};

fn limit(stage: &mut Stage, name: &str, vcpus: Option<u64>) {
    let scope = QuotaScope::new("sub", "eastus");
    let limits = [(QuotaName::parse(name), vcpus)].into_iter().collect();
    stage.say(Input::SetQuota { scope, limits }).expect("a known name");
}

const FAMILY: &str = "standardDSv2Family";
const REGION: &str = "TotalDedicatedCores";
const LOW: &str = "TotalLowPriorityCores";

fn job_codes(stage: &Stage, job: &str) -> Vec<&'static str> {
    reasons(stage, job).iter().map(Reason::code).collect()
}

fn reasons(stage: &Stage, job: &str) -> Vec<Reason> {
    why(&stage.world, stage.job(job).unwrap_or_else(|| panic!("{job} is live")).id)
}

fn cluster_codes(stage: &Stage, name: &str) -> Vec<&'static str> {
    cluster_reasons(stage, name).iter().map(Reason::code).collect()
}

fn cluster_reasons(stage: &Stage, name: &str) -> Vec<Reason> {
    let cluster = stage.world.clusters().find(|cluster| cluster.name.as_str() == name);
    why_cluster(&stage.world, cluster.expect("it is there").id)
}

/// Every existing node runs a job.
fn busy(max: u32, jobs: u32) -> Stage {
    let mut stage = Stage::with_cluster("pool", 0, max, 600);
    for number in 0..jobs {
        stage.submit(&format!("runs-{number}"), "pool", 1).expect("accepted");
    }
    stage.provide();
    for number in 0..jobs {
        stage.run(&format!("runs-{number}"));
    }
    stage
}

fn fail_creates(stage: &mut Stage, times: u32) {
    for _ in 0..times {
        let effects: Vec<_> = stage.world.effects().map(|effect| effect.id).collect();
        for effect in effects {
            let result = Err("no capacity in this region".to_owned());
            stage.say(Input::EffectDone { effect, result }).expect("noted");
        }
        stage.settle_effects(|_| true);
        stage.pass_s(301);
    }
}

fn low_priority(stage: &mut Stage, name: &str, max: u32) {
    let wanted = ClusterPatch {
        tier: Some(Tier::LowPriority),
        nodes_max: Some(max),
        ..ClusterPatch::default()
    };
    stage.put(name, wanted).expect("valid");
}

type State = (&'static str, fn() -> Stage, &'static [&'static str]);

/// A state, and exactly why the job "asks" waits in it.
const JOBS: &[State] = &[
    (
        "a node is starting",
        || {
            let mut stage = Stage::with_cluster("pool", 0, 1, 60);
            stage.submit("asks", "pool", 1).expect("accepted");
            stage
        },
        &["NodesStarting"],
    ),
    (
        "it has its node",
        || {
            let mut stage = Stage::with_cluster("pool", 0, 1, 60);
            stage.submit("asks", "pool", 1).expect("accepted");
            stage.provide();
            stage
        },
        &["Starting"],
    ),
    (
        "two of three nodes are running",
        || {
            let mut stage = Stage::with_cluster("pool", 2, 3, 60);
            stage.provide();
            stage.submit("asks", "pool", 3).expect("accepted");
            stage
        },
        &["NodesStarting"],
    ),
    (
        "the cluster is full",
        || {
            let mut stage = busy(2, 2);
            stage.submit("asks", "pool", 1).expect("accepted");
            stage
        },
        &["MaximumReached"],
    ),
    (
        "the cluster is full and other jobs came first",
        || {
            let mut stage = busy(2, 2);
            stage.submit("first", "pool", 1).expect("accepted");
            stage.submit("asks", "pool", 1).expect("accepted");
            stage
        },
        &["MaximumReached", "Behind"],
    ),
    (
        "the cluster is closed",
        || {
            let mut stage = Stage::with_cluster("pool", 0, 0, 60);
            stage.submit("asks", "pool", 3).expect("accepted");
            stage
        },
        &["MaximumTooLow"],
    ),
    (
        "the maximum was lowered under it",
        || {
            let mut stage = Stage::with_cluster("pool", 0, 4, 60);
            stage.submit("asks", "pool", 4).expect("accepted");
            stage.put_cluster("pool", 0, 2, 60).expect("lowered");
            stage.settle_effects(|_| true);
            stage.settle_effects(|_| true);
            stage
        },
        &["MaximumTooLow"],
    ),
    (
        "the quota of its family is too low for it alone",
        || {
            let mut stage = Stage::with_cluster("pool", 0, 4, 60);
            limit(&mut stage, FAMILY, Some(8));
            stage.submit("asks", "pool", 3).expect("accepted");
            stage
        },
        &["QuotaTooLow"],
    ),
    (
        "the quota of the region is too low for it alone",
        || {
            let mut stage = Stage::with_cluster("pool", 0, 4, 60);
            limit(&mut stage, REGION, Some(4));
            stage.submit("asks", "pool", 2).expect("accepted");
            stage
        },
        &["QuotaTooLow"],
    ),
    (
        "the low-priority quota is too low for it alone",
        || {
            let mut stage = Stage::new();
            low_priority(&mut stage, "pool", 4);
            limit(&mut stage, LOW, Some(4));
            stage.submit("asks", "pool", 2).expect("accepted");
            stage
        },
        &["QuotaTooLow"],
    ),
    (
        "another cluster uses up the family's quota",
        || {
            let mut stage = busy(2, 2);
            stage.put_cluster("other", 0, 2, 60).expect("valid");
            limit(&mut stage, FAMILY, Some(8));
            stage.submit("asks", "other", 1).expect("accepted");
            stage
        },
        &["QuotaReached"],
    ),
    (
        "its own cluster uses up the region's quota",
        || {
            let mut stage = busy(4, 2);
            limit(&mut stage, REGION, Some(8));
            stage.submit("asks", "pool", 1).expect("accepted");
            stage
        },
        &["QuotaReached"],
    ),
    (
        "a multi-node job for which the quota has only half of the nodes",
        || {
            let mut stage = busy(2, 1);
            stage.put_cluster("other", 0, 2, 60).expect("valid");
            limit(&mut stage, REGION, Some(8));
            stage.submit("asks", "other", 2).expect("accepted");
            stage
        },
        &["QuotaReached"],
    ),
    (
        "the quota is used up and another job came first",
        || {
            let mut stage = busy(4, 2);
            limit(&mut stage, REGION, Some(8));
            stage.submit("first", "pool", 1).expect("accepted");
            stage.submit("asks", "pool", 1).expect("accepted");
            stage
        },
        &["QuotaReached", "Behind"],
    ),
    (
        "nodes fail to start",
        || {
            let mut stage = Stage::with_cluster("pool", 0, 2, 60);
            stage.submit("asks", "pool", 1).expect("accepted");
            let effect = stage.world.effects().next().expect("asked for").id;
            let result = Err("no capacity in this region".to_owned());
            stage.say(Input::EffectDone { effect, result }).expect("noted");
            stage.settle_effects(|_| true);
            stage
        },
        &["CreateFailing"],
    ),
    (
        "nodes failed to start, and the next try is under way",
        || {
            let mut stage = Stage::with_cluster("pool", 0, 2, 60);
            stage.submit("asks", "pool", 1).expect("accepted");
            fail_creates(&mut stage, 4);
            stage
        },
        &["CreateFailing", "NodesStarting"],
    ),
    (
        "free nodes are reserved for a multi-node job before it",
        || {
            let mut stage = busy(4, 2);
            stage.put_cluster("pool", 4, 4, 600).expect("all of it");
            stage.provide();
            stage.pass_s(10);
            stage.submit("gang", "pool", 4).expect("accepted");
            stage.submit("asks", "pool", 1).expect("accepted");
            stage
        },
        &["MaximumReached", "Reserved", "Behind"],
    ),
    (
        "it is the multi-node job itself",
        || {
            let mut stage = busy(4, 2);
            stage.put_cluster("pool", 4, 4, 600).expect("all of it");
            stage.provide();
            stage.submit("asks", "pool", 4).expect("accepted");
            stage
        },
        &["MaximumReached"],
    ),
    (
        "a higher priority goes first",
        || {
            let mut stage = busy(1, 1);
            let wants = Wants { priority: Priority::Low, ..Wants::default() };
            stage.submit_as(user("someone"), "asks", "pool", wants).expect("accepted");
            let wants = Wants { priority: Priority::High, ..Wants::default() };
            stage.submit_as(user("other"), "urgent", "pool", wants).expect("accepted");
            stage
        },
        &["MaximumReached", "Behind"],
    ),
    (
        "the user with less use goes first",
        || {
            let mut stage = busy(1, 1);
            stage.submit("asks", "pool", 1).expect("accepted");
            stage.submit_as(user("modest"), "modest", "pool", Wants::default()).expect("accepted");
            stage
        },
        &["MaximumReached", "Behind"],
    ),
    (
        "nodes that are being deleted still count",
        || {
            let mut stage = Stage::with_cluster("pool", 0, 1, 60);
            stage.submit("before", "pool", 1).expect("accepted");
            stage.provide();
            stage.run("before");
            stage.finish("before");
            stage.pass_s(61);
            stage.submit("asks", "pool", 1).expect("accepted");
            stage
        },
        &["MaximumReached"],
    ),
    (
        "a node will be free before a new one could start",
        || {
            let mut stage = Stage::new();
            let wanted = ClusterPatch {
                nodes_max: Some(4),
                idle_time: Some(Span::seconds(600)),
                scale_up: Some(ScaleUp::Predictive),
                ..ClusterPatch::default()
            };
            stage.put("pool", wanted).expect("valid");
            for lesson in ["one", "two", "three"] {
                stage.submit(lesson, "pool", 1).expect("accepted");
                stage.silence(Span::seconds(120));
                stage.provide();
                stage.run(lesson);
                stage.pass_s(20);
                stage.finish(lesson);
            }
            stage.submit("runs", "pool", 1).expect("accepted");
            stage.run("runs");
            stage.submit("asks", "pool", 1).expect("accepted");
            stage
        },
        &["FreeSoon"],
    ),
    (
        "no node has room for its share",
        || {
            let mut stage = busy(1, 0);
            let half = ShareRequest { vcpus: Some(3), ..ShareRequest::default() };
            let wants = Wants { share: half, ..Wants::default() };
            stage.submit_as(user("a"), "runs", "pool", wants).expect("accepted");
            stage.provide();
            stage.run("runs");
            stage.submit_as(user("b"), "asks", "pool", wants).expect("accepted");
            stage
        },
        &["MaximumReached"],
    ),
];

/// A state, and exactly why the cluster has its size.
const CLUSTERS: &[State] = &[
    ("there never was a job", || Stage::with_cluster("pool", 0, 4, 60), &["Empty"]),
    ("the minimum is starting", || Stage::with_cluster("pool", 1, 4, 60), &["NodesStarting"]),
    (
        "the minimum is there",
        || {
            let mut stage = Stage::with_cluster("pool", 1, 4, 60);
            stage.provide();
            stage
        },
        &["KeptByMinimum"],
    ),
    ("all are busy", || busy(4, 2), &["Busy"]),
    (
        "a node waits for the end of its idle time",
        || {
            let mut stage = busy(4, 1);
            stage.members_say("runs-0", AttemptPhase::Ended(Exit::Code(0)));
            stage
        },
        &["IdleUntil"],
    ),
    (
        "nodes are being deleted",
        || {
            let mut stage = busy(4, 1);
            stage.finish("runs-0");
            stage.pass_s(601);
            stage
        },
        &["NodesGoing"],
    ),
    (
        "it is being deleted",
        || {
            let mut stage = busy(4, 1);
            let workspace = support::workspace();
            stage
                .say(Input::DeleteCluster { workspace, name: "pool".into() })
                .expect("it is there");
            stage
        },
        &["Deleting"],
    ),
    (
        "idle nodes are reserved for a multi-node job",
        || {
            let mut stage = busy(2, 1);
            stage.submit("gang", "pool", 2).expect("accepted");
            stage.provide();
            stage
        },
        &["MaximumReached", "HeldFor"],
    ),
    (
        "its minimum does not fit into the quota",
        || {
            let mut stage = Stage::with_cluster("pool", 0, 4, 60);
            limit(&mut stage, REGION, Some(0));
            stage.put_cluster("pool", 1, 4, 60).expect("the maximum was reserved before");
            stage
        },
        &["QuotaReached"],
    ),
];

#[test]
fn thirty_states_have_exactly_their_reasons() {
    assert!(JOBS.len() + CLUSTERS.len() >= 30);
    for (state, stage, expected) in JOBS {
        let stage = stage();
        assert_eq!(job_codes(&stage, "asks"), *expected, "{state}: {:#?}", reasons(&stage, "asks"));
    }
    for (state, stage, expected) in CLUSTERS {
        let stage = stage();
        assert_eq!(
            cluster_codes(&stage, "pool"),
            *expected,
            "{state}: {:#?}",
            cluster_reasons(&stage, "pool")
        );
    }
}

#[test]
fn every_reason_has_a_limit_its_value_what_is_needed_and_advice() {
    let jobs = JOBS.iter().flat_map(|(_, stage, _)| reasons(&stage(), "asks"));
    let clusters = CLUSTERS.iter().flat_map(|(_, stage, _)| cluster_reasons(&stage(), "pool"));
    for reason in jobs.chain(clusters) {
        let figures = reason.figures();
        assert!(!figures.limit.is_empty(), "{reason:?}");
        assert_ne!(figures.value, figures.needed, "{reason:?} is no reason");
        assert!(reason.to_string().contains("; "), "{reason} says what to do");
    }
}

/// Whatever keeps a job waiting: doing what its reasons say, and nothing else, lets it start. No other job ends in the
/// meantime.
#[test]
fn the_remedies_let_the_job_start() {
    for (state, stage, _) in JOBS {
        let mut stage = stage();
        let mut done = Vec::new();
        while stage.job("asks").expect("live").phase() == muster_core::model::JobPhase::Queued {
            assert!(
                done.len() < 20,
                "{state}: still {:?} after {done:#?}",
                reasons(&stage, "asks")
            );
            for reason in reasons(&stage, "asks") {
                done.push(reason.to_string());
                support::apply(&mut stage, &reason.remedy());
            }
            stage.provide();
            stage.provide();
            stage.pass_s(1);
        }
    }
    // The same holds for the reasons of a cluster's size.
    let mut stage = Stage::with_cluster("pool", 1, 4, 60);
    stage.provide();
    for reason in cluster_reasons(&stage, "pool") {
        support::apply(&mut stage, &reason.remedy());
    }
    stage.pass_s(61);
    assert_eq!(stage.count(NodePhase::Leaving), 1);
}

/// Sixteen jobs wait for a cluster of four: the last of them and the cluster name the same figure, and the cluster
/// tells what it is for.
#[test]
fn a_cluster_and_the_last_job_that_waits_for_it_name_the_same_maximum() {
    let mut stage = busy(4, 4);
    for number in 0..12 {
        stage.submit(&format!("waits-{number}"), "pool", 1).expect("accepted");
    }
    let needed = |reasons: Vec<Reason>| {
        reasons.into_iter().find_map(|reason| match reason {
            Reason::MaximumReached { needed, is_for_all, .. } => Some((needed, is_for_all)),
            _ => None,
        })
    };
    assert_eq!(needed(reasons(&stage, "waits-0")), Some((5, false)));
    assert_eq!(needed(reasons(&stage, "waits-11")), Some((16, false)));
    assert_eq!(needed(cluster_reasons(&stage, "pool")), Some((16, true)));
    let words = cluster_reasons(&stage, "pool")[0].to_string();
    assert!(words.contains("16 would be needed for all waiting jobs"), "{words}");
}

/// Shares of nodes are combined over all users, as when they are placed: four quarters are one node.
#[test]
fn quarters_of_nodes_are_counted_as_they_are_placed() {
    let mut stage = busy(1, 1);
    for number in 0..4 {
        let share = ShareRequest { vcpus: Some(1), ..ShareRequest::default() };
        let (by, wants) = (user(&format!("user-{number}")), Wants { share, ..Wants::default() });
        stage.submit_as(by, &format!("part-{number}"), "pool", wants).expect("accepted");
    }
    let figures: Vec<u64> = (0..4)
        .map(|number| reasons(&stage, &format!("part-{number}"))[0].figures().needed)
        .collect();
    assert_eq!(figures, [2, 2, 2, 2]);
    assert_eq!(cluster_reasons(&stage, "pool")[0].figures().needed, 2);
}
