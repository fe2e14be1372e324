//! How servers end and begin: killed, replaced, with a failing disk, from an old backup.

use muster_core::planted::{Bug, is_planted};
use muster_core::time::Span;
use muster_store::controller::Pending;

use super::Sim;
use super::serve::{Origin, Visibility};
use crate::agenda::{Arrival, Event};
use crate::controller::End;
use crate::failpoints::{Death, Side};
use crate::failure::Held;
use crate::faults::Fault;
use crate::hosts;

/// How soon agents notice that the server is not the one that they talked to.
const NOTICED: Span = Span::seconds(10);
/// How long the server waits before it opens a failed store again.
const REOPEN: Span = Span::milliseconds(50);

impl Sim {
    pub(super) fn restart(&mut self) -> Held {
        if self.controller.is_up() {
            return Ok(());
        }
        let effects = self.controller.start(self.now)?;
        self.take_over(&effects);
        Ok(())
    }

    fn take_over(&mut self, effects: &[muster_core::Effect]) {
        let epoch = self.controller.epoch();
        for effect in effects {
            self.provider.carry_out(effect, epoch, self.now, &mut self.agenda);
        }
        let heard = hosts::heard_at_start(self.scenario.seed).into_iter();
        self.inbox.extend(heard.map(|input| Arrival::Measured(Box::new(input))));
        // Timers may have become due while the server was down.
        self.inbox.push(Arrival::Tick);
    }

    /// No agent is answered any more: each of them notices, and reports by itself.
    fn hang_up(&mut self) {
        let ids = self.fleet.ids();
        let (now, agenda) = (self.now, &mut self.agenda);
        self.fleet.disturb(&ids, &mut self.disturbances, NOTICED, now, agenda);
    }

    /// The process dies at this step, before or after its commit. In both cases no answer is sent.
    pub(super) fn kill(&mut self, pending: Pending<Origin>, death: Death) -> Held {
        self.faults.note(Fault::Killed(death.at, death.side));
        let mut end = match death.side {
            Side::Before => {
                let (inputs, origins, output) = pending.abandon();
                if is_planted(Bug::AcknowledgedTooEarly) {
                    let answers = origins.into_iter().zip(inputs).zip(output.answers);
                    let answers = answers.map(|((origin, input), answer)| (origin, input, answer));
                    self.answer_all(answers.collect())?;
                }
                End { changes: output.changes, expected: None, is_running: false }
            }
            Side::After => match self.commit(pending)? {
                Visibility::Yes(released) => {
                    let expected =
                        self.controller.live().map(|live| Box::new(live.world().clone()));
                    End { changes: released.changes, expected, is_running: false }
                }
                Visibility::No(end) => end,
            },
        };
        end.is_running = false;
        self.controller.die(end, self.now)?;
        self.go_down(death.down);
        if let Some(uptime) = death.uptime {
            self.faults.note(Fault::ControllerRebooted);
            let back = self.now + death.down;
            self.controller.clock.reboot(back, uptime);
        }
        Ok(())
    }

    /// The process has ended and comes back after a while.
    fn go_down(&mut self, down: Span) {
        self.provider.forget_waiting_calls(self.controller.epoch());
        self.hang_up();
        self.agenda.plan(self.now + down, Event::Restart);
    }

    /// A commit failed, so it is unknown what is on disk: World and the connection are dropped, as by the server's
    /// writer, and created again as soon as the disk allows it.
    pub(super) fn start_again(&mut self, end: End) -> Held {
        self.controller.die(end, self.now)?;
        let until_free = self.controller.disk_full_until - self.now;
        self.go_down(REOPEN.max(until_free));
        if until_free > Span::ZERO {
            self.controller.hold(self.now)?;
        }
        Ok(())
    }

    /// A second server takes over while the first one continues.
    pub(super) fn replace_controller(&mut self) -> Held<bool> {
        self.faults.note(Fault::TwoControllers);
        let effects = self.controller.replace(self.now)?;
        self.hang_up();
        self.take_over(&effects);
        Ok(true)
    }

    pub(super) fn back_up(&mut self) -> Held<bool> {
        self.controller.back_up()?;
        self.backup = Some(Box::new(self.oracle.clone()));
        Ok(true)
    }

    /// An operator replaces the store with the last backup.
    pub(super) fn restore_backup(&mut self, down: Span) -> Held<bool> {
        let Some(backup) = self.backup.take() else { return Ok(false) };
        self.faults.note(Fault::BackupRestored);
        self.oracle.roll_back(&backup);
        self.controller.die_without_trace(self.now);
        self.controller.restore()?;
        self.restored_at = self.now + down;
        self.go_down(down);
        Ok(true)
    }
}
