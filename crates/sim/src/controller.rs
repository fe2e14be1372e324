//! The server: the real World, `step` and store, in a process that can die, be replaced and come back.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use muster_core::agent::Report;
use muster_core::catalogue::Catalogue;
use muster_core::model::{JobSpec, NodeEvent, QuotaName, SpecHash, Tier};
use muster_core::orphans::OrphanSearch;
use muster_core::time::{Now, Span, Wall};
use muster_core::{
    Change, Effect, Input, Output, Reply, Settings, Wake, World, decide_everything, invariants,
    read_only, step,
};
use muster_store::{Reader, Revision, SqliteReader, Store, StoreError};

use crate::clock::{ControllerClock, Moment};
use crate::failure::{Broken, Held, promise};
use crate::hosts;
use crate::store::{CommitFault, FaultyStore, replace_store, torn};

pub(crate) struct Controller {
    path: PathBuf,
    settings: Settings,
    catalogue: Arc<Catalogue>,
    pub(crate) clock: ControllerClock,
    live: Option<Live>,
    /// A server that was replaced and does not know it yet.
    pub(crate) rival: Option<Live>,
    dead: Option<Dead>,
    /// While its disk is full: the content of the rows, and a handle to read them.
    held: Option<(FaultyStore, World)>,
    epoch: u64,
    pub(crate) steps: u64,
    /// No input is processed before this time.
    pub(crate) stalled_until: Moment,
    pub(crate) disk_full_until: Moment,
}

pub(crate) struct Live {
    store: FaultyStore,
    pub(crate) reader: SqliteReader,
    pub(crate) world: World,
    pub(crate) remove_orphans: OrphanSearch,
    pub(crate) epoch: u64,
    wake: Wake,
}

/// What is left of a process that died: a handle that must not be able to write any more, the changes that it was
/// writing or had just written, and, if known, what World must look like to the next one.
struct Dead {
    store: FaultyStore,
    changes: Vec<Change>,
    wall: Wall,
    expected: Option<World>,
}

/// The result of a commit.
pub(crate) enum Commit {
    Done(Revision),
    /// An error was returned. Only the simulator knows whether the changes are on disk.
    Failed {
        is_kept: bool,
    },
}

impl Controller {
    /// `is_strict` means without over-commit.
    pub(crate) fn new(path: PathBuf, is_strict: bool) -> Controller {
        Controller {
            path,
            settings: Settings { over_commit: !is_strict, ..Settings::default() },
            catalogue: Arc::new(Catalogue::builtin()),
            clock: ControllerClock::default(),
            live: None,
            rival: None,
            dead: None,
            held: None,
            epoch: 0,
            steps: 0,
            stalled_until: Moment::default(),
            disk_full_until: Moment::default(),
        }
    }

    /// A new process takes over. Returns the effects that are still to be carried out.
    pub(crate) fn start(&mut self, now: Moment) -> Held<Vec<Effect>> {
        self.held = None;
        let mut store = FaultyStore::open(&self.path)?;
        let unix_ms = self.clock.unix_ms(now);
        let epoch = store.claim(unix_ms)?;
        promise(epoch > self.epoch, || format!("controller epoch {epoch} follows {}", self.epoch))?;
        self.epoch = epoch;
        let now = self.clock.now(now);
        let world = self.rebuild(&mut store, now)?;
        if let Some(dead) = self.dead.take() {
            dead.check(&world)?;
        }
        let effects = world.effects().cloned().collect();
        let (reader, remove_orphans, wake) =
            (store.reader()?, OrphanSearch::default(), Wake::default());
        self.live = Some(Live { store, reader, world, remove_orphans, epoch, wake });
        Ok(effects)
    }

    /// A second process takes over while the first one continues.
    pub(crate) fn replace(&mut self, now: Moment) -> Held<Vec<Effect>> {
        self.rival = self.live.take();
        self.start(now)
    }

    fn rebuild(&self, store: &mut FaultyStore, now: Now) -> Held<World> {
        let rows = store.load()?;
        let catalogue = Arc::clone(&self.catalogue);
        Ok(World::rebuild(rows, self.epoch, self.settings.clone(), catalogue, now))
    }

