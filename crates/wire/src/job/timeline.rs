//! How a job's time was spent, from its submission to its end: phases that always add up to the total time.

use muster_core::model::{Carrying, Exit, Failure, Member, Spans};
use muster_core::time::{Span, Wall};
use serde::{Deserialize, Serialize};

/// The phases of one attempt, in microseconds. Their sum is the time from the end of the previous attempt to the end of
/// this one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    /// The job waited for its turn, or for nodes that were in use.
    pub queue: u64,
    /// A node was being created for the job.
    pub provision: u64,
    /// The job had its nodes, and its environment and folders were being prepared.
    pub prepare: u64,
    /// Its code and data were being fetched.
    pub fetch: u64,
    pub run: u64,
    /// Its processes had ended, and its outputs were being saved.
    pub finalise: u64,
}

impl Phases {
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("queue", self.queue),
            ("provision", self.provision),
            ("prepare", self.prepare),
            ("fetch", self.fetch),
            ("run", self.run),
            ("finalise", self.finalise),
        ]
    }

    /// The phase in which an attempt failed.
    pub fn failed_in(why: &Failure, has_started: bool) -> &'static str {
        let reached = if has_started { "run" } else { "prepare" };
        match why {
            Failure::Exit { exit, .. } => match exit {
                Exit::NotStarted { .. } => "prepare",
                Exit::Data { doing: Carrying::Fetch, .. } => "fetch",
                Exit::Data { doing: Carrying::Save, .. } => "finalise",
                // The command ran, even if its start and its end were reported together.
                Exit::Code(_) | Exit::Signal(_) | Exit::TimedOut | Exit::OverLimit { .. } => "run",
                Exit::Stopped | Exit::Evicted => reached,
            },
            Failure::NodesLost { .. }
            | Failure::Evicted { .. }
            | Failure::Children { .. }
            | Failure::TreeTimedOut => reached,
        }
    }

    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, microseconds)| microseconds).sum()
    }

    /// The phases of a period in which the job had no node.
    pub fn waiting(from: Wall, to: Wall) -> Phases {
        Phases { queue: (to - from).0, ..Phases::default() }
    }

    /// `from` is when the job was submitted or its last attempt ended; `to` is when this attempt ended, or the current
    /// time.
    pub fn of(
        from: Wall,
        granted_at: Wall,
        started_at: Option<Wall>,
        to: Wall,
        members: &[Member],
    ) -> Phases {
        // Clocks may be set back; negative durations count as zero.
        let granted_at = granted_at.clamp(from, to.max(from));
        let to = to.max(granted_at);
        let spans = || members.iter().filter_map(|member| member.spans);
        let longest = |of: fn(&Spans) -> Span| spans().map(|all| of(&all)).max();
        let finalise = longest(|spans| spans.finalise).unwrap_or(Span::ZERO);
        let run = longest(|spans| spans.run).unwrap_or(Span::ZERO);
        // An agent may report the start and the end together, although the start was earlier.
        let started_by = Wall(to.0.saturating_sub(run.0).saturating_sub(finalise.0));
        let started_at = match started_at {
            Some(at) => at.min(started_by).clamp(granted_at, to),
            // The command ran, although its start was not reported before its end.
            None if run > Span::ZERO => started_by.clamp(granted_at, to),
            None => to,
        };
        let waited = granted_at - from;
        let provision = members.iter().filter_map(|member| member.provisioned);
        let provision = provision
            .map(|(asked, joined)| joined.clamp(from, granted_at) - asked.clamp(from, granted_at))
            .max()
            .unwrap_or(Span::ZERO)
            .min(waited);
        let before = started_at - granted_at;
        let fetch = longest(|spans| spans.fetch).unwrap_or(Span::ZERO).min(before);
        let after = to - started_at;
        let finalise = finalise.min(after);
        Phases {
            queue: waited.0 - provision.0,
            provision: provision.0,
            prepare: before.0 - fetch.0,
            fetch: fetch.0,
            run: after.0 - finalise.0,
            finalise: finalise.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_core::ids::NodeId;
    use muster_core::model::{MemberPhase, Part};

    use super::*;

    fn member(provisioned: Option<(u64, u64)>, spans: Option<(u64, u64, u64)>) -> Member {
        Member {
            node: NodeId(1),
            price_micro_usd_per_hour: 0,
            part: Part::default(),
            phase: MemberPhase::Ordered,
            meter: None,
            spent: Vec::new(),
            provisioned: provisioned.map(|(from, to)| (Wall(from), Wall(to))),
            spans: spans.map(|(fetch, run, finalise)| Spans {
                fetch: Span(fetch),
                run: Span(run),
                finalise: Span(finalise),
            }),
        }
    }

    #[test]
    fn phases_are_what_happened() {
        let members =
            [member(Some((12, 40)), Some((5, 20, 7))), member(Some((15, 45)), Some((9, 22, 2)))];
        let phases = Phases::of(Wall(10), Wall(50), Some(Wall(70)), Wall(100), &members);
        let wanted =
            Phases { queue: 10, provision: 30, prepare: 11, fetch: 9, run: 23, finalise: 7 };
        assert_eq!(phases, wanted);
        // The attempt started and ended within one report.
        let members = [member(None, Some((5, 11, 3)))];
        let phases = Phases::of(Wall(10), Wall(50), Some(Wall(100)), Wall(100), &members);
        let wanted =
            Phases { queue: 40, provision: 0, prepare: 31, fetch: 5, run: 11, finalise: 3 };
        assert_eq!(phases, wanted);
        // The node existed already, and the agent measured nothing.
        let phases =
            Phases::of(Wall(10), Wall(50), Some(Wall(70)), Wall(100), &[member(None, None)]);
        let wanted = Phases { queue: 40, prepare: 20, run: 30, ..Phases::default() };
        assert_eq!(phases, wanted);
    }

    #[test]
    fn a_failure_is_in_the_phase_that_it_ended() {
        let failed = |exit| Failure::Exit { node: NodeId(1), rank: 0, exit };
        let data = |doing| failed(Exit::Data { doing, message: "x".into() });
        let cases = [
            (failed(Exit::NotStarted { message: "x".into() }), false, "prepare"),
            (data(Carrying::Fetch), false, "fetch"),
            (failed(Exit::Code(3)), false, "run"),
            (data(Carrying::Save), true, "finalise"),
            (Failure::NodesLost { attempts: 3 }, false, "prepare"),
            (Failure::NodesLost { attempts: 3 }, true, "run"),
        ];
        for (why, has_started, phase) in cases {
            assert_eq!(Phases::failed_in(&why, has_started), phase, "{why:?}");
        }
    }

    /// The sum is right even with clocks that were set and agents that report too much time.
    #[test]
    fn phases_add_up_to_the_wall_time() {
        let mut bits = 1_u64;
        let mut next = |below: u64| {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (bits >> 33) % below
        };
        for _ in 0..10_000 {
            let (from, to) = (next(100), next(100));
            let members: Vec<Member> = (0..next(3))
                .map(|_| {
                    let made = (next(2) == 0).then(|| (next(100), next(100)));
                    member(made, (next(2) == 0).then(|| (next(100), next(100), next(100))))
                })
                .collect();
            let started = (next(3) > 0).then(|| Wall(next(100)));
            let phases = Phases::of(Wall(from), Wall(next(100)), started, Wall(to), &members);
            assert_eq!(phases.total(), to.saturating_sub(from), "{phases:?}");
        }
    }
}
