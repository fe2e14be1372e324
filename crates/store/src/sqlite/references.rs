//! What assets, datastores and live jobs reference. Their records are searched as text, because everything that
//! references a container or a job contains its name.

use std::collections::BTreeSet;
use std::path::Path;

use muster_core::ids::WorkspaceId;
use muster_core::model::parent_and_index;
use muster_core::storage::upload_containers;
use rusqlite::Connection;

use super::doc;
use super::fault::Doing;
use crate::StoreError;

/// What precedes the name of a job in the locations of its files: as an output of the job, as a path in a datastore, and
/// as MLflow writes it.
const BEFORE_JOBS: [&str; 3] = ["/jobs/", "dcid.", "runs:/"];

/// The upload containers that something in the workspace references.
pub(super) fn uploads(
    connection: &Connection,
    path: &Path,
    workspace: WorkspaceId,
) -> Result<BTreeSet<Box<str>>, StoreError> {
    let mut named = BTreeSet::new();
    each_text(connection, path, workspace, |text| {
        named.extend(upload_containers(text).map(Box::from));
    })?;
    Ok(named)
}

/// The names of the jobs whose files something in the workspace references, in lower case. Those of children include
/// their parents.
pub(super) fn jobs(
    connection: &Connection,
    path: &Path,
    workspace: WorkspaceId,
) -> Result<BTreeSet<Box<str>>, StoreError> {
    let mut named = BTreeSet::new();
    each_text(connection, path, workspace, |text| {
        for name in named_jobs(text).map(str::to_ascii_lowercase) {
            named.extend(parent_and_index(&name).map(|(parent, _)| Box::from(parent)));
            named.insert(name.into());
        }
    })?;
    Ok(named)
}

/// Everything that may be the name of a job. Some of it may not be, but a job too many does no harm.
fn named_jobs(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let after = BEFORE_JOBS.into_iter().flat_map(|before| text.split(before).skip(1));
    after.filter_map(move |rest| rest.split(|c| !is_name(c)).next()).filter(|name| !name.is_empty())
}

fn each_text(
    connection: &Connection,
    path: &Path,
    workspace: WorkspaceId,
    mut each: impl FnMut(&str),
) -> Result<(), StoreError> {
    for sql in [
        "SELECT doc FROM assets WHERE workspace = ?1",
        "SELECT doc FROM datastores WHERE workspace = ?1",
        "SELECT s.doc FROM jobs j INDEXED BY jobs_live JOIN specs s ON s.hash = j.spec \
         WHERE j.live = 1 AND j.workspace = ?1",
    ] {
        doc::each(connection, path, sql, (doc::key(workspace.0),), |row| {
            let text = row.get_ref(0).doing("reading a row", path)?;
            each(text.as_str().map_err(|why| doc::damaged(path, &why))?);
            Ok(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_found_in_every_form_of_location() {
        let text = r#"{"body":"{\"modelUri\":\"azureml://jobs/j-1/outputs/artifacts/paths/m\"}",
            "x":"azureml://subscriptions/s/workspaces/w/jobs/j.2/outputs/o","tags":{"a":"runs:/j_3/model"},
            "path":"https://h:1/azureml-abc/ExperimentRun/dcid.J4/outputs/x","display":"jobs/no"}"#;
        let found: BTreeSet<&str> = named_jobs(text).collect();
        assert_eq!(found, ["j-1", "j.2", "j_3", "J4"].into());
    }
}
