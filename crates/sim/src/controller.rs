//! The controller: the real World, `step` and store, in a process that can die and come back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use muster_core::catalogue::Catalogue;
use muster_core::model::{JobSpec, SpecHash};
use muster_core::time::{Now, Span};
use muster_core::{
    Change, Effect, Input, Output, Settings, Wake, World, decide_everything, invariants, step,
};
use muster_store::{Durability, Reader, Revision, SqliteReader, SqliteStore, Store, StoreError};

use crate::clock::Moment;
use crate::failure::{Broken, Held, promise};

pub(crate) struct Controller {
    path: PathBuf,
    catalogue: Arc<Catalogue>,
    live: Option<Live>,
    dead: Option<Dead>,
    epoch: u64,
    pub(crate) steps: u64,
}

pub(crate) struct Live {
    store: SqliteStore,
    pub(crate) reader: SqliteReader,
    pub(crate) world: World,
    wake: Wake,
}

/// What is left of a process that died: a handle that must not be able to write any more, what it was about
/// to write or has just written, and what World must look like to the next one.
struct Dead {
    store: SqliteStore,
    changes: Vec<Change>,
    now: Now,
    expected: World,
}

impl Controller {
    pub(crate) fn new(path: PathBuf) -> Controller {
        let catalogue = Arc::new(Catalogue::builtin());
        Controller { path, catalogue, live: None, dead: None, epoch: 0, steps: 0 }
    }

    /// A new process takes over. Gives back what is still to be done outside.
    pub(crate) fn start(&mut self, now: Moment) -> Held<Vec<Effect>> {
        let mut store = SqliteStore::open(&self.path, Durability::None)?;
        let epoch = store.claim(now.unix_ms())?;
        promise(epoch > self.epoch && epoch >= now.unix_ms(), || {
            format!("controller epoch {epoch} follows {}", self.epoch)
        })?;
        self.epoch = epoch;
        let world = self.rebuild(&mut store, now)?;
        if let Some(dead) = self.dead.take() {
            dead.check(&world)?;
        }
        let effects = world.effects().cloned().collect();
        let reader = store.reader()?;
        self.live = Some(Live { store, reader, world, wake: Wake::default() });
        Ok(effects)
    }

    fn rebuild(&self, store: &mut SqliteStore, now: Moment) -> Held<World> {
        let rows = store.load()?;
        let catalogue = Arc::clone(&self.catalogue);
        Ok(World::rebuild(rows, self.epoch, Settings::default(), catalogue, now.now()))
    }

    /// The process dies. `changes` is what it was writing, `expected` what World is without or with them.
    pub(crate) fn die(&mut self, changes: Vec<Change>, expected: World, now: Moment) {
        if let Some(Live { store, .. }) = self.live.take() {
            self.dead = Some(Dead { store, changes, now: now.now(), expected });
        }
    }

    pub(crate) fn live(&mut self) -> Option<&mut Live> {
        self.live.as_mut()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.live.is_some()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// When it wants to step even if nothing arrives.
    pub(crate) fn wake_at(&self) -> Option<Moment> {
        let wake = self.live.as_ref()?.wake;
        let wall = wake.wall.map(Moment::of_wall);
        let elapsed = wake.elapsed.map(Moment::of_elapsed);
        wall.into_iter().chain(elapsed).min()
    }

    /// The specification that an agent asks for: `None` while nobody is there to answer.
    pub(crate) fn fetch_spec(&mut self, hash: &SpecHash) -> Held<Option<JobSpec>> {
        let Some(live) = self.live.as_mut() else { return Ok(None) };
        let spec = live.reader.spec(hash)?;
        promise(spec.is_some(), || format!("the specification {} is not on disk", hash))?;
        Ok(spec)
    }

    pub(crate) fn step(&mut self, inputs: &[Input], now: Moment) -> Held<Output> {
        let live = self.live.as_mut().ok_or_else(|| Broken("stepped while down".to_owned()))?;
        self.steps += 1;
        let output = catch_unwind(AssertUnwindSafe(|| step(&mut live.world, inputs, now.now())))
            .map_err(|panic| Broken(format!("the core panicked: {}", words_of(&*panic))))?;
        live.wake = output.wake;
        Ok(output)
    }

    /// Compares World with World made from the rows, and the decisions that were made with those that would
    /// be made without any index.
    pub(crate) fn check_books(&mut self, now: Moment) -> Held {
        let Some(mut live) = self.live.take() else { return Ok(()) };
        let rebuilt = self.rebuild(&mut live.store, now)?;
        let difference = live.world.difference(&rebuilt);
        promise(difference.is_none(), || format!("World and rows differ: {difference:?}"))?;
        let undecided = decide_everything(&mut live.world.clone(), now.now());
        promise(undecided.is_empty(), || format!("not decided yet: {undecided:?}"))?;
        self.live = Some(live);
        Ok(())
    }
}

impl Live {
    /// Looks up what World cannot see.
    pub(crate) fn look_up(&mut self, input: Input) -> Held<Input> {
        Ok(muster_store::look_up(&mut self.store, input)?)
    }

    pub(crate) fn commit(&mut self, output: &Output) -> Held<Revision> {
        Ok(self.store.commit(&output.changes, output.wall)?)
    }

    /// Everything that must hold in World right after a step.
    pub(crate) fn check(&self, now: Moment) -> Held {
        // The wake-ups are exact here, so nothing may be late.
        let result = invariants::check(&self.world, now.now(), Span::ZERO);
        result.map_err(|broken| Broken(broken.to_string()))
    }
}

impl Dead {
    /// The dead process cannot write any more, and the next one found what it should.
    fn check(mut self, world: &World) -> Held {
        let late = self.store.commit(&self.changes, self.now.wall);
        promise(matches!(late, Err(StoreError::Fenced { .. })), || {
            format!("a controller that was replaced could still write: {late:?}")
        })?;
        let difference = self.expected.difference(world);
        promise(difference.is_none(), || format!("after a restart: {difference:?}"))
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}
