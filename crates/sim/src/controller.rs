//! The server: the real controller, World and store, in a process that can die, be replaced and come back.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use muster_core::agent::Report;
use muster_core::catalogue::Catalogue;
use muster_core::model::{JobSpec, NodeEvent, QuotaName, SpecHash, Tier};
use muster_core::orphans::OrphanSearch;
use muster_core::retention::JobRetention;
use muster_core::time::{Now, Span, Wall};
use muster_core::{
    Change, Effect, Input, Reply, Settings, Wake, World, decide_everything, invariants,
};
use muster_store::controller::{
    self, Batch, Cause, Failed, Loaded, NotAdmitted, NotDone, Pending, Released,
};
use muster_store::{Reader, SqliteReader, Store, StoreError};

use crate::clock::{ControllerClock, Moment, minutes};
use crate::failure::{Broken, Held, promise};
use crate::hosts;
use crate::store::{CommitFault, FaultyStore, replace_store, torn};

/// How long ended jobs are kept: longer than any client repeats a request.
pub(crate) const KEPT: JobRetention =
    JobRetention { jobs: Some(Span::seconds(2 * 86_400)), logs: None };

pub(crate) struct Controller {
    path: PathBuf,
    settings: Settings,
    catalogue: Arc<Catalogue>,
    pub(crate) clock: ControllerClock,
    live: Option<Live>,
    /// A server that was replaced and does not know it yet.
    pub(crate) rival: Option<Live>,
    dead: Option<Dead>,
    epoch: u64,
    pub(crate) steps: u64,
    /// No input is processed before this time.
    pub(crate) stalled_until: Moment,
    pub(crate) disk_full_until: Moment,
}

type Driven = controller::Controller<FaultyStore>;

pub(crate) struct Live {
    pub(crate) driven: Driven,
    pub(crate) reader: SqliteReader,
    pub(crate) remove_orphans: OrphanSearch,
    pub(crate) epoch: u64,
    wake: Wake,
}

/// What is left of a process that died or whose commit failed: a handle that must not be able to write any more, the
/// changes that it was writing or had just written, and, if known, what World must look like to the next one.
struct Dead {
    driven: Driven,
    changes: Vec<Change>,
    wall: Wall,
    expected: Option<Box<World>>,
    /// Whether the process is still there, and opens its store again when it can.
    is_running: bool,
}

/// How a server ends.
pub(crate) struct End {
    /// What it was writing.
    pub(crate) changes: Vec<Change>,
    /// World as the next one must find it, if the changes are on disk.
    pub(crate) expected: Option<Box<World>>,
    /// Whether only its commit failed.
    pub(crate) is_running: bool,
}

/// The result of a commit.
pub(crate) enum Commit<T> {
    Done(Released<T>),
    /// An error was returned. Only the simulator knows whether the changes are on disk.
    Failed {
        is_kept: bool,
        end: End,
    },
}

impl Controller {
    /// `is_strict` means without over-commit.
    pub(crate) fn new(path: PathBuf, is_strict: bool) -> Controller {
        Controller {
            path,
            // The tasks of simulated arrays take minutes, so batches may take long too.
            settings: Settings {
                over_commit: !is_strict,
                batch: minutes(60),
                retention: KEPT,
                ..Settings::default()
            },
            catalogue: Arc::new(Catalogue::builtin()),
            clock: ControllerClock::default(),
            live: None,
            rival: None,
            dead: None,
            epoch: 0,
            steps: 0,
            stalled_until: Moment::default(),
            disk_full_until: Moment::default(),
        }
    }

