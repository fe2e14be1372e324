//! `muster compute watch`: the nodes, queue and cost of clusters as they change.
//!
//! On a terminal it redraws one screen; elsewhere it prints a line for every change. The screen needs only a dozen
//! escape sequences and two terminal settings, so it does not use a library for terminal interfaces: see [`screen`].

mod screen;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use muster_core::model::WorkspaceKey;
use muster_wire::Route;
use muster_wire::compute::SeenCompute;
use muster_wire::cost::{By, LedgerDocument, LedgerRequest};
use muster_wire::job::{JobResource, JobStatus, property};
use muster_wire::why::{WhyDocument, WhyReason};
use serde::Serialize;

use self::screen::{Event, Screen};
use super::price;
use crate::client::{Changes, Client};
use crate::failure::{CliResult, printable};
use crate::names::{self, MaybeName};
use crate::operation::Patience;
use crate::output::{self, Print, width};
use crate::scope::Scope;
use crate::values;

/// The number of jobs to show: the newest ones, on one page.
const JOBS_MAX: u32 = 200;
/// Why a cluster has its size may change with time alone.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(10);
const INTERVAL_DEFAULT: &str = "1";
const HEADER: [&str; 13] = [
    "Name", "Nodes", "Run", "Idle", "Prep", "Leave", "Bad", "Queue", "Jobs", "USD/h", "USD",
    "State", "Size",
];
/// The columns to leave out on a narrow terminal, in this order.
const EXPENDABLE: [&str; 6] = ["Size", "State", "Leave", "Prep", "USD", "Bad"];
/// Longer names of jobs and clusters are truncated.
const NAME_CHARS_MAX: usize = 24;
/// The minimum width of a reason.
const REASON_CHARS_MIN: usize = 16;
const QUEUE_HEADER: [&str; 4] = ["Job", "Cluster", "Status", "Waits because"];

/// Watch clusters: their nodes, queued jobs and costs
///
/// On a terminal, it redraws the screen every second, until you press q or Ctrl-C. Elsewhere it prints a line for a
/// cluster whenever it changes; with -o json, the line is a JSON object.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct Args {
    #[command(flatten)]
    name: MaybeName<names::WatchedCompute>,
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value = INTERVAL_DEFAULT, value_parser = interval)]
    interval: Duration,
    /// Exit after this many updates
    #[arg(long, value_name = "COUNT", value_parser = values::at_least_one)]
    count: Option<u32>,
    #[command(flatten)]
    print: Print<true>,
    #[command(flatten)]
    scope: Scope,
}

/// The state of a cluster at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Look {
    name: String,
    state: String,
    size: String,
    nodes: u32,
    min_instances: u32,
    max_instances: u32,
    idle: u32,
    running: u32,
    preparing: u32,
    leaving: u32,
    unusable: u32,
    jobs_queued: usize,
    jobs_running: usize,
    /// What one hour with the current nodes costs.
    usd_per_hour: Option<String>,
    /// Since the cluster was created.
    usd: String,
    /// Why the cluster has its current size, with the most fundamental reason first.
    reasons: Vec<String>,
}

/// All clusters, and the jobs that are queued or running.
struct Moment {
    looks: Vec<Look>,
    queue: Vec<Queued>,
}

struct Queued {
    name: String,
    compute: String,
    status: &'static str,
    why: String,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3_600.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "give a number of seconds from 0.1 to 3600, such as 1 or 0.5".to_owned())
}

pub async fn run(args: &Args) -> CliResult {
    let workspace = args.scope.workspace()?;
    let client = args.scope.connect().await?;
    let wanted = args.name.get();
    let watch = Watch { client: &client, workspace, wanted, prices: RefCell::default() };
    let changes = client.changes(watch.workspace.clone()).await;
    // An unknown name is reported before the screen is taken over.
    let first = watch.look().await?;
    if args.print.is_for_people() && std::io::stdout().is_terminal() {
        return on_screen(&watch, args, first, changes).await;
    }
    by_line(&watch, args, first, changes).await
}

