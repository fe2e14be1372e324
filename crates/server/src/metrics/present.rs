//! The current state, read from World between two commits: a look at each cluster, and at the jobs that hold nodes.

use std::collections::BTreeMap;

use muster_core::World;
use muster_core::ids::ClusterId;
use muster_core::model::{Cluster, Host, HostState, JobPhase, Tier};
use muster_core::read_only::StoreTrouble;
use muster_core::why;

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

struct ClusterGauges {
    labels: Labels,
    tier: &'static str,
    target: u32,
    nodes: [(&'static str, usize); 4],
    jobs: BTreeMap<&'static str, usize>,
    /// What holds back the first waiting job, and how many jobs wait.
    pending: Option<(&'static str, usize)>,
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
            target: 0,
            nodes: [("starting", 0), ("idle", 0), ("busy", 0), ("leaving", 0)],
            jobs: BTreeMap::new(),
            pending: None,
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
