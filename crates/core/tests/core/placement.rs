//! Which job goes first, and which nodes are reserved for which job: priority, fair share, reservations, back-filling
//! and shares of a node.

use crate::support::{Stage, Wants, user};
use muster_core::agent::AttemptPhase;
use muster_core::model::{
    Category, Exit, JobPhase, NodePhase, Part, Priority, ScaleUp, ShareRequest,
};
use muster_core::time::Span;
use muster_core::{Change, ClusterPatch};

fn wants(nodes: u32) -> Wants {
    Wants { nodes, ..Wants::default() }
}

fn cores(vcpus: u32) -> Wants {
    Wants { share: ShareRequest { vcpus: Some(vcpus), ..<_>::default() }, ..Wants::default() }
}

/// Runs a job of this user alone, so that its next ones are predicted to take as long.
fn teach(stage: &mut Stage, name: &str, seconds: u64) {
    for run in 0..2 {
        let job = format!("{name}-lesson-{run}");
        stage.submit_as(user(name), &job, "pool", wants(1)).expect("accepted");
        stage.provide();
        stage.run(&job);
        stage.pass_s(seconds);
        stage.finish(&job);
    }
}

#[test]
fn the_higher_priority_goes_first() {
    let mut stage = Stage::with_cluster("pool", 1, 1, 60);
    stage.provide();
    stage.submit("runs", "pool", 1).expect("accepted");
    for (name, priority) in
        [("low", Priority::Low), ("medium", Priority::Medium), ("high", Priority::High)]
    {
        let wants = Wants { priority, ..Wants::default() };
        stage.submit_as(user("someone"), name, "pool", wants).expect("accepted");
    }
    for (ends, starts) in [("runs", "high"), ("high", "medium"), ("medium", "low")] {
        stage.run(ends);
        stage.finish(ends);
        assert_eq!(stage.phase(starts), JobPhase::Starting, "{starts} follows {ends}");
    }
}

#[test]
fn the_user_with_less_use_goes_first_and_among_equals_the_earlier_job() {
    let mut stage = Stage::with_cluster("pool", 1, 1, 600);
    stage.provide();
    stage.submit_as(user("greedy"), "greedy-0", "pool", wants(1)).expect("accepted");
    stage.run("greedy-0");
    for name in ["greedy-1", "modest-1", "modest-2", "third-1"] {
        let by = name.split('-').next().expect("a user");
        stage.submit_as(user(by), name, "pool", wants(1)).expect("accepted");
    }
    stage.pass_s(100);
    for (ends, starts) in [
        ("greedy-0", "modest-1"),
        ("modest-1", "third-1"),
        ("third-1", "modest-2"),
        ("modest-2", "greedy-1"),
    ] {
        if stage.phase(ends) == JobPhase::Starting {
            stage.run(ends);
        }
        stage.pass_s(40);
        stage.finish(ends);
        assert_eq!(stage.phase(starts), JobPhase::Starting, "{starts} follows {ends}");
    }
}

/// Three users with endless work of different lengths get a third of the node time each, over a day.
#[test]
fn over_a_day_everyone_gets_the_same_share() {
    let mut stage = Stage::with_cluster("pool", 3, 3, 60);
    stage.provide();
    let users = [("long", 47u64), ("middle", 13), ("short", 5)];
    let mut next = [0u32; 3];
    let mut used = [0u64; 3];
    let mut ends: Vec<(u64, usize, String)> = Vec::new();
    let mut minute = 0;
    while minute < 24 * 60 {
        for (who, (name, _)) in users.iter().enumerate() {
            // Never more than three of them wait.
            let waiting = |stage: &Stage, number: u32| {
                stage
                    .job(&format!("{name}-{number}"))
                    .is_some_and(|job| job.phase() == JobPhase::Queued)
            };
            while (0..3).any(|back| next[who] < back + 1 || !waiting(&stage, next[who] - 1 - back))
            {
                let job = format!("{name}-{}", next[who]);
                stage.submit_as(user(name), &job, "pool", wants(1)).expect("accepted");
                next[who] += 1;
                if next[who] > 4_000 {
                    panic!("they do not run");
                }
            }
        }
        let started = stage.starting();
        for job in started {
            stage.run(&job);
            let who = users.iter().position(|(name, _)| job.starts_with(name)).expect("ours");
            ends.push((minute + users[who].1, who, job));
        }
        stage.silence(Span::seconds(60));
        minute += 1;
        stage.report_all();
        ends.sort();
        while ends.first().is_some_and(|(at, _, _)| *at <= minute) {
            let (_, who, job) = ends.remove(0);
            stage.finish(&job);
            used[who] += users[who].1;
        }
    }
    let total: u64 = used.iter().sum();
    for (who, used) in used.iter().enumerate() {
        let share = *used as f64 / total as f64;
        assert!((share - 1.0 / 3.0).abs() < 0.02, "{} got {share:.3}", users[who].0);
    }
}