struct Watch<'a> {
    client: &'a Client,
    workspace: WorkspaceKey,
    wanted: Option<&'a str>,
    /// The price of one node per hour, in millionths of a dollar, by region, size and priority. Prices do not change
    /// while the command runs.
    prices: RefCell<BTreeMap<(String, String, bool), Option<u64>>>,
}

impl Watch<'_> {
    async fn look(&self) -> CliResult<Moment> {
        let computes: Vec<SeenCompute> = match self.wanted {
            Some(name) => vec![self.client.get(&super::route(self.workspace.clone(), name)).await?],
            None => self.client.list(&Route::Computes(self.workspace.clone()), None).await?,
        };
        let jobs: Vec<JobResource> =
            self.client.list(&Route::Jobs(self.workspace.clone()), Some(JOBS_MAX)).await?;
        let query = LedgerRequest { by: By::Cluster, since: None }.query();
        let query: Vec<_> = query.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let route = Route::Ledger(self.workspace.clone());
        let ledger: LedgerDocument = self.client.get_with(&route, &query).await?;
        let mut looks = Vec::new();
        for compute in &computes {
            let price = self.price(compute).await;
            let reasons = self.reasons(compute).await;
            looks.push(Look { reasons, ..Look::of(compute, &jobs, &ledger, price) });
        }
        let mut queue: Vec<Queued> = jobs
            .iter()
            .filter(|job| !job.properties.status.is_terminal())
            .map(Queued::of)
            .filter(|job| looks.iter().any(|look| look.name.eq_ignore_ascii_case(&job.compute)))
            .collect();
        // The server lists the newest first, but the jobs that have waited longest are the most interesting.
        queue.reverse();
        Ok(Moment { looks, queue })
    }

    /// Returns `None` for a cluster that has just been deleted.
    async fn reasons(&self, compute: &SeenCompute) -> Vec<String> {
        let (workspace, name) = (self.workspace.clone(), compute.name.as_str().into());
        let found: CliResult<WhyDocument> =
            self.client.get(&Route::WhyCompute { workspace, name }).await;
        let each = |reason: &WhyReason| format!("{}: {}", reason.code, reason.message);
        found.map(|found| found.value.iter().map(each).collect()).unwrap_or_default()
    }

    async fn price(&self, compute: &SeenCompute) -> Option<u64> {
        let aml = &compute.properties.properties;
        let is_low_priority = aml.vm_priority.as_deref() == Some("LowPriority");
        let location = compute.location.clone()?;
        let key = (location, aml.vm_size.clone(), is_low_priority);
        if let Some(known) = self.prices.borrow().get(&key) {
            return *known;
        }
        let sizes = price::sizes(self.client, &self.workspace.subscription, &key.0).await.ok()?;
        let size = sizes.iter().find(|size| size.name.eq_ignore_ascii_case(&key.1));
        let price = size.and_then(|size| price::of(size, is_low_priority));
        self.prices.borrow_mut().insert(key, price);
        price
    }
}

