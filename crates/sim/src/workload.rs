//! What users request, drawn before anything happens, so that it does not depend on what the system does.
//!
//! There are bursts with a daily rhythm, run times with a heavy tail, multi-node jobs, cancels, resubmits, changed and
//! recreated clusters, and a share of requests that must be refused.

mod clusters;
mod commands;

use std::collections::BTreeMap;

use muster_core::ClusterPatch;
use muster_core::model::{
    ArrayPlan, Caller, JobSpec, Priority, QuotaName, ShareRequest, SpecHash, Tier, WorkspaceKey,
};
use muster_core::time::Span;
use sha2::{Digest, Sha256};

use clusters::{CLUSTERS, ClusterPlan, WORKSPACES};
pub(crate) use commands::{Command, End};

use crate::chance::{Chance, Stream};
use crate::clock::{DAY, HOUR, Moment, minutes};

/// Together with the floods a fifth more than the tests ask for, because some are refused while their cluster is
/// deleted.
const JOBS_PER_DAY: u32 = 37;
/// The number of urgent jobs with which one user floods a cluster at once.
const FLOOD: u32 = 40;

/// One request of one user.
#[derive(Debug, Clone)]
pub(crate) struct UserRequest {
    pub(crate) at: Moment,
    pub(crate) act: Act,
    pub(crate) expect: Expect,
}