    /// A new process takes over, or the same one continues with a store that it opened again. Returns the effects that
    /// are still to be carried out.
    pub(crate) fn start(&mut self, now: Moment) -> Held<Vec<Effect>> {
        let store = FaultyStore::open(&self.path)?;
        let loaded = Loaded::claim(store, self.clock.unix_ms(now))?;
        let epoch = loaded.epoch();
        promise(epoch > self.epoch, || format!("controller epoch {epoch} follows {}", self.epoch))?;
        self.epoch = epoch;
        let now = self.clock.now(now);
        let mut driven = match self.dead.take() {
            Some(Dead { mut driven, changes, wall, expected, is_running: true }) => {
                let mut store = driven.resume(loaded, now);
                check_dead(&mut store, &changes, wall, expected.as_deref(), driven.world())?;
                driven
            }
            dead => {
                let driven = self.first_world(loaded, now);
                if let Some(Dead { driven: mut old, changes, wall, expected, .. }) = dead {
                    let old = old.store_mut();
                    check_dead(old, &changes, wall, expected.as_deref(), driven.world())?;
                }
                driven
            }
        };
        let effects = driven.effects().cloned().collect();
        let (reader, remove_orphans, wake) =
            (driven.store_mut().reader()?, OrphanSearch::default(), Wake::default());
        self.live = Some(Live { driven, reader, remove_orphans, epoch, wake });
        Ok(effects)
    }

    fn first_world(&self, loaded: Loaded<FaultyStore>, now: Now) -> Driven {
        Driven::new(loaded, self.settings.clone(), Arc::clone(&self.catalogue), now)
    }

    /// A second process takes over while the first one continues.
    pub(crate) fn replace(&mut self, now: Moment) -> Held<Vec<Effect>> {
        self.rival = self.live.take();
        self.start(now)
    }

    /// The process dies, or its commit failed.
    pub(crate) fn die(&mut self, end: End, now: Moment) -> Held {
        self.stalled_until = now;
        let Some(Live { mut driven, .. }) = self.live.take() else { return Ok(()) };
        if driven.store_mut().is_torn {
            drop(driven);
            self.die_without_trace(now);
            return replace_store(&torn(&self.path), &self.path, |from, to| fs::rename(from, to));
        }
        let End { changes, expected, is_running } = end;
        let wall = self.clock.wall(now);
        self.dead = Some(Dead { driven, changes, wall, expected, is_running });
        Ok(())
    }

    /// The process dies, and its store is about to be overwritten.
    pub(crate) fn die_without_trace(&mut self, now: Moment) {
        (self.live, self.rival, self.dead) = (None, None, None);
        self.stalled_until = now;
    }

