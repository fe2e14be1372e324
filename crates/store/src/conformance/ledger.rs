//! The ledger: closed lines, running meters of nodes, and the time held back for attempts, each counted once.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::ids::{ClusterId, JobId, PrincipalId};
use muster_core::model::{
    AttemptOutcome, Caller, Category, Cluster, ClusterPhase, Cost, JobSpec, Part, SpecHash,
};
use muster_core::time::{Span, Wall};
use muster_core::{Change, ClusterPatch, Input, JobRequest};

use super::stage::{home, someone, specification};
use super::{Database, Stage};
use crate::{LedgerBy, LedgerQuery, LedgerSum};

pub fn the_ledger_adds_up_exactly(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 2);
    stage.submit("pair", "cpu", 2);
    stage.pass_s(3);
    stage.provide();
    stage.pass_s(5);
    check_bill(&mut stage, 8 * 2 - 3 * 2);
    stage.run("pair");
    stage.pass_s(7);
    // The run time of an attempt that has not ended has no outcome yet.
    let sums = check_bill(&mut stage, 12 * 2);
    let running = sums.iter().find(|sum| sum.category == Category::Run).expect("it runs");
    assert_eq!((running.outcome, running.node_us), (AttemptOutcome::None, 14_000_000));
    stage.finish("pair", 0);
    stage.pass_s(1);
    let sums = check_bill(&mut stage, 13 * 2);
    let run = sums.iter().find(|sum| sum.category == Category::Run).expect("it ran");
    assert_eq!((run.outcome, run.node_us), (AttemptOutcome::Succeeded, 14_000_000));
    // For a moment before the last commit, nothing is negative.
    let early = stage.reader.ledger(&home(), Stage::START.0).expect("rows can be read");
    assert!(early.iter().all(|sum| sum.node_us <= 14_000_000), "{early:?}");
}

pub fn the_ledger_outlives_its_cluster(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("Cpu-Old", 1, 1);
    stage.provide();
    stage.pass_s(10);
    let (workspace, name) = (home(), "cpu-old".to_owned());
    stage.say(Input::DeleteCluster { workspace, name }).expect("deleting");
    stage.pass_s(2);
    stage.provide();
    assert_eq!(stage.world.clusters().count(), 0);
    assert_eq!(stage.reader.cluster(&home(), "cpu-old").expect("rows can be read"), None);
    let sums = check_bill(&mut stage, 12);
    assert!(sums.iter().all(|sum| sum.group.as_deref() == Some("Cpu-Old")), "{sums:?}");
    // A new cluster of the same name has other nodes, but is summed up under the same name.
    stage.put_cluster("Cpu-Old", 1, 1);
    stage.provide();
    stage.pass_s(1);
    check_bill(&mut stage, 13);
}

pub fn the_ledger_is_grouped_by_anything(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 2);
    stage.put_cluster("gpu", 1, 1);
    let tags = |value: &str| BTreeMap::from([("team".to_owned(), value.to_owned())]);
    submit_tagged(&mut stage, "hers", ("cpu", "Ada"), tags("blue"));
    submit_tagged(&mut stage, "his", ("cpu", "Bob"), BTreeMap::new());
    stage.provide();
    stage.pass_s(5);
    stage.run("hers");
    stage.run("his");
    stage.pass_s(10);
    stage.finish("hers", 0);
    let middle = stage.now.wall + Span::seconds(2);
    stage.pass_s(7);
    stage.finish("his", 1);
    // The cluster's tags change; lines that are closed keep the old ones.
    stage.say(retag("cpu", tags("red"))).expect("other tags");
    submit_tagged(&mut stage, "another", ("cpu", "Ada"), tags("green"));
    submit_tagged(&mut stage, "plain", ("gpu", "Ada"), BTreeMap::new());
    stage.run("another");
    stage.pass_s(3);
    let tag = |key: &str| LedgerBy::Tag(key.into());
    for by in [
        LedgerBy::Cluster,
        LedgerBy::User,
        LedgerBy::Category,
        tag("team"),
        tag("owner"),
        tag("unused"),
    ] {
        let mut totals = Vec::new();
        for since in [None, Some(Stage::START), Some(middle), Some(stage.now.wall)] {
            let query = LedgerQuery { by: by.clone(), since, now: stage.now.wall };
            let sums = stage.reader.ledger_by(&home(), &query).expect("rows can be read");
            assert_eq!(sums, expected_sums(&stage, &query), "{query:?}");
            totals.push(sums.iter().map(|sum| sum.node_us).sum::<u64>());
        }
        assert_eq!(totals, [75_000_000, 75_000_000, 24_000_000, 0], "{by:?}");
    }
    let query = LedgerQuery { by: tag("team"), since: None, now: stage.now.wall };
    let sums = stage.reader.ledger_by(&home(), &query).expect("rows can be read");
    let mut groups: Vec<_> = sums.iter().map(|sum| sum.group.as_deref()).collect();
    groups.dedup();
    assert_eq!(groups, [None, Some("blue"), Some("green"), Some("red")]);
}

/// A request that changes the tags of a cluster and nothing else.
fn retag(name: &str, tags: BTreeMap<String, String>) -> Input {
    let wanted = Box::new(ClusterPatch { tags: Some(tags), ..ClusterPatch::default() });
    Input::PutCluster { workspace: home(), name: name.to_owned(), wanted, by: someone() }
}

