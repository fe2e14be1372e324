//! The loop around the core: inputs are admitted, stepped and committed, and only then are answers and effects released.
//!
//! The server's writer and the simulator both drive a [`Controller`], so the simulation runs the production code of this
//! loop. It is synchronous and has no clock: every call that needs the time gets it as an argument.
//!
//! 1. [`Controller::admit`] adds to an input what only the rows know, and puts it into a [`Batch`]. A report with nothing
//!    new only renews the lease of its node, which needs neither a step nor a commit.
//! 2. [`Controller::step`] lets the core process the batch. World contains the changes from then on, but nothing may
//!    become visible.
//! 3. [`Controller::commit`] writes the changes, and releases answers and effects.
//!
//! After a failed commit or a panic of the core, World may differ from the rows, so it is dropped. The driver opens the
//! store again and calls [`Controller::resume`], as often as it takes. Meanwhile [`Controller::read_rows`] makes the
//! controller read-only: known nodes keep their leases ([`Controller::renew`]), and nothing is changed.

mod batch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use muster_core::agent::Report;
use muster_core::catalogue::Catalogue;
use muster_core::planted::{Bug, is_planted};
use muster_core::read_only::{self, StoreTrouble};
use muster_core::time::{Now, Wall};
use muster_core::{
    Effect, Input, InputResult, Output, Reply, Settings, World, WorldRows, next_wake,
    renew_unchanged, step,
};

use crate::{Revision, Store, StoreError, look_up};
pub use batch::{Batch, Cause, Failed, NotAdmitted, NotDone, Pending, Released};

/// The rows of a store, from which World is built.
pub struct Loaded<S> {
    store: S,
    epoch: u64,
    revision: Revision,
    rows: WorldRows,
    is_claimed: bool,
}

impl<S: Store> Loaded<S> {
    /// Claims the store and reads its rows.
    pub fn claim(mut store: S, unix_ms: u64) -> Result<Loaded<S>, StoreError> {
        let epoch = store.claim(unix_ms)?;
        let (rows, revision) = (store.load()?, store.revision()?);
        Ok(Loaded { store, epoch, revision, rows, is_claimed: true })
    }

    /// Reads the rows of a store under its last claim, because a new claim would be written.
    pub fn unclaimed(mut store: S) -> Result<Loaded<S>, StoreError> {
        let epoch = store.last_claim()?;
        let (rows, revision) = (store.load()?, store.revision()?);
        Ok(Loaded { store, epoch, revision, rows, is_claimed: false })
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn rows(&self) -> &WorldRows {
        &self.rows
    }

    /// The latest time that any commit was based on.
    pub fn last_wall(&self) -> Wall {
        self.rows.last_wall
    }
}

/// What the controller knows about the rows.
enum Known {
    /// World matches the rows, except for the changes of a batch that is being processed, and may be written.
    Current(Box<World>),
    /// World matches the rows, which can only be read.
    ReadOnly(Box<World>),
    /// World may have contained changes that are not on disk, and was dropped.
    Nothing,
}

pub struct Controller<S> {
    settings: Settings,
    catalogue: Arc<Catalogue>,
    store: S,
    /// The epoch of the claim.
    epoch: u64,
    /// The last revision that is known to be on disk.
    revision: Revision,
    known: Known,
}

impl<S: Store> Controller<S> {
    /// Builds World. Every lease counts as renewed `now`. Without a claim, the controller is read-only.
    pub fn new(
        loaded: Loaded<S>,
        settings: Settings,
        catalogue: Arc<Catalogue>,
        now: Now,
    ) -> Controller<S> {
        let Loaded { store, epoch, revision, rows, is_claimed } = loaded;
        let world = World::rebuild(rows, epoch, settings.clone(), Arc::clone(&catalogue), now);
        let known = match is_claimed {
            true => Known::Current(Box::new(world)),
            false => Known::ReadOnly(Box::new(world)),
        };
        Controller { settings, catalogue, store, epoch, revision, known }
    }

