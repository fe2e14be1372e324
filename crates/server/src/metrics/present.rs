//! The current state, read from World between two commits: a look at each cluster, and at the jobs that hold nodes.

use std::collections::BTreeMap;

use muster_core::ids::ClusterId;
use muster_core::model::{
    Category, Cluster, Host, HostState, Job, JobPhase, Meter, Node, Part, Tier,
};
use muster_core::read_only::StoreTrouble;
use muster_core::why;
use muster_core::{ClusterIndex, World};
use muster_store::series::Metric;

use super::text::Text;

#[derive(Default)]
pub struct Present {
    clusters: BTreeMap<ClusterId, ClusterGauges>,
    quotas: Vec<Limit>,
    hosts: BTreeMap<&'static str, usize>,
    store_trouble: Option<StoreTrouble>,
}

/// Labels that identify one cluster together, even if its name is unique only in its workspace.
#[derive(Default)]
pub struct Labels {
    subscription: String,
    resource_group: String,
    workspace: String,
    location: String,
    cluster: String,
}

#[derive(Default)]
struct ClusterGauges {
    labels: Labels,
    tier: &'static str,
    target: u32,
    nodes: [(&'static str, usize); 4],
    jobs: BTreeMap<&'static str, usize>,
    /// What holds back the first waiting job, and how many jobs wait.
    pending: Option<(&'static str, usize)>,
    /// The current price of what nodes do, in micro-USD per hour.
    cost: BTreeMap<Category, u64>,
}

struct Limit {
    subscription: String,
    location: String,
    family: String,
    used: u64,
    limit: Option<u64>,
}

impl Labels {
    pub fn with<'a>(&'a self, others: &[(&'static str, &'a str)]) -> Vec<(&'static str, &'a str)> {
        let own = [
            ("workspace", self.workspace.as_str()),
            ("location", self.location.as_str()),
            ("cluster", self.cluster.as_str()),
            ("resource_group", self.resource_group.as_str()),
            ("subscription", self.subscription.as_str()),
        ];
        [&own, others].concat()
    }

    /// The labels for the sum over deleted clusters.
    pub fn deleted() -> Labels {
        Labels { cluster: "(deleted)".to_owned(), ..Labels::default() }
    }
}

impl Present {
    pub fn of(world: &World) -> Present {
        let clusters =
            world.clusters().map(|cluster| (cluster.id, gauges(world, cluster))).collect();
        let mut quotas = Vec::new();
        for scope in world.quota_scopes() {
            let (limits, uses) = (world.quota_limits(scope), world.quota_uses(scope));
            let limited = limits.into_iter().flat_map(BTreeMap::keys);
            let used = uses.into_iter().flat_map(BTreeMap::keys);
            let names: std::collections::BTreeSet<_> = limited.chain(used).collect();
            quotas.extend(names.into_iter().map(|name| Limit {
                subscription: scope.subscription.to_string(),
                location: scope.location.to_string(),
                family: name.to_string(),
                used: uses.and_then(|uses| uses.get(name)).map_or(0, |taken| taken.used),
                limit: world.quota_limit(scope, name),
            }));
        }
        let mut hosts = BTreeMap::from(HOST_STATES.map(|state| (state, 0)));
        for host in world.hosts().hosts() {
            *hosts.entry(host_state(host)).or_default() += 1;
        }
        Present { clusters, quotas, hosts, store_trouble: world.store_trouble() }
    }

    pub fn labels(&self, cluster: ClusterId) -> Option<&Labels> {
        self.clusters.get(&cluster).map(|gauges| &gauges.labels)
    }

    pub fn clusters(&self) -> impl Iterator<Item = ClusterId> + '_ {
        self.clusters.keys().copied()
    }

    /// The values of each cluster that its history has.
    pub fn values(&self) -> impl Iterator<Item = (ClusterId, BTreeMap<Metric, u64>)> + '_ {
        self.clusters.iter().map(|(cluster, gauges)| (*cluster, gauges.values()))
    }

