//! Counters that follow the changes of each commit, and each request.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_core::ids::{ClusterId, JobId, NodeId};
use muster_core::model::{
    Category, ClusterPhase, Cost, Job, JobEvent, LedgerLine, Node, NodeEvent, NodeState,
};
use muster_core::time::{Span, Wall};
use muster_core::{Change, World};

use super::histogram::{Histogram, LONG, SHORT, seconds};
use super::present::{Labels, Present, status};
use super::text::Text;

#[derive(Default)]
pub struct Counts {
    /// By cluster; the counts of deleted clusters are added up under `None`.
    clusters: BTreeMap<Option<ClusterId>, Tally>,
    scale: BTreeMap<(&'static str, &'static str), u64>,
    /// Nodes that started and have not run a job yet.
    unused: BTreeSet<NodeId>,
    /// The job of the last attempt that ended, and when it had been granted its nodes.
    last_attempt: Option<(JobId, Wall)>,
}

struct Tally {
    queue: Histogram,
    node_start: Histogram,
    run: Histogram,
    spent: BTreeMap<Category, Cost>,
    ended: BTreeMap<&'static str, u64>,
    evictions: u64,
    unused_starts: u64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            queue: Histogram::new(LONG),
            node_start: Histogram::new(LONG),
            run: Histogram::new(LONG),
            spent: BTreeMap::new(),
            ended: BTreeMap::new(),
            evictions: 0,
            unused_starts: 0,
        }
    }
}

impl Counts {
    pub fn reset(&mut self, world: &World) {
        let is_unused =
            |node: &&Node| matches!(node.state, NodeState::Idle { has_served: false, .. });
        self.unused = world.nodes().filter(is_unused).map(|node| node.id).collect();
    }

    /// `all` are all changes of the same commit.
    pub fn take(&mut self, world: &World, change: &Change, all: &[Change]) {
        match change {
            Change::JobChanged { event, job } => self.job(*event, job),
            Change::ChildCreated { event, job } => {
                // A node was given it ahead, and has finished it: it waited until the attempt before this change began.
                let granted_at = self.last_attempt.filter(|(id, _)| *id == job.id);
                if let Some((_, granted_at)) = granted_at.filter(|_| *event != JobEvent::Granted) {
                    self.of(job.cluster).queue.observe(granted_at - job.submitted_at);
                }
                self.job(*event, job);
            }
            // A parent has no attempts of its own, only a record of its begin and end.
            Change::AttemptEnded(attempt) if !attempt.members.is_empty() => {
                self.last_attempt = Some((attempt.job, attempt.granted_at));
                if let Some(started_at) = attempt.started_at {
                    let took = attempt.ended_at - started_at;
                    let cluster = cluster_of(world, attempt.job, all);
                    self.clusters.entry(cluster).or_default().run.observe(took);
                }
            }
            Change::NodeChanged { event, node } => self.node(world, *event, node),
            Change::LedgerPosted(line) => self.ledger(line),
            Change::ClusterChanged { cluster, .. } if cluster.phase == ClusterPhase::Gone => {
                self.forget(cluster.id);
            }
            // The other changes are not counted.
            _ => {}
        }
    }

    fn job(&mut self, event: JobEvent, job: &Job) {
        if event == JobEvent::Granted
            // A job that lost its node waits again, which is not counted as queue time.
            && let Some(attempt) = job.attempt().filter(|attempt| attempt.number == 1)
        {
            let waited = attempt.granted_at - job.submitted_at;
            self.of(job.cluster).queue.observe(waited);
        }
        // The jobs that a parent consists of are counted, not the parent itself.
        if job.phase().is_terminal() && !job.is_parent() {
            *self.of(job.cluster).ended.entry(status(job.phase())).or_default() += 1;
        }
    }

    fn node(&mut self, world: &World, event: NodeEvent, node: &Node) {
        match event {
            NodeEvent::Joined => {
                let took = world.last_wall() - node.requested_at;
                self.of(node.cluster).node_start.observe(took);
                self.unused.insert(node.id);
            }
            NodeEvent::Granted => drop(self.unused.remove(&node.id)),
            NodeEvent::Evicted => self.of(node.cluster).evictions += 1,
            NodeEvent::Requested => self.decided("up", reason_up(world, node.cluster)),
            NodeEvent::ScaledDown => self.decided("down", reason_down(world, node.cluster)),
            _ => {}
        }
        let is_going =
            matches!(node.state, NodeState::Leaving | NodeState::Unusable { .. } | NodeState::Gone);
        if is_going && self.unused.remove(&node.id) {
            self.of(node.cluster).unused_starts += 1;
        }
    }