    /// Starts again from the rows of a store that was opened and claimed again. Returns the previous handle.
    pub fn resume(&mut self, loaded: Loaded<S>, now: Now) -> S {
        self.drop_world();
        let next = Controller::new(loaded, self.settings.clone(), Arc::clone(&self.catalogue), now);
        std::mem::replace(self, next).store
    }

    /// World, unless it was dropped.
    pub fn world(&self) -> Option<&World> {
        match &self.known {
            Known::Current(world) | Known::ReadOnly(world) => Some(world),
            Known::Nothing => None,
        }
    }

    /// The effects that are not done yet. After a start, all of them are carried out again.
    pub fn effects(&self) -> impl Iterator<Item = &Effect> {
        self.world().into_iter().flat_map(World::effects)
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Records why the store accepts no new work, if it does not.
    pub fn set_trouble(&mut self, trouble: Option<StoreTrouble>) {
        match &mut self.known {
            Known::Current(world) | Known::ReadOnly(world) => world.set_store_trouble(trouble),
            Known::Nothing => {}
        }
    }

    /// Adds an input to a batch, with the facts that only the rows have. `tag` is returned with its answer.
    pub fn admit<T>(
        &mut self,
        batch: &mut Batch<T>,
        input: Input,
        tag: T,
        now: Now,
    ) -> Result<(), (T, NotAdmitted)> {
        let is_on_reserve = self.world().is_some_and(|world| world.store_trouble().is_some());
        if is_on_reserve && !read_only::is_taken_on_reserve(&input) {
            return Err((tag, NotAdmitted::OnReserve));
        }
        if let Some(answer) = self.renewed(batch, &input, now) {
            batch.renewed.push((tag, input, Ok(answer)));
            return Ok(());
        }
        match look_up(&mut self.store, input) {
            Ok(input) => {
                batch.inputs.push(input);
                batch.tags.push(tag);
                Ok(())
            }
            Err(failed) => {
                batch.is_unreadable = true;
                Err((tag, NotAdmitted::Unreadable(failed)))
            }
        }
    }

    /// The answer to a report with nothing new. After an input that needs a step, a report takes part in that step.
    fn renewed<T>(&mut self, batch: &Batch<T>, input: &Input, now: Now) -> Option<Reply> {
        match (input, &mut self.known) {
            (Input::Report { node, report }, Known::Current(world)) if batch.inputs.is_empty() => {
                renew_unchanged(world, node, report, now)
            }
            _ => None,
        }
    }

    /// Lets the core process a batch. An empty one lets it process the timers that are due, and one of mere renewals
    /// needs no step.
    pub fn step<T>(&mut self, batch: Batch<T>, now: Now) -> Result<Pending<T>, Failed<T>> {
        let Batch { mut inputs, tags, renewed, is_unreadable } = batch;
        let world = match &mut self.known {
            Known::Current(world) => world,
            Known::ReadOnly(_) | Known::Nothing => panic!("stepped without a writable store"),
        };
        if inputs.is_empty() && !renewed.is_empty() {
            let (changes, answers) = (Vec::new(), Vec::new());
            let output = Output { changes, answers, wake: next_wake(world), wall: now.wall };
            return Ok(Pending { inputs, tags, output, renewed, is_unreadable });
        }
        inputs.push(Input::Tick);
        match catch_unwind(AssertUnwindSafe(|| step(world, &inputs, now))) {
            Ok(output) => Ok(Pending { inputs, tags, output, renewed, is_unreadable }),
            Err(panic) => {
                self.drop_world();
                let cause = Cause::Panicked(message(&*panic));
                let tags = renewed.into_iter().map(|(tag, ..)| tag).chain(tags);
                let answers = tags.map(|tag| (tag, Err(NotDone::Unconfirmed))).collect();
                Err(Failed { answers, cause })
            }
        }
    }

    /// Writes the changes of a step and releases its answers and effects.
    ///
    /// Without changes nothing is written, but an answer must still come from the current server: a mere renewal from a
    /// server that was replaced would keep a node running an attempt that the next server has given to another node.
    pub fn commit<T>(&mut self, pending: Pending<T>) -> Result<Released<T>, Failed<T>> {
        let Pending { inputs, tags, output, renewed, is_unreadable } = pending;
        let Output { changes, answers, wake, wall } = output;
        let stepped = tags.into_iter().zip(inputs).zip(answers);
        let stepped = stepped.map(|((tag, input), answer)| (tag, input, answer));
        let answers: Vec<_> = renewed.into_iter().chain(stepped).collect();
        let written = if !changes.is_empty() {
            self.store.commit(&changes, wall)
        } else if !answers.is_empty() && !is_planted(Bug::FencedAnswer) {
            self.store.check_claim(self.epoch).map(|()| self.revision)
        } else {
            Ok(self.revision)
        };
        match written {
            Ok(revision) => self.revision = revision,
            Err(failed) => return Err(self.commit_failed(answers, changes.len(), failed)),
        }
        let wake = (!is_unreadable).then_some(wake);
        Ok(Released { changes, answers, wake, wall, revision: self.revision })
    }

    /// A failed commit does not tell whether its changes are on disk, but the revision there does. Callers learn which
    /// it is.
    fn commit_failed<T>(
        &mut self,
        answers: Vec<(T, Input, InputResult)>,
        changes: usize,
        failed: StoreError,
    ) -> Failed<T> {
        self.drop_world();
        let written = Revision(self.revision.0 + changes as u64);
        let why = match (&failed, self.store.revision()) {
            (StoreError::Fenced { .. }, _) => Some(NotDone::Unconfirmed),
            (_, Ok(on_disk)) if on_disk == self.revision => Some(NotDone::because_of(&failed)),
            (_, Ok(on_disk)) if on_disk == written => None,
            _ => Some(NotDone::Unconfirmed),
        };
        let answers =
            answers.into_iter().map(|(tag, _, answer)| (tag, why.map_or(Ok(answer), Err)));
        Failed { answers: answers.collect(), cause: Cause::Commit(failed) }
    }

    /// Drops World, because it may differ from the rows.
    pub fn drop_world(&mut self) {
        self.known = Known::Nothing;
    }

    /// Becomes read-only: builds World from the rows, if it was dropped, with the handle that can no longer write. A
    /// store can often still be read. Returns whether there is a new World.
    pub fn read_rows(&mut self, now: Now) -> Result<bool, StoreError> {
        if self.world().is_some() {
            return Ok(false);
        }
        let rows = self.store.load()?;
        self.known = Known::ReadOnly(Box::new(self.rebuild(rows, now)));
        Ok(true)
    }

    /// Renews the lease of a node while the store cannot be written to. `None` if the node has to report again later.
    /// Only the current server may renew, so the claim is checked.
    pub fn renew(
        &mut self,
        node: &str,
        report: &Report,
        now: Now,
    ) -> Result<Option<Reply>, StoreError> {
        let Known::ReadOnly(world) = &mut self.known else { return Ok(None) };
        self.store.check_claim(self.epoch)?;
        Ok(read_only::renew(world, node, report, now))
    }

    /// Describes the first difference between World and a World built from the rows. There should be none.
    pub fn difference_to_rows(&mut self, now: Now) -> Result<Option<String>, StoreError> {
        let rows = self.store.load()?;
        let rebuilt = self.rebuild(rows, now);
        Ok(self.world().and_then(|world| world.difference(&rebuilt)))
    }

    fn rebuild(&self, rows: WorldRows, now: Now) -> World {
        let (settings, catalogue) = (self.settings.clone(), Arc::clone(&self.catalogue));
        World::rebuild(rows, self.epoch, settings, catalogue, now)
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a message").to_owned()
}

#[cfg(test)]
mod tests;
