//! Reasons in words. The command that would lift it stands at the end.

use std::fmt;

use super::Reason;

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what(f)?;
        let advice = match self {
            Reason::Locked { .. } => "lock single computes instead, and remove that lock",
            Reason::MaximumTooLow { .. } => "raise it",
            Reason::QuotaTooLow { .. } | Reason::QuotaReached { .. } => "raise the limit",
            Reason::HostsTooSmall(_) => {
                "choose a smaller size, set over-commit=true for the server, or join a larger machine"
            }
            Reason::HostsFull(_) => {
                "scale something down, set over-commit=true for the server, or join a machine"
            }
            Reason::HostClosed(_) => "to open it",
            Reason::CreateFailing { .. } => "it is tried again by itself; to try now",
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
            | Reason::Serverless { .. } => "wait; to watch",
            Reason::NodesGoing { .. } => "wait, or raise the maximum",
            Reason::KeptByMinimum { .. } => "to let them go",
            Reason::HeldFor { .. } => "wait, or end that job",
            Reason::IdleUntil { .. } => "to let them go at once",
            Reason::Busy { .. } => "nothing needs to be done; to watch",
            Reason::Empty { .. } => "submit one, or keep a node warm",
            Reason::Instance { what, .. } => what.advice(),
            Reason::Store(trouble) => {
                return write!(
                    f,
                    "; {}; to check the server's machine: {}",
                    trouble.advice(),
                    self.remedy()
                );
            }
        };
        write!(f, "; {advice}: {}", self.remedy())
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
                "compute '{cluster}' has at most {}, this job needs {needed}",
                nodes(*nodes_max)
            ),
            Reason::QuotaTooLow { quota, needed } => write!(
                f,
                "the quota {} of region '{}' is {} vCPUs, this job needs {needed}",
                quota.name, quota.location, quota.limit
            ),
            Reason::HostsTooSmall(short) => f.write_str(&short.words(true)),
            Reason::HostsFull(short) => f.write_str(&short.words(false)),
            Reason::HostClosed(closed) => write!(
                f,
                "host '{}' is {}: {} of '{}' there take no new jobs",
                closed.host,
                closed.state.as_str(),
                nodes(closed.nodes),
                closed.cluster
            ),
            Reason::CreateFailing { cluster, failures, last, .. } => write!(
                f,
                "nodes of '{cluster}' do not come up ({failures} in a row), the last time because: {last}"
            ),
            Reason::QuotaReached { quota, used, needed } => write!(
                f,
                "the quota {} of region '{}' is used up: {used} of {} vCPUs, {needed} would do",
                quota.name, quota.location, quota.limit
            ),
            Reason::MaximumReached { cluster, nodes_max, free, needed, is_for_all } => write!(
                f,
                "compute '{cluster}' is at its maximum of {}, {free} of them free, {needed} would do{}",
                nodes(*nodes_max),
                if *is_for_all { " for all jobs that wait" } else { "" }
            ),
            Reason::Reserved { job, free, .. } => write!(
                f,
                "{} free, kept for job '{job}', which comes first and needs more",
                are(*free, "node")
            ),
            Reason::Behind { jobs, first, .. } => {
                write!(f, "{} served first, '{first}' before all", are(*jobs, "job"))
            }
            Reason::FreeSoon { cluster, .. } => write!(
                f,
                "a node of '{cluster}' will probably be free before a new one could be up"
            ),
            Reason::NodesStarting { starting, free, needed, .. } => write!(
                f,
                "{} starting, {free} free, this job needs {needed}",
                are(*starting, "node")
            ),
            Reason::Starting { nodes: count, .. } => {
                write!(f, "its {} being prepared to run it", are(*count, "node"))
            }
            Reason::Deleting { cluster, jobs, nodes: count } => write!(
                f,
                "compute '{cluster}' is being deleted, {} and {} are left",
                counted(*jobs, "job"),
                nodes(*count)
            ),
            Reason::NodesGoing { cluster, going, nodes_max } => write!(
                f,
                "{} on the way out and still counted towards the maximum of {nodes_max} of '{cluster}'",
                are(*going, "node")
            ),
            Reason::KeptByMinimum { cluster, nodes_min, idle } => write!(
                f,
                "{} idle because '{cluster}' keeps at least {nodes_min}",
                are(*idle, "node")
            ),
            Reason::HeldFor { job, idle, needed, .. } => {
                write!(f, "{} kept for job '{job}', which needs {needed}", are(*idle, "idle node"))
            }
            Reason::IdleUntil { idle, idle_s, .. } => {
                write!(f, "{} idle, each goes after {idle_s} s without work", are(*idle, "node"))
            }
            Reason::Busy { cluster, nodes: count, nodes_max } => write!(
                f,
                "'{cluster}' has {} at work, and no job waits; it may grow to {nodes_max}",
                counted(*count, "node")
            ),
            Reason::Empty { cluster, .. } => {
                write!(f, "no job waits for '{cluster}', so it has no nodes")
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
