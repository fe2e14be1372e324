//! Laws of deciding, under random histories: indexes and timers make no difference, batching makes no difference,
//! deciding twice changes nothing, a report with nothing new changes nothing, and every promise holds along the way.

use std::sync::Arc;

use crate::support::{Stage, known_job, someone, user, workspace};
use muster_core::agent::{AttemptPhase, AttemptReport, EpochRange, Report};
use muster_core::ids::Epoch;
use muster_core::model::{
    ArrayPlan, Exit, JobSpec, JobTier, Priority, QuotaName, QuotaScope, SERVERLESS, ScaleUp,
    ShareRequest, SpecHash, Tier,
};
use muster_core::time::Span;
use muster_core::{
    Change, ClusterPatch, Input, JobAction, JobEdit, JobPatch, JobRequest, World, decide,
    invariants, renew_unchanged, step, step_deciding_everything,
};
use proptest::prelude::*;

/// What may happen, in terms that make sense in any state of the world.
#[derive(Debug, Clone)]
enum Act {
    Put {
        cluster: u8,
        min: u32,
        max: u32,
        idle_s: u64,
        is_predictive: bool,
        is_low_priority: bool,
    },
    /// Sets a limit for one of the names, or removes it.
    Limit {
        name: u8,
        nodes: Option<u64>,
    },
    Evict {
        node: u8,
    },
    Delete {
        cluster: u8,
    },
    Submit {
        job: u8,
        cluster: u8,
        nodes: u32,
        by: u8,
        priority: u8,
        cores: u32,
    },
    Cancel {
        job: u8,
    },
    /// Archives a job, or deletes it if it has ended.
    Edit {
        job: u8,
        deletes: bool,
    },
    /// The provider answers the oldest effect of the outbox, or the second oldest.
    Provide {
        second: bool,
        fails: bool,
    },
    /// A node reports: nothing new, that it runs, or that it ended.
    Report {
        node: u8,
        says: u8,
    },
    Pass {
        seconds: u64,
    },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        1 => (0..3u8, 0..3u32, 0..5u32, 0..200u64, any::<bool>(), any::<bool>()).prop_map(
            |(cluster, min, more, idle_s, is_predictive, is_low_priority)| {
                Act::Put { cluster, min, max: min + more, idle_s, is_predictive, is_low_priority }
            }
        ),
        1 => (0..3u8, prop::option::of(0..8u64)).prop_map(|(name, nodes)| Act::Limit { name, nodes }),
        1 => any::<u8>().prop_map(|node| Act::Evict { node }),
        1 => (0..3u8).prop_map(|cluster| Act::Delete { cluster }),
        6 => (any::<u8>(), 0..5u8, 1..4u32, 0..3u8, 0..6u8, 0..6u32).prop_map(
            |(job, cluster, nodes, by, priority, cores)| {
                Act::Submit { job, cluster, nodes, by, priority, cores }
            }
        ),
        1 => any::<u8>().prop_map(|job| Act::Cancel { job }),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(job, deletes)| Act::Edit { job, deletes }),
        6 => (any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(second, fails)| Act::Provide { second, fails }),
        10 => (any::<u8>(), 0..7u8).prop_map(|(node, says)| Act::Report { node, says }),
        3 => prop_oneof![3 => 0..60u64, 1 => 0..4_000u64].prop_map(|seconds| Act::Pass { seconds }),
    ]
}

/// The tasks of these arrays take minutes, so batches may take long too.
fn stage() -> Stage {
    let mut stage = Stage::new();
    stage.world.settings.batch = Span::seconds(3_600);
    stage
}

/// A small array, with or without a limit.
fn array(job: u8, cores: u32) -> Box<ArrayPlan> {
    let indices = format!("0-{}", job % 7).parse().expect("indices");
    let concurrency = (cores % 2 == 1).then_some(cores);
    Box::new(ArrayPlan { indices, concurrency, timeout: None })
}

