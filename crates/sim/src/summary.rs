//! The figures of a scenario.

use std::fmt;

use muster_core::time::Span;
use muster_store::{Reader, Revision};
use sha2::{Digest, Sha256};

use crate::Scenario;
use crate::chance::hex;
use crate::failure::{Broken, Held};
use crate::faults::FaultCounts;
use crate::sim::Sim;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub scenario: Scenario,
    /// The time from the first input until nothing was left, in virtual time.
    pub simulated: Span,
    pub jobs_submitted: u64,
    pub jobs_completed: u64,
    pub jobs_failed: u64,
    pub jobs_canceled: u64,
    /// How often a job returned to the queue because a node was lost.
    pub jobs_retried: u64,
    /// Jobs that were submitted, but are not in a restored backup.
    pub jobs_forgotten: u64,
    /// Jobs that were removed some time after they had ended.
    pub jobs_removed: u64,
    /// How often an attempt saved files for the next one.
    pub trees_kept: u64,
    pub requests_refused: u64,
    /// Requests that were sent again because they were not answered.
    pub requests_repeated: u64,
    pub processes_started: u64,
    pub node_creates: u64,
    pub node_creates_failed: u64,
    pub faults: FaultCounts,
    pub steps: u64,
    /// Changes in the event log.
    pub revisions: u64,
    /// The ledger by category.
    pub ledger: Vec<LedgerSum>,
    /// SHA-256 over the revision and text of every entry of the event log, in hex.
    pub digest: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerSum {
    pub category: &'static str,
    pub node_time: Span,
    pub micro_usd: u64,
}

/// Adds everything up, after a last check of the store.
pub(crate) fn of(sim: &mut Sim) -> Held<Summary> {
    sim.check_end()?;
    let digest = digest(sim)?;
    let counts = sim.oracle.counts();
    let ledger = sim.oracle.sums().iter().map(|(category, cost)| LedgerSum {
        category: category.as_str(),
        node_time: Span(cost.node_us()),
        micro_usd: cost.micro_usd(),
    });
    Ok(Summary {
        scenario: sim.scenario.clone(),
        simulated: Span(sim.now.0),
        jobs_submitted: counts.submitted,
        jobs_completed: counts.completed,
        jobs_failed: counts.failed,
        jobs_canceled: counts.canceled,
        jobs_retried: counts.retried,
        jobs_forgotten: counts.forgotten,
        jobs_removed: counts.removed,
        trees_kept: counts.trees,
        requests_refused: sim.clients.refused,
        requests_repeated: sim.clients.retries,
        processes_started: sim.oracle.processes.started,
        node_creates: sim.provider.made,
        node_creates_failed: sim.provider.failed,
        faults: sim.fault_counts(),
        steps: sim.controller.steps,
        revisions: sim.oracle.revision(),
        ledger: ledger.collect(),
        digest,
    })
}

fn digest(sim: &mut Sim) -> Held<String> {
    const PAGE: usize = 4_096;
    let Some(live) = sim.controller.live() else {
        return Err(Broken("the controller is down at the end".to_owned()));
    };
    let mut hash = Sha256::new();
    let mut after = Revision(0);
    loop {
        let events = live.reader.events(after, PAGE)?;
        let Some(last) = events.last() else { return Ok(hex(&hash.finalize())) };
        after = last.revision;
        for event in &events {
            hash.update(event.revision.0.to_le_bytes());
            hash.update(event.change.as_bytes());
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: String| writeln!(f, "{name:<36} {value:>14}");
        let Scenario { seed, days, batch, .. } = &self.scenario;
        row("seed", seed.to_string())?;
        row("days of users and faults", days.to_string())?;
        row("inputs per step, at most", batch.to_string())?;
        row("simulated time", hours(self.simulated))?;
        row("jobs submitted", self.jobs_submitted.to_string())?;
        row("  completed", self.jobs_completed.to_string())?;
        row("  failed", self.jobs_failed.to_string())?;
        row("  canceled", self.jobs_canceled.to_string())?;
        row("  retried", self.jobs_retried.to_string())?;
        row("  forgotten by a backup", self.jobs_forgotten.to_string())?;
        row("  removed after their time", self.jobs_removed.to_string())?;
        row("files kept", self.trees_kept.to_string())?;
        row("requests refused", self.requests_refused.to_string())?;
        row("requests repeated", self.requests_repeated.to_string())?;
        row("processes started", self.processes_started.to_string())?;
        row("nodes created", self.node_creates.to_string())?;
        row("node creates failed", self.node_creates_failed.to_string())?;
        row("faults", self.faults.total().to_string())?;
        for (fault, count) in self.faults.iter() {
            row(&format!("  {fault}"), count.to_string())?;
        }
        row("steps", self.steps.to_string())?;
        row("changes", self.revisions.to_string())?;
        row("ledger", String::new())?;
        for LedgerSum { category, node_time, micro_usd } in &self.ledger {
            row(&format!("  {category}"), format!("{}  {}", hours(*node_time), usd(*micro_usd)))?;
        }
        write!(f, "event log {}", self.digest)
    }
}

fn hours(span: Span) -> String {
    let tenths = span.as_seconds() / 360;
    format!("{}.{} h", tenths / 10, tenths % 10)
}

fn usd(micro: u64) -> String {
    format!("{}.{:02} USD", micro / 1_000_000, micro / 10_000 % 100)
}