#[derive(Debug, Clone)]
pub(crate) enum Act {
    CreateWorkspace {
        workspace: usize,
    },
    PutCluster {
        workspace: usize,
        name: String,
        wanted: Box<ClusterPatch>,
    },
    DeleteCluster {
        workspace: usize,
        name: String,
    },
    SubmitJob(Box<Submit>),
    CancelJob {
        workspace: usize,
        name: String,
    },
    /// Sets limits of the region that all clusters are in; `None` removes one.
    SetQuota {
        limits: BTreeMap<QuotaName, Option<u64>>,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Submit {
    pub(crate) workspace: usize,
    pub(crate) name: String,
    pub(crate) spec: std::sync::Arc<JobSpec>,
    pub(crate) hash: SpecHash,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Repeated until it is accepted.
    AcceptedAtLast,
    /// Any answer may be right, because it depends on what else is going on.
    AnyAnswer,
    Refused,
}

pub(crate) fn workspace_key(workspace: usize) -> WorkspaceKey {
    WorkspaceKey::new("simulated", "everyone", WORKSPACES[workspace])
}

pub(crate) fn workspaces() -> impl Iterator<Item = WorkspaceKey> {
    (0..WORKSPACES.len()).map(workspace_key)
}

/// The caller: one of a few users per workspace.
pub(crate) fn caller(workspace: usize, name: &str) -> Caller {
    let user = name.bytes().map(usize::from).sum::<usize>() % 3;
    Caller {
        object_id: format!("oid-{workspace}-{user}").into(),
        name: format!("user{user}@{}", WORKSPACES[workspace]).into(),
    }
}

/// All requests of `days` days, in no particular order.
pub(crate) fn plan(seed: u64, days: u32, has_faults: bool) -> Vec<UserRequest> {
    let chance = Chance::new(seed, Stream::Workload);
    let mut drawing = Drawing { chance, days, has_faults, user_requests: vec![] };
    drawing.set_up();
    drawing.submit_jobs();
    drawing.flood();
    drawing.change_clusters();
    drawing.limit_quota();
    drawing.recreate_clusters();
    drawing.ask_for_nonsense();
    drawing.user_requests
}

/// Resets every cluster to its first settings, so that every waiting job can run.
pub(crate) fn heal(at: Moment) -> Vec<UserRequest> {
    let expect = Expect::AcceptedAtLast;
    let clusters = CLUSTERS.iter().map(|cluster| UserRequest { at, act: cluster.put(), expect });
    std::iter::once(UserRequest { at, act: lift_limits(), expect }).chain(clusters).collect()
}

fn lift_limits() -> Act {
    let lifted = [QuotaName::Region, QuotaName::LowPriority].map(|name| (name, None));
    Act::SetQuota { limits: BTreeMap::from(lifted) }
}

pub(crate) fn tear_down(at: Moment) -> Vec<UserRequest> {
    let delete = |cluster: &ClusterPlan| cluster.delete();
    CLUSTERS
        .iter()
        .map(|cluster| UserRequest { at, act: delete(cluster), expect: Expect::AcceptedAtLast })
        .collect()
}

struct Drawing {
    chance: Chance,
    days: u32,
    has_faults: bool,
    user_requests: Vec<UserRequest>,
}

impl Drawing {
    fn want(&mut self, at: Moment, act: Act, expect: Expect) {
        self.user_requests.push(UserRequest { at, act, expect });
    }

    /// The last ten minutes are left free, so that every request is made before the end.
    fn end(&self) -> Moment {
        Moment(DAY.0 * u64::from(self.days) - minutes(10).0)
    }

    /// A moment of one of the days: working hours are busy, nights are not.
    fn moment(&mut self) -> Moment {
        const HOURS: [(u64, u64); 24] = {
            let mut hours = [(1, 0); 24];
            let mut hour = 0;
            while hour < 24 {
                let weight = if hour >= 8 && hour < 19 { 6 } else { 1 };
                hours[hour] = (weight, hour as u64);
                hour += 1;
            }
            hours
        };
        let day = self.chance.below(u64::from(self.days));
        let hour = self.chance.weighted(&HOURS);
        let start = Moment(day * DAY.0 + hour * HOUR.0) + minutes(5);
        let at = start + self.chance.span(Span::ZERO, HOUR);
        at.min(self.end())
    }

    fn later(&mut self, at: Moment, least: Span, most: Span) -> Moment {
        (at + self.chance.span(least, most)).min(self.end())
    }

    fn set_up(&mut self) {
        for workspace in 0..WORKSPACES.len() {
            let act = Act::CreateWorkspace { workspace };
            self.want(Moment(Span::seconds(1).0), act, Expect::AcceptedAtLast);
        }
        for cluster in &CLUSTERS {
            self.want(Moment(Span::seconds(30).0), cluster.put(), Expect::AcceptedAtLast);
        }
    }

    fn submit_jobs(&mut self) {
        let wanted = JOBS_PER_DAY * self.days;
        let mut drawn = 0;
        while drawn < wanted {
            let at = self.moment();
            let (least, most) = self.chance.weighted(&[(50, (1, 1)), (35, (2, 5)), (15, (6, 25))]);
            let cluster = clusters::draw(&mut self.chance);
            for _ in 0..self.chance.number(least, most) {
                drawn += 1;
                self.submit_job(at, cluster, drawn);
            }
        }
    }

    fn submit_job(&mut self, at: Moment, cluster: &ClusterPlan, number: u32) {
        let nodes =
            self.chance.weighted(&[(70, 1), (15, 2), (10, 3), (5, 4)]).min(cluster.nodes_max);
        let command = Command::draw(&mut self.chance, self.has_faults);
        // A job that hangs must have a time limit.
        let is_limited = self.chance.permille(40) || command.end == End::Hang;
        let timeout = is_limited.then(|| command.time_limit());
        let name = format!("{}-{number:05}", cluster.name);
        let (priority, share) = (self.priority(), self.share(cluster));
        let array = self.array(nodes);
        let spec =
            JobSpec { timeout, priority, share, array, ..spec(cluster.name, nodes, command) };
        if let Some(plan) = &spec.array {
            self.cancel_tasks(at, cluster, &name, plan);
        }
        let submit = submit(cluster.workspace, &name, spec);
        self.want(at, submit.clone(), Expect::AnyAnswer);
        match self.chance.below(100) {
            0..12 => self.cancel(at, cluster, name),
            12..17 => {
                let again = self.later(at, Span::seconds(1), minutes(120));
                self.want(again, submit, Expect::AnyAnswer);
            }
            17..19 => {
                let again = self.later(at, Span::seconds(1), minutes(120));
                let other = spec_of_another(cluster.name, nodes);
                let other = self::submit(cluster.workspace, &name, other);
                self.want(again, other, Expect::AnyAnswer);
            }
            // At the same instant, so that all three can be in one batch.
            19 => {
                let cancel = Act::CancelJob { workspace: cluster.workspace, name };
                self.want(at, cancel, Expect::AnyAnswer);
                self.want(at, submit, Expect::AnyAnswer);
            }
            _ => {}
        }
    }

    /// Some jobs of one node are arrays, half of them with a limit, and some with a time limit for all tasks.
    fn array(&mut self, nodes: u32) -> Option<Box<ArrayPlan>> {
        let is_array = nodes == 1 && self.chance.permille(60);
        is_array.then(|| {
            let (tasks, step) = (self.chance.number(1, 12), self.chance.number(1, 3));
            let indices = format!("0-{}:{step}", tasks * step - 1);
            let limit = self.chance.number(1, 4);
            let concurrency = self.chance.permille(500).then_some(limit);
            let timeout = self.chance.permille(150).then_some(minutes(90));
            let indices = indices.parse().expect("a range of indices");
            Box::new(ArrayPlan { indices, concurrency, timeout })
        })
    }

    /// Now and then, single tasks of an array are canceled, or all of them one by one.
    fn cancel_tasks(&mut self, at: Moment, cluster: &ClusterPlan, name: &str, plan: &ArrayPlan) {
        let share = self.chance.weighted(&[(14, 0), (5, 200), (1, 1_000)]);
        let indices = (0..plan.indices.len()).filter_map(|position| plan.indices.at(position));
        for index in indices {
            if self.chance.permille(share) {
                self.cancel(at, cluster, format!("{name}_{index}"));
            }
        }
    }

    /// Every ten days one user submits a flood of urgent jobs.
    fn flood(&mut self) {
        for flood in 0..self.days / 10 {
            let at = self.moment();
            let cluster = clusters::draw(&mut self.chance);
            let user = caller(cluster.workspace, &format!("flood-{flood}-0"));
            let names = (0..).map(|number| format!("flood-{flood}-{number}"));
            let names = names.filter(|name| caller(cluster.workspace, name) == user);
            for name in names.take(FLOOD as usize) {
                let command = Command::draw(&mut self.chance, false);
                let urgent = spec(cluster.name, 1, command);
                let urgent = JobSpec { priority: Priority::High, ..urgent };
                self.want(at, submit(cluster.workspace, &name, urgent), Expect::AnyAnswer);
            }
        }
    }

    fn priority(&mut self) -> Priority {
        self.chance.weighted(&[(1, Priority::Low), (7, Priority::Medium), (2, Priority::High)])
    }

    /// Most jobs take whole nodes; some share them.
    fn share(&mut self, cluster: &ClusterPlan) -> ShareRequest {
        let vcpus = self.chance.weighted(&[(15, None), (2, Some(1)), (2, Some(2)), (1, Some(3))]);
        let vcpus = vcpus.filter(|_| cluster.tier == Tier::Dedicated);
        ShareRequest { vcpus, ..ShareRequest::default() }
    }

    /// Limits the region for some hours.
    fn limit_quota(&mut self) {
        for _ in 0..self.days.div_ceil(3) {
            let at = self.moment();
            let is_low = self.chance.permille(300);
            let name = if is_low { QuotaName::LowPriority } else { QuotaName::Region };
            let vcpus = u64::from(self.chance.number(0, 10)) * 4;
            let back = self.later(at, minutes(30), minutes(600));
            let set = |limit| Act::SetQuota { limits: BTreeMap::from([(name.clone(), limit)]) };
            self.want(at, set(Some(vcpus)), Expect::AnyAnswer);
            self.want(back, set(None), Expect::AnyAnswer);
        }
        // A restored backup has limits that were removed since.
        for _ in 0..self.days {
            let at = self.moment();
            self.want(at, lift_limits(), Expect::AnyAnswer);
        }
    }

    fn cancel(&mut self, at: Moment, cluster: &ClusterPlan, name: String) {
        let (least, most) = self.chance.weighted(&[(2, (1, 5)), (4, (5, 300)), (2, (300, 3_600))]);
        let at = self.later(at, Span::seconds(least), Span::seconds(most));
        self.want(at, Act::CancelJob { workspace: cluster.workspace, name }, Expect::AnyAnswer);
    }

    /// Changes the limits for a while, then restores them.
    fn change_clusters(&mut self) {
        for _ in 0..2 * self.days {
            let at = self.moment();
            let cluster = clusters::draw(&mut self.chance);
            let nodes_max = self.chance.number(0, 2 * cluster.nodes_max);
            let nodes_min = self.chance.number(0, nodes_max.min(2));
            let wanted = ClusterPatch {
                nodes_min: Some(nodes_min),
                nodes_max: Some(nodes_max),
                ..ClusterPatch::default()
            };
            let back = self.later(at, minutes(10), minutes(240));
            self.want(at, cluster.change(wanted), Expect::AnyAnswer);
            self.want(back, cluster.change(cluster.limits()), Expect::AnyAnswer);
        }
    }

    fn recreate_clusters(&mut self) {
        for cluster in CLUSTERS.iter().filter(|cluster| cluster.is_recreated) {
            for _ in 0..self.days.div_ceil(5) {
                let at = self.moment();
                let back = self.later(at, Span::seconds(1), minutes(10));
                self.want(at, cluster.delete(), Expect::AnyAnswer);
                self.want(back, cluster.put(), Expect::AcceptedAtLast);
            }
        }
    }

    fn ask_for_nonsense(&mut self) {
        for number in 0..3 * self.days {
            let at = self.moment();
            let cluster = clusters::draw(&mut self.chance);
            let act = self.nonsense(cluster, number);
            self.want(at, act, Expect::Refused);
        }
    }

    fn nonsense(&mut self, cluster: &ClusterPlan, number: u32) -> Act {
        let workspace = cluster.workspace;
        let put = |name: &str, wanted: ClusterPatch| Act::PutCluster {
            workspace,
            name: name.to_owned(),
            wanted: Box::new(wanted),
        };
        let sensible = spec(cluster.name, 1, Command { seconds: 5, end: End::Exit(0) });
        let name = format!("nonsense-{number}");
        let bad = |spec: JobSpec| self::submit(workspace, &name, spec);
        match self.chance.below(8) {
            0 => put(
                "new-one",
                ClusterPatch { vm_size: Some("Enormous_1".into()), ..<_>::default() },
            ),
            1 => put("9lives", ClusterPatch::default()),
            2 => put(
                "upside-down",
                ClusterPatch { nodes_min: Some(3), nodes_max: Some(2), ..<_>::default() },
            ),
            3 => put("huge", ClusterPatch { nodes_max: Some(1_000_000), ..<_>::default() }),
            4 => bad(JobSpec { compute: "nowhere".into(), ..sensible }),
            5 => bad(JobSpec { nodes: 10_001, ..sensible }),
            6 => bad(JobSpec { command: "  ".into(), ..sensible }),
            _ => Act::CancelJob { workspace, name },
        }
    }
}

fn spec(compute: &str, nodes: u32, command: Command) -> JobSpec {
    JobSpec { nodes, ..JobSpec::new(compute, command.to_string()) }
}

/// Shorter than any command that is drawn, so never the same by chance.
fn spec_of_another(compute: &str, nodes: u32) -> JobSpec {
    spec(compute, nodes, Command { seconds: 1, end: End::Exit(0) })
}

fn submit(workspace: usize, name: &str, spec: JobSpec) -> Act {
    let text = serde_json::to_string(&spec).expect("a specification is plain data");
    let hash = SpecHash(Sha256::digest(text).into());
    Act::SubmitJob(Box::new(Submit { workspace, name: name.to_owned(), spec: spec.into(), hash }))
}
