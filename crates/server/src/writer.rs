//! The writer: one thread that owns World and the store, and the only one that changes either.
//!
//! It takes what has queued up as one batch, fair to everybody (`lines`), calls `core::step`, commits the changes in one transaction, and
//! only then lets answers and effects out. After a failed commit or a panic it drops World and its connection, reads
//! the rows again, and only then goes on. As long as the store takes no writes (a full disk, say), every change is
//! refused at once, and nodes keep their leases: see `recover`. When another controller has taken the store over, it
//! ends: two that take it from each other would serve nobody.

mod lines;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use muster_core::catalogue::Catalogue;
use muster_core::ids::{ClusterId, JobId};
use muster_core::model::{Caller, QuotaName, QuotaScope};
use muster_core::why::{self, Reason};
use muster_core::{
    Answer, Change, Effect, ErrorChain, Input, Output, Settings, Wake, World, read_only, step,
};
use muster_store::{Revision, Store, StoreError, look_up};
use muster_wire::quota::QuotaFigures;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info};

use crate::clock;
use crate::live::Live;
use crate::metrics::Present;
pub use lines::{BATCH_MAX, QUEUE_MAX, Whose};
use lines::{Batch, Closed, Entrance, Exit, LINE_MAX};

/// The longest sleep: a wall clock that was set forward is noticed within it.
const SLEEP_MAX: Duration = Duration::from_secs(5);
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
/// Who asks again right after there is space is not to be refused for long.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error(
        "the server has {QUEUE_MAX} requests waiting, the most it takes; try again in a moment"
    )]
    Busy,
    #[error(
        "{LINE_MAX} of your requests are waiting, the most that one user may have; try again in a moment, with fewer at once"
    )]
    TooMany,
    /// It is certain that nothing was changed.
    #[error(
        "the server's disk is full, so nothing can be changed; free space on it (`muster doctor` shows how much there \
         is), then try again"
    )]
    Full,
    /// It is certain that nothing was changed.
    #[error(
        "the server cannot write to its store, so nothing can be changed; see its log, then try again"
    )]
    ReadOnly,
    /// It is certain that nothing was changed.
    #[error(
        "the server has just started and is still reading its store through for damage, so nothing can be changed yet; \
         try again in a moment"
    )]
    Unchecked,
    #[error("the change could not be confirmed on disk; ask for the present state, then try again")]
    Unconfirmed,
    #[error("the server is stopping; try again when it is back")]
    Stopping,
}

enum Message {
    Say {
        input: Box<Input>,
        reply: oneshot::Sender<Result<Answer, Unavailable>>,
    },
    /// A question about World as it is between two batches.
    Ask(Box<dyn FnOnce(&World) + Send>),
    /// The store was read through, and is whole.
    Checked,
}

/// How the rest of the server talks to the writer. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    entrance: Arc<Entrance<Message>>,
}

impl Unavailable {
    /// To those who ask while the store takes no writes.
    pub fn because_of(failed: &StoreError) -> Unavailable {
        match failed {
            StoreError::Full { .. } => Unavailable::Full,
            _ => Unavailable::ReadOnly,
        }
    }
}

impl Handle {
    /// Says something and waits until what it changed is on disk.
    pub async fn say(&self, input: Input) -> Result<Answer, Unavailable> {
        let (reply, answer) = oneshot::channel();
        let whose = Whose::of(&input);
        self.entrance.push(whose, Message::Say { input: Box::new(input), reply })?;
        answer.await.unwrap_or(Err(Unavailable::Stopping))
    }

    /// Answers as soon as the writer has done what was asked before.
    pub async fn is_there(&self) -> Result<(), Unavailable> {
        self.ask(Whose::Anybody, |_| ()).await
    }

    /// Why a job waits, by what World says now.
    pub async fn why(&self, by: &Caller, job: JobId) -> Result<Vec<Reason>, Unavailable> {
        self.ask(caller(by), move |world| why::why(world, job)).await
    }

    /// Why a cluster is as large as it is. Nothing for one that is gone.
    pub async fn why_cluster(
        &self,
        by: &Caller,
        cluster: ClusterId,
    ) -> Result<Vec<Reason>, Unavailable> {
        self.ask(caller(by), move |world| why::why_cluster(world, cluster)).await
    }