impl Look {
    fn of(
        compute: &SeenCompute,
        jobs: &[JobResource],
        ledger: &LedgerDocument,
        price: Option<u64>,
    ) -> Look {
        let own = &compute.properties.properties;
        let counts = own.nodes();
        // A compute instance is one node.
        let scale = own.scale_settings.as_ref();
        let scale = scale.map_or((1, 1), |scale| (scale.min_node_count, scale.max_node_count));
        let jobs_as = |is_wanted: fn(JobStatus) -> bool| {
            let is_here = |job: &&JobResource| compute_of(job).eq_ignore_ascii_case(&compute.name);
            jobs.iter().filter(is_here).filter(|job| is_wanted(job.properties.status)).count()
        };
        let is_mine = |name: &Option<String>| {
            name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(&compute.name))
        };
        let spent = ledger.value.iter().filter(|line| is_mine(&line.cluster));
        let spent = spent.fold(0u64, |sum, line| sum.saturating_add(line.micro_usd));
        let nodes = own.current_node_count.unwrap_or_else(|| counts.total());
        Look {
            name: compute.name.clone(),
            state: own
                .state
                .clone()
                .unwrap_or_else(|| format!("{:?}", compute.properties.provisioning_state)),
            size: own.vm_size.clone(),
            nodes,
            min_instances: scale.0,
            max_instances: scale.1,
            idle: counts.idle_node_count,
            running: counts.running_node_count,
            preparing: counts.preparing_node_count,
            leaving: counts.leaving_node_count,
            unusable: counts.unusable_node_count,
            jobs_queued: jobs_as(|status| status == JobStatus::Queued),
            jobs_running: jobs_as(|status| !status.is_terminal() && status != JobStatus::Queued),
            usd_per_hour: price.map(|price| price::usd(price.saturating_mul(u64::from(nodes)))),
            usd: price::usd(spent),
            reasons: Vec::new(),
        }
    }

    /// Costs increase continuously, so they do not count as a change.
    fn is_same(&self, other: &Look) -> bool {
        let mut other = other.clone();
        other.usd.clone_from(&self.usd);
        *self == other
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            format!("{} of {}-{}", self.nodes, self.min_instances, self.max_instances),
            self.running.to_string(),
            self.idle.to_string(),
            self.preparing.to_string(),
            self.leaving.to_string(),
            self.unusable.to_string(),
            self.jobs_queued.to_string(),
            self.jobs_running.to_string(),
            self.usd_per_hour.clone().unwrap_or_else(|| "-".to_owned()),
            self.usd.clone(),
            self.state.clone(),
            self.size.clone(),
        ]
    }

    fn line(&self) -> String {
        format!(
            "{}: {}, {} of {}-{} nodes ({} running, {} idle, {} preparing, {} leaving, {} unusable), \
             {} jobs queued, {} running, {} USD per hour, {} USD so far{}\n",
            printable(&self.name),
            self.state,
            self.nodes,
            self.min_instances,
            self.max_instances,
            self.running,
            self.idle,
            self.preparing,
            self.leaving,
            self.unusable,
            self.jobs_queued,
            self.jobs_running,
            self.usd_per_hour.as_deref().unwrap_or("-"),
            self.usd,
            self.reasons.first().map(|why| format!("; {}", printable(why))).unwrap_or_default()
        )
    }
}

impl Queued {
    fn of(job: &JobResource) -> Queued {
        let why = job.properties.properties.get(property::WAIT_REASON);
        let why = why.and_then(|text| text.lines().next()).unwrap_or_default();
        Queued {
            name: job.name.clone(),
            compute: compute_of(job).to_owned(),
            status: job.properties.status.as_str(),
            why: why.to_owned(),
        }
    }

    /// A row for the reason, and as many more as it needs.
    fn rows(&self, columns: usize) -> Vec<Vec<String>> {
        let why = width::folded(&printable(&self.why), columns);
        let mut rows = vec![vec![
            self.name.clone(),
            self.compute.clone(),
            self.status.to_owned(),
            why.first().cloned().unwrap_or_default(),
        ]];
        let more = |line: &String| vec![String::new(), String::new(), String::new(), line.clone()];
        rows.extend(why.iter().skip(1).map(more));
        rows
    }
}

fn compute_of(job: &JobResource) -> &str {
    let id = job.properties.compute_id.as_deref().unwrap_or_default();
    id.rsplit('/').next().unwrap_or(id)
}

