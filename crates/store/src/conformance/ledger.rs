//! The bill: closed lines, what runs up on nodes, and what attempts hold back, each counted once.

use std::collections::BTreeMap;

use muster_core::model::{Category, ClusterPhase, Cost, Outcome, Part};
use muster_core::time::Span;
use muster_core::{Change, Input};

use super::stage::home;
use super::{Database, Stage};
use crate::LedgerSum;

pub fn the_bill_adds_up_exactly(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 2);
    stage.submit("pair", "cpu", 2);
    stage.pass_s(3);
    stage.provide();
    stage.pass_s(5);
    check_bill(&mut stage, 8 * 2 - 3 * 2);
    stage.run("pair");
    stage.pass_s(7);
    // Run time of an attempt that goes on has no outcome yet.
    let sums = check_bill(&mut stage, 12 * 2);
    let running = sums.iter().find(|sum| sum.category == Category::Run).expect("it runs");
    assert_eq!((running.outcome, running.node_us), (Outcome::None, 14_000_000));
    stage.finish("pair", 0);
    stage.pass_s(1);
    let sums = check_bill(&mut stage, 13 * 2);
    let run = sums.iter().find(|sum| sum.category == Category::Run).expect("it ran");
    assert_eq!((run.outcome, run.node_us), (Outcome::Succeeded, 14_000_000));
    // Asked about a moment before the last commit, nothing is negative.
    let early = stage.reader.ledger(&home(), Stage::START.0).expect("it reads");
    assert!(early.iter().all(|sum| sum.node_us <= 14_000_000), "{early:?}");
}

pub fn the_bill_outlives_its_cluster(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("Cpu-Old", 1, 1);
    stage.provide();
    stage.pass_s(10);
    let (workspace, name) = (home(), "cpu-old".to_owned());
    stage.say(Input::DeleteCluster { workspace, name }).expect("deleting");
    stage.pass_s(2);
    stage.provide();
    assert_eq!(stage.world.clusters().count(), 0);
    assert_eq!(stage.reader.cluster(&home(), "cpu-old").expect("it reads"), None);
    let sums = check_bill(&mut stage, 12);
    assert!(sums.iter().all(|sum| &*sum.cluster == "Cpu-Old"), "{sums:?}");
    // A new one of the same name is another machine park, but the same line of the bill.
    stage.put_cluster("Cpu-Old", 1, 1);
    stage.provide();
    stage.pass_s(1);
    check_bill(&mut stage, 13);
}

/// Compares the reader's sums with those made from the log and World, and their total with what is due.
pub(super) fn check_bill(stage: &mut Stage<'_>, node_seconds: u64) -> Vec<LedgerSum> {
    let sums = stage.reader.ledger(&home(), stage.now.wall.0).expect("it reads");
    assert_eq!(sums, expected_sums(stage));
    let total: u64 = sums.iter().map(|sum| sum.node_us).sum();
    assert_eq!(total, node_seconds * 1_000_000, "{sums:?}");
    sums
}

/// The same by the longest way: from every change ever committed, and every open piece in World.
pub(super) fn expected_sums(stage: &Stage<'_>) -> Vec<LedgerSum> {
    type Key = (Box<str>, Category, Outcome);
    let mut sums: BTreeMap<Key, Cost> = BTreeMap::new();
    let mut add = |key: Key, (part, span): (Part, Span), price: u64| {
        if span > Span::ZERO {
            sums.entry(key).or_default().add(part, span, price);
        }
    };
    let mut names = BTreeMap::new();
    for change in &stage.log {
        match change {
            Change::ClusterChanged { cluster, .. } if cluster.phase != ClusterPhase::Gone => {
                names.insert(cluster.id, Box::<str>::from(cluster.name.as_str()));
            }
            Change::LedgerPosted(line) => {
                let key = (names[&line.cluster].clone(), line.category, line.outcome);
                add(key, (line.part, line.span()), line.price_micro_usd_per_hour);
            }
            _ => {}
        }
    }
    for node in stage.world.nodes() {
        if let Some(meter) = node.meter {
            let key = (names[&node.cluster].clone(), meter.category, Outcome::None);
            add(key, (meter.part, stage.now.wall - meter.since), node.price_micro_usd_per_hour);
        }
    }
    for job in stage.world.jobs() {
        for member in job.attempt().into_iter().flat_map(|attempt| &attempt.members) {
            for piece in &member.spent {
                let key = (names[&job.cluster].clone(), piece.category, Outcome::None);
                add(key, (member.part, piece.to - piece.from), member.price_micro_usd_per_hour);
            }
            if let Some(meter) = member.meter {
                let key = (names[&job.cluster].clone(), meter.category, Outcome::None);
                let running = (meter.part, stage.now.wall - meter.since);
                add(key, running, member.price_micro_usd_per_hour);
            }
        }
    }
    let sum = |((cluster, category, outcome), cost): (Key, Cost)| LedgerSum {
        cluster,
        category,
        outcome,
        node_us: cost.node_us(),
        micro_usd: cost.micro_usd(),
    };
    sums.into_iter().map(sum).collect()
}
