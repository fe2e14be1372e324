//! The writer: one thread that owns World and the store, and the only one that changes either.
//!
//! It takes the waiting messages as one batch, fairly for all callers (`lanes`), passes them through the controller
//! (`muster_store::controller`), which the simulator drives as well, and sends out what that releases. After a failed
//! commit or a panic, it opens the store again and starts from the rows. While the store accepts no writes (for
//! example, because the disk is full), every change is refused at once, and nodes keep their leases: see `recover`.
//! When another server has taken over the store, the writer stops: two servers that take it from each other would serve
//! no requests.

mod handle;
mod lanes;
mod recover;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use muster_core::catalogue::Catalogue;
use muster_core::{Effect, ErrorChain, Input, InputResult, Settings, Wake, World};
use muster_store::controller::{Batch, Cause, Controller, Failed, Loaded, NotAdmitted, Released};
use muster_store::{Store, StoreError};
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info};

use crate::clock;
use crate::live::Live;
use crate::reserve::OnReserve;
pub use handle::{Handle, Unavailable};
pub use lanes::{BATCH_MAX, QUEUE_MAX};
use lanes::{LaneReceiver, Messages};

/// The longest sleep, so that a wall clock that was set forward is noticed in time.
const SLEEP_MAX: Duration = Duration::from_secs(5);
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
/// Short, so that clients are not refused for long once there is space.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// A question about World between two batches, or the reason why it cannot be answered.
type Question = Box<dyn FnOnce(Result<&World, Unavailable>) + Send>;

enum Message {
    Submit {
        input: Box<Input>,
        reply: Reply,
    },
    Ask(Question),
    /// The store has been checked and is intact.
    Checked,
}

/// Opens the store again; the writer calls this at start and after every failure. Tells whether the store still has to
/// be checked for damage, which matters only at start.
pub type OpenStore = Box<dyn FnMut() -> Result<(Box<dyn Store>, bool), StoreError> + Send>;

struct Writer {
    open_store: OpenStore,
    live: Arc<Live>,
    effects: mpsc::UnboundedSender<Effect>,
    on_reserve: OnReserve,
    controller: Controller<Box<dyn Store>>,
}

type Reply = oneshot::Sender<Result<InputResult, Unavailable>>;

/// The running thread.
pub struct Thread {
    /// Whether nothing is written before [`Handle::checked`].
    pub waits_for_check: bool,
    handle: JoinHandle<Result<(), StoreError>>,
    /// Resolves when the thread has ended, whatever the reason.
    pub ended: oneshot::Receiver<()>,
}

impl Thread {
    /// Waits for the end of the thread: `Err` if it was fenced, or if it panicked.
    pub fn join(self) -> Result<Result<(), StoreError>, Panicked> {
        self.handle.join().map_err(|_| Panicked)
    }
}

pub struct Panicked;

/// Opens the store, builds World and starts the thread. An unusable store is an error here, at start; later the writer
/// retries until it can continue.
pub fn start(
    mut open_store: OpenStore,
    settings: Settings,
    catalogue: Arc<Catalogue>,
    live: Arc<Live>,
    effects: mpsc::UnboundedSender<Effect>,
    on_reserve: OnReserve,
) -> Result<(Handle, Thread), StoreError> {
    let (store, waits_for_check) = open_store()?;
    let loaded = match waits_for_check {
        true => Loaded::unclaimed(store)?,
        false => claim(store)?,
    };
    let controller = Controller::new(loaded, settings, catalogue, clock::now());
    let mut writer = Writer { open_store, live, effects, on_reserve, controller };
    match waits_for_check {
        // Effects are not sent, because damage could have caused them.
        true => writer.reset_live(),
        false => writer.announce(),
    }
    let (entrance, exit) = lanes::open();
    let (alive, ended) = oneshot::channel();
    let handle = std::thread::Builder::new()
        .name("writer".into())
        .spawn(move || {
            let _alive = alive; // Dropped with the thread, which resolves `ended`.
            writer.run(&exit, waits_for_check)
        })
        .expect("a thread can be started at start-up");
    let writer = Handle { entrance: Arc::new(entrance) };
    Ok((writer, Thread { waits_for_check, handle, ended }))
}

fn claim(store: Box<dyn Store>) -> Result<Loaded<Box<dyn Store>>, StoreError> {
    let loaded = Loaded::claim(store, clock::unix_us() / 1_000)?;
    clock::not_before(loaded.last_wall());
    let (epoch, rows) = (loaded.epoch(), loaded.rows());
    info!(epoch, jobs = rows.jobs.len(), nodes = rows.nodes.len(), "claimed the store");
    Ok(loaded)
}