async fn on_screen(
    watch: &Watch<'_>,
    args: &Args,
    first: Moment,
    mut changes: Changes<'_>,
) -> CliResult {
    let mut screen = Screen::take()?;
    let mut moment = first;
    let mut patience = Patience::silent();
    let mut trouble = None;
    let mut looks = 1;
    let mut looked_at = Instant::now();
    loop {
        screen.draw(&lines(&watch.workspace, &moment, trouble.as_deref(), width::size()));
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
        match screen.wait(args.interval).await {
            Event::Leave => return Ok(()),
            Event::Resized => continue,
            Event::Time => {}
        }
        // Nodes cost something all the time; without them, only events change what is shown.
        let is_quiet = args.count.is_none() && moment.looks.iter().all(|look| look.nodes == 0);
        if is_quiet
            && looked_at.elapsed() < LOOK_AT_LEAST_EVERY
            && !changes.wait(|_| true, Duration::ZERO, Duration::ZERO).await
        {
            continue;
        }
        (looks, looked_at) = (looks.saturating_add(1), Instant::now());
        match watch.look().await {
            Ok(now) => {
                (moment, trouble) = (now, None);
                patience.calm();
            }
            Err(failure) => {
                trouble = Some(printable(&failure.to_string()));
                patience.forgive(failure)?;
            }
        }
    }
}

/// Everything that fits on a screen of this many columns and rows.
fn lines(
    workspace: &WorkspaceKey,
    moment: &Moment,
    trouble: Option<&str>,
    (columns, rows): (usize, usize),
) -> Vec<String> {
    let place =
        format!("workspace {}, resource group {}", workspace.name, workspace.resource_group);
    let mut lines = vec![format!("{}    q quits", printable(&place)), String::new()];
    if let Some(trouble) = trouble {
        lines[1] = format!("no response: {trouble}");
    }
    lines.extend(cluster_lines(&moment.looks, columns));
    lines.push(String::new());
    let reasons: Vec<String> = moment
        .looks
        .iter()
        .flat_map(|look| look.reasons.iter().map(move |why| format!("{}: {why}", look.name)))
        .flat_map(|why| width::folded(&printable(&why), columns))
        .collect();
    if !reasons.is_empty() {
        lines.extend(reasons);
        lines.push(String::new());
    }
    if moment.queue.is_empty() {
        lines.push("no jobs are queued or running".to_owned());
        return lines;
    }
    lines.extend(queue_lines(&moment.queue, columns, rows.saturating_sub(lines.len())));
    lines
}

fn cluster_lines(looks: &[Look], columns: usize) -> Vec<String> {
    if looks.is_empty() {
        return vec!["no clusters in this workspace".to_owned()];
    }
    let rows: Vec<_> = looks.iter().map(Look::row).collect();
    let kept = width::kept(&HEADER, &rows, columns, &EXPENDABLE);
    let header: Vec<&str> = kept.iter().map(|index| HEADER[*index]).collect();
    let rows = rows.into_iter().map(|row| kept.iter().map(|at| row[*at].clone()).collect());
    let rows = width::cut(&header, rows.collect(), columns, &["Name"]);
    output::table_text(&header, rows).lines().map(str::to_owned).collect()
}

/// As many jobs as there are rows for, and how many more there are.
fn queue_lines(queue: &[Queued], columns: usize, rows: usize) -> Vec<String> {
    let widest = |cell: fn(&Queued) -> &str| {
        queue.iter().map(|one| cell(one).chars().count()).max().unwrap_or_default()
    };
    let name = widest(|one| &one.name).clamp(3, NAME_CHARS_MAX);
    let compute = widest(|one| &one.compute).clamp("Cluster".len(), NAME_CHARS_MAX);
    let status = widest(|one| one.status).max("Status".len());
    let why = columns.saturating_sub(name + compute + status + 7).max(REASON_CHARS_MIN);
    // Two rows for the header, and one for the number of jobs that do not fit.
    let room = rows.saturating_sub(3);
    let mut shown = Vec::new();
    let mut count = 0;
    for job in queue {
        let own = job.rows(why);
        // A reason that is too long is truncated, if there is any room for its job.
        if shown.len() >= room {
            break;
        }
        shown.extend(own.into_iter().take(room - shown.len()));
        count += 1;
    }
    let shown = width::cut(&QUEUE_HEADER, shown, columns, &["Job", "Cluster"]);
    let mut lines: Vec<String> =
        output::table_text(&QUEUE_HEADER, shown).lines().map(str::to_owned).collect();
    if count < queue.len() {
        lines.push(format!("and {} more", queue.len() - count));
    }
    lines
}

