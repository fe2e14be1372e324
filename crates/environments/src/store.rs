//! Environments that are built, each recipe once, and kept for all jobs.
//!
//! ```text
//! DIR/ready/ID/       an environment
//! DIR/ready/plain/    `python` for machines that have only `python3`
//! DIR/shown/CLUSTER/  what the nodes of a cluster see, read-only: `plain`, and what its jobs have asked for, as hard links
//! DIR/building/       what is not whole yet, or not any more; emptied at each start
//! DIR/logs/ID.log     what uv said
//! DIR/used/ID         empty; when it was last wanted
//! DIR/cache/          uv's own; environments are hard links into it
//! DIR/pythons/        copies of interpreters that nodes do not see; environments are hard links into them
//! ```
//!
//! What is in `ready` is whole: it comes there by a rename, after it is on disk, and leaves by one. Nothing of an
//! environment is ever run here: Python alone, and `uv`. Nodes of one cluster do not see what others have asked for.

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

/// Each takes a core and the disk.
const BUILDS_MAX: usize = 2;
/// More different environments than this are not waited for at a time; who asks for one more asks again.
const WAITING_MAX: usize = 100;
/// How often a build that waits looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub struct Config {
    /// Of everything here.
    pub dir: PathBuf,
    /// Where uv is; else it is looked for.
    pub uv: Option<PathBuf>,
    /// The indexes that recipes may name.
    pub indexes: Vec<String>,
    /// What one build may take.
    pub build_within: Duration,
    /// What all of it may take on disk.
    pub bytes_max: u64,
    pub timing: Timing,
}

/// How patient it is.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// For so long nobody tries again what failed: all members of a job ask at once.
    pub failed_for: Duration,
    /// What was wanted since then stays, whatever else has to go.
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

/// How an environment stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It has this name; and what the user should know of it.
    Ready {
        folder: String,
        notes: Vec<String>,
    },
    /// With the last lines that were said about it.
    Building {
        said: Vec<String>,
    },
    Failed {
        message: String,
        said: Vec<String>,
    },
}

/// What is known while it is being built.
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
    /// Now, those that wait for a turn included.
    pub running: usize,
    pub built: u64,
    pub failed: u64,
    /// What all that ended took, waiting included.
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
    /// Removes what an earlier server did not finish.
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

    /// Every environment, by its name.
    pub fn ready_dir(&self) -> &Path {
        &self.inner.disk.ready
    }

    /// Has a folder for each cluster.
    pub fn shown_dir(&self) -> &Path {
        &self.inner.disk.shown
    }

    /// Makes the folder that the nodes of a cluster are to see, before the first of them is made.
    pub fn open_to(&self, cluster: ClusterId) -> io::Result<()> {
        self.inner.disk.open_to(cluster)
    }

    /// As [`get`](Store::get); when it is ready, the nodes of this cluster see it.
    pub async fn get_for(&self, cluster: ClusterId, recipe: &Recipe, within: Duration) -> State {
        let state = self.get(recipe, within).await;
        let (State::Ready { .. }, id) = (&state, id_of(recipe)) else { return state };
        let inner = self.inner.clone();
        let shown = tokio::task::spawn_blocking(move || inner.disk.show(cluster, &id)).await;
        match shown.map_err(io::Error::other).flatten() {
            Ok(()) => state,
            Err(error) => {
                tracing::warn!(%id, %cluster, %error, "an environment cannot be shown to a cluster");
                let message =
                    format!("the environment is built, but its nodes cannot see it: {error}");
                State::Failed { message, said: Vec::new() }
            }
        }
    }

    /// How this environment stands, after waiting for a change of that for a while. Begins to build it if nobody has.
    pub async fn get(&self, recipe: &Recipe, within: Duration) -> State {
        let mut seen = match self.begin(recipe) {
            Begun::Now(state) => return state,
            Begun::Building(seen) => seen,
        };
        let is_over = |progress: &Progress| progress.outcome.is_some();
        // Either it is over, or the time is, or the builder is gone without a word: then the next one asks anew.
        let _ = tokio::time::timeout(within, seen.wait_for(is_over)).await;
        let Progress { said, outcome } = seen.borrow().clone();
        match outcome {
            Some(Ok(())) => self.inner.ready(&id_of(recipe)).unwrap_or(State::Building { said }),
            Some(Err(message)) => State::Failed { message, said },
            None => State::Building { said },
        }
    }

    /// How it stands, without building it: `None` if nobody has, or it is gone again. And what was said when it was
    /// built last, its end if that is long.
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
        // A thread of its own: the kernel ends what it started when it ends.
        let thread = std::thread::Builder::new().name("environment".into());
        match thread.spawn(move || inner.build(id, &recipe)) {
            Ok(thread) => {
                let mut threads = lock(&self.inner.threads);
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
            }
            Err(error) => self.inner.settle(id, Err(format!("no thread for it: {error}"))),
        }
        Begun::Building(seen)
    }

    pub fn builds(&self) -> Builds {
        let entries = self.inner.entries();
        let running = entries.values().filter(|entry| matches!(entry, Entry::Building(_))).count();
        Builds { running, ..*lock(&self.inner.builds) }
    }

    /// Resolves when something was built since it last did.
    pub async fn built(&self) {
        self.inner.built.notified().await;
    }

    /// Removes what is too much, what was wanted longest ago first. `in_use` stays, and so does what is young. Clusters
    /// that are gone see nothing any more.
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
                // Who asks for it holds the same lock: either it is young by now, or it is built again.
                let _entries = inner.entries();
                match inner.disk.is_older_than(&id, inner.config.timing.young_for) {
                    true => Some(inner.disk.set_aside(&id)?),
                    false => None,
                }
            };
            let Some(gone) = gone else { continue };
            tracing::info!(%id, "an environment goes, as there are too many");
            disk::remove(&gone)?;
            bytes = inner.disk.bytes(false)?;
        }
        if inner.disk.bytes(true)? > most {
            self.empty_cache()?;
        }
        Ok(())
    }

    /// What is still in environments stays there: they are links. Others are fetched again when they are wanted.
    fn empty_cache(&self) -> io::Result<()> {
        let Some(_all) = self.inner.slots.take_all() else { return Ok(()) };
        tracing::info!("uv's cache is emptied, as it has grown too large");
        self.inner.disk.empty_cache()
    }

    /// Ends all builds. What they were about begins again with the next server.
    pub fn stop(&self) {
        self.inner.is_stopping.store(true, Ordering::Release);
        self.inner.slots.freed.notify_all();
        let threads = std::mem::take(&mut *lock(&self.inner.threads));
        for thread in threads {
            // A panic in there has been said already.
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

    /// As it is on disk, and wanted from now on.
    fn ready(&self, id: &RecipeId) -> Option<State> {
        let notes = self.disk.notes_of(id)?;
        if let Err(error) = self.disk.touch(id) {
            tracing::warn!(%error, "cannot note that an environment is wanted");
        }
        Some(State::Ready { folder: id.to_string(), notes })
    }

    fn build(&self, id: RecipeId, recipe: &Recipe) {
        // Whatever happens, nobody waits for a builder that is gone.
        let (outcome, began) = (Err("its builder broke off".into()), Instant::now());
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
            tracing::warn!(%id, error, "an environment cannot be built");
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

/// How many may build at once.
struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

struct Taken<'a> {
    slots: &'a Slots,
    count: usize,
}

impl Slots {
    /// Waits for one; `None` if nobody wants it any more.
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

    /// All of them, if nobody builds.
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

/// Nothing under these locks is left half-done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
