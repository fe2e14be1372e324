//! The writer: one thread that owns World and the store, and the only one that changes either.
//!
//! It takes the waiting messages as one batch, fairly for all callers (`lanes`), calls `core::step`, commits the
//! changes in one transaction, and only then sends replies and effects. After a failed commit or a panic, it drops
//! World and its connection and reads the rows again before it continues. While the store accepts no writes (for
//! example, because the disk is full), every change is refused at once, and nodes keep their leases: see `recover`.
//! When another server has taken over the store, the writer stops: two servers that take it from each other would serve
//! no requests.

mod handle;
mod lanes;
mod recover;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use muster_core::catalogue::Catalogue;
use muster_core::{
    Change, Effect, ErrorChain, Input, InputResult, Output, Settings, Wake, World, read_only, step,
};
use muster_store::{Revision, Store, StoreError, look_up};
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info};

use crate::clock;
use crate::live::Live;
use crate::reserve::OnReserve;
pub use handle::{Handle, Unavailable};
pub use lanes::{BATCH_MAX, QUEUE_MAX};
use lanes::{Batch, LaneReceiver};

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
        reply: oneshot::Sender<Result<InputResult, Unavailable>>,
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
    settings: Settings,
    catalogue: Arc<Catalogue>,
    live: Arc<Live>,
    effects: mpsc::UnboundedSender<Effect>,
    on_reserve: OnReserve,
    store: Box<dyn Store>,
    /// The epoch that this server got when it claimed the store.
    epoch: u64,
    /// The last revision that is known to be on disk.
    revision: Revision,
    world: World,
}

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
    let taken = match waits_for_check {
        true => load_unclaimed(store, &settings, &catalogue)?,
        false => claim(store, &settings, &catalogue)?,
    };
    let Claimed { store, epoch, revision, world } = taken;
    let mut writer = Writer {
        open_store,
        settings,
        catalogue,
        live,
        effects,
        on_reserve,
        store,
        epoch,
        revision,
        world,
    };
    match waits_for_check {
        // Effects are not sent, because damage could have caused them.
        true => writer.live.reset(&writer.world),
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

struct Claimed {
    store: Box<dyn Store>,
    epoch: u64,
    revision: Revision,
    world: World,
}

/// Loads the store under its last claim, because a new claim would be written.
fn load_unclaimed(
    mut store: Box<dyn Store>,
    settings: &Settings,
    catalogue: &Arc<Catalogue>,
) -> Result<Claimed, StoreError> {
    let epoch = store.last_claim()?;
    let (rows, revision) = (store.load()?, store.revision()?);
    let world = World::rebuild(rows, epoch, settings.clone(), catalogue.clone(), clock::now());
    Ok(Claimed { store, epoch, revision, world })
}

fn claim(
    mut store: Box<dyn Store>,
    settings: &Settings,
    catalogue: &Arc<Catalogue>,
) -> Result<Claimed, StoreError> {
    let epoch = store.claim(clock::unix_us() / 1_000)?;
    let rows = store.load()?;
    clock::not_before(rows.last_wall);
    let revision = store.revision()?;
    info!(epoch, jobs = rows.jobs.len(), nodes = rows.nodes.len(), "claimed the store");
    let world = World::rebuild(rows, epoch, settings.clone(), catalogue.clone(), clock::now());
    Ok(Claimed { store, epoch, revision, world })
}

impl Writer {
    fn run(&mut self, exit: &LaneReceiver<Message>, waits: bool) -> Result<(), StoreError> {
        if waits && !(self.wait_for_check(exit) && self.recover(exit)?.is_some()) {
            return Ok(());
        }
        // The first step makes decisions about everything that the rows contain.
        let mut batch = Batch { messages: Vec::new(), is_last: false };
        loop {
            let Batch { messages, is_last } = batch;
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
            batch = exit.take(clock::until(wake, SLEEP_MAX));
        }
    }

    /// Passes one batch through `step` and commits it. An input for which the store could not be read is refused, and
    /// all others of the batch are accepted; then the store is opened again.
    fn take(&mut self, batch: Vec<Message>) -> Result<Wake, Lost> {
        self.world.set_store_trouble(self.on_reserve.trouble());
        let mut inputs = Vec::with_capacity(batch.len() + 1);
        let mut replies = Vec::with_capacity(batch.len());
        let mut is_unreadable = false;
        for message in batch {
            match message {
                Message::Submit { input, reply }
                    if self.on_reserve.get() && !read_only::is_taken_on_reserve(&input) =>
                {
                    let _ = reply.send(Err(Unavailable::OnReserve)); // The caller may no longer be waiting.
                }
                Message::Submit { input, reply } => match look_up(self.store.as_mut(), *input) {
                    Ok(input) => {
                        inputs.push(input);
                        replies.push(reply);
                    }
                    Err(failed) => {
                        error!(error = %ErrorChain(&failed), "cannot read the store");
                        is_unreadable = true;
                        let _ = reply.send(Err(Unavailable::Unreadable)); // The caller may no longer be waiting.
                    }
                },
                Message::Ask(question) => question(Ok(&self.world)),
                Message::Checked => {}
            }
        }
        inputs.push(Input::Tick);
        let world = &mut self.world;
        let output = catch_unwind(AssertUnwindSafe(|| step(world, &inputs, clock::now())));
        let Ok(output) = output else {
            error!("the core panicked; reading the rows again");
            refuse_all(replies, Unavailable::Unconfirmed);
            return Err(Lost::Unknown(Unavailable::Failing));
        };
        // Without changes nothing is written, but a reply must still come from the current server: a mere renewal from
        // a server that was replaced would keep a node running an attempt that the next server has given to another
        // node.
        let must_hold = !output.changes.is_empty() || !replies.is_empty();
        if must_hold {
            match self.store.commit(&output.changes, output.wall) {
                Ok(revision) => self.revision = revision,
                Err(failed) => {
                    error!(error = %ErrorChain(&failed), "the commit failed");
                    return Err(self.commit_failed(replies, output, failed));
                }
            }
        }
        self.live.publish(&self.world, &output.changes);
        self.dispatch(&output.changes);
        for (reply, answer) in replies.into_iter().zip(output.answers) {
            let _ = reply.send(Ok(answer)); // The caller may no longer be waiting; the change is done anyway.
        }
        match is_unreadable {
            true => Err(Lost::Unknown(Unavailable::Unreadable)),
            false => Ok(output.wake),
        }
    }

    fn dispatch(&self, changes: &[Change]) {
        for change in changes {
            if let Change::EffectQueued(effect) = change {
                let _ = self.effects.send(effect.clone());
            }
        }
    }

    /// Informs the rest of the server about the contents of the rows: live attempts, and every effect that is not done
    /// yet.
    fn announce(&mut self) {
        self.live.reset(&self.world);
        for effect in self.world.effects() {
            let _ = self.effects.send(effect.clone());
        }
    }

    /// A debug build verifies, every time it stops, that World matches the rows.
    fn audit(&mut self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let rows = self.store.load().expect("the rows can be read");
        let settings = self.settings.clone();
        let rebuilt = World::rebuild(rows, 0, settings, self.catalogue.clone(), clock::now());
        let difference = self.world.difference(&rebuilt);
        assert_eq!(difference, None, "World does not match the rows");
    }

    /// A failed commit does not tell whether its changes are on disk, but the revision there does. Callers learn which
    /// it is.
    fn commit_failed(&mut self, replies: Replies, output: Output, failed: StoreError) -> Lost {
        if matches!(failed, StoreError::Fenced { .. }) {
            return give_up(replies, failed);
        }
        let why = Unavailable::because_of(&failed);
        match self.store.revision() {
            Ok(revision) if revision == self.revision => refuse_all(replies, why),
            Ok(revision) if revision.0 == self.revision.0 + output.changes.len() as u64 => {
                for (reply, answer) in replies.into_iter().zip(output.answers) {
                    let _ = reply.send(Ok(answer));
                }
            }
            _ => refuse_all(replies, Unavailable::Unconfirmed),
        }
        Lost::Unknown(why)
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

type Replies = Vec<oneshot::Sender<Result<InputResult, Unavailable>>>;

/// It is not known whether these changes were made, so the callers have to check.
fn give_up(replies: Replies, failed: StoreError) -> Lost {
    refuse_all(replies, Unavailable::Unconfirmed);
    match failed {
        StoreError::Fenced { .. } => Lost::Fenced(failed),
        _ => Lost::Unknown(Unavailable::because_of(&failed)),
    }
}

fn refuse_all(replies: Replies, why: Unavailable) {
    for reply in replies {
        let _ = reply.send(Err(why)); // The caller may no longer be waiting.
    }
}

#[cfg(test)]
mod tests;
