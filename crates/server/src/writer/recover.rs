//! A writer whose store accepts no writes, or has not been checked yet: it answers what it can, and starts again from
//! the rows.

use std::time::Instant;

use muster_core::read_only::{self, StoreTrouble};
use muster_core::{ErrorChain, Input, Wake, World};
use muster_store::StoreError;
use tracing::error;

use super::lanes::{Closed, LaneReceiver};
use super::{
    Claimed, Lost, Message, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN, SLEEP_MAX, Unavailable, Writer, claim,
};
use crate::clock;

/// Whether World can be used while the store accepts no writes.
enum Known {
    Nothing,
    /// World matches the rows.
    World,
}

impl Writer {
    /// Answers requests as it does while the store accepts no writes. Returns false when the writer should stop.
    pub(super) fn wait_for_check(&mut self, exit: &LaneReceiver<Message>) -> bool {
        loop {
            match exit.take_one(SLEEP_MAX) {
                Ok(Some(Message::Checked)) => return true,
                Ok(Some(message)) => {
                    self.answer_without_writing(message, &Known::World, Unavailable::Unchecked);
                }
                Ok(None) => {}
                Err(Closed) => return false,
            }
        }
    }

    /// Drops World and the connection and starts again from the rows, for as long as it takes. In the meantime,
    /// messages are answered at once: changes are refused, so that nothing is done later that its caller has given up
    /// on, and known nodes keep their leases, so that their attempts are not given to other nodes. Returns `None` when
    /// the writer should stop.
    pub(super) fn recover(
        &mut self,
        exit: &LaneReceiver<Message>,
    ) -> Result<Option<Wake>, StoreError> {
        // The changes in the current World may never have been written.
        let mut known = Known::Nothing;
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            let opened = (self.open_store)();
            let claimed =
                opened.and_then(|(store, _)| claim(store, &self.settings, &self.catalogue));
            let failed = match claimed {
                Ok(claimed) => {
                    let Claimed { store, epoch, revision, world } = claimed;
                    (self.store, self.epoch, self.revision) = (store, epoch, revision);
                    self.world = world;
                    self.announce();
                    match self.take(Vec::new()) {
                        Ok(wake) => return Ok(Some(wake)),
                        Err(Lost::Fenced(fenced)) => return Err(fenced),
                        Err(Lost::Unknown(why)) => {
                            known = Known::Nothing;
                            why
                        }
                    }
                }
                Err(failed) => {
                    error!(error = %ErrorChain(&failed), "cannot write to the store; trying again");
                    Unavailable::because_of(&failed)
                }
            };
            if matches!(known, Known::Nothing) && self.read_rows_again() {
                known = Known::World;
            }
            self.world.set_store_trouble(Some(self.trouble(failed)));
            let until = Instant::now() + pause;
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                match exit.take_one(left) {
                    Err(Closed) => return Ok(None),
                    Ok(Some(message)) => self.answer_without_writing(message, &known, failed),
                    Ok(None) => {}
                }
            }
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    /// The same error, for callers that ask why nothing starts.
    fn trouble(&self, failed: Unavailable) -> StoreTrouble {
        match failed {
            Unavailable::Full => self.on_reserve.short_of_space(),
            Unavailable::ReadOnly => StoreTrouble::ReadOnly,
            _ => StoreTrouble::Failing,
        }
    }

    /// Builds World from the rows, with the handle that can no longer write. A store can often still be read.
    fn read_rows_again(&mut self) -> bool {
        let Ok(rows) = self.store.load() else { return false };
        let (settings, catalogue) = (self.settings.clone(), self.catalogue.clone());
        self.world = World::rebuild(rows, self.epoch, settings, catalogue, clock::now());
        self.live.reset(&self.world);
        true
    }

    fn answer_without_writing(&mut self, message: Message, known: &Known, failed: Unavailable) {
        match (message, known) {
            (Message::Submit { input, reply }, known) => {
                let renewed = match (*input, known) {
                    (Input::Report { node, report }, Known::World)
                        // Only the current server may renew.
                        if self.store.check_claim(self.epoch).is_ok() =>
                    {
                        read_only::renew(&mut self.world, &node, &report, clock::now())
                    }
                    _ => None,
                };
                let _ = reply.send(renewed.map(Ok).ok_or(failed));
            }
            (Message::Ask(question), Known::World) => question(Ok(&self.world)),
            (Message::Ask(question), Known::Nothing) => question(Err(Unavailable::Unreadable)),
            (Message::Checked, _) => {}
        }
    }
}
