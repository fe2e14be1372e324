//! Mistakes that tests can plant, one at a time, to see that the checks find them.
//!
//! Each is one line at the place where somebody could make it. Without the feature `planted-bugs` the
//! question below is a constant, and the mistakes are not in the program.

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
    /// The controller takes what a node says of an old attempt for the present one.
    OldEpochAccepted,
    /// An agent starts what it was told never to start.
    FloorIgnored,
    /// A node that holds a job is let go when the pool shrinks.
    BusyNodeReleased,
    /// An idle second is on two ledger lines.
    IdleSecondTwice,
    /// A restart forgets the oldest wish of the outbox.
    OutboxRowDropped,
    /// A job of several nodes starts on those that there are.
    HalfGangStarted,
    /// The members of a job start one by one, whether or not the others can.
    GoBeforeAllReady,
    /// A client is told "accepted" before that is on disk.
    AcknowledgedTooEarly,
    /// After a restart a lease counts from long ago, not from now.
    LeaseFromRow,
    /// Nodes are numbered by how many there are.
    NodeNameReused,
    /// The end of an attempt is recorded twice.
    CompletionTwice,
    /// A lost node is not deleted.
    LostNodeKept,
    /// A job whose node was taken away is given up.
    EvictionNotRequeued,
    /// The controller's epoch does not look at the clock: an old backup gives it out again.
    EpochFromRowOnly,
    /// A controller that was replaced still answers.
    FencedAnswer,
    /// Creates go on at once after a failure.
    BackoffIgnored,
    /// What a lost node had spent on its job is not billed.
    LostNodeUnbilled,
    /// The sweeper deletes nodes that are wanted.
    KnownNodeSwept,
    /// An agent counts its lease from the answer, not from its report.
    LeaseFromAnswer,
    /// The controller gives a silent node up before its agent has stopped.
    ControllerImpatient,
    /// Idle nodes stay for ever.
    IdleNodeKept,
    /// A cancel that was accepted changes nothing.
    CancelForgotten,
    /// A create call that failed is taken for one that worked.
    FailedCreateTrusted,
    /// Nodes that are only asked for do not count towards the quota.
    QuotaWithoutInFlight,
    /// Pools grow whatever the quota says.
    QuotaIgnored,
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

/// Plants this bug, and no other, in what this thread does from now on.
#[cfg(feature = "planted-bugs")]
pub use switch::{is_planted, plant};

#[cfg(not(feature = "planted-bugs"))]
pub const fn is_planted(_: Bug) -> bool {
    false
}
