//! A writer whose store accepts no writes, or has not been checked yet: it answers what it can, and starts again from
//! the rows.

use std::time::Instant;

use muster_core::read_only::StoreTrouble;
use muster_core::{ErrorChain, Input, Wake};
use muster_store::StoreError;
use tracing::error;

use super::lanes::{Closed, LaneReceiver};
use super::{
    Lost, Message, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN, SLEEP_MAX, Unavailable, Writer, claim,
};
use crate::clock;

impl Writer {
    /// Answers requests as it does while the store accepts no writes. Returns false when the writer should stop.
    pub(super) fn wait_for_check(&mut self, exit: &LaneReceiver<Message>) -> bool {
        loop {
            match exit.take_one(SLEEP_MAX) {
                Ok(Some(Message::Checked)) => return true,
                Ok(Some(message)) => self.answer_without_writing(message, Unavailable::Unchecked),
                Ok(None) => {}
                Err(Closed) => return false,
            }
        }
    }

    /// Opens the store again and starts from its rows, for as long as it takes. In the meantime, messages are answered
    /// at once: changes are refused, so that nothing is done later that its caller has given up on, and known nodes keep
    /// their leases, so that their attempts are not given to other nodes. Returns `None` when the writer should stop.
    pub(super) fn recover(
        &mut self,
        exit: &LaneReceiver<Message>,
    ) -> Result<Option<Wake>, StoreError> {
        // The changes in the current World may never have been written.
        self.controller.drop_world();
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            let failed = match (self.open_store)().and_then(|(store, _)| claim(store)) {
                Ok(loaded) => {
                    self.controller.resume(loaded, clock::now());
                    self.announce();
                    match self.take(Vec::new()) {
                        Ok(wake) => return Ok(Some(wake)),
                        Err(Lost::Fenced(fenced)) => return Err(fenced),
                        Err(Lost::Unknown(why)) => why,
                    }
                }
                Err(failed) => {
                    error!(error = %ErrorChain(&failed), "cannot write to the store; trying again");
                    Unavailable::because_of(&failed)
                }
            };
            if self.controller.read_rows(clock::now()).is_ok_and(|is_new| is_new) {
                self.reset_live();
            }
            self.controller.set_trouble(Some(self.trouble(failed)));
            let until = Instant::now() + pause;
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                match exit.take_one(left) {
                    Err(Closed) => return Ok(None),
                    Ok(Some(message)) => self.answer_without_writing(message, failed),
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

    fn answer_without_writing(&mut self, message: Message, failed: Unavailable) {
        match message {
            Message::Submit { input, reply } => {
                let renewed = match *input {
                    Input::Report { node, report } => {
                        self.controller.renew(&node, &report, clock::now()).ok().flatten()
                    }
                    _ => None,
                };
                let _ = reply.send(renewed.map(Ok).ok_or(failed));
            }
            Message::Ask(question) => question(self.known_world()),
            Message::Checked => {}
        }
    }
}
