//! Builds environments, each recipe once, and keeps them for all jobs.
//!
//! ```text
//! DIR/ready/ID/       an environment
//! DIR/ready/plain/    `python` for hosts that have only `python3`
//! DIR/shown/CLUSTER/  what the nodes of a cluster see, read-only: `plain`, and what its jobs have requested, as hard
//! links
//! DIR/building/       unfinished and discarded environments; emptied at each start
//! DIR/logs/ID.log     the output of uv
//! DIR/used/ID         empty; its time says when the environment was last requested
//! DIR/cache/          uv's own; environments are hard links into it
//! DIR/pythons/        copies of interpreters that nodes do not see; environments are hard links into them
//! ```
//!
//! Everything in `ready` is complete: it is moved there by a rename once it is on disk, and removed by one. No code of
//! an environment is ever run here, only Python itself and `uv`. Nodes of one cluster do not see what others have
//! requested.

mod build;
mod disk;
mod interpreter;
mod uv;

pub use self::uv::{NoUv, find as find_uv, missing as missing_uv};

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use muster_core::ErrorChain;
use muster_core::ids::ClusterId;
use muster_core::model::{Recipe, RecipeId};
use tokio::sync::{Notify, watch};

use self::disk::Disk;
use crate::id_of;

/// Each build takes a core and the disk.
const BUILDS_MAX: usize = 2;
/// No more different environments than this wait at a time; further requests have to be repeated.
const WAITING_MAX: usize = 100;
/// How often a waiting build checks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub struct Config {
    /// The folder of everything here.
    pub dir: PathBuf,
    /// The path of uv. `None` means that it is searched for.
    pub uv: Option<PathBuf>,
    /// The package indexes that recipes may name.
    pub indexes: Vec<String>,
    /// The time limit of one build.
    pub build_within: Duration,
    /// The most disk space that everything may use.
    pub bytes_max: u64,
    pub timing: Timing,
}

/// The timing of builds and removals.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long a failed build is not repeated, because all members of a job request it at once.
    pub failed_for: Duration,
    /// An environment that was requested this recently is kept, whatever else has to be removed.
    pub young_for: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { failed_for: Duration::from_secs(60), young_for: Duration::from_secs(600) }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot use the folder of environments {path}")]
pub struct StoreError {
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

/// The state of an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It is available under this name, with notes for the user.
    Ready {
        folder: String,
        notes: Vec<String>,
    },
    /// It is being built; these are the last lines of the output.
    Building {
        said: Vec<String>,
    },
    Failed {
        message: String,
        said: Vec<String>,
    },
}

/// What is known while an environment is being built.
#[derive(Debug, Clone, Default)]
struct Progress {
    said: Vec<String>,
    outcome: Option<Result<(), String>>,
}

enum Entry {
    Building(watch::Sender<Progress>),
    Failed { message: String, said: Vec<String>, until: Instant },
}

/// What has been built since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Builds {
    /// The builds that are running or waiting now.
    pub running: usize,
    pub built: u64,
    pub failed: u64,
    /// The total time of all finished builds, including waiting.
    pub took: Duration,
}

struct Inner {
    config: Config,
    builds: Mutex<Builds>,
    disk: Disk,
    entries: Mutex<BTreeMap<RecipeId, Entry>>,
    slots: Slots,
    is_stopping: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    built: Notify,
}

#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

impl Store {
    /// Opens the store, and removes what an earlier server did not finish.
    pub fn open(config: Config) -> Result<Store, StoreError> {
        let failed = |source| StoreError { path: config.dir.clone(), source };
        let disk = Disk::open(&config.dir).map_err(failed)?;
        let inner = Inner {
            config,
            builds: Mutex::default(),
            disk,
            entries: Mutex::default(),
            slots: Slots { free: Mutex::new(BUILDS_MAX), freed: Condvar::new() },
            is_stopping: AtomicBool::new(false),
            threads: Mutex::default(),
            built: Notify::new(),
        };
        Ok(Store { inner: Arc::new(inner) })
    }

    /// Contains every environment, by its name.
    pub fn ready_dir(&self) -> &Path {
        &self.inner.disk.ready
    }

    /// Contains a folder for each cluster.
    pub fn shown_dir(&self) -> &Path {
        &self.inner.disk.shown
    }

    /// Creates the folder that the nodes of a cluster will see, before the first of them is created.
    pub fn open_to(&self, cluster: ClusterId) -> io::Result<()> {
        self.inner.disk.open_to(cluster)
    }

    /// Like [`get`](Store::get). When the environment is ready, the nodes of this cluster see it.
    pub async fn get_for(&self, cluster: ClusterId, recipe: &Recipe, within: Duration) -> State {
        let state = self.get(recipe, within).await;
        let (State::Ready { .. }, id) = (&state, id_of(recipe)) else { return state };
        let inner = self.inner.clone();
        let shown = tokio::task::spawn_blocking(move || inner.disk.show(cluster, &id)).await;
        match shown.map_err(io::Error::other).flatten() {
            Ok(()) => state,
            Err(error) => {
                tracing::warn!(%id, %cluster, %error, "cannot show an environment to a cluster");
                let message =
                    format!("the environment is built, but the nodes cannot see it: {error}");
                State::Failed { message, said: Vec::new() }
            }
        }
    }