    /// The limits of a region and what is taken of them: the totals, then every family of the catalogue.
    pub async fn quota(
        &self,
        by: &Caller,
        scope: QuotaScope,
    ) -> Result<Vec<QuotaFigures>, Unavailable> {
        self.ask(caller(by), move |world| quota_figures(world, &scope)).await
    }

    /// Those that there are.
    pub async fn clusters(&self) -> Result<BTreeSet<ClusterId>, Unavailable> {
        let ids = |world: &World| world.clusters().map(|cluster| cluster.id).collect();
        self.ask(Whose::Server, ids).await
    }

    /// How things stand, for `/metrics`.
    pub async fn present(&self) -> Result<Present, Unavailable> {
        self.ask(Whose::Anybody, Present::of).await
    }

    /// The answer leaves the writer's thread, World does not: ask for little.
    async fn ask<T: Send + 'static>(
        &self,
        whose: Whose,
        question: impl FnOnce(&World) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let (reply, answer) = oneshot::channel();
        let question = move |world: &World| {
            let _ = reply.send(question(world)); // Whoever asked may have gone away.
        };
        self.entrance.push(whose, Message::Ask(Box::new(question)))?;
        answer.await.map_err(|_| Unavailable::Stopping)
    }

    /// The store was read through, and is whole: it may be written to.
    pub fn checked(&self) {
        // A full queue is drained in a moment, and then there is room.
        while self.entrance.push(Whose::Server, Message::Checked) == Err(Unavailable::Busy) {
            std::thread::sleep(RETRY_PAUSE_MIN);
        }
    }

    /// What was said before is still done.
    pub fn stop(&self) {
        self.entrance.close();
    }
}

