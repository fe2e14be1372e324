//! Faults that happen at certain times: each kind occurs at its own rate, from a stream of its own. A fault that finds
//! no victim waits a little and tries again.

use muster_core::time::Span;

use crate::agenda::{Agenda, Event};
use crate::chance::Chance;
use crate::clock::{HOUR, Moment, minutes};

macro_rules! mischief {
    ($($(#[$doc:meta])* $name:ident: $hours:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Mischief {
            $($(#[$doc])* $name,)*
        }

        impl Mischief {
            const ALL: &'static [(Mischief, u64)] = &[$((Mischief::$name, $hours),)*];
        }
    };
}

// Each kind with the average number of hours from one occurrence to the next.
mischief! {
    Kill: 16,
    TakeOver: 60,
    /// This is not a fault itself, but makes one possible.
    Backup: 130,
    /// This follows a backup.
    Restore: 6,
    PauseController: 90,
    SlowDisk: 30,
    LoseCommit: 60,
    KeepCommit: 60,
    TearCommit: 60,
    FillDisk: 120,
    ClockForward: 160,
    ClockBack: 160,
    FreezeClock: 120,
    BadPatch: 8,
    LatePatch: 12,
    CutBothWays: 30,
    CutReports: 30,
    CutAnswers: 30,
    CutAll: 110,
    Swizzle: 60,
    PauseAgent: 40,
    PauseMachine: 60,
    RestartAgent: 40,
    TearJournal: 70,
    KillAtJournal: 70,
    FillAgentDisk: 90,
    RebootNode: 60,
    NoCapacity: 80,
    ProviderErrors: 60,
    Vanish: 30,
    Storm: 50,
    Rehearse: 20,
    EndNode: 30,
}

pub(crate) struct Mischiefs {
    /// One stream for each kind, in the order of the list; empty if there are no faults.
    streams: Vec<Chance>,
}

impl Mischiefs {
    pub(crate) fn new(seed: u64, is_on: bool) -> Mischiefs {
        let stream = |(kind, _): &(Mischief, u64)| Chance::of(seed, &format!("mischief {kind:?}"));
        let all = if is_on { Mischief::ALL } else { &[] };
        Mischiefs { streams: all.iter().map(stream).collect() }
    }

    pub(crate) fn begin(&mut self, agenda: &mut Agenda) {
        let first = Mischief::ALL.iter().filter(|(kind, _)| *kind != Mischief::Restore);
        for (kind, _) in first {
            self.plan_next(*kind, Moment::default(), agenda);
        }
    }

    pub(crate) fn calm_down(&mut self) {
        self.streams.clear();
    }

    /// The stream of this kind, or `None` if there are no faults any more.
    pub(crate) fn chance(&mut self, kind: Mischief) -> Option<&mut Chance> {
        self.streams.get_mut(kind as usize)
    }

    pub(crate) fn plan_next(&mut self, kind: Mischief, now: Moment, agenda: &mut Agenda) {
        let (_, hours) = Mischief::ALL[kind as usize];
        let Some(chance) = self.chance(kind) else { return };
        let pause = chance.span(minutes(15), Span(HOUR.0 * hours * 2));
        agenda.plan(now + pause, Event::Mischief(kind));
    }

    /// There was no victim, so it is tried again soon.
    pub(crate) fn plan_again(&mut self, kind: Mischief, now: Moment, agenda: &mut Agenda) {
        let Some(chance) = self.chance(kind) else { return };
        let pause = chance.span(minutes(1), minutes(15));
        agenda.plan(now + pause, Event::Mischief(kind));
    }
}
