//! Bugs that tests can plant, one at a time, to show that the checks find them.
//!
//! Each is one line at the place where such a bug could be made. Without the feature `planted-bugs`, `is_planted` is a
//! constant, and the bugs are not in the program.

#[cfg(all(feature = "planted-bugs", not(debug_assertions)))]
compile_error!("planted bugs are for debug builds only");

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Bug {
            $($(#[$doc])* $name,)*
        }

        impl Bug {
            pub const ALL: &'static [Bug] = &[$(Bug::$name,)*];
        }
    };
}

bugs! {
    /// The server applies a node's report about an old attempt to the current one.
    OldEpochAccepted,
    /// An agent starts an epoch that it was told never to start.
    FloorIgnored,
    /// A node that holds a job is deleted when the cluster shrinks.
    BusyNodeReleased,
    /// An idle second is posted to two ledger lines.
    IdleSecondTwice,
    /// A restart forgets the oldest effect of the outbox.
    OutboxRowDropped,
    /// A multi-node job starts on the nodes that are free, even if they are too few.
    HalfGangStarted,
    /// The members of a job start one by one, without waiting for the others to be ready.
    GoBeforeAllReady,
    /// A client gets its acknowledgement before the change is on disk.
    AcknowledgedTooEarly,
    /// After a restart, a lease counts from long ago instead of from now.
    LeaseFromRow,
    /// Nodes are named by how many there are, so names are reused.
    NodeNameReused,
    /// The end of an attempt is recorded twice.
    CompletionTwice,
    /// A lost node is not deleted.
    LostNodeKept,
    /// A job whose node was evicted fails.
    EvictionNotRequeued,
    /// The controller epoch ignores the clock, so after restoring an old backup it is reused.
    EpochFromRowOnly,
    /// A server that was replaced still answers.
    FencedAnswer,
    /// Creating nodes continues at once after a failure.
    BackoffIgnored,
    /// The time that a lost node had spent on its job is not billed.
    LostNodeUnbilled,
    /// The search for orphans deletes nodes that are in use.
    KnownNodeSwept,
    /// An agent counts its lease from the answer, not from its report.
    LeaseFromAnswer,
    /// The server gives up a silent node before its agent has stopped the jobs.
    ControllerImpatient,
    /// Idle nodes are kept for ever.
    IdleNodeKept,
    /// An accepted cancel has no effect.
    CancelForgotten,
    /// A failed create call is treated as a successful one.
    FailedCreateTrusted,
    /// Nodes that are only requested do not count towards the quota.
    QuotaWithoutInFlight,
    /// Clusters grow beyond the quota.
    QuotaIgnored,
    /// Canceling a parent does not reach its running children.
    ChildNotCanceled,
    /// A parent ends while some of its children still run.
    ParentEndsEarly,
    /// An array runs more tasks at once than its limit.
    ArrayLimitIgnored,
    /// A task that a node was given as part of a batch is granted to another node as well.
    GivenTaskQueued,
    /// A restart forgets which children of a parent have ended.
    EndedChildrenForgotten,
    /// Ended jobs are removed before their time.
    YoungJobRemoved,
}

#[cfg(feature = "planted-bugs")]
mod switch {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    pub fn is_planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

/// Plants this bug, and no other, for everything that this thread does from now on.
#[cfg(feature = "planted-bugs")]
pub use switch::{is_planted, plant};

#[cfg(not(feature = "planted-bugs"))]
pub const fn is_planted(_: Bug) -> bool {
    false
}
