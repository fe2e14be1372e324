//! Fetches what a job reads: its code asset into its folder, and each input into a separate folder.

use std::path::{Path, PathBuf};

use muster_core::ids::Epoch;
use muster_core::model::{InputMode, JobInput, JobSpec, Source, WebSource};
use muster_sandbox::disk_space::DiskSpace;
use muster_sandbox::node::disk;
use muster_trees::Folder;
use reqwest::Response;

use super::fetch::FetchError;
use super::{Patience, web};
use crate::attempt::Context;
use crate::client::{CallError, Client};
use crate::home::make_dir_for_all;

/// The list of files does not say which are programs, so all files of the code are executable.
pub(super) async fn bring_code(
    client: &Client,
    epoch: Epoch,
    folder: &Folder,
) -> Result<(), FetchError> {
    bring(client, epoch, "code", folder, "", true).await
}

/// Fetches every input that consists of files, each below its name. Inputs that the job reads itself are not fetched.
pub(super) async fn bring_inputs(
    context: &Context,
    epoch: Epoch,
    spec: &JobSpec,
) -> Result<(), FetchError> {
    let mut top = None;
    for (name, input) in &spec.inputs {
        let JobInput::Data { mode, uri, source, .. } = input else { continue };
        if *mode == InputMode::Direct {
            continue;
        }
        if top.is_none() {
            let path = context.home.inputs(epoch);
            make_dir_for_all(&path)?;
            top = Some(Folder::open(&path)?);
        }
        let folder = top.as_ref().expect("it was created just now");
        folder.make_folder(name)?;
        match source {
            Source::Blobs(_) => {
                let what = format!("inputs.{name}");
                bring(&context.client, epoch, &what, folder, name, false).await?;
            }
            Source::Url => web::bring(context, name, uri, folder).await?,
            Source::Web(WebSource { url, is_folder: false }) => {
                web::bring(context, name, url, folder).await?;
            }
            Source::Web(WebSource { url, is_folder: true }) => {
                web::bring_folder(context, name, url, folder).await?;
            }
        }
    }
    Ok(())
}

async fn bring(
    client: &Client,
    epoch: Epoch,
    what: &str,
    folder: &Folder,
    below: &str,
    is_executable: bool,
) -> Result<(), FetchError> {
    let mut patience = Patience::default();
    let list = loop {
        let call = |source| FetchError::Call { what: what.to_owned(), source };
        match client.data(epoch, what).await {
            Ok(list) => break list,
            Err(error) => patience.forgive(error).await.map_err(call)?,
        }
    };
    check_room(folder, what, list.files.iter().map(|file| file.bytes).sum())?;
    for file in &list.files {
        let path = match below {
            "" => file.path.to_string(),
            below => format!("{below}/{}", file.path),
        };
        loop {
            let call = |source| FetchError::Call { what: file.path.to_string(), source };
            let asked = client.data_file(epoch, what, &file.path, file.bytes).await;
            let placed = match asked {
                Ok(response) => place(response, folder, &path, is_executable).await,
                Err(source) => Err(call(source)),
            };
            match placed {
                Ok(()) => break,
                Err(FetchError::Call { source, .. }) => {
                    patience.forgive(source).await.map_err(call)?;
                }
                Err(other) => return Err(other),
            }
        }
    }
    Ok(())
}

/// Checks the space before anything is sent. Some of the disk is left for the log and for what the job writes.
pub(super) fn check_room(folder: &Folder, what: &str, bytes: u64) -> Result<(), FetchError> {
    let space = DiskSpace::of_open(folder)?;
    let (free, kept) = (space.free_bytes, disk::reserve(space.bytes));
    match free >= bytes.saturating_add(kept) {
        true => Ok(()),
        false => Err(FetchError::NoRoom { what: what.to_owned(), bytes, free }),
    }
}

async fn place(
    mut response: Response,
    folder: &Folder,
    path: &str,
    is_executable: bool,
) -> Result<(), FetchError> {
    let call = |source: reqwest::Error| FetchError::Call {
        what: path.to_owned(),
        source: CallError::Unreachable(source),
    };
    let bytes = response.content_length().unwrap_or(0);
    let mut placing = folder.place_any(path, is_executable, bytes, None)?;
    while let Some(piece) = response.chunk().await.map_err(call)? {
        placing.write(&piece)?;
    }
    Ok(placing.finish()?)
}

/// Returns the value of `${{inputs.NAME}}` for the job: a text, or a path below `top`, at which the job sees the folder
/// of inputs.
pub(crate) fn input_value(name: &str, input: &JobInput, files: &Path, top: &Path) -> String {
    let JobInput::Data { kind, mode, uri, source } = input else {
        let JobInput::Literal(text) = input else { unreachable!("there are two kinds") };
        return text.to_string();
    };
    if *mode == InputMode::Direct {
        return uri.to_string();
    }
    let folder = top.join(name);
    let is_one = match source {
        Source::Url => true,
        Source::Web(web) => !web.is_folder,
        Source::Blobs(_) => kind.is_file(),
    };
    let only = || only_file(&files.join(name)).map(|file| folder.join(file));
    let path: PathBuf = if is_one { only().unwrap_or(folder) } else { folder };
    path.to_string_lossy().into_owned()
}

/// Returns the only file in a folder, if there is exactly one and nothing else.
fn only_file(folder: &Path) -> Option<std::ffi::OsString> {
    let mut entries = std::fs::read_dir(folder).ok()?;
    let first = entries.next()?.ok()?;
    let is_file = first.file_type().ok()?.is_file();
    (entries.next().is_none() && is_file).then(|| first.file_name())
}