fn input(world: &World, act: &Act) -> Option<Input> {
    // The last two are not names of computes.
    let cluster_name = |cluster: u8| {
        let names = ["poola", "poolb", "poolc", SERVERLESS, SERVERLESS];
        names[usize::from(cluster)].to_owned()
    };
    Some(match act {
        Act::Put { cluster, min, max, idle_s, is_predictive, is_low_priority } => {
            Input::PutCluster {
                workspace: workspace(),
                name: cluster_name(*cluster),
                wanted: Box::new(ClusterPatch {
                    nodes_min: Some(*min),
                    nodes_max: Some(*max),
                    idle_time: Some(Span::seconds(*idle_s)),
                    scale_up: is_predictive.then_some(ScaleUp::Predictive),
                    // It cannot be changed: a later request to do so is refused, which is fine here.
                    tier: is_low_priority.then_some(Tier::LowPriority),
                    ..ClusterPatch::default()
                }),
                by: someone(),
            }
        }
        Act::Delete { cluster } => {
            Input::DeleteCluster { workspace: workspace(), name: cluster_name(*cluster) }
        }
        Act::Limit { name, nodes } => {
            let name = match name {
                0 => QuotaName::Region,
                1 => QuotaName::LowPriority,
                _ => QuotaName::parse("standardDSv2Family"),
            };
            let scope = QuotaScope::new("sub", "eastus");
            let limits = [(name, nodes.map(|nodes| nodes * 4))].into_iter().collect();
            Input::SetQuota { scope, limits }
        }
        Act::Evict { node } => {
            let count = world.nodes().count();
            let node = world.nodes().nth(usize::from(*node) % count.max(1))?;
            Input::NodeEvicted { node: node.name.to_string() }
        }
        Act::Submit { job, cluster, nodes, by, priority, cores } => {
            Input::SubmitJob(Box::new(JobRequest {
                workspace: workspace(),
                name: format!("job{job}"),
                spec: Arc::new(JobSpec {
                    nodes: *nodes,
                    priority: match priority {
                        0 => Priority::Low,
                        1 => Priority::High,
                        _ => Priority::Medium,
                    },
                    // Out of the four that a node has; most jobs take all of them.
                    share: ShareRequest {
                        vcpus: Some(*cores).filter(|cores| (1..4).contains(cores)),
                        ..ShareRequest::default()
                    },
                    job_tier: (*cluster == 4).then_some(JobTier::Spot),
                    array: (job % 3 == 0).then(|| array(*job, *cores)),
                    ..JobSpec::new(&cluster_name(*cluster), "true")
                }),
                spec_hash: SpecHash::made_up(&format!("{cluster}/{nodes}")),
                by: user(&format!("user{by}")),
                is_archived: None,
                existing: None,
                numbered: <_>::default(),
            }))
        }
        Act::Cancel { job } => {
            // A task of an array or, if there is none with this name, a whole job.
            let task = format!("job{}_{}", job / 2, job % 2);
            let home = world.workspace(&workspace()).map(|home| home.id);
            let is_there = home.is_some_and(|id| world.live_job_by_name(id, &task).is_some());
            let name = if is_there { task } else { format!("job{job}") };
            Input::CancelJob { workspace: workspace(), name, known: None }
        }
        Act::Edit { job, deletes } => {
            let hide = JobPatch { is_archived: Some(true), ..JobPatch::default() };
            Input::EditJob(Box::new(JobEdit {
                workspace: workspace(),
                name: format!("job{job}").into(),
                action: if *deletes { JobAction::Delete } else { JobAction::Patch(hide) },
                known: None,
            }))
        }
        Act::Provide { second, fails } => {
            let effect = world.effects().nth(usize::from(*second))?.id;
            let result = if *fails { Err("no capacity".to_owned()) } else { Ok(()) };
            Input::EffectDone { effect, result }
        }
        Act::Report { node, says } => return report(world, *node, *says),
        Act::Pass { .. } => Input::Tick,
    })
}

fn report(world: &World, node: u8, says: u8) -> Option<Input> {
    let count = world.nodes().count();
    let node = world.nodes().nth(usize::from(node) % count.max(1))?;
    // It reports one of those that it holds, and nothing about the others.
    let leases = node.leases();
    let lease = leases.get(usize::from(says) % leases.len().max(1));
    let held = lease.map(|lease| lease.epoch);
    let phase = match says {
        0 | 1 => None,
        2 | 3 => Some(AttemptPhase::Running),
        4 => Some(AttemptPhase::Ended(Exit::Code(0))),
        5 => Some(AttemptPhase::Ended(Exit::Code(1))),
        _ => Some(AttemptPhase::Ended(Exit::Stopped)),
    };
    // "Nothing held" with a floor at the epoch means that the node has forgotten it.
    let forgot = says == 1;
    let attempts = held.zip(phase).map(|(epoch, phase)| AttemptReport::new(epoch, phase));
    let floor = if attempts.is_some() || forgot { held } else { None };
    // A node has accepted a batch as a whole or not at all. It may have finished the first of the tasks that follow, have
    // begun it, or have returned them all.
    let mut attempts: Vec<AttemptReport> = attempts.into_iter().collect();
    let batch =
        lease.filter(|lease| lease.batch.is_some() && says.is_multiple_of(2) && floor.is_some());
    let followers: Vec<Epoch> =
        batch.into_iter().flat_map(|lease| lease.followers()).map(|lease| lease.epoch).collect();
    let floor = followers.last().copied().or(floor);
    let next = match says {
        4 => Some(AttemptPhase::Running),
        6 => Some(AttemptPhase::Ended(Exit::Code(0))),
        _ => None,
    };
    let next = followers.first().zip(next).map(|(epoch, phase)| AttemptReport::new(*epoch, phase));
    let begun = usize::from(next.is_some());
    attempts.extend(next);
    let waiting = followers.get(begun).zip(followers.last()).filter(|_| says != 6);
    let waiting = waiting.map(|(first, last)| EpochRange { first: *first, last: *last });
    Some(Input::Report {
        node: node.name.to_string(),
        report: Report {
            boot_id: "boot".into(),
            address: "10.0.0.4".into(),
            floor: floor.unwrap_or(Epoch(0)),
            attempts,
            waiting: waiting.into_iter().collect(),
        },
    })
}

