//! Simulates days of Muster in seconds: virtual time, seeded users, faults, and an oracle that sees everything.
//!
//! The core, its `step`, the SQLite store and the agents' state machine are the real ones. Only the clock, the network,
//! the provider and the processes are simulated. Nothing here reads a wall clock or draws a random number that does not
//! come from the seed, so every failure can be reproduced with its command.
//!
//! The modules:
//! 1. `sim`: the loop of virtual time, and the order of events within one instant.
//! 2. `workload`, `clients`: what users request, and how clients retry.
//! 3. `controller`, `store`, `failpoints`: the real core and store, and how the process and the disk around them fail.
//! 4. `network`, `provider`, `agents`, `tasks`: the simulated world around the real state machine of an agent.
//! 5. `mischief`, `sim::strike`: which faults happen when, and how.
//! 6. `oracle`, `audit`: the promises, checked on every committed change and at intervals.
//! 7. [`replay`]: another use of the same core: replays a trace of real jobs, to see what a setting would cost.
//!
//! To add a fault, add a variant of [`Fault`] and a place where it is drawn (from a stream of its own), and nothing
//! else: the promises do not depend on which faults exist. If a fault makes something legitimate that otherwise is not
//! (a paused machine outlives its lease, a restored backup forgets), the oracle is told about that one exception.

mod agenda;
mod agents;
mod audit;
mod chance;
mod clients;
mod clock;
mod controller;
mod failpoints;
mod failure;
mod faults;
mod hosts;
mod many;
mod mischief;
mod network;
mod oracle;
mod provider;
pub mod replay;
mod sim;
mod store;
mod summary;
mod tasks;
mod workload;

pub use failpoints::{Failpoint, Side};
pub use failure::Failure;
pub use faults::{Fault, FaultCounts};
pub use many::run_many;
pub use summary::{LedgerSum, Summary};

/// The most inputs that may share a step, as in the writer of the real server.
pub const BATCH_MAX: usize = 64;

/// What is simulated. The same scenario always produces the same event log, byte for byte, and so do two scenarios that
/// differ only in `batch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    pub seed: u64,
    /// The number of days with users and faults, at least one. After them the system must come to rest by itself.
    pub days: u32,
    /// How many inputs of one instant may share a step and a commit: 1 to [`BATCH_MAX`].
    pub batch: usize,
    pub faults: bool,
}

impl Scenario {
    pub fn new(seed: u64, days: u32) -> Scenario {
        Scenario { seed, days, batch: 16, faults: true }
    }

    /// The command that reproduces this scenario.
    pub fn command(&self) -> String {
        let Scenario { seed, days, batch, faults } = self;
        let quiet = if *faults { "" } else { " --no-faults" };
        format!("muster sim --seed {seed} --days {days} --batch {batch}{quiet}")
    }
}

/// Simulates the scenario to its end. An error is a broken promise: a bug, never the scenario's fault.
pub fn run(scenario: &Scenario) -> Result<Summary, Failure> {
    sim::run(scenario)
}
