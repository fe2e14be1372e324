//! What a job reads: its code asset into its folder, each input into a folder of its own beside it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_core::ids::Epoch;
use muster_core::model::{InputMode, JobInput, JobSpec, Source};
use muster_sandbox::disk_space::DiskSpace;
use muster_sandbox::node::disk;
use muster_trees::{FILE_BYTES_MAX, Folder};
use reqwest::Response;

use super::Patience;
use super::fetch::FetchError;
use crate::attempt::{Context, Way};
use crate::client::{CallError, Client};
use crate::home::make_dir_for_all;

/// Of an input that is somewhere on the web: until it begins to come, and between two pieces of it.
const WEB_TIMEOUT: Duration = Duration::from_secs(60);

/// Files come with nothing that says whether they are programs, so those of code may all be run.
pub(super) async fn bring_code(
    client: &Client,
    epoch: Epoch,
    folder: &Folder,
) -> Result<(), FetchError> {
    bring(client, epoch, "code", folder, "", true).await
}

/// Every input that is files, each below its name. Those that the job reads by itself are not touched.
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
        let folder = top.as_ref().expect("made just now");
        folder.make_folder(name)?;
        match source {
            Source::Blobs(_) => {
                let what = format!("inputs.{name}");
                bring(&context.client, epoch, &what, folder, name, false).await?;
            }
            Source::Url => bring_from_web(context, name, uri, folder).await?,
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

/// Said before anything is sent for which there is no room. Some of the disk stays for the log and what the job writes.
fn check_room(folder: &Folder, what: &str, bytes: u64) -> Result<(), FetchError> {
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

/// From the node, with its way out and nobody's credentials.
async fn bring_from_web(
    context: &Context,
    name: &str,
    url: &str,
    folder: &Folder,
) -> Result<(), FetchError> {
    let failed = |why: String| FetchError::Web { name: name.to_owned(), why };
    let file = file_name(url);
    let ca_bundle = context.way.as_ref().and_then(Way::ca_bundle);
    let client = web_client(ca_bundle).map_err(failed)?;
    let sent = client.get(url).send().await.and_then(Response::error_for_status);
    let mut response = sent.map_err(|error| failed(words(error)))?;
    let path = format!("{name}/{file}");
    let bytes = response.content_length();
    let mut placing = folder.place_any(&path, false, bytes.unwrap_or(FILE_BYTES_MAX), None)?;
    while let Some(piece) = response.chunk().await.map_err(|error| failed(words(error)))? {
        placing.write(&piece)?;
    }
    match bytes {
        Some(_) => Ok(placing.finish()?),
        None => Ok(placing.finish_as_is()?),
    }
}

fn words(error: reqwest::Error) -> String {
    muster_core::ErrorChain(&error.without_url()).to_string()
}

/// The last name of its path.
fn file_name(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let path = path.split_once("://").map_or(path, |(_, rest)| rest);
    let last = path.split_once('/').and_then(|(_, path)| path.rsplit('/').next());
    match last {
        Some(name) if !matches!(name, "" | "." | "..") && name.len() <= 255 => name.to_owned(),
        _ => "data".to_owned(),
    }
}

/// For what is fetched from elsewhere: trusts what the node's jobs trust.
fn web_client(ca_bundle: Option<&Path>) -> Result<reqwest::Client, String> {
    let mut builder = reqwest::Client::builder().read_timeout(WEB_TIMEOUT);
    if let Some(path) = ca_bundle {
        let bundle = std::fs::read(path).map_err(|error| error.to_string())?;
        let certificates = reqwest::Certificate::from_pem_bundle(&bundle);
        builder = builder.tls_certs_only(certificates.map_err(|error| error.to_string())?);
    }
    builder.build().map_err(|error| error.to_string())
}

/// Where the job finds the value of `${{inputs.NAME}}`: a text, or a path below `top`, which is how the job sees the folder of
/// inputs.
pub(crate) fn input_value(name: &str, input: &JobInput, files: &Path, top: &Path) -> String {
    let JobInput::Data { kind, mode, uri, source } = input else {
        let JobInput::Literal(text) = input else { unreachable!("there are two kinds") };
        return text.to_string();
    };
    if *mode == InputMode::Direct {
        return uri.to_string();
    }
    let folder = top.join(name);
    let is_one = kind.is_file() || *source == Source::Url;
    let only = || only_file(&files.join(name)).map(|file| folder.join(file));
    let path: PathBuf = if is_one { only().unwrap_or(folder) } else { folder };
    path.to_string_lossy().into_owned()
}

/// The one file in a folder, if there is just one and nothing else.
fn only_file(folder: &Path) -> Option<std::ffi::OsString> {
    let mut entries = std::fs::read_dir(folder).ok()?;
    let first = entries.next()?.ok()?;
    let is_file = first.file_type().ok()?.is_file();
    (entries.next().is_none() && is_file).then(|| first.file_name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_web_address_has_a_file_name() {
        for (url, name) in [
            ("https://h/a/b.csv", "b.csv"),
            ("https://h/a/b.csv?x=/y", "b.csv"),
            ("https://h/", "data"),
            ("https://h", "data"),
            ("https://h/..", "data"),
        ] {
            assert_eq!(file_name(url), name, "{url}");
        }
    }
}
