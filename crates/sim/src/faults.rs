//! The kinds of faults, and how often each occurred.

use std::collections::BTreeMap;
use std::fmt;

use crate::failpoints::{Failpoint, Side};

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident => $words:literal,)*) => {
        /// What can go wrong. Each kind is drawn from a stream of its own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            /// The server was killed at a step that persists this, on this side of its commit.
            Killed(Failpoint, Side),
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// Every kind of fault.
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
    // The server.
    /// The host of a killed server restarts, and with it its elapsed time.
    ControllerRebooted => "server's host rebooted",
    /// A second server takes over while the first one continues.
    TwoControllers => "two servers alive",
    /// The server that was replaced tried to answer or to commit, and was refused.
    ControllerFenced => "old server fenced",
    BackupRestored => "old backup restored",
    /// The server is paused (stopped, swapped out) and continues later.
    ControllerPaused => "server paused",
    /// A commit takes ten seconds or more.
    SlowDisk => "slow fsync",
    /// A commit fails, and its changes are not on disk.
    CommitLost => "fsync error, changes lost",
    /// A commit fails, but its changes are on disk anyway.
    CommitKept => "fsync error, changes kept",
    /// The power fails in the middle of a commit, and a part of it is on disk.
    CommitTorn => "commit torn",
    /// Nothing can be written for a while. The server renews leases and does nothing else.
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
    /// Most messages of one agent are lost for a while.
    BadPatch => "bad patch of an agent's network",
    /// Almost all messages of one agent are late for a while, and arrive in another order.
    LatePatch => "late patch of an agent's network",
    PartitionBothWays => "partition both ways",
    PartitionOfReports => "partition of reports",
    PartitionOfAnswers => "partition of answers",
    /// No agent reaches the server.
    PartitionOfAll => "partition of all agents",
    /// Several agents are disconnected one after the other, and reconnect in another order.
    SwizzleClog => "swizzle-clog",
    // Agents and their machines.
    /// The agent is paused beyond its lease while its tasks continue.
    AgentPaused => "agent paused past its lease",
    /// The whole machine is paused beyond its lease.
    MachinePaused => "machine paused past its lease",
    AgentRestarted => "agent restarted",
    /// The agent dies while it writes to its journal: the record is lost, and had no consequences.
    JournalTorn => "agent died, last record torn",
    /// The agent dies right after it wrote to its journal, before that had any consequences.
    JournalKept => "agent died, last record kept",
    /// The journal cannot be written, so the agent gives up.
    AgentDiskFull => "agent's disk full",
    NodeRebooted => "node rebooted",
    ClockDrifted => "agent's clock drifts by 0.5 % or more",
    // The provider.
    /// An error is returned, but the machine appears later.
    CreateTimedOut => "create timed out but succeeded",
    /// A machine appeared after its delete was carried out.
    LateCreate => "machine created after its delete",
    DuplicateCreate => "create called twice",
    NoCapacity => "no capacity for a while",
    ProviderErrors => "provider answers 429 and 500",
    CallRefused => "call refused with 429 or 500",
    BootNever => "boot never ends",
    BootSlow => "boot takes very long",
    /// The call reports success, but the machine continues to run.
    DeleteWithoutEffect => "delete does nothing",
    MachineVanished => "machine vanished",
    /// It died, and its provider notices and reports that.
    NodeEnded => "node ended, and its provider reports it",
    PreemptionStorm => "eviction storm",
    EvictionNoticed => "eviction with notice",
    /// A user evicts a node that runs something, and its jobs are notified.
    EvictionRehearsed => "eviction rehearsed",
    EvictionUnnoticed => "eviction, notice lost",
    ListingStale => "stale listing",
    // The workload.
    PoisonRan => "poison job killed its agent",
    JobHung => "job hung",
    /// The files of an attempt arrived when it was over.
    TreeRefused => "files of an old attempt refused",
    CancelRaced => "cancel raced with finish",
    /// An attempt was over in the records while a paused machine still ran it. Its effects are refused.
    ZombieRan => "zombie ran past its attempt",
}

impl Fault {
    /// Whether it is one of those that end the server process.
    pub fn is_kill(self) -> bool {
        matches!(self, Fault::Killed(..))
    }
}

/// How often each kind of fault occurred.
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

    /// The kinds that never occurred.
    pub fn missing(&self) -> Vec<Fault> {
        Fault::all().filter(|fault| !self.0.contains_key(fault)).collect()
    }
}