fn caller(by: &Caller) -> Whose {
    Whose::Caller(by.object_id.clone())
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
) -> Result<(Handle, Thread), StoreError> {
    let (store, waits_for_check) = open_store()?;
    let taken = match waits_for_check {
        true => as_it_is(store, &settings, &catalogue)?,
        false => claim(store, &settings, &catalogue)?,
    };
    let Claimed { store, epoch, revision, world } = taken;
    let mut writer =
        Writer { open_store, settings, catalogue, live, effects, store, epoch, revision, world };
    match waits_for_check {
        // What it wishes for may be what the damage says.
        true => writer.live.reset(&writer.world),
        false => writer.announce(),
    }
    let (entrance, exit) = lines::open();
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
    fn run(&mut self, exit: &Exit<Message>, waits: bool) -> Result<(), StoreError> {
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
                Err(Lost::Unknown) if is_last => return Ok(()),
                Err(Lost::Unknown) => match self.recover(exit)? {
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

    /// Meanwhile requests are answered as they are while the store takes no writes. False when the writer is to stop.
    fn wait_for_check(&mut self, exit: &Exit<Message>) -> bool {
        loop {
            match exit.take_one(SLEEP_MAX) {
                Ok(Some(Message::Checked)) => return true,
                Ok(Some(message)) => {
                    self.answer_without_writing(message, &Known::Rows, Unavailable::Unchecked);
                }
                Ok(None) => {}
                Err(Closed) => return false,
            }
        }
    }

    /// One batch through `step` and onto disk.
    fn take(&mut self, batch: Vec<Message>) -> Result<Wake, Lost> {
        let mut inputs = Vec::with_capacity(batch.len() + 1);
        let mut replies = Vec::with_capacity(batch.len());
        for message in batch {
            match message {
                Message::Say { input, reply } => {
                    replies.push(reply);
                    match look_up(self.store.as_mut(), *input) {
                        Ok(input) => inputs.push(input),
                        Err(failed) => {
                            error!(error = %ErrorChain(&failed), "the store cannot be read");
                            return Err(give_up(replies, failed));
                        }
                    }
                }
                Message::Ask(question) => question(&self.world),
                Message::Checked => {}
            }
        }
        inputs.push(Input::Tick);
        let world = &mut self.world;
        let output = catch_unwind(AssertUnwindSafe(|| step(world, &inputs, clock::now())));
        let Ok(output) = output else {
            error!("the core panicked; reading the rows again");
            tell_all(replies, Unavailable::Unconfirmed);
            return Err(Lost::Unknown);
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
        Ok(output.wake)
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
        match self.store.revision() {
            Ok(revision) if revision == self.revision => {
                tell_all(replies, Unavailable::because_of(&failed));
            }
            Ok(revision) if revision.0 == self.revision.0 + output.changes.len() as u64 => {
                for (reply, answer) in replies.into_iter().zip(output.answers) {
                    let _ = reply.send(Ok(answer));
                }
            }
            _ => tell_all(replies, Unavailable::Unconfirmed),
        }
        Lost::Unknown
    }

    /// Drops World and the connection and starts again from the rows, for as long as it takes. Meanwhile whoever comes is
    /// answered at once: changes are refused, so that nothing is done later that somebody has given up on, and nodes that
    /// are known keep their leases, so that nothing they run is given to others. `None` when it is to stop.
    fn recover(&mut self, exit: &Exit<Message>) -> Result<Option<Wake>, StoreError> {
        // What World has now may never have been written.
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
                        Err(Lost::Unknown) => known = Known::Nothing,
                    }
                    Unavailable::ReadOnly
                }
                Err(failed) => {
                    error!(error = %ErrorChain(&failed), "the store cannot be written to; trying again");
                    Unavailable::because_of(&failed)
                }
            };
            if matches!(known, Known::Nothing) && self.read_rows_again() {
                known = Known::Rows;
            }
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

    /// World from the rows, by the handle that cannot write any more. A store can often still be read.
    fn read_rows_again(&mut self) -> bool {
        let Ok(rows) = self.store.load() else { return false };
        let (settings, catalogue) = (self.settings.clone(), self.catalogue.clone());
        self.world = World::rebuild(rows, self.epoch, settings, catalogue, clock::now());
        self.live.reset(&self.world);
        true
    }

    fn answer_without_writing(&mut self, message: Message, known: &Known, failed: Unavailable) {
        match (message, known) {
            (Message::Say { input, reply }, known) => {
                let renewed = match (*input, known) {
                    (Input::Report { node, report }, Known::Rows)
                        // Only the one controller may renew.
                        if self.store.check_claim(self.epoch).is_ok() =>
                    {
                        read_only::renew(&mut self.world, &node, &report, clock::now())
                    }
                    _ => None,
                };
                let _ = reply.send(renewed.map(Ok).ok_or(failed));
            }
            (Message::Ask(question), Known::Rows) => question(&self.world),
            // Its answer is dropped with it, which says that nobody is there.
            (Message::Ask(_), Known::Nothing) | (Message::Checked, _) => {}
        }
    }
}

/// What World is worth while the store takes no writes.
enum Known {
    Nothing,
    /// It is what the rows say.
    Rows,
}

fn quota_figures(world: &World, scope: &QuotaScope) -> Vec<QuotaFigures> {
    let (limits, uses) = (world.quota_limits(scope), world.quota_uses(scope));
    let families: BTreeSet<_> = world.catalogue.iter().map(|size| size.family.clone()).collect();
    let totals = [QuotaName::Region, QuotaName::LowPriority];
    let figures = |name: QuotaName| {
        let taken = uses.and_then(|uses| uses.get(&name)).copied().unwrap_or_default();
        QuotaFigures {
            limit: limits.and_then(|limits| limits.get(&name)).copied(),
            reserved: taken.reserved,
            used: taken.used,
            name,
        }
    };
    totals.into_iter().chain(families.into_iter().map(QuotaName::Family)).map(figures).collect()
}

/// What this writer holds is not to be built on any more.
enum Lost {
    /// World and disk may differ now: start again from the rows.
    Unknown,
    /// Someone else has the store.
    Fenced(StoreError),
}

type Replies = Vec<oneshot::Sender<Result<Answer, Unavailable>>>;

/// Nobody can know what became of these: whoever asked has to look.
fn give_up(replies: Replies, failed: StoreError) -> Lost {
    tell_all(replies, Unavailable::Unconfirmed);
    match failed {
        StoreError::Fenced { .. } => Lost::Fenced(failed),
        _ => Lost::Unknown,
    }
}

fn tell_all(replies: Replies, why: Unavailable) {
    for reply in replies {
        let _ = reply.send(Err(why)); // Whoever asked may have gone away.
    }
}

#[cfg(test)]
mod tests;