#[test]
fn a_short_job_fills_the_gap_before_a_wide_one_and_a_long_one_does_not() {
    let mut stage = Stage::with_cluster("pool", 4, 4, 3_600);
    stage.provide();
    teach(&mut stage, "slow", 1_000);
    teach(&mut stage, "quick", 100);
    stage.submit_as(user("slow"), "long", "pool", wants(2)).expect("accepted");
    stage.run("long");
    stage.pass_s(500);
    // Two of four are free, and the others will be in 500 s.
    stage.submit_as(user("wide"), "wide", "pool", wants(4)).expect("accepted");
    stage.submit_as(user("slow"), "too-long", "pool", wants(1)).expect("accepted");
    stage.submit_as(user("quick"), "short", "pool", wants(1)).expect("accepted");
    assert_eq!(stage.phase("too-long"), JobPhase::Queued);
    assert_eq!(
        stage.phase("short"),
        JobPhase::Starting,
        "it is done long before the wide one can start"
    );
    stage.run("short");
    stage.pass_s(100);
    stage.finish("short");
    stage.pass_s(400);
    stage.finish("long");
    assert_eq!(stage.phase("wide"), JobPhase::Starting, "not a second late");
}

#[test]
fn shares_of_a_node_are_packed_metered_and_given_back() {
    // Four cores each.
    let mut stage = Stage::with_cluster("pool", 0, 4, 60);
    stage.submit_as(user("a"), "one", "pool", cores(1)).expect("accepted");
    stage.submit_as(user("b"), "two", "pool", cores(2)).expect("accepted");
    stage.provide();
    assert_eq!(stage.members("one")[0].0, stage.members("two")[0].0, "they share a node");
    assert_eq!(
        stage.count(NodePhase::Leased) + stage.count(NodePhase::Idle),
        1 + stage.count(NodePhase::Idle)
    );
    stage.submit_as(user("c"), "three", "pool", cores(2)).expect("accepted");
    stage.provide();
    assert_ne!(stage.members("three")[0].0, stage.members("one")[0].0, "only one core was left");
    for job in ["one", "two", "three"] {
        stage.run(job);
    }
    stage.pass_s(100);
    stage.finish("two");
    stage.pass_s(100);
    stage.finish("one");
    let run = |stage: &Stage, job: &str| {
        let id = stage.log.iter().find_map(|change| match change {
            Change::JobSubmitted { job: known, .. } if &*known.name == job => Some(known.id),
            _ => None,
        });
        let lines = stage.log.iter().filter_map(|change| match change {
            Change::LedgerPosted(line) if line.served.map(|served| served.job) == id => Some(line),
            _ => None,
        });
        lines
            .filter(|line| line.category == Category::Run)
            .map(|line| (line.part, line.span().as_seconds()))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(&stage, "two"), [(Part(500_000), 100)]);
    assert_eq!(run(&stage, "one"), [(Part(250_000), 200)]);
}

#[test]
fn a_job_that_asks_for_more_than_a_node_has_is_refused() {
    let mut stage = Stage::with_cluster("pool", 0, 4, 60);
    let refused = stage.submit_as(user("a"), "job", "pool", cores(5)).expect_err("a node has four");
    assert!(
        refused.to_string().contains("5 vCPUs") && refused.to_string().contains("has 4"),
        "{refused}"
    );
}