    /// Returns the state of this environment, after waiting for a while for it to change. Starts to build it if
    /// necessary.
    pub async fn get(&self, recipe: &Recipe, within: Duration) -> State {
        let mut seen = match self.begin(recipe) {
            Begun::Now(state) => return state,
            Begun::Building(seen) => seen,
        };
        let is_over = |progress: &Progress| progress.outcome.is_some();
        // It has finished, or the time is up, or the builder died silently; the next request then starts anew.
        let _ = tokio::time::timeout(within, seen.wait_for(is_over)).await;
        let Progress { said, outcome } = seen.borrow().clone();
        match outcome {
            Some(Ok(())) => self.inner.ready(&id_of(recipe)).unwrap_or(State::Building { said }),
            Some(Err(message)) => State::Failed { message, said },
            None => State::Building { said },
        }
    }

    /// Returns the state without building it: `None` if it was never built, or has been removed. Also returns the end
    /// of the log of the last build.
    pub fn seen(&self, recipe: &Recipe) -> (Option<State>, Option<String>) {
        let id = id_of(recipe);
        let state = match self.inner.entries().get(&id) {
            Some(Entry::Building(progress)) => {
                Some(State::Building { said: progress.borrow().said.clone() })
            }
            Some(Entry::Failed { message, said, .. }) => {
                Some(State::Failed { message: message.clone(), said: said.clone() })
            }
            None => self
                .inner
                .disk
                .notes_of(&id)
                .map(|notes| State::Ready { folder: id.to_string(), notes }),
        };
        (state, self.inner.disk.log_of(&id))
    }

    fn begin(&self, recipe: &Recipe) -> Begun {
        let id = id_of(recipe);
        let mut entries = self.inner.entries();
        match entries.get(&id) {
            Some(Entry::Building(progress)) => return Begun::Building(progress.subscribe()),
            Some(Entry::Failed { message, said, until }) if Instant::now() < *until => {
                let (message, said) = (message.clone(), said.clone());
                return Begun::Now(State::Failed { message, said });
            }
            Some(Entry::Failed { .. }) | None => {}
        }
        if let Some(ready) = self.inner.ready(&id) {
            return Begun::Now(ready);
        }
        entries.retain(|_, entry| match entry {
            Entry::Building(_) => true,
            Entry::Failed { until, .. } => Instant::now() < *until,
        });
        let building = entries.values().filter(|entry| matches!(entry, Entry::Building(_)));
        if self.inner.is_stopping() || building.count() >= WAITING_MAX {
            let said = vec!["many other environments are built first".to_owned()];
            return Begun::Now(State::Building { said });
        }
        let (progress, seen) = watch::channel(Progress::default());
        entries.insert(id, Entry::Building(progress));
        drop(entries);
        let (inner, recipe) = (Arc::clone(&self.inner), recipe.clone());
        // A separate thread, because the kernel kills what a thread started when the thread ends.
        let thread = std::thread::Builder::new().name("environment".into());
        match thread.spawn(move || inner.build(id, &recipe)) {
            Ok(thread) => {
                let mut threads = lock(&self.inner.threads);
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
            }
            Err(error) => {
                self.inner.settle(id, Err(format!("cannot start a thread for it: {error}")))
            }
        }
        Begun::Building(seen)
    }

    /// The disk space that all environments use, with the cache of packages.
    pub fn bytes(&self) -> io::Result<u64> {
        self.inner.disk.bytes(true)
    }

    pub fn builds(&self) -> Builds {
        let entries = self.inner.entries();
        let running = entries.values().filter(|entry| matches!(entry, Entry::Building(_))).count();
        Builds { running, ..*lock(&self.inner.builds) }
    }

    /// Resolves when something has been built since the last call.
    pub async fn built(&self) {
        self.inner.built.notified().await;
    }

    /// Removes surplus environments, starting with those whose last request is longest ago. Those `in_use` and recent
    /// ones are kept. Deleted clusters no longer see anything.
    pub fn tidy(
        &self,
        in_use: &BTreeSet<RecipeId>,
        clusters: &BTreeSet<ClusterId>,
    ) -> io::Result<()> {
        let inner = &self.inner;
        inner.disk.close_to_others(clusters, inner.config.timing.young_for)?;
        let most = inner.config.bytes_max;
        let mut all = inner.disk.list()?;
        all.sort_by_key(|(_, used)| *used);
        let mut bytes = inner.disk.bytes(false)?;
        for (id, _) in all {
            if bytes <= most {
                break;
            }
            if in_use.contains(&id) {
                continue;
            }
            let gone = {
                // A request holds the same lock: either the environment is recent by now, or it is built again.
                let _entries = inner.entries();
                match inner.disk.is_older_than(&id, inner.config.timing.young_for) {
                    true => Some(inner.disk.set_aside(&id)?),
                    false => None,
                }
            };
            let Some(gone) = gone else { continue };
            tracing::info!(%id, "an environment is removed, because there are too many");
            disk::remove(&gone)?;
            bytes = inner.disk.bytes(false)?;
        }
        if inner.disk.bytes(true)? > most {
            self.empty_cache()?;
        }
        Ok(())
    }