    /// The disk cannot be written to: from now on the process only renews the leases of nodes that the rows know.
    pub(crate) fn hold(&mut self, now: Moment) -> Held {
        let now = self.clock.now(now);
        if let Some(Dead { driven, is_running: true, .. }) = &mut self.dead {
            driven.read_rows(now)?;
        }
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
        let now = self.clock.now(now);
        let Some(Dead { driven, is_running: true, .. }) = &mut self.dead else { return Ok(None) };
        Ok(driven.renew(node, report, now)?)
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

    pub(crate) fn step<T>(&mut self, batch: Batch<T>, now: Moment) -> Held<Pending<T>> {
        let live = self.live.as_mut().ok_or_else(|| Broken("stepped while down".to_owned()))?;
        self.steps += 1;
        live.step(batch, self.clock.now(now))
    }

    /// Compares World with a World built from the rows, and its decisions with those that would be made without any
    /// index.
    pub(crate) fn check_books(&mut self, now: Moment) -> Held {
        if self.is_stalled(now) {
            return Ok(());
        }
        let Some(mut live) = self.live.take() else { return Ok(()) };
        let now = self.clock.now(now);
        let difference = live.driven.difference_to_rows(now)?;
        promise(difference.is_none(), || format!("World and rows differ: {difference:?}"))?;
        live.check(now)?;
        let undecided = decide_everything(&mut live.world().clone(), now);
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
    pub(crate) fn world(&self) -> &World {
        self.driven.world().expect("a server whose World was dropped is not live")
    }

    /// Adds an input to a batch.
    pub(crate) fn admit<T>(
        &mut self,
        batch: &mut Batch<T>,
        input: Input,
        tag: T,
        now: Now,
    ) -> Held {
        match self.driven.admit(batch, input, tag, now) {
            Ok(()) => Ok(()),
            Err((_, NotAdmitted::Unreadable(error))) => Err(error.into()),
            Err((_, NotAdmitted::OnReserve)) => Err(Broken("there is no reserve here".to_owned())),
        }
    }

    pub(crate) fn step<T>(&mut self, batch: Batch<T>, now: Now) -> Held<Pending<T>> {
        self.driven.step(batch, now).map_err(broken)
    }

    pub(crate) fn commit<T>(&mut self, pending: Pending<T>) -> Held<Commit<T>> {
        let fault = self.driven.store_mut().next;
        let fault = fault.filter(|_| !pending.output().changes.is_empty());
        let Some(fault) = fault else {
            let released = self.driven.commit(pending).map_err(broken)?;
            self.wake = released.wake.unwrap_or_default();
            return Ok(Commit::Done(released));
        };
        let (changes, world) = (pending.output().changes.clone(), self.world().clone());
        let Err(failed) = self.driven.commit(pending) else {
            return Err(Broken("a commit that failed was taken for a success".to_owned()));
        };
        let is_kept = fault == CommitFault::Kept;
        check_told(&failed, fault)?;
        let end = End { changes, expected: is_kept.then_some(Box::new(world)), is_running: true };
        Ok(Commit::Failed { is_kept, end })
    }

    /// The same for a server that was replaced, and so must be refused. Returns what it releases nevertheless.
    pub(crate) fn commit_replaced<T>(&mut self, pending: Pending<T>) -> Held<Option<Released<T>>> {
        match self.driven.commit(pending) {
            Err(Failed { cause: Cause::Commit(StoreError::Fenced { .. }), .. }) => Ok(None),
            Err(failed) => Err(broken(failed)),
            Ok(released) => Ok(Some(released)),
        }
    }

    /// The next commit with changes fails in this way.
    pub(crate) fn fail_next(&mut self, fault: CommitFault) {
        self.driven.store_mut().next = Some(fault);
    }

    pub(crate) fn is_about_to_fail(&mut self) -> bool {
        self.driven.store_mut().next.is_some()
    }

    /// Checks everything that must hold in World right after a step. The wake-ups are exact here, so nothing may be
    /// late.
    pub(crate) fn check(&self, now: Now) -> Held {
        let result = invariants::check(self.world(), now, Span::ZERO);
        result.map_err(|broken| Broken(broken.to_string()))
    }

    /// Checks the same for what these changes touched.
    pub(crate) fn check_touched(&self, changes: &[Change], now: Now) -> Held {
        let result = invariants::check_touched(self.world(), changes, now, Span::ZERO);
        result.map_err(|broken| Broken(broken.to_string()))?;
        hosts::check(self.world(), changes)?;
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
        for scope in self.world().quota_scopes() {
            let Some(limits) = self.world().quota_limits(scope) else { continue };
            for (name, limit) in limits {
                let nodes = self.world().nodes().filter(|node| match name {
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

/// Checks that the previous process cannot write any more, and that the next one found what it should.
fn check_dead(
    store: &mut FaultyStore,
    changes: &[Change],
    wall: Wall,
    expected: Option<&World>,
    found: Option<&World>,
) -> Held {
    store.next = None;
    let late = store.commit(changes, wall);
    promise(matches!(late, Err(StoreError::Fenced { .. })), || {
        format!("a server that was replaced could still write: {late:?}")
    })?;
    let difference = expected.zip(found).and_then(|(expected, found)| expected.difference(found));
    promise(difference.is_none(), || format!("after a restart: {difference:?}"))
}

/// Checks what callers are told after a failed commit: whether their changes are on disk. (They do not hear it here,
/// because they have to cope with a server that does not answer.) Nothing is known after a power failure.
fn check_told<T>(failed: &Failed<T>, fault: CommitFault) -> Held {
    let is_told = |answer: &Result<_, NotDone>| match fault {
        CommitFault::Kept => answer.is_ok(),
        CommitFault::Lost => matches!(answer, Err(NotDone::Failing)),
        CommitFault::Full => matches!(answer, Err(NotDone::Full)),
        CommitFault::Torn(_) => true,
    };
    let is_right = failed.answers.iter().all(|(_, answer)| is_told(answer));
    promise(is_right, || format!("callers were misled about a commit that failed as {fault:?}"))
}

fn broken<T>(failed: Failed<T>) -> Broken {
    match failed.cause {
        Cause::Panicked(message) => Broken(format!("the core panicked: {message}")),
        Cause::Commit(error) => error.into(),
    }
}