async fn by_line(
    watch: &Watch<'_>,
    args: &Args,
    first: Moment,
    mut changes: Changes<'_>,
) -> CliResult {
    let mut known: BTreeMap<String, Look> = BTreeMap::new();
    let mut moment = first;
    let mut patience = Patience::default();
    let mut looks = 1;
    loop {
        let now: BTreeMap<String, Look> =
            moment.looks.into_iter().map(|look| (look.name.clone(), look)).collect();
        for name in known.keys().filter(|name| !now.contains_key(*name)) {
            args.print
                .line(&Gone { name: name.clone(), state: "Gone" }, || format!("{name}: gone\n"))?;
        }
        for (name, look) in &now {
            if known.get(name).is_none_or(|before| !before.is_same(look)) {
                args.print.line(look, || look.line())?;
            }
        }
        known = now;
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
        moment = loop {
            let change = async {
                tokio::time::sleep(args.interval).await;
                // With a number of updates, each has its time, whether anything has changed or not.
                if args.count.is_none() {
                    changes.wait(|_| true, LOOK_AT_LEAST_EVERY, Duration::ZERO).await;
                }
            };
            tokio::select! {
                () = change => {}
                _ = tokio::signal::ctrl_c() => return Ok(()),
            }
            match watch.look().await {
                Ok(moment) => break moment,
                Err(failure) => patience.forgive(failure)?,
            }
        };
        patience.calm();
        looks = looks.saturating_add(1);
    }
}

/// A cluster that has been deleted.
#[derive(Debug, Serialize)]
struct Gone {
    name: String,
    state: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_neither_a_busy_loop_nor_forever() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("60"), Ok(Duration::from_secs(60)));
        for bad in ["", "0", "0.01", "-1", "nan", "inf", "3601", "soon"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }

    fn moment(jobs: usize) -> Moment {
        let look = Look {
            name: "cpu-cluster-with-a-name".to_owned(),
            state: "Succeeded".to_owned(),
            size: "Standard_NC24ads_A100_v4".to_owned(),
            nodes: 12,
            min_instances: 0,
            max_instances: 100,
            idle: 3,
            running: 9,
            preparing: 0,
            leaving: 0,
            unusable: 0,
            jobs_queued: jobs,
            jobs_running: 0,
            usd_per_hour: Some("123.45".to_owned()),
            usd: "6789.01".to_owned(),
            reasons: vec!["all 100 nodes are at work, and max_instances is 100".to_owned()],
        };
        let job = |number: usize| Queued {
            name: format!("quiet_river_k3v9x2p{number:02}"),
            compute: "cpu-cluster-with-a-name".to_owned(),
            status: "Queued",
            why: "all 100 nodes are busy; raise max_instances of the cluster, or wait".to_owned(),
        };
        Moment { looks: vec![look], queue: (0..jobs).map(job).collect() }
    }

    #[test]
    fn a_screen_of_80_columns_has_everything_that_matters_and_uses_its_rows() {
        let key = WorkspaceKey::new("s", "lab", "vision");
        for (columns, rows) in [(80, 24), (80, 50), (120, 30), (60, 12)] {
            let shown = lines(&key, &moment(40), None, (columns, rows));
            for line in &shown {
                assert!(line.chars().count() <= columns, "{columns}: {line}");
            }
            assert_eq!(shown.len(), rows, "{columns} x {rows}: {shown:#?}");
            assert!(shown.last().is_some_and(|line| line.ends_with("more")), "{shown:#?}");
        }
        let shown = lines(&key, &moment(2), None, (80, 24)).join("\n");
        for words in ["12 of 0-100", "123.45", "Queue", "max_instances", "quiet_river_k3v9x2p01"] {
            assert!(shown.contains(words), "{words} in {shown}");
        }
        assert!(!shown.contains("more"), "{shown}");
    }
}