    #[cfg(test)]
    pub fn with_empty_cluster(cluster: ClusterId) -> Present {
        Present { clusters: [(cluster, ClusterGauges::default())].into(), ..Present::default() }
    }

    pub fn write(&self, text: &mut Text) {
        text.family("muster_cluster_nodes", "gauge", "Nodes that exist or are being created.");
        for gauges in self.clusters.values() {
            for (state, count) in gauges.nodes {
                let labels = gauges.labels.with(&[("state", state), ("tier", gauges.tier)]);
                text.sample("muster_cluster_nodes", &labels, count);
            }
        }
        text.family(
            "muster_cluster_target_nodes",
            "gauge",
            "Nodes that run jobs or will be able to.",
        );
        for gauges in self.clusters.values() {
            text.sample("muster_cluster_target_nodes", &gauges.labels.with(&[]), gauges.target);
        }
        text.family("muster_jobs", "gauge", "Jobs that have not ended.");
        for gauges in self.clusters.values() {
            for (status, count) in &gauges.jobs {
                text.sample("muster_jobs", &gauges.labels.with(&[("status", status)]), count);
            }
        }
        text.family("muster_hosts", "gauge", "Hosts on which nodes run, including this one.");
        for (state, count) in &self.hosts {
            text.sample("muster_hosts", &[("state", *state)], count);
        }
        self.write_pending(text);
        self.write_quotas(text);
        self.write_store(text);
    }

    fn write_store(&self, text: &mut Text) {
        let name = "muster_store_trouble";
        let help = "1 for the reason why the store accepts no new work; all are 0 if it does.";
        text.family(name, "gauge", help);
        for kind in StoreTrouble::KINDS.map(StoreTrouble::code) {
            let is_so = self.store_trouble.is_some_and(|trouble| trouble.code() == kind);
            text.sample(name, &[("kind", kind)], u8::from(is_so));
        }
    }

    fn write_pending(&self, text: &mut Text) {
        let mut pending: BTreeMap<&str, usize> = BTreeMap::new();
        for (reason, jobs) in self.clusters.values().filter_map(|gauges| gauges.pending) {
            *pending.entry(reason).or_default() += jobs;
        }
        let help = "Waiting jobs, by the wait reason of the first job of their cluster.";
        text.family("muster_pending_jobs", "gauge", help);
        for (reason, jobs) in pending {
            text.sample("muster_pending_jobs", &[("reason", reason)], jobs);
        }
    }

    fn write_quotas(&self, text: &mut Text) {
        let labels = |quota: &Limit| {
            let Limit { subscription, location, family, .. } = quota;
            [subscription, location, family].map(String::clone)
        };
        let mut family = |name: &str, help: &str, value: &dyn Fn(&Limit) -> Option<u64>| {
            text.family(name, "gauge", help);
            for quota in &self.quotas {
                let Some(value) = value(quota) else { continue };
                let [subscription, location, family] = labels(quota);
                let labels = [
                    ("subscription", &*subscription),
                    ("location", &*location),
                    ("family", &*family),
                ];
                text.sample(name, &labels, value);
            }
        };
        family("muster_quota_used", "vCPUs of nodes that exist.", &|quota| Some(quota.used));
        family("muster_quota_limit", "vCPUs allowed; absent if there is no limit.", &|quota| {
            quota.limit
        });
    }
}

impl ClusterGauges {
    fn values(&self) -> BTreeMap<Metric, u64> {
        let hundredths = |count: usize| count as u64 * 100;
        let nodes = |wanted: &str| {
            let found = self.nodes.iter().find(|(state, _)| *state == wanted);
            hundredths(found.map_or(0, |(_, count)| *count))
        };
        let jobs = |status: &str| hundredths(self.jobs.get(status).copied().unwrap_or(0));
        let mut values = BTreeMap::from([
            (Metric::NodesStarting, nodes("starting")),
            (Metric::NodesIdle, nodes("idle")),
            (Metric::NodesBusy, nodes("busy")),
            (Metric::NodesLeaving, nodes("leaving")),
            (Metric::JobsQueued, jobs("Queued")),
            (Metric::JobsRunning, jobs("Running")),
        ]);
        for category in Category::ALL {
            let cost = self.cost.get(&category).copied().unwrap_or(0);
            values.insert(Metric::Cost(category), cost);
        }
        values
    }
}

