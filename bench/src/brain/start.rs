//! The next start of a server: from the file to a World that can decide.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use muster_core::catalogue::Catalogue;
use muster_core::time::{Elapsed, Now, Wall};
use muster_core::{Change, Output, Settings, World};
use muster_store::{Durability, SqliteStore, Store};

use super::large;

const BATCH: usize = 1_000;

pub fn with_live_jobs(folder: &Path, jobs: u32) -> Result<Duration> {
    let path = folder.join("live.db");
    fill(&path, |commit| large::live_jobs(jobs, commit))?;
    let started = Instant::now();
    let mut store = SqliteStore::open(&path, Durability::Disk)?;
    let epoch = store.claim(1_750_000_000_001)?;
    let now = Now { elapsed: Elapsed(1), wall: Wall(1_750_000_000_001_000) };
    let catalogue = Arc::new(Catalogue::builtin());
    let world = World::rebuild(store.load()?, epoch, Settings::default(), catalogue, now);
    let took = started.elapsed();
    anyhow::ensure!(world.jobs().len() == jobs as usize, "some jobs are missing");
    Ok(took)
}

/// A store with the changes that `make` produces.
pub fn fill(path: &Path, make: impl FnOnce(&mut dyn FnMut(Output))) -> Result<()> {
    let mut store = SqliteStore::open(path, Durability::None)?;
    store.claim(1_750_000_000_000)?;
    let mut waiting: Vec<Change> = Vec::new();
    let mut result = Ok(());
    let mut wall = Wall(0);
    make(&mut |output| {
        waiting.extend(output.changes);
        wall = output.wall;
        if waiting.len() >= BATCH && result.is_ok() {
            result = store.commit(&std::mem::take(&mut waiting), wall).map(|_| ());
        }
    });
    result?;
    store.commit(&waiting, wall)?;
    Ok(())
}
