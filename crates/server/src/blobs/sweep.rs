//! Removes the bytes that no job brought or left any more.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use muster_core::ErrorChain;
use muster_core::ids::WorkspaceId;
use muster_core::model::{BlobId, TreeId};
use muster_trees::Tree;
use tracing::{info, warn};

use super::{BlobError, Blobs};
use crate::readers::Readers;

const PAUSE: Duration = Duration::from_secs(120);
/// What was sent or asked for so recently may be about to be named by a job.
const GRACE: Duration = Duration::from_secs(600);

/// Sweeps at start and then every two minutes if anything was sent, until dropped.
pub async fn run(blobs: Arc<Blobs>, readers: Readers) {
    loop {
        if blobs.has_news.swap(false, Ordering::Relaxed) {
            once(&blobs, &readers).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn once(blobs: &Arc<Blobs>, readers: &Readers) {
    let wanted = match readers.read(|reader| reader.wanted_trees()).await {
        Ok(wanted) => wanted,
        Err(failed) => {
            return warn!(error = %ErrorChain(&failed), "cannot tell which files are wanted");
        }
    };
    let blobs = blobs.clone();
    let swept = tokio::task::spawn_blocking(move || {
        let before = SystemTime::now().checked_sub(GRACE);
        before.map_or(Ok(0), |before| blobs.sweep(&wanted, before))
    });
    match swept.await {
        Ok(Ok(0)) => {}
        Ok(Ok(removed)) => info!(removed, "files that no job has any more are gone"),
        Ok(Err(failed)) => {
            warn!(error = %ErrorChain(&failed), "cannot look through the files of jobs");
        }
        Err(_) => warn!("looking through the files of jobs panicked"),
    }
}

impl Blobs {
    /// Removes what is on none of these lists and was not asked for since. A list that cannot be read stops it: what is
    /// on it is not known.
    pub(super) fn sweep(
        &self,
        wanted: &[(WorkspaceId, TreeId)],
        before: SystemTime,
    ) -> Result<usize, BlobError> {
        let mut kept: BTreeSet<(String, String)> = BTreeSet::new();
        for (workspace, tree) in wanted {
            let Some(text) = self.tree(*workspace, tree)? else {
                warn!(%workspace, %tree, "a job's list of files is lost");
                continue;
            };
            let files = Tree::parse(&text)?;
            let digests = files.files().iter().map(|file| file.digest).chain([BlobId(tree.0)]);
            kept.extend(digests.map(|digest| (workspace.to_string(), digest.to_string())));
        }
        let mut removed = 0;
        for workspace in entries(&self.root).map_err(BlobError::Io)? {
            if workspace == "incoming" {
                continue;
            }
            for shard in entries(&self.root.join(&workspace)).map_err(BlobError::Io)? {
                let folder = self.root.join(&workspace).join(&shard);
                for name in entries(&folder).map_err(BlobError::Io)? {
                    let key = (workspace.clone(), name);
                    if !kept.contains(&key) {
                        removed += usize::from(self.remove_old(&folder.join(&key.1), before));
                    }
                }
            }
        }
        Ok(removed)
    }

    fn remove_old(&self, path: &Path, before: SystemTime) -> bool {
        let _gate = self.lock();
        let modified = fs::metadata(path).and_then(|found| found.modified());
        let is_gone = modified.is_ok_and(|at| at < before) && fs::remove_file(path).is_ok();
        // What is too young will be old.
        self.has_news.fetch_or(!is_gone, Ordering::Relaxed);
        is_gone
    }
}

/// The names in a folder; none where there is no folder.
fn entries(folder: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(folder) {
        Ok(found) => {
            let names = found.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
            names.collect()
        }
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}