fn submit_tagged(
    stage: &mut Stage<'_>,
    name: &str,
    (compute, who): (&str, &str),
    tags: BTreeMap<String, String>,
) {
    let spec = Arc::new(JobSpec { tags, ..specification(compute, 1) });
    let spec_hash = SpecHash::made_up(&format!("{name} on {compute}"));
    let by = Caller { object_id: who.into(), name: who.into() };
    let (workspace, name) = (home(), name.to_owned());
    let request = JobRequest {
        workspace,
        name,
        spec,
        spec_hash,
        by,
        is_archived: None,
        existing: None,
        numbered: <_>::default(),
    };
    stage.say(Input::SubmitJob(Box::new(request))).expect("a job");
}

/// Compares the reader's sums with those computed from the log and World, and their total with the expected one.
pub(super) fn check_bill(stage: &mut Stage<'_>, node_seconds: u64) -> Vec<LedgerSum> {
    let query = LedgerQuery { by: LedgerBy::Cluster, since: None, now: stage.now.wall };
    let sums = stage.reader.ledger_by(&home(), &query).expect("rows can be read");
    assert_eq!(sums, stage.reader.ledger(&home(), stage.now.wall.0).expect("rows can be read"));
    assert_eq!(sums, expected_sums(stage, &query));
    let total: u64 = sums.iter().map(|sum| sum.node_us).sum();
    assert_eq!(total, node_seconds * 1_000_000, "{sums:?}");
    sums
}

type Tags = BTreeMap<String, String>;

/// What the log says about the possible groups of a line.
#[derive(Default)]
struct Known {
    clusters: BTreeMap<ClusterId, Arc<Cluster>>,
    people: BTreeMap<PrincipalId, Box<str>>,
    job_tags: BTreeMap<JobId, Tags>,
}

impl Known {
    fn group(
        &self,
        by: &LedgerBy,
        category: Category,
        served: Option<(JobId, PrincipalId)>,
        (cluster, tags): (ClusterId, &Tags),
    ) -> Option<Box<str>> {
        match by {
            LedgerBy::Cluster => Some(self.clusters[&cluster].name.as_str().into()),
            LedgerBy::Category => Some(category.as_str().into()),
            LedgerBy::User => served.map(|(_, principal)| self.people[&principal].clone()),
            LedgerBy::Tag(key) => {
                let of_job = served.and_then(|(job, _)| self.job_tags[&job].get(&**key));
                of_job.or_else(|| tags.get(&**key)).map(|value| value.as_str().into())
            }
        }
    }
}

/// The same the long way round: from every committed change, and every open meter in World.
pub(super) fn expected_sums(stage: &Stage<'_>, query: &LedgerQuery) -> Vec<LedgerSum> {
    type Key = (Option<Box<str>>, Category, AttemptOutcome);
    let mut sums: BTreeMap<Key, Cost> = BTreeMap::new();
    let mut add = |key: Key, part: Part, (from, to): (Wall, Wall), price: u64| {
        let span = to - from.max(query.since.unwrap_or(from));
        if span > Span::ZERO {
            sums.entry(key).or_default().add(part, span, price);
        }
    };
    let mut known = Known::default();
    for change in &stage.log {
        match change {
            Change::PrincipalSeen(principal) => {
                known.people.insert(principal.id, principal.name.clone());
            }
            Change::JobSubmitted { job, spec } => {
                known.job_tags.insert(job.id, spec.tags.clone());
            }
            Change::ClusterChanged { cluster, .. } if cluster.phase != ClusterPhase::Gone => {
                known.clusters.insert(cluster.id, Arc::clone(cluster));
            }
            Change::LedgerPosted(line) => {
                let served = line.served.map(|served| (served.job, served.principal));
                let place = (line.cluster, &*line.tags);
                let group = known.group(&query.by, line.category, served, place);
                let key = (group, line.category, line.outcome);
                add(key, line.part, (line.from, line.to), line.price_micro_usd_per_hour);
            }
            _ => {}
        }
    }
    let open = |category: Category, cluster: ClusterId, served| {
        let tags = Arc::clone(&known.clusters[&cluster].spec.tags);
        (known.group(&query.by, category, served, (cluster, &tags)), category, AttemptOutcome::None)
    };
    for node in stage.world.nodes() {
        if let Some(meter) = node.meter {
            let key = open(meter.category, node.cluster, None);
            add(key, meter.part, (meter.since, query.now), node.price_micro_usd_per_hour);
        }
    }
    for job in stage.world.jobs() {
        let served = Some((job.id, job.principal));
        for member in job.attempt().into_iter().flat_map(|attempt| &attempt.members) {
            let price = member.price_micro_usd_per_hour;
            for piece in &member.spent {
                let key = open(piece.category, job.cluster, served);
                add(key, member.part, (piece.from, piece.to), price);
            }
            if let Some(meter) = member.meter {
                let key = open(meter.category, job.cluster, served);
                add(key, meter.part, (meter.since, query.now), price);
            }
        }
    }
    let sum = |((group, category, outcome), cost): (Key, Cost)| LedgerSum {
        group,
        category,
        outcome,
        node_us: cost.node_us(),
        micro_usd: cost.micro_usd(),
    };
    sums.into_iter().map(sum).collect()
}