/// What the rows would show of a job after these changes.
fn look_up(changes: &[Change], input: &Input) -> Input {
    let known = |name: &str| known_job(changes, name);
    let mut input = input.clone();
    match &mut input {
        Input::SubmitJob(request) => request.existing = known(&request.name),
        Input::CancelJob { name, known: found, .. } => *found = known(name).map(Box::new),
        Input::EditJob(edit) => edit.known = known(&edit.name),
        _ => {}
    }
    input
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..Default::default() })]

    #[test]
    fn decide_equals_decide_everything(acts in prop::collection::vec(act(), 1..120)) {
        let mut stage = stage();
        for act in &acts {
            if let Act::Pass { seconds } = act {
                stage.silence(Span::seconds(*seconds));
            }
            let Some(input) = input(&stage.world, act) else { continue };
            let mut slow = stage.world.clone();
            let expected =
                step_deciding_everything(&mut slow, std::slice::from_ref(&input), stage.now);
            let output = step(&mut stage.world, std::slice::from_ref(&input), stage.now);
            prop_assert_eq!(&output.changes, &expected.changes, "after {:?}", act);
            prop_assert_eq!(stage.world.difference(&slow), None);
            prop_assert_eq!(decide(&mut stage.world.clone(), stage.now), vec![]);
            let checked = invariants::check(&stage.world, stage.now, Span::ZERO);
            prop_assert!(checked.is_ok(), "after {:?}: {:?}", act, checked);
        }
    }

    #[test]
    fn a_report_that_only_renews_would_change_nothing(acts in prop::collection::vec(act(), 1..120)) {
        let mut stage = stage();
        for act in &acts {
            if let Act::Pass { seconds } = act {
                stage.silence(Span::seconds(*seconds));
            }
            let Some(input) = input(&stage.world, act) else { continue };
            // Twice, because only the second report has nothing new.
            for _ in 0..2 {
                let mut renewed = stage.world.clone();
                let answer = match &input {
                    Input::Report { node, report } => {
                        renew_unchanged(&mut renewed, node, report, stage.now)
                    }
                    _ => None,
                };
                let output = step(&mut stage.world, std::slice::from_ref(&input), stage.now);
                if let Some(answer) = answer {
                    prop_assert_eq!(&output.changes, &vec![], "{:?}", input);
                    prop_assert_eq!(&output.answers[0], &Ok(answer));
                    let renewals = |world: &World| -> Vec<_> {
                        world.nodes().map(|node| world.last_renewal(node.id)).collect()
                    };
                    prop_assert_eq!(renewals(&renewed), renewals(&stage.world));
                    prop_assert_eq!(renewed.last_wall(), stage.world.last_wall());
                }
            }
        }
    }

    #[test]
    fn batching_changes_nothing(acts in prop::collection::vec(act(), 1..60)) {
        let mut stage = stage();
        stage.put_cluster("poola", 0, 3, 60).expect("valid");
        stage.submit("job0", "poola", 2).expect("accepted");
        stage.provide();
        let inputs: Vec<Input> = acts.iter().filter_map(|act| input(&stage.world, act)).collect();
        let mut one_by_one = stage.world.clone();
        let mut changes = Vec::new();
        for input in &inputs {
            let input = look_up(&changes, input);
            let mut output = step(&mut one_by_one, &[input], stage.now);
            changes.append(&mut output.changes);
        }
        // Looked up before the batch, when the rows did not show any of its changes.
        let together = step(&mut stage.world, &inputs, stage.now);
        prop_assert_eq!(together.changes, changes);
    }
}
