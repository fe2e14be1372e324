//! Before a job starts, copies its own files into its folder, and then over them what its last attempt left.

use std::sync::Arc;

use muster_core::ErrorChain;
use muster_core::agent::Assignment;
use muster_core::ids::Epoch;
use muster_core::model::{JobSpec, LOGS_FOLDER, NAMED_OUTPUTS_FOLDER, OUTPUTS_FOLDER, TreeId};
use muster_trees::{File, Folder, InstallError, Tree, tree_of};

use super::{FolderSaver, Patience, data};
use crate::attempt::Context;
use crate::client::{CallError, Client};

#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("the server does not provide {what}")]
    Call { what: String, source: CallError },
    #[error("the list of files {tree} is invalid")]
    WrongTree { tree: TreeId },
    #[error(transparent)]
    FileInstall(#[from] InstallError),
    #[error(
        "input {name} could not be fetched: {why}; the node fetches it without credentials, and needs internet access \
         (egress = true, and slirp4netns on its host)"
    )]
    Web { name: String, why: String },
    #[error(
        "{what} has {bytes} bytes, but the node's disk has only {free} free; free some space, or read less"
    )]
    NoRoom { what: String, bytes: u64, free: u64 },
    #[error("cannot use the job's folder")]
    Folder(#[from] std::io::Error),
}

/// Fills the working folder, and returns the saver of what the job leaves. Retries as long as the server cannot be
/// reached.
pub(crate) async fn bring(
    context: &Context,
    assignment: &Assignment,
    spec: &JobSpec,
) -> Result<FolderSaver, String> {
    fill(context, assignment, spec).await.map_err(|error| ErrorChain(&error).to_string())
}

async fn fill(
    context: &Context,
    assignment: &Assignment,
    spec: &JobSpec,
) -> Result<FolderSaver, FetchError> {
    let folder = Folder::open(&context.home.work(assignment.epoch))?;
    let (client, epoch) = (&context.client, assignment.epoch);
    if let Some(code) = &spec.code {
        lay_out(client, epoch, code, &folder).await?;
    }
    if spec.code_asset.is_some() {
        data::bring_code(client, epoch, &folder).await?;
    }
    data::bring_inputs(context, epoch, spec).await?;
    let mut last = Tree::default();
    // The first attempt has no predecessor.
    if assignment.attempt > 1
        && let Some(saved) = left(client, epoch).await?
    {
        last = lay_out(client, epoch, &saved, &folder).await?;
    }
    let named = spec.outputs.keys().map(|name| format!("{NAMED_OUTPUTS_FOLDER}/{name}"));
    let folders = [OUTPUTS_FOLDER, LOGS_FOLDER].into_iter().chain(spec.checkpoint.as_deref());
    for path in folders.map(str::to_owned).chain(named) {
        folder.make_folder(&path)?;
    }
    let log = context.home.job_log(epoch);
    let full_waits = context.full_server.outputs_wait;
    Ok(FolderSaver::new(client.clone(), epoch, Arc::new(folder), spec, (log, full_waits), last))
}

async fn lay_out(
    client: &Client,
    epoch: Epoch,
    tree: &TreeId,
    folder: &Folder,
) -> Result<Tree, FetchError> {
    let call = |source| FetchError::Call { what: format!("the list of files {tree}"), source };
    let mut patience = Patience::default();
    let text = loop {
        match client.tree(epoch, tree).await {
            Ok(text) => break text,
            Err(error) => patience.forgive(error).await.map_err(call)?,
        }
    };
    let parsed = Tree::parse(&text).ok().filter(|_| tree_of(&text) == *tree);
    let files = parsed.ok_or(FetchError::WrongTree { tree: *tree })?;
    for file in files.files() {
        let call = |source| FetchError::Call { what: file.path.to_string(), source };
        while let Err(error) = place(client, epoch, tree, file, folder).await {
            match error {
                FetchError::Call { source, .. } => patience.forgive(source).await.map_err(call)?,
                other => return Err(other),
            }
        }
    }
    Ok(files)
}

/// Returns what the same member left last.
async fn left(client: &Client, epoch: Epoch) -> Result<Option<TreeId>, FetchError> {
    let call = |source| FetchError::Call { what: "what the last attempt left".into(), source };
    let mut patience = Patience::default();
    loop {
        match client.left(epoch).await {
            Ok(left) => return Ok(left),
            // An old server does not know this call.
            Err(CallError::NotFound) => return Ok(None),
            Err(error) => patience.forgive(error).await.map_err(call)?,
        }
    }
}

async fn place(
    client: &Client,
    epoch: Epoch,
    tree: &TreeId,
    file: &File,
    folder: &Folder,
) -> Result<(), FetchError> {
    let call = |source: CallError| FetchError::Call { what: file.path.to_string(), source };
    let mut placing = folder.place(file)?;
    let response = client.file(epoch, tree, &file.digest, file.bytes).await;
    let mut response = response.map_err(call)?;
    while let Some(piece) = response.chunk().await.map_err(|error| call(error.into()))? {
        placing.write(&piece)?;
    }
    Ok(placing.finish()?)
}
