//! The faults there are, and how many came.

use std::collections::BTreeMap;
use std::fmt;

use crate::failpoints::{Failpoint, Side};

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident => $words:literal,)*) => {
        /// What can go wrong. Each kind is drawn from a stream of its own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            /// The controller was killed at a step that persists this, on this side of its commit.
            Killed(Failpoint, Side),
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// Every kind that there is.
            pub fn all() -> impl Iterator<Item = Fault> {
                let kills = Failpoint::ALL.iter().flat_map(|at| {
                    [Fault::Killed(*at, Side::Before), Fault::Killed(*at, Side::After)]
                });
                kills.chain([$(Fault::$name,)*])
            }
        }

        impl fmt::Display for Fault {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Fault::Killed(at, side) => write!(f, "killed {side} {at}"),
                    $(Fault::$name => f.write_str($words),)*
                }
            }
        }
    };
}

faults! {
    // The control plane.
    /// The machine of a killed controller starts again, and with it its elapsed time.
    ControllerRebooted => "controller's machine rebooted",
    /// A second controller takes over while the first one goes on.
    TwoControllers => "two controllers alive",
    /// The one that was taken over tried to answer or to commit, and was refused.
    ControllerFenced => "old controller fenced",
    BackupRestored => "old backup restored",
    /// The controller stands still (stopped, swapped out) and goes on later.
    ControllerPaused => "controller paused",
    /// A commit takes ten seconds and more.
    SlowDisk => "slow fsync",
    /// A commit fails; its changes are not on disk.
    CommitLost => "fsync error, changes lost",
    /// A commit fails; its changes are on disk all the same.
    CommitKept => "fsync error, changes kept",
    /// The power fails in the middle of a commit; a part of it is on disk.
    CommitTorn => "commit torn",
    /// Nothing can be written for a while; the controller renews leases and does nothing else.
    DiskFull => "disk full",
    ClockForward => "wall clock set an hour forward",
    ClockBack => "wall clock set an hour back",
    ClockFrozen => "wall clock frozen",
    // The network.
    ReportLost => "report lost",
    ReportDoubled => "report doubled",
    ReportDelayed => "report delayed",
    AnswerLost => "answer lost",
    AnswerDoubled => "answer doubled",
    AnswerDelayed => "answer delayed",
    ClientAnswerLost => "answer to a client lost",
    /// Most of what one agent sends and gets is lost for a while.
    BadPatch => "bad patch of an agent's network",
    /// Almost all that one agent sends and gets is late for a while, and in another order.
    LatePatch => "late patch of an agent's network",
    PartitionBothWays => "partition both ways",
    PartitionOfReports => "partition of reports",
    PartitionOfAnswers => "partition of answers",
    /// Nobody reaches the controller.
    PartitionOfAll => "partition of all agents",
    /// Several agents are cut off one after the other, and come back in another order.
    SwizzleClog => "swizzle-clog",
    // Agents and their machines.
    /// The agent stands still, past its lease, while what it runs goes on.
    AgentPaused => "agent paused past its lease",
    /// The whole machine stands still past its lease.
    MachinePaused => "machine paused past its lease",
    AgentRestarted => "agent restarted",
    /// The agent dies at a write to its journal: the record is lost, and nothing followed from it.
    JournalTorn => "agent died, last record torn",
    /// The agent dies right after a write to its journal, before anything followed from it.
    JournalKept => "agent died, last record kept",
    /// The journal cannot be written: the agent gives up.
    AgentDiskFull => "agent's disk full",
    NodeRebooted => "node rebooted",
    ClockDrifted => "agent's clock drifts by 0.5 % or more",
    // The provider.
    /// An error is told, the machine appears later.
    CreateTimedOut => "create timed out but succeeded",
    /// A machine appeared after its delete was carried out.
    LateCreate => "machine made after its delete",
    DuplicateCreate => "create called twice",
    NoCapacity => "no capacity for a while",
    ProviderErrors => "provider answers 429 and 500",
    CallRefused => "call refused with 429 or 500",
    BootNever => "boot never ends",
    BootSlow => "boot takes very long",
    /// The call says it worked, and the machine goes on.
    DeleteWithoutEffect => "delete does nothing",
    MachineVanished => "machine vanished",
    /// It died, and whoever made it sees that and says so.
    NodeEnded => "node ended, and its provider says so",
    PreemptionStorm => "preemption storm",
    EvictionNoticed => "eviction with notice",
    /// Somebody takes a node away that runs something, and what runs is told.
    EvictionRehearsed => "eviction rehearsed",
    EvictionUnnoticed => "eviction, notice lost",
    ListingStale => "stale listing",
    // The workload.
    PoisonRan => "poison job killed its agent",
    JobHung => "job hung",
    /// What an attempt wanted to leave came when it was over.
    TreeRefused => "files of an old attempt refused",
    CancelRaced => "cancel raced with finish",
    /// An attempt was over by the books while a paused machine still ran it: its effects are refused.
    ZombieRan => "zombie ran past its attempt",
}

impl Fault {
    /// Whether it is one of those that end the controller's process.
    pub fn is_kill(self) -> bool {
        matches!(self, Fault::Killed(..))
    }
}

/// How many faults of each kind there were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultCounts(BTreeMap<Fault, u64>);

impl FaultCounts {
    pub(crate) fn note(&mut self, fault: Fault) {
        *self.0.entry(fault).or_default() += 1;
    }

    pub fn add(&mut self, other: &FaultCounts) {
        for (fault, count) in other.iter() {
            *self.0.entry(fault).or_default() += count;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (Fault, u64)> {
        self.0.iter().map(|(fault, count)| (*fault, *count))
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// The kinds that never came.
    pub fn missing(&self) -> Vec<Fault> {
        Fault::all().filter(|fault| !self.0.contains_key(fault)).collect()
    }
}
