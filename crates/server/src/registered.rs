//! Registers outputs as assets: data and models that a job names, created when it has ended successfully.
//!
//! A report of an agent may arrive twice. An asset is marked with the job and the output that it comes from, so it is
//! registered only once.

use muster_core::model::{
    ARTIFACT_DATASTORE, AssetSpec, Caller, DEFAULT_DATASTORE, DatastoreSpec, Job, JobOutput,
    JobSpec, Registration, WorkspaceKey,
};
use muster_core::{AssetAction, AssetRequest, Input, KnownAsset};
use muster_store::StoreError;
use muster_wire::asset::{self, AssetLocation};
use muster_wire::datastore::own_container;

use crate::app::App;
use crate::artifacts::ArtifactError;

/// How often the next version is tried, because others may take it at the same moment.
const TRIES: usize = 10;

pub async fn register(app: &App, job: &Job, spec: &JobSpec) -> Result<(), ArtifactError> {
    let Some(key) = spec.workspace.as_deref() else { return Ok(()) };
    for (name, output) in &spec.outputs {
        if let Some(wanted) = &output.register {
            register_one(app, (job, key), (name, output), wanted).await?;
        }
    }
    Ok(())
}

async fn register_one(
    app: &App,
    (job, key): (&Job, &WorkspaceKey),
    (output_name, output): (&str, &JobOutput),
    wanted: &Registration,
) -> Result<(), ArtifactError> {
    let kind = output.kind.asset();
    let mark: Box<str> = format!("{}/{output_name}", job.id).into();
    let find = (job.workspace, mark.clone());
    let done = app.readers.read(move |reader| reader.assets_with_hash(find.0, kind, &find.1));
    if done.await?.iter().any(|asset| asset.name.eq_ignore_ascii_case(&wanted.name)) {
        return Ok(());
    }
    let Some(datastore) = datastore_of(app, job, output)? else { return Ok(()) };
    let is_root = output.to.path.is_empty();
    let end = if output.kind.is_file() || is_root { "" } else { "/" };
    let path = format!("{}{end}", output.to.path).into();
    let uri = AssetLocation::Datastore { datastore: datastore.into(), path }.to_uri(key);
    let about = AssetSpec {
        hash: Some(mark),
        body: asset::of_output(output.kind, uri, &job.name).to_text(),
        ..AssetSpec::default()
    };
    let principal = job.principal;
    let by = app.readers.read(move |reader| reader.principal(principal)).await?;
    let by = by.map(|by| Caller { object_id: by.object_id, name: by.name });
    let by = by.ok_or(ArtifactError::Unexpected)?;
    let mut refused = None;
    for _ in 0..TRIES {
        let version = match &wanted.version {
            Some(version) => version.clone(),
            None => next_version(app, job, output, wanted)?,
        };
        let action = AssetAction::Put { version, wanted: about.clone(), is_archived: None };
        let request = AssetRequest {
            workspace: key.clone(),
            kind,
            name: wanted.name.clone(),
            action,
            by: by.clone(),
            known: KnownAsset::default(),
        };
        match app.writer.submit(Input::ChangeAsset(Box::new(request))).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(why)) => refused = Some(why),
            Err(_) => return Err(ArtifactError::Busy),
        }
        if wanted.version.is_some() {
            break;
        }
    }
    let why = refused.map(|why| why.to_string()).unwrap_or_default();
    Err(ArtifactError::Unregistered { output: output_name.into(), why: why.into() })
}

fn next_version(
    app: &App,
    job: &Job,
    output: &JobOutput,
    wanted: &Registration,
) -> Result<Box<str>, StoreError> {
    let (kind, name) = (output.kind.asset(), &wanted.name);
    let found = app.readers.look_up(|reader| reader.asset_container(job.workspace, kind, name))?;
    let next = found.map_or(1, |found| found.container.next_version());
    Ok(next.to_string().into())
}

/// A datastore of the workspace for the container that contains an output.
pub fn datastore_of(
    app: &App,
    job: &Job,
    output: &JobOutput,
) -> Result<Option<String>, StoreError> {
    for (name, is_default) in [(DEFAULT_DATASTORE, true), (ARTIFACT_DATASTORE, false)] {
        if *output.to.container == own_container(job.workspace, is_default) {
            return Ok(Some(name.to_owned()));
        }
    }
    let others = app.readers.look_up(|reader| reader.datastores(job.workspace))?;
    let is_it =
        |about: &DatastoreSpec| about.account.is_none() && about.container == output.to.container;
    let found = others.into_iter().find(|found| is_it(&found.about));
    Ok(found.map(|found| found.name.to_string()))
}
