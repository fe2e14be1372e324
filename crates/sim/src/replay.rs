//! What-if: replays a trace of real jobs through the real core, with a simulated provider and simulated agents.
//!
//! The decisions are those of [`muster_core::step`]; nothing is stored. A node takes exactly the boot time of the
//! setting from its create call to its agent's first report, all of which is billed; a delete takes no time. A job runs
//! from the moment its nodes are granted for exactly as long as the trace says. The core never sees this duration: it
//! only learns when the job ends.
//!
//! The modules:
//! 1. [`Trace`]: the jobs, read from CSV.
//! 2. `driver`: the loop of virtual time, and the order of events within one instant.
//! 3. `tally`: the [`Figures`], added up from the ledger and the grants.
//! 4. [`optimum`], [`peak`]: what the same jobs would need if none ever waited.

mod csv;
mod demand;
mod driver;
mod tally;
mod trace;

use std::sync::Arc;

use muster_core::Change;
use muster_core::limits::{CLUSTER_NODES_MAX, IDLE_TIME_MAX};
use muster_core::model::ScaleUp;
use muster_core::time::Span;

pub use demand::{optimum, peak};
pub use tally::Figures;
pub use trace::{Trace, TraceError, TraceJob};

/// A day. A node that takes longer to start would not be worth waiting for.
pub const BOOT_MAX: Span = Span::seconds(24 * 3_600);

/// The setting to try on the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub max_nodes: u32,
    /// How long an idle node is kept.
    pub idle: Span,
    pub boot: Span,
    pub scale_up: ScaleUp,
    /// Whether the users of the trace share the cluster fairly, as on a real server. If not, jobs are served in the
    /// order of their arrival, as if one user had submitted them all. The costs of settings can then be compared
    /// without the effect of which user submits what.
    pub fair_share: bool,
    /// Determines only the price, because jobs take whole nodes.
    pub vm_size: Arc<str>,
}

/// Why a setting cannot be tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error(
        "the job of line {line} needs {nodes} nodes and would never start with at most {max_nodes}; \
         allow at least {largest}, what the largest job needs"
    )]
    JobTooLarge { line: u32, nodes: u32, max_nodes: u32, largest: u32 },
    #[error(
        "{max_nodes} nodes are more than a cluster can have; allow at most {CLUSTER_NODES_MAX}"
    )]
    TooManyNodes { max_nodes: u32 },
    #[error(
        "an idle time of {} s is too long; give at most {} s",
        .idle.as_seconds(), IDLE_TIME_MAX.as_seconds()
    )]
    IdleTooLong { idle: Span },
    #[error(
        "a boot time of {} s is too long; give at most {} s",
        .boot.as_seconds(), BOOT_MAX.as_seconds()
    )]
    BootTooLong { boot: Span },
    /// The core refused the cluster or a job.
    #[error("{0}")]
    Refused(#[from] muster_core::Refused),
}

/// Replays the whole trace and adds up the figures.
pub fn replay(trace: &Trace, setting: &Setting) -> Result<Figures, SettingError> {
    replay_watching(trace, setting, |_, _| {})
}

/// The same, and reports every change as it happens, with the time since the trace began.
pub fn replay_watching(
    trace: &Trace,
    setting: &Setting,
    watch: impl FnMut(Span, &Change),
) -> Result<Figures, SettingError> {
    check(trace, setting)?;
    driver::run(trace, setting, watch)
}

fn check(trace: &Trace, setting: &Setting) -> Result<(), SettingError> {
    let Setting { max_nodes, idle, boot, .. } = *setting;
    let largest = trace.jobs().iter().map(|job| job.nodes).max().unwrap_or(0);
    if let Some(job) = trace.jobs().iter().find(|job| job.nodes > max_nodes) {
        let (line, nodes) = (job.line, job.nodes);
        return Err(SettingError::JobTooLarge { line, nodes, max_nodes, largest });
    }
    if max_nodes > CLUSTER_NODES_MAX {
        return Err(SettingError::TooManyNodes { max_nodes });
    }
    if idle > IDLE_TIME_MAX {
        return Err(SettingError::IdleTooLong { idle });
    }
    if boot > BOOT_MAX {
        return Err(SettingError::BootTooLong { boot });
    }
    Ok(())
}