    /// The process dies. `changes` is what it was writing; `are_kept` is whether they are on disk.
    pub(crate) fn die(&mut self, changes: Vec<Change>, are_kept: bool, now: Moment) -> Held {
        self.stalled_until = now;
        let Some(Live { store, world, .. }) = self.live.take() else { return Ok(()) };
        if store.is_torn {
            drop(store);
            self.die_without_trace(now);
            return replace_store(&torn(&self.path), &self.path, |from, to| fs::rename(from, to));
        }
        // World contains the changes. If they are lost, its state before them is only in the rows.
        let expected = are_kept.then_some(world);
        self.dead = Some(Dead { store, changes, wall: self.clock.wall(now), expected });
        Ok(())
    }

    /// The process dies, and its store is about to be overwritten.
    pub(crate) fn die_without_trace(&mut self, now: Moment) {
        (self.live, self.rival, self.dead, self.held) = (None, None, None, None);
        self.stalled_until = now;
    }

    /// The disk cannot be written to: from now on the process only renews the leases of nodes that the rows know.
    pub(crate) fn hold(&mut self, now: Moment) -> Held {
        let mut store = FaultyStore::open(&self.path)?;
        let now = self.clock.now(now);
        let world = self.rebuild(&mut store, now)?;
        self.held = Some((store, world));
        Ok(())
    }

    /// The answer to a node while the disk cannot be written to. `None` if no server is running, or if the node has to
    /// report again later.
    pub(crate) fn renew(
        &mut self,
        node: &str,
        report: &Report,
        now: Moment,
    ) -> Held<Option<Reply>> {
        let (now, epoch) = (self.clock.now(now), self.epoch);
        let Some((store, world)) = &mut self.held else { return Ok(None) };
        store.check_claim(epoch)?;
        Ok(read_only::renew(world, node, report, now))
    }

    pub(crate) fn live(&mut self) -> Option<&mut Live> {
        self.live.as_mut()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.live.is_some()
    }

    pub(crate) fn is_stalled(&self, now: Moment) -> bool {
        self.stalled_until > now
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// When it has to step even if no input arrives.
    pub(crate) fn wake_at(&self) -> Option<Moment> {
        let live = self.live.as_ref()?;
        self.clock.due(live.wake).map(|at| at.max(self.stalled_until))
    }

    /// The specification that an agent asks for, or `None` while the server is down. It is on disk, unless a restored
    /// backup does not know the job.
    pub(crate) fn fetch_spec(
        &mut self,
        hash: &SpecHash,
        is_forgotten: bool,
        now: Moment,
    ) -> Held<Option<JobSpec>> {
        let is_stalled = self.is_stalled(now);
        let Some(live) = self.live.as_mut().filter(|_| !is_stalled) else { return Ok(None) };
        let spec = live.reader.spec(hash)?;
        promise(spec.is_some() || is_forgotten, || {
            format!("the specification {} is not on disk", hash)
        })?;
        Ok(spec)
    }

    pub(crate) fn step(&mut self, inputs: &[Input], now: Moment) -> Held<Output> {
        let live = self.live.as_mut().ok_or_else(|| Broken("stepped while down".to_owned()))?;
        self.steps += 1;
        live.step(inputs, self.clock.now(now))
    }

    /// Compares World with a World built from the rows, and its decisions with those that would be made without any
    /// index.
    pub(crate) fn check_books(&mut self, now: Moment) -> Held {
        if self.is_stalled(now) {
            return Ok(());
        }
        let Some(mut live) = self.live.take() else { return Ok(()) };
        let now = self.clock.now(now);
        let rebuilt = self.rebuild(&mut live.store, now)?;
        let difference = live.world.difference(&rebuilt);
        promise(difference.is_none(), || format!("World and rows differ: {difference:?}"))?;
        live.check(now)?;
        let undecided = decide_everything(&mut live.world.clone(), now);
        promise(undecided.is_empty(), || format!("not decided yet: {undecided:?}"))?;
        self.live = Some(live);
        Ok(())
    }

    /// Copies the file as it is, including its log, at a moment when it is not being written.
    pub(crate) fn back_up(&self) -> Held {
        let backup = self.path.with_extension("backup");
        replace_store(&self.path, &backup, |from, to| fs::copy(from, to).map(|_| ()))
    }

    /// Replaces the file with the backup. No process has it open.
    pub(crate) fn restore(&self) -> Held {
        let backup = self.path.with_extension("backup");
        replace_store(&backup, &self.path, |from, to| fs::rename(from, to))
    }
}

impl Live {
    /// Looks up what World does not know.
    pub(crate) fn look_up(&mut self, input: Input) -> Held<Input> {
        Ok(muster_store::look_up(&mut self.store, input)?)
    }