/// The price of what the nodes of a cluster do at the moment, by category.
fn cost(world: &World, index: &ClusterIndex) -> BTreeMap<Category, u64> {
    let timed = index.pending.iter().chain(&index.idle).chain(&index.parked);
    let nodes = timed.map(|(_, node)| node).chain(&index.leased).chain(&index.going);
    let nodes = nodes.filter_map(|node| world.node(*node));
    let spare = nodes.filter_map(|node: &Node| Some((node.meter?, node.price_micro_usd_per_hour)));
    let attempts = index.active.iter().filter_map(|job| world.job(*job)).filter_map(Job::attempt);
    let members = attempts.flat_map(|attempt| &attempt.members);
    let held = members.filter_map(|member| Some((member.meter?, member.price_micro_usd_per_hour)));
    let mut cost: BTreeMap<Category, u64> = BTreeMap::new();
    for (Meter { category, part, .. }, price) in spare.chain(held) {
        let price = u128::from(price) * u128::from(part.0) / u128::from(Part::WHOLE.0);
        *cost.entry(category).or_default() += u64::try_from(price).unwrap_or(u64::MAX);
    }
    cost
}

const HOST_STATES: [&str; 5] = ["open", "silent", "cordoned", "draining", "removing"];

/// A host that does not report is silent, whatever state it should be in.
fn host_state(host: &Host) -> &'static str {
    match host.state {
        _ if host.is_silent => "silent",
        HostState::Open => "open",
        HostState::Cordoned => "cordoned",
        HostState::Draining => "draining",
        HostState::Removing => "removing",
    }
}

fn gauges(world: &World, cluster: &Cluster) -> ClusterGauges {
    let key = world.workspace_by_id(cluster.workspace).map(|workspace| &workspace.key);
    let labels = Labels {
        subscription: key.map(|key| key.subscription.to_string()).unwrap_or_default(),
        resource_group: key.map(|key| key.resource_group.to_string()).unwrap_or_default(),
        workspace: key.map(|key| key.name.to_string()).unwrap_or_default(),
        location: cluster.spec.location.to_string(),
        cluster: cluster.name.as_str().to_owned(),
    };
    let tier = match cluster.spec.tier {
        Tier::Dedicated => "dedicated",
        Tier::LowPriority => "low_priority",
    };
    let Some(gauges) = world.cluster_index(cluster.id) else {
        return ClusterGauges {
            labels,
            tier,
            nodes: [("starting", 0), ("idle", 0), ("busy", 0), ("leaving", 0)],
            ..ClusterGauges::default()
        };
    };
    let mut jobs = BTreeMap::from([("Queued", gauges.queue.len()), ("Running", 0)]);
    for job in gauges.active.iter().filter_map(|job| world.job(*job)) {
        *jobs.entry(status(job.phase())).or_default() += 1;
    }
    let first = gauges.queue.candidates().next();
    let reasons = first.map(|first| why::why(world, first.job)).unwrap_or_default();
    ClusterGauges {
        labels,
        tier,
        target: gauges.alive(),
        nodes: [
            ("starting", gauges.pending.len()),
            ("idle", gauges.idle.len()),
            ("busy", gauges.leased.len()),
            ("leaving", gauges.going.len()),
        ],
        jobs,
        cost: cost(world, gauges),
        pending: reasons.first().map(|reason| (reason.code(), gauges.queue.len())),
    }
}

/// The status as Azure's clients show it.
pub fn status(phase: JobPhase) -> &'static str {
    match phase {
        JobPhase::Queued => "Queued",
        JobPhase::Starting => "Starting",
        JobPhase::Running => "Running",
        JobPhase::CancelRequested => "CancelRequested",
        JobPhase::Completed => "Completed",
        JobPhase::Failed => "Failed",
        JobPhase::Canceled => "Canceled",
    }
}