    fn decided(&mut self, direction: &'static str, reason: &'static str) {
        *self.scale.entry((direction, reason)).or_default() += 1;
    }

    fn ledger(&mut self, line: &LedgerLine) {
        let spent = self.of(line.cluster).spent.entry(line.category).or_default();
        spent.add(line.part, line.span(), line.price_micro_usd_per_hour);
    }

    fn of(&mut self, cluster: ClusterId) -> &mut Tally {
        self.clusters.entry(Some(cluster)).or_default()
    }

    /// Its series end, and sums over all clusters keep their values.
    fn forget(&mut self, cluster: ClusterId) {
        let Some(gone) = self.clusters.remove(&Some(cluster)) else { return };
        let all = self.clusters.entry(None).or_default();
        all.queue.merge(&gone.queue);
        all.node_start.merge(&gone.node_start);
        all.run.merge(&gone.run);
        for (category, cost) in gone.spent {
            all.spent.entry(category).or_default().merge(cost);
        }
        for (status, count) in gone.ended {
            *all.ended.entry(status).or_default() += count;
        }
        all.evictions += gone.evictions;
        all.unused_starts += gone.unused_starts;
    }

    pub fn write(&self, text: &mut Text, present: &Present) {
        let help = "Nodes requested (up) or released (down).";
        text.family("muster_scale_decisions_total", "counter", help);
        for ((direction, reason), count) in &self.scale {
            let labels = [("direction", *direction), ("reason", *reason)];
            text.sample("muster_scale_decisions_total", &labels, count);
        }
        self.write_clusters(text, present);
    }

    fn write_clusters(&self, text: &mut Text, present: &Present) {
        let deleted = Labels::deleted();
        let tallies: Vec<(&Labels, &Tally)> = self
            .clusters
            .iter()
            // A cluster that has just been deleted from World is added to the deleted ones the next time.
            .filter_map(|(id, tally)| match id {
                Some(id) => Some((present.labels(*id)?, tally)),
                None => Some((&deleted, tally)),
            })
            .collect();
        write_histograms(text, &tallies);
        text.family("muster_cost_total", "counter", "Total cost of closed ledger lines.");
        for (labels, tally) in &tallies {
            for (category, cost) in &tally.spent {
                let more = [("category", category.as_str()), ("currency", "USD")];
                text.sample("muster_cost_total", &labels.with(&more), dollars(*cost));
            }
        }
        let help =
            "Closed node time without a job, whether the idle time or the minimum kept the node.";
        text.family("muster_idle_node_seconds_total", "counter", help);
        for (labels, tally) in &tallies {
            let idle = [Category::Idle, Category::Floor].map(|rest| tally.spent.get(&rest));
            let us = idle.into_iter().flatten().map(|cost| cost.node_us()).sum();
            text.sample("muster_idle_node_seconds_total", &labels.with(&[]), seconds(Span(us)));
        }
        text.family("muster_jobs_ended_total", "counter", "Jobs that have ended.");
        for (labels, tally) in &tallies {
            for (status, count) in &tally.ended {
                let labels = labels.with(&[("status", status)]);
                text.sample("muster_jobs_ended_total", &labels, count);
            }
        }
        let mut simple = |name: &str, help: &str, value: fn(&Tally) -> u64| {
            text.family(name, "counter", help);
            for (labels, tally) in &tallies {
                text.sample(name, &labels.with(&[]), value(tally));
            }
        };
        let evicted = "Low-priority nodes that were evicted.";
        simple("muster_evictions_total", evicted, |tally| tally.evictions);
        let useless = "Nodes that started and were deleted without a job.";
        simple("muster_unused_node_starts_total", useless, |tally| tally.unused_starts);
    }
}

/// A job that has ended is no longer in World, and its end was committed with that of its attempt.
fn cluster_of(world: &World, job: JobId, all: &[Change]) -> Option<ClusterId> {
    let ended = || {
        all.iter().find_map(|change| match change {
            Change::JobChanged { job: changed, .. } if changed.id == job => Some(changed.cluster),
            _ => None,
        })
    };
    world.job(job).map(|job| job.cluster).or_else(ended)
}

