//! The text of each reason. It ends with what [`Reason::remedy`] would do about it.

use std::fmt;

use super::Reason;

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what(f)?;
        let advice = match self {
            Reason::Locked { .. } => "lock individual computes instead, and remove that lock",
            Reason::MaximumTooLow { .. } => "raise the maximum",
            Reason::QuotaTooLow { .. } | Reason::QuotaReached { .. } => "raise the limit",
            Reason::HostsTooSmall(_) => {
                "choose a smaller size, set over-commit=true on the server, or join a larger host"
            }
            Reason::HostsFull(_) => {
                "scale something down, set over-commit=true on the server, or join another host"
            }
            Reason::HostClosed(_) => "to open it",
            Reason::CreateFailing { .. } => "Muster keeps trying; to retry now",
            Reason::Reserved { nodes_max, needed, .. }
            | Reason::Behind { nodes_max, needed, .. }
                if needed <= nodes_max =>
            {
                "wait; to watch"
            }
            Reason::MaximumReached { .. } | Reason::Reserved { .. } | Reason::Behind { .. } => {
                "wait, or raise the maximum"
            }
            Reason::FreeSoon { .. } => "wait, or grow at once",
            Reason::NodesStarting { .. }
            | Reason::Starting { .. }
            | Reason::Deleting { .. }
            | Reason::ArrayLimit { .. }
            | Reason::NextOnNode { .. }
            | Reason::Serverless { .. } => "wait; to watch",
            Reason::NodesGoing { .. } => "wait, or raise the maximum",
            Reason::KeptByMinimum { .. } => "to delete them",
            Reason::HeldFor { .. } => "wait, or cancel that job",
            Reason::IdleUntil { .. } => "to delete them now",
            Reason::Busy { .. } => "nothing needs to be done; to watch",
            Reason::Empty { .. } => "submit a job, or keep a node running",
            Reason::Instance { what, .. } => what.advice(),
            Reason::Store(trouble) => {
                return write!(f, "; {}; to check the server's host", trouble.advice());
            }
        };
        write!(f, "; {advice}")
    }
}

impl Reason {
    fn what(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Locked { lock, cluster, .. } => write!(
                f,
                "compute '{cluster}' cannot grow: the lock '{}' ({}) on {} forbids it",
                lock.name,
                lock.level.as_str(),
                lock.scope
            ),
            Reason::MaximumTooLow { cluster, nodes_max, needed } => write!(
                f,
                "compute '{cluster}' has at most {}, but this job needs {needed}",
                nodes(*nodes_max)
            ),
            Reason::QuotaTooLow { quota, needed } => write!(
                f,
                "the quota {} of region '{}' is {} vCPUs, but this job needs {needed}",
                quota.name, quota.location, quota.limit
            ),
            Reason::HostsTooSmall(short) => f.write_str(&short.words(true)),
            Reason::HostsFull(short) => f.write_str(&short.words(false)),
            Reason::HostClosed(closed) => write!(
                f,
                "host '{}' is {}, so no job starts on {} of '{}' there",
                closed.host,
                closed.state.as_str(),
                nodes(closed.nodes),
                closed.cluster
            ),
            Reason::CreateFailing { cluster, failures, last, .. } => write!(
                f,
                "nodes of '{cluster}' failed to start {failures} times in a row; last error: {last}"
            ),
            Reason::QuotaReached { quota, used, needed } => write!(
                f,
                "the quota {} of region '{}' is used up: {used} of {} vCPUs are in use; {needed} would be needed",
                quota.name, quota.location, quota.limit
            ),
            Reason::MaximumReached { cluster, nodes_max, free, needed, is_for_all } => write!(
                f,
                "compute '{cluster}' is at its maximum of {}, {free} of them free; {needed} would be needed{}",
                nodes(*nodes_max),
                if *is_for_all { " for all waiting jobs" } else { "" }
            ),
            Reason::Reserved { job, free, .. } => write!(
                f,
                "{} free but reserved for job '{job}', which comes first and needs more",
                are(*free, "node")
            ),
            Reason::Behind { jobs: 1, first, .. } => write!(f, "job '{first}' is served first"),
            Reason::Behind { jobs, first, .. } => {
                write!(f, "{} served first, starting with '{first}'", are(*jobs, "job"))
            }
            Reason::NextOnNode { node, before, .. } => {
                let tasks = if *before == 1 { "task" } else { "tasks" };
                write!(
                    f,
                    "it starts on node {node} after {before} other short {tasks} of its array"
                )
            }
            Reason::ArrayLimit { job, limit, .. } => write!(
                f,
                "the array {job} runs at most {limit} of its tasks at once, and that many run or are next"
            ),
            Reason::FreeSoon { cluster, .. } => write!(
                f,
                "a node of '{cluster}' will probably be free before a new one could start"
            ),
            Reason::NodesStarting { starting, free, needed, .. } => {
                write!(f, "{} starting, {free} free, {needed} needed", are(*starting, "node"))
            }
            Reason::Starting { nodes: count, .. } => {
                write!(f, "its {} being prepared to run it", are(*count, "node"))
            }
            Reason::Deleting { cluster, jobs, nodes: count } => write!(
                f,
                "compute '{cluster}' is being deleted; {} and {} are left",
                counted(*jobs, "job"),
                nodes(*count)
            ),
            Reason::NodesGoing { cluster, going, nodes_max } => write!(
                f,
                "{} being deleted but still counted towards the maximum of {nodes_max} of '{cluster}'",
                are(*going, "node")
            ),
            Reason::KeptByMinimum { cluster, nodes_min, idle } => write!(
                f,
                "{} idle because '{cluster}' keeps at least {nodes_min}",
                are(*idle, "node")
            ),
            Reason::HeldFor { job, idle, needed, .. } => {
                write!(
                    f,
                    "{} reserved for job '{job}', which needs {needed}",
                    are(*idle, "idle node")
                )
            }
            Reason::IdleUntil { idle, idle_s, .. } => {
                let idle = are(*idle, "node");
                write!(f, "{idle} idle; each is deleted after {idle_s} s without a job")
            }
            Reason::Busy { cluster, nodes: count, nodes_max } => write!(
                f,
                "'{cluster}' has {} and no waiting job; it can grow to {nodes_max}",
                counted(*count, "busy node")
            ),
            Reason::Empty { cluster, .. } => {
                write!(f, "no job is waiting for '{cluster}', so it has no nodes")
            }
            Reason::Instance { cluster, what } => f.write_str(&what.words(cluster)),
            Reason::Serverless { what, .. } => what.what(f),
            Reason::Store(trouble) => write!(f, "{trouble}"),
        }
    }
}

fn counted(count: u32, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

fn nodes(count: u32) -> String {
    counted(count, "node")
}

fn are(count: u32, what: &str) -> String {
    let be = if count == 1 { "is" } else { "are" };
    format!("{} {be}", counted(count, what))
}
