//! Containers for the files of asset versions: they are deleted with the last version that references them. Other
//! containers are never touched.

use std::collections::BTreeMap;

use muster_core::ErrorChain;
use muster_core::ids::WorkspaceId;
use muster_core::storage::{forgotten_uploads, is_upload_container};
use muster_core::time::Wall;
use muster_store::storage::{Container, StorageCommand};
use tracing::{info, warn};

use super::Storage;
use super::garbage::GarbageError;
use crate::clock;
use crate::readers::Readers;

/// Deletes the files of deleted versions at once, if nothing else references them. Anything that cannot be done now is
/// left to the garbage collection.
pub async fn release(
    storage: &Storage,
    readers: &Readers,
    workspace: WorkspaceId,
    candidates: &[Box<str>],
) {
    if candidates.is_empty() {
        return;
    }
    if let Err(failed) = try_release(storage, readers, workspace, candidates).await {
        warn!(error = %ErrorChain(&failed), "files of deleted versions are kept until the next garbage collection");
    }
}

async fn try_release(
    storage: &Storage,
    readers: &Readers,
    workspace: WorkspaceId,
    candidates: &[Box<str>],
) -> Result<(), GarbageError> {
    let named = readers.read(move |reader| reader.named_uploads(workspace)).await?;
    for name in candidates {
        if named.contains(name) || !is_upload_container(name) {
            continue;
        }
        let found = storage.readers.look_up(|reader| reader.container(name))?;
        if let Some(found) = found.filter(|found| found.workspace == workspace) {
            remove(storage, &found).await?;
        }
    }
    Ok(())
}

async fn remove(storage: &Storage, container: &Container) -> Result<(), GarbageError> {
    info!(container = %container.name, "deleting files that no version references");
    // The container may have been deleted already, which is fine.
    let _ = storage.submit(StorageCommand::DeleteContainer { id: container.id }).await?;
    Ok(())
}

/// Deletes containers that became unreferenced without a delete: uploads that were given up, and files that a job still
/// needed at the time.
pub async fn collect_garbage(storage: &Storage, readers: &Readers) -> Result<(), GarbageError> {
    let containers = storage.readers.read(|reader| reader.containers()).await?;
    let mut by_workspace: BTreeMap<WorkspaceId, Vec<Container>> = BTreeMap::new();
    for container in containers.into_iter().filter(|one| is_upload_container(&one.name)) {
        by_workspace.entry(container.workspace).or_default().push(container);
    }
    for (workspace, containers) in by_workspace {
        let named = readers.read(move |reader| reader.named_uploads(workspace)).await?;
        let unnamed = containers.iter().filter(|one| !named.contains(&one.name));
        let mut touched = Vec::new();
        for container in unnamed {
            let at = storage.readers.look_up(|reader| reader.touched(container.id))?;
            touched.extend(at.map(|at| (&*container.name, at)));
        }
        let now = Wall(clock::unix_us());
        let forgotten = forgotten_uploads(touched.into_iter(), &named, now);
        for container in containers.iter().filter(|one| forgotten.contains(&&*one.name)) {
            remove(storage, container).await?;
        }
    }
    Ok(())
}