fn write_histograms(text: &mut Text, tallies: &[(&Labels, &Tally)]) {
    let mut each = |name: &str, help: &str, of: fn(&Tally) -> &Histogram| {
        text.family(name, "histogram", help);
        for (labels, tally) in tallies {
            of(tally).write(text, name, &labels.with(&[]));
        }
    };
    let help = "Time from the submission of a job to its first nodes.";
    each("muster_job_queue_seconds", help, |tally| &tally.queue);
    let help = "Time from the request for a node to its first report.";
    each("muster_node_start_seconds", help, |tally| &tally.node_start);
    let help = "Duration of attempts, however they ended.";
    each("muster_job_run_seconds", help, |tally| &tally.run);
}

fn reason_up(world: &World, cluster: ClusterId) -> &'static str {
    let waits = world.cluster_index(cluster).is_some_and(|cluster| !cluster.queue.is_empty());
    if waits { "jobs" } else { "minimum" }
}

fn reason_down(world: &World, cluster: ClusterId) -> &'static str {
    let Some(cluster) = world.cluster(cluster) else { return "deleted" };
    let left = world.cluster_index(cluster.id).map_or(0, |pool| pool.alive());
    if cluster.phase == ClusterPhase::Deleting {
        "deleted"
    } else if left >= cluster.spec.scale.nodes_max {
        "maximum"
    } else {
        "idle"
    }
}

#[allow(clippy::cast_precision_loss, reason = "a figure for a chart")]
fn dollars(cost: Cost) -> f64 {
    cost.micro_usd() as f64 / 1e6
}

/// The duration of requests, by route, method and status.
#[derive(Default)]
pub struct Requests {
    by: BTreeMap<(Box<str>, &'static str, u16), Histogram>,
}

impl Requests {
    pub fn take(&mut self, method: &'static str, route: &str, status: u16, took: Duration) {
        let histogram = self.by.entry((route.into(), method, status));
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        histogram.or_insert_with(|| Histogram::new(SHORT)).observe(Span(us));
    }

    pub fn write(&self, text: &mut Text) {
        let name = "muster_http_request_seconds";
        text.family(name, "histogram", "Duration of requests, including long polls of nodes.");
        for ((route, method, status), histogram) in &self.by {
            let status = status.to_string();
            let labels = [("route", &**route), ("method", *method), ("status", &*status)];
            histogram.write(text, name, &labels);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use muster_core::catalogue::Catalogue;
    use muster_core::model::{Capacity, NodeState, Tier, Trouble};
    use muster_core::time::{Now, Wall};
    use muster_core::{Settings, WorldRows};

    use super::*;

    fn world() -> World {
        let catalogue = Arc::new(Catalogue::builtin());
        World::rebuild(WorldRows::default(), 1, Settings::default(), catalogue, Now::default())
    }

    fn node(event: NodeEvent, state: NodeState) -> Change {
        let node = Node {
            id: NodeId(7),
            name: "cpu-7".into(),
            cluster: ClusterId(1),
            host: Default::default(),
            vm_size: "Standard_DS3_v2".into(),
            capacity: Capacity::default(),
            tier: Tier::LowPriority,
            price_micro_usd_per_hour: 0,
            requested_at: Wall(0),
            state,
            boot_id: "".into(),
            address: "".into(),
            evict_at: None,
            meter: None,
        };
        Change::NodeChanged { event, node: Arc::new(node) }
    }

    #[test]
    fn a_node_that_is_evicted_before_it_ran_a_job_counts_twice_and_outlives_its_cluster() {
        let (world, mut counts) = (world(), Counts::default());
        let idle = NodeState::Idle { since: Wall(0), has_served: false };
        let evicted = NodeState::Unusable { why: Trouble::Evicted };
        counts.take(&world, &node(NodeEvent::Joined, idle), &[]);
        counts.take(&world, &node(NodeEvent::Evicted, evicted), &[]);
        // Its end counts once, however often it is reported.
        counts.take(&world, &node(NodeEvent::Deleted, NodeState::Gone), &[]);
        let tally = &counts.clusters[&Some(ClusterId(1))];
        assert_eq!((tally.evictions, tally.unused_starts), (1, 1));
        counts.forget(ClusterId(1));
        let mut text = Text::default();
        counts.write(&mut text, &Present::default());
        let page = text.into_page();
        for line in [
            "muster_evictions_total",
            "muster_unused_node_starts_total",
            "muster_node_start_seconds_count",
        ] {
            let line = format!(
                "{line}{{workspace=\"\",location=\"\",cluster=\"(deleted)\",resource_group=\"\",\
                 subscription=\"\"}} 1\n"
            );
            assert!(page.contains(&line), "{page}");
        }
    }
}