    pub(crate) fn step(&mut self, inputs: &[Input], now: Now) -> Held<Output> {
        let world = &mut self.world;
        let output = catch_unwind(AssertUnwindSafe(|| step(world, inputs, now)))
            .map_err(|panic| Broken(format!("the core panicked: {}", words_of(&*panic))))?;
        self.wake = output.wake;
        Ok(output)
    }

    pub(crate) fn commit(&mut self, output: &Output) -> Held<Commit> {
        let fault = self.store.next;
        match (self.store.commit(&output.changes, output.wall), fault) {
            (Ok(revision), _) => Ok(Commit::Done(revision)),
            (Err(_), Some(fault)) => Ok(Commit::Failed { is_kept: fault == CommitFault::Kept }),
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Checks, for a server that was replaced, that the store refuses everything that it wants to write.
    pub(crate) fn is_fenced(&mut self, output: &Output) -> Held {
        let late = self.store.commit(&output.changes, output.wall);
        promise(matches!(late, Err(StoreError::Fenced { .. })), || {
            format!("a server that was replaced could still write: {late:?}")
        })
    }

    /// The next commit with changes fails in this way.
    pub(crate) fn fail_next(&mut self, fault: CommitFault) {
        self.store.next = Some(fault);
    }

    pub(crate) fn is_about_to_fail(&self) -> bool {
        self.store.next.is_some()
    }

    /// Checks everything that must hold in World right after a step. The wake-ups are exact here, so nothing may be
    /// late.
    pub(crate) fn check(&self, now: Now) -> Held {
        let result = invariants::check(&self.world, now, Span::ZERO);
        result.map_err(|broken| Broken(broken.to_string()))
    }

    /// Checks the same for what these changes touched.
    pub(crate) fn check_touched(&self, changes: &[Change], now: Now) -> Held {
        let result = invariants::check_touched(&self.world, changes, now, Span::ZERO);
        result.map_err(|broken| Broken(broken.to_string()))?;
        hosts::check(&self.world, changes)?;
        self.check_quota(changes)
    }

    /// No node is requested that the quota has no room for, counting the nodes in flight. This is counted from the
    /// nodes themselves. (A limit that was lowered in the same step does not apply to earlier requests.)
    fn check_quota(&self, changes: &[Change]) -> Held {
        let is_request = |change: &Change| {
            matches!(change, Change::NodeChanged { event: NodeEvent::Requested, .. })
        };
        let is_limit = |change: &Change| matches!(change, Change::QuotaChanged(_));
        if !changes.iter().any(is_request) || changes.iter().any(is_limit) {
            return Ok(());
        }
        for scope in self.world.quota_scopes() {
            let Some(limits) = self.world.quota_limits(scope) else { continue };
            for (name, limit) in limits {
                let nodes = self.world.nodes().filter(|node| match name {
                    QuotaName::Region => node.tier == Tier::Dedicated,
                    QuotaName::LowPriority => node.tier == Tier::LowPriority,
                    QuotaName::Family(_) => false,
                });
                let used: u64 = nodes.map(|node| u64::from(node.capacity.vcpus)).sum();
                let asked = changes.iter().filter_map(|change| match change {
                    Change::NodeChanged { event: NodeEvent::Requested, node } => Some(node.tier),
                    _ => None,
                });
                let concerns = asked
                    .into_iter()
                    .any(|tier| (tier == Tier::LowPriority) == (*name == QuotaName::LowPriority));
                promise(!concerns || used <= *limit, || {
                    format!("{used} vCPUs of {name} are used, {limit} may be")
                })?;
            }
        }
        Ok(())
    }
}

impl Dead {
    /// Checks that the dead process cannot write any more, and that the next one found what it should.
    fn check(mut self, world: &World) -> Held {
        self.store.next = None;
        let late = self.store.commit(&self.changes, self.wall);
        promise(matches!(late, Err(StoreError::Fenced { .. })), || {
            format!("a server that was replaced could still write: {late:?}")
        })?;
        let difference = self.expected.and_then(|expected| expected.difference(world));
        promise(difference.is_none(), || format!("after a restart: {difference:?}"))
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