    /// Files that environments still use are kept, because they are hard links. Others are fetched again when they are
    /// needed.
    fn empty_cache(&self) -> io::Result<()> {
        let Some(_all) = self.inner.slots.take_all() else { return Ok(()) };
        tracing::info!("uv's cache is emptied, because it has grown too large");
        self.inner.disk.empty_cache()
    }

    /// Ends all builds. The next server starts them again.
    pub fn stop(&self) {
        self.inner.is_stopping.store(true, Ordering::Release);
        self.inner.slots.freed.notify_all();
        let threads = std::mem::take(&mut *lock(&self.inner.threads));
        for thread in threads {
            // A panic in the thread has already been reported.
            let _ = thread.join();
        }
    }
}

enum Begun {
    Now(State),
    Building(watch::Receiver<Progress>),
}

impl Inner {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<RecipeId, Entry>> {
        lock(&self.entries)
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Returns the environment if it is on disk, and records that it was requested now.
    fn ready(&self, id: &RecipeId) -> Option<State> {
        let notes = self.disk.notes_of(id)?;
        if let Err(error) = self.disk.touch(id) {
            tracing::warn!(%error, "cannot record that an environment was requested");
        }
        Some(State::Ready { folder: id.to_string(), notes })
    }

    fn build(&self, id: RecipeId, recipe: &Recipe) {
        // Whatever happens, no request waits for a builder that has died.
        let (outcome, began) = (Err("the builder ended unexpectedly".into()), Instant::now());
        let mut settled = Settled { inner: self, id, outcome, began };
        let waiting = || self.say(&id, "waiting for other builds to end");
        let Some(_slot) = self.slots.take(|| self.is_stopping(), waiting) else {
            settled.outcome = Err("the server is stopping".into());
            return;
        };
        tracing::info!(%id, packages = recipe.requirements.len(), "building an environment");
        let say = |line: &str| self.say(&id, line);
        let is_stopping = || self.is_stopping();
        let built = build::run(&self.config, &self.disk, &id, recipe, &say, &is_stopping);
        settled.outcome = built.map_err(|error| {
            let error = ErrorChain(&error).to_string();
            tracing::warn!(%id, error, "cannot build an environment");
            error
        });
    }

    fn say(&self, id: &RecipeId, line: &str) {
        const LINES_MAX: usize = 20;
        if let Some(Entry::Building(progress)) = self.entries().get(id) {
            progress.send_modify(|progress| {
                if progress.said.len() == LINES_MAX {
                    progress.said.remove(0);
                }
                progress.said.push(line.to_owned());
            });
        }
    }

    fn settle(&self, id: RecipeId, outcome: Result<(), String>) {
        let mut entries = self.entries();
        let Some(Entry::Building(progress)) = entries.remove(&id) else { return };
        if self.is_stopping() && outcome.is_err() {
            return;
        }
        if let Err(message) = &outcome {
            let (message, said) = (message.clone(), progress.borrow().said.clone());
            let until = Instant::now() + self.config.timing.failed_for;
            entries.insert(id, Entry::Failed { message, said, until });
        }
        progress.send_modify(|progress| progress.outcome = Some(outcome));
        self.built.notify_one();
    }
}

struct Settled<'a> {
    inner: &'a Inner,
    id: RecipeId,
    outcome: Result<(), String>,
    began: Instant,
}

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Ok(()));
        let mut builds = lock(&self.inner.builds);
        match outcome {
            Ok(()) => builds.built += 1,
            Err(_) => builds.failed += 1,
        }
        builds.took += self.began.elapsed();
        drop(builds);
        self.inner.settle(self.id, outcome);
    }
}

/// Limits how many builds run at once.
struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

struct Taken<'a> {
    slots: &'a Slots,
    count: usize,
}

impl Slots {
    /// Waits for a slot. Returns `None` if the build is no longer wanted.
    fn take(&self, is_over: impl Fn() -> bool, waiting: impl Fn()) -> Option<Taken<'_>> {
        let mut free = lock(&self.free);
        if *free == 0 {
            waiting();
        }
        loop {
            if is_over() {
                return None;
            }
            if *free > 0 {
                *free -= 1;
                return Some(Taken { slots: self, count: 1 });
            }
            let waited = self.freed.wait_timeout(free, LOOK_EVERY);
            free = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes all slots, if no build is running.
    fn take_all(&self) -> Option<Taken<'_>> {
        let mut free = lock(&self.free);
        (*free == BUILDS_MAX).then(|| {
            *free = 0;
            Taken { slots: self, count: BUILDS_MAX }
        })
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *lock(&self.slots.free) += self.count;
        self.slots.freed.notify_all();
    }
}

/// A panic leaves nothing half-done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
