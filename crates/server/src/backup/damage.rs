//! Finds files that are missing or damaged, by comparing a backup with the rows of its databases, and the owners of
//! these files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use muster_core::ids::{JobId, WorkspaceId};
use muster_core::model::{BlobId, TreeId};
use muster_store::backup::{self as copies, Owners};
use muster_store::{Reader as _, SqliteReader};
use muster_trees::{Tree, blob_of};
use serde::{Deserialize, Serialize};

use super::error::BackupError;
use super::list::{self, List};
use crate::state_dir::names::{BLOBS, DATABASE, LOGS, POST_MORTEMS, SERIES, STORAGE};

/// How many blobs and jobs are named for each file.
const OWNERS_MAX: usize = 10;

/// A file that is missing from a backup, or was not restored, because its bytes are wrong or cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damaged {
    /// Relative to the state directory.
    pub path: String,
    pub what: String,
    /// The name of the workspace that the file belongs to. This and the next fields are given as far as they can be
    /// determined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Blobs that contain this file, as `container/name`. If there are many, only some are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<String>,
    /// Jobs that use this file, left it, or have it as their log. If there are many, only some are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<String>,
}

/// The damage found so far: each path, and what is wrong with it.
#[derive(Debug, Default)]
pub struct Damage(BTreeMap<String, String>);

impl Damage {
    /// Notes that a file is left out. For a file that the installation cannot work without, returns `why` instead.
    pub fn note(&mut self, path: &Path, why: BackupError) -> Result<(), BackupError> {
        let what = match &why {
            BackupError::Damaged { what, .. } | BackupError::Unfit { what, .. } => what.clone(),
            BackupError::Unreadable { what, .. } => format!("it cannot be read: {what}"),
            _ => return Err(why),
        };
        match can_be_left_out(path) {
            true => self.add(path, what),
            false => return Err(why),
        }
        Ok(())
    }

    pub fn add(&mut self, path: &Path, what: String) {
        self.0.insert(path.to_string_lossy().into(), what);
    }

    pub fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// Adds the owners of these files, from the databases of the backup in `state`.
    pub fn with_owners(self, state: &Path) -> Result<Vec<Damaged>, BackupError> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let store = state.join(DATABASE);
        let owners = Owners::open(&store, &state.join(STORAGE))?;
        let mut reader = SqliteReader::open(store)?;
        let trees = trees_with(state, &self.0, &mut reader)?;
        let mut all = Vec::new();
        for (path, what) in self.0 {
            let mut damaged = Damaged { path, what, ..Damaged::default() };
            if let Some((workspace, digest)) = list::place_of_blob(Path::new(&damaged.path)) {
                damaged.workspace = owners.workspace(workspace)?;
                damaged.blobs = owners.blobs(workspace, &digest, OWNERS_MAX)?;
                let mut jobs = BTreeSet::new();
                for tree in trees.get(&damaged.path).into_iter().flatten() {
                    jobs.extend(owners.jobs(workspace, tree, OWNERS_MAX)?);
                }
                damaged.jobs = jobs.into_iter().take(OWNERS_MAX).collect();
            } else if let Some(job) = job_of_log(&damaged.path)
                && let Some(job) = reader.job_by_id(job)?
            {
                damaged.workspace = owners.workspace(job.workspace)?;
                damaged.jobs = vec![job.name.into()];
            }
            all.push(damaged);
        }
        Ok(all)
    }
}

/// Whether an installation works without this file, so that only what depends on it is lost.
pub fn can_be_left_out(path: &Path) -> bool {
    let is_in = |folder: &str| path.starts_with(folder) && path != Path::new(folder);
    let is_history = path == Path::new(SERIES);
    is_history || list::blob_of_path(path).is_some() || is_in(LOGS) || is_in(POST_MORTEMS)
}

/// The job of a path `logs/JOB/…`.
fn job_of_log(path: &str) -> Option<JobId> {
    path.strip_prefix(LOGS)?.strip_prefix('/')?.split('/').next()?.parse().ok()
}

/// Finds the file lists of jobs that contain each of these files. A list counts as containing itself.
fn trees_with(
    state: &Path,
    damage: &BTreeMap<String, String>,
    reader: &mut SqliteReader,
) -> Result<BTreeMap<String, Vec<TreeId>>, BackupError> {
    let mut found: BTreeMap<String, Vec<TreeId>> = BTreeMap::new();
    for (workspace, tree) in reader.wanted_trees()? {
        let own = blob_path(workspace, &BlobId(tree.0));
        let text = fs::read(state.join(&own)).ok();
        let parsed = text.and_then(|text| Tree::parse(&text).ok());
        let files = parsed.iter().flat_map(Tree::files);
        let paths = files.map(|file| blob_path(workspace, &file.digest));
        let paths: BTreeSet<String> = paths.chain([own]).collect();
        for path in paths.into_iter().filter(|path| damage.contains_key(path)) {
            found.entry(path).or_default().push(tree);
        }
    }
    Ok(found)
}

/// The result of comparing the rows of a backup with its list of files.
#[derive(Debug, Default)]
pub struct Named {
    /// Files that rows reference and that are not on the list.
    pub missing: BTreeSet<String>,
    /// File lists of jobs that cannot be read, and why.
    pub bad_trees: Vec<(String, String)>,
}

/// Compares the files that the rows of these databases reference with the list. The file lists of jobs are read for
/// this.
pub fn named(state: &Path, list: &List, damage: &Damage) -> Result<Named, BackupError> {
    let listed = list.paths();
    let mut named = Named::default();
    let mut look = |workspace: WorkspaceId, digest: BlobId| {
        let path = blob_path(workspace, &digest);
        let is_there = listed.contains(path.as_str()) && !damage.has(&path);
        if !is_there {
            named.missing.insert(path);
        }
        is_there
    };
    copies::each_named_file(&state.join(STORAGE), |workspace, digest| {
        look(workspace, digest);
    })?;
    for (workspace, tree) in SqliteReader::open(state.join(DATABASE))?.wanted_trees()? {
        let digest = BlobId(tree.0);
        if !look(workspace, digest) {
            continue;
        }
        let path = blob_path(workspace, &digest);
        let text = match fs::read(state.join(&path)) {
            Ok(text) => text,
            Err(why) => {
                named.bad_trees.push((path, format!("it cannot be read: {why}")));
                continue;
            }
        };
        match Tree::parse(&text) {
            _ if blob_of(&text) != digest => {
                named.bad_trees.push((path, "its bytes do not match its name".to_owned()));
            }
            Ok(parsed) => parsed.files().iter().for_each(|file| {
                look(workspace, file.digest);
            }),
            Err(why) => named.bad_trees.push((path, why.to_string())),
        }
    }
    Ok(named)
}

pub fn blob_path(workspace: WorkspaceId, digest: &BlobId) -> String {
    let name = digest.to_string();
    format!("{BLOBS}/{workspace}/{}/{name}", &name[..2])
}