fn predictive(max: u32) -> Stage {
    let mut stage = Stage::new();
    let wanted = ClusterPatch {
        nodes_max: Some(max),
        idle_time: Some(Span::seconds(600)),
        scale_up: Some(ScaleUp::Predictive),
        ..ClusterPatch::default()
    };
    stage.put("pool", wanted).expect("valid");
    stage
}

/// Makes the cluster expect that a node takes this long to start.
fn slow_boot(stage: &mut Stage, seconds: u64) {
    stage.submit_as(user("first"), "first", "pool", wants(1)).expect("accepted");
    stage.settle_effects(|_| true);
    stage.silence(Span::seconds(seconds));
    stage.provide();
    stage.run("first");
    stage.pass_s(1);
    stage.finish("first");
}

#[test]
fn a_predictive_cluster_starts_no_node_when_one_frees_sooner() {
    let mut stage = predictive(10);
    slow_boot(&mut stage, 180);
    teach(&mut stage, "quick", 60);
    stage.submit_as(user("quick"), "runs", "pool", wants(1)).expect("accepted");
    stage.run("runs");
    stage.submit_as(user("quick"), "waits", "pool", wants(1)).expect("accepted");
    assert_eq!(stage.nodes().len(), 1, "the existing one will be free in a minute");
    stage.pass_s(60);
    stage.finish("runs");
    assert_eq!(stage.phase("waits"), JobPhase::Starting);
    // But if the job takes far longer than predicted, a new node is worth it.
    stage.run("waits");
    stage.submit_as(user("quick"), "next", "pool", wants(1)).expect("accepted");
    stage.pass_s(700);
    assert_eq!(stage.nodes().len(), 2, "the prediction has been wrong for too long");
}

#[test]
fn a_predictive_cluster_starts_one_node_for_work_that_fits_on_one() {
    let mut stage = predictive(10);
    slow_boot(&mut stage, 180);
    teach(&mut stage, "quick", 5);
    stage.pass_s(700);
    stage.settle_effects(|_| true);
    assert_eq!(stage.nodes().len(), 0);
    for number in 0..10 {
        stage
            .submit_as(user("quick"), &format!("job-{number}"), "pool", wants(1))
            .expect("accepted");
    }
    assert_eq!(stage.nodes().len(), 1, "ten times five seconds is less than one start");
}

#[test]
fn an_eviction_puts_the_job_back_and_never_counts_as_its_fault() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("job", "pool", 1).expect("accepted");
    for _ in 0..7 {
        stage.pass_s(400);
        // Nodes that are being deleted end first, then a new one starts.
        stage.provide();
        stage.provide();
        stage.run("job");
        let (node, _) = stage.members("job")[0];
        let node = stage.world.node(node).expect("it runs there").name.to_string();
        stage.say(muster_core::Input::NodeEvicted { node }).expect("noted");
        assert_eq!(stage.phase("job"), JobPhase::Queued);
    }
    stage.pass_s(400);
    stage.provide();
    stage.provide();
    stage.run("job");
    stage.members_say("job", AttemptPhase::Ended(Exit::Code(0)));
    assert_eq!(stage.phase("job"), JobPhase::Completed);
}

#[test]
fn a_cluster_whose_nodes_never_start_tries_one_at_a_time() {
    let mut stage = Stage::with_cluster("pool", 0, 8, 60);
    for number in 0..8 {
        stage.submit(&format!("job-{number}"), "pool", 1).expect("accepted");
    }
    assert_eq!(stage.nodes().len(), 8);
    let mut asked = 8;
    for _ in 0..40 {
        stage.settle_effects(|_| true);
        stage.pass_s(600);
        asked += stage.count(NodePhase::Requested);
    }
    assert!(stage.nodes().len() <= 2, "{:?}", stage.nodes());
    assert!(asked < 50, "requested {asked} in seven hours");
}