impl Writer {
    fn run(&mut self, exit: &LaneReceiver<Message>, waits: bool) -> Result<(), StoreError> {
        if waits && !(self.wait_for_check(exit) && self.recover(exit)?.is_some()) {
            return Ok(());
        }
        // The first step makes decisions about everything that the rows contain.
        let mut next = Messages { messages: Vec::new(), is_last: false };
        loop {
            let Messages { messages, is_last } = next;
            let wake = match self.take(messages) {
                Ok(wake) => wake,
                Err(Lost::Fenced(fenced)) => return Err(fenced),
                Err(Lost::Unknown(_)) if is_last => return Ok(()),
                Err(Lost::Unknown(_)) => match self.recover(exit)? {
                    Some(wake) => wake,
                    None => return Ok(()),
                },
            };
            if is_last {
                self.audit();
                return Ok(());
            }
            next = exit.take(clock::until(wake, SLEEP_MAX));
        }
    }

    /// Passes one batch through the controller. An input for which the store could not be read is refused, and all others
    /// of the batch are accepted; then the store is opened again.
    fn take(&mut self, messages: Vec<Message>) -> Result<Wake, Lost> {
        self.controller.set_trouble(self.on_reserve.trouble());
        let (mut batch, now) = (Batch::default(), clock::now());
        for message in messages {
            match message {
                Message::Submit { input, reply } => {
                    if let Err((reply, why)) = self.controller.admit(&mut batch, *input, reply, now)
                    {
                        let _ = reply.send(Err(not_admitted(&why))); // The caller may no longer be waiting.
                    }
                }
                Message::Ask(question) => question(self.known_world()),
                Message::Checked => {}
            }
        }
        let stepped = self.controller.step(batch, now);
        match stepped.and_then(|pending| self.controller.commit(pending)) {
            Ok(released) => self.release(released),
            Err(failed) => Err(answer_failed(failed)),
        }
    }

    fn release(&self, released: Released<Reply>) -> Result<Wake, Lost> {
        if let Some(world) = self.controller.world() {
            self.live.publish(world, &released.changes);
        }
        for effect in released.effects() {
            let _ = self.effects.send(effect.clone());
        }
        for (reply, _, answer) in released.answers {
            let _ = reply.send(Ok(answer)); // The caller may no longer be waiting; the change is done anyway.
        }
        released.wake.ok_or(Lost::Unknown(Unavailable::Unreadable))
    }

    fn known_world(&self) -> Result<&World, Unavailable> {
        self.controller.world().ok_or(Unavailable::Unreadable)
    }

    fn reset_live(&self) {
        if let Some(world) = self.controller.world() {
            self.live.reset(world);
        }
    }

    /// Informs the rest of the server about the contents of the rows: live attempts, and every effect that is not done
    /// yet.
    fn announce(&self) {
        self.reset_live();
        for effect in self.controller.effects() {
            let _ = self.effects.send(effect.clone());
        }
    }

    /// A debug build verifies, every time it stops, that World matches the rows.
    fn audit(&mut self) {
        if cfg!(debug_assertions) {
            let difference = self.controller.difference_to_rows(clock::now());
            let difference = difference.expect("the rows can be read");
            assert_eq!(difference, None, "World does not match the rows");
        }
    }
}

/// Why the state of this writer must not be used any more.
enum Lost {
    /// World and disk may differ now, so the writer starts again from the rows. Until then, this is why nothing can be
    /// changed.
    Unknown(Unavailable),
    /// Another server has claimed the store.
    Fenced(StoreError),
}

fn not_admitted(why: &NotAdmitted) -> Unavailable {
    match why {
        NotAdmitted::OnReserve => Unavailable::OnReserve,
        NotAdmitted::Unreadable(failed) => {
            error!(error = %ErrorChain(failed), "cannot read the store");
            Unavailable::Unreadable
        }
    }
}

/// Answers the callers of a batch that was not released.
fn answer_failed(failed: Failed<Reply>) -> Lost {
    let lost = match failed.cause {
        Cause::Panicked(_) => {
            error!("the core panicked; reading the rows again");
            Lost::Unknown(Unavailable::Failing)
        }
        Cause::Commit(error) => {
            error!(error = %ErrorChain(&error), "the commit failed");
            match error {
                StoreError::Fenced { .. } => Lost::Fenced(error),
                _ => Lost::Unknown(Unavailable::because_of(&error)),
            }
        }
    };
    for (reply, answer) in failed.answers {
        let _ = reply.send(answer.map_err(Unavailable::from)); // The caller may no longer be waiting.
    }
    lost
}

#[cfg(test)]
mod tests;
