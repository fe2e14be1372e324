//! The writer: one thread that owns World and the store, and the only one that changes either.
//!
//! It takes what has queued up as one batch, fair to everybody (`lines`), calls `core::step`, commits the changes in one transaction, and
//! only then lets answers and effects out. After a failed commit or a panic it drops World and its connection, reads
//! the rows again, and only then goes on. As long as the store takes no writes (a full disk, say), every change is
//! refused at once, and nodes keep their leases: see `recover`. When another controller has taken the store over, it
//! ends: two that take it from each other would serve nobody.

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

/// The longest sleep: a wall clock that was set forward is noticed within it.
const SLEEP_MAX: Duration = Duration::from_secs(5);
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
/// Who asks again right after there is space is not to be refused for long.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// About World as it is between two batches, or why that is not known.
type Question = Box<dyn FnOnce(Result<&World, Unavailable>) + Send>;

enum Message {
    Say {
        input: Box<Input>,
        reply: oneshot::Sender<Result<InputResult, Unavailable>>,
    },
    Ask(Question),
    /// The store was read through, and is whole.
    Checked,
}

/// Opens the store anew; the writer calls it at start and after every failure. Says whether it is still to be read
/// through for damage, which counts at start only.
pub type OpenStore = Box<dyn FnMut() -> Result<(Box<dyn Store>, bool), StoreError> + Send>;

struct Writer {
    open_store: OpenStore,
    settings: Settings,
    catalogue: Arc<Catalogue>,
    live: Arc<Live>,
    effects: mpsc::UnboundedSender<Effect>,
    on_reserve: OnReserve,
    store: Box<dyn Store>,
    /// Ours since the store was claimed.
    epoch: u64,
    /// The last that is known to be on disk.
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
    /// Waits for its end: `Err` if it was fenced, or if it panicked.
    pub fn join(self) -> Result<Result<(), StoreError>, Panicked> {
        self.handle.join().map_err(|_| Panicked)
    }
}

pub struct Panicked;

/// Opens the store, builds World and starts the thread. An unusable store is an error here, at start; later
/// the writer tries again until it can go on.
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
        true => as_it_is(store, &settings, &catalogue)?,
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
        // What it wishes for may be what the damage says.
        true => writer.live.reset(&writer.world),
        false => writer.announce(),
    }
    let (entrance, exit) = lanes::open();
    let (alive, ended) = oneshot::channel();
    let handle = std::thread::Builder::new()
        .name("writer".into())
        .spawn(move || {
            let _alive = alive; // Dropped with the thread, and seen by whoever holds `ended`.
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

/// Without a claim, which would be written: in the name of whoever had it last.
fn as_it_is(
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
    info!(epoch, jobs = rows.jobs.len(), nodes = rows.nodes.len(), "the store is ours");
    let world = World::rebuild(rows, epoch, settings.clone(), catalogue.clone(), clock::now());
    Ok(Claimed { store, epoch, revision, world })
}

impl Writer {
    fn run(&mut self, exit: &LaneReceiver<Message>, waits: bool) -> Result<(), StoreError> {
        if waits && !(self.wait_for_check(exit) && self.recover(exit)?.is_some()) {
            return Ok(());
        }
        // The first step decides about everything that the rows brought.
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

    /// One batch through `step` and onto disk. An input for which the store could not be read is refused, and all others of
    /// the batch are taken; then the store is opened again.
    fn take(&mut self, batch: Vec<Message>) -> Result<Wake, Lost> {
        self.world.set_store_trouble(self.on_reserve.trouble());
        let mut inputs = Vec::with_capacity(batch.len() + 1);
        let mut replies = Vec::with_capacity(batch.len());
        let mut is_unreadable = false;
        for message in batch {
            match message {
                Message::Say { input, reply }
                    if self.on_reserve.get() && !read_only::is_taken_on_reserve(&input) =>
                {
                    let _ = reply.send(Err(Unavailable::OnReserve)); // Whoever asked may have gone away.
                }
                Message::Say { input, reply } => match look_up(self.store.as_mut(), *input) {
                    Ok(input) => {
                        inputs.push(input);
                        replies.push(reply);
                    }
                    Err(failed) => {
                        error!(error = %ErrorChain(&failed), "the store cannot be read");
                        is_unreadable = true;
                        let _ = reply.send(Err(Unavailable::Unreadable)); // The caller may have gone away.
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
            tell_all(replies, Unavailable::Unconfirmed);
            return Err(Lost::Unknown(Unavailable::Failing));
        };
        // Without changes nothing is written, but an answer that goes out must still be that of the one
        // controller: from one that was replaced, a mere renewal would keep a node running what the next
        // controller has given to another.
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
            let _ = reply.send(Ok(answer)); // Whoever asked may have gone away: it is done all the same.
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

    /// Tells the rest of the server what the rows brought: live attempts, and every wish not yet fulfilled.
    fn announce(&mut self) {
        self.live.reset(&self.world);
        for effect in self.world.effects() {
            let _ = self.effects.send(effect.clone());
        }
    }

    /// A debug build makes sure, every time it stops, that World is what the rows say.
    fn audit(&mut self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let rows = self.store.load().expect("the rows can be read");
        let settings = self.settings.clone();
        let rebuilt = World::rebuild(rows, 0, settings, self.catalogue.clone(), clock::now());
        let difference = self.world.difference(&rebuilt);
        assert_eq!(difference, None, "World is not what the rows say");
    }

    /// A failed commit does not say whether its changes are on disk, but the revision there does. Callers are told which.
    fn commit_failed(&mut self, replies: Replies, output: Output, failed: StoreError) -> Lost {
        if matches!(failed, StoreError::Fenced { .. }) {
            return give_up(replies, failed);
        }
        let why = Unavailable::because_of(&failed);
        match self.store.revision() {
            Ok(revision) if revision == self.revision => tell_all(replies, why),
            Ok(revision) if revision.0 == self.revision.0 + output.changes.len() as u64 => {
                for (reply, answer) in replies.into_iter().zip(output.answers) {
                    let _ = reply.send(Ok(answer));
                }
            }
            _ => tell_all(replies, Unavailable::Unconfirmed),
        }
        Lost::Unknown(why)
    }
}

/// What this writer holds is not to be built on any more.
enum Lost {
    /// World and disk may differ now: start again from the rows. Until then, this is why nothing can be changed.
    Unknown(Unavailable),
    /// Someone else has the store.
    Fenced(StoreError),
}

type Replies = Vec<oneshot::Sender<Result<InputResult, Unavailable>>>;

/// Nobody can know what became of these: whoever asked has to look.
fn give_up(replies: Replies, failed: StoreError) -> Lost {
    tell_all(replies, Unavailable::Unconfirmed);
    match failed {
        StoreError::Fenced { .. } => Lost::Fenced(failed),
        _ => Lost::Unknown(Unavailable::because_of(&failed)),
    }
}

fn tell_all(replies: Replies, why: Unavailable) {
    for reply in replies {
        let _ = reply.send(Err(why)); // Whoever asked may have gone away.
    }
}

#[cfg(test)]
mod tests;
