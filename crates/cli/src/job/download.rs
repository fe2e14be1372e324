//! Downloading the outputs and logs of a job.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use muster_core::ErrorChain;
use muster_core::model::{NAMED_OUTPUTS_FOLDER, OUTPUTS_FOLDER, WorkspaceKey};
use muster_trees::{File, Folder, Tree, tree_of};
use muster_wire::asset::AssetLocation;
use muster_wire::job::{AttemptEntry, Attempts, JobResource, ResolvedUris, RunData, SavedEntry};
use muster_wire::{HistoryRoute, Route};
use serde_json::json;

use super::{Target, attempts};
use crate::client::Client;
use crate::failure::{CliResult, Failure, printable, quoted};
use crate::{nearest, output, upload};

/// The folder names that az uses.
const ARTIFACTS: &str = "artifacts";
const NAMED_OUTPUTS: &str = "named-outputs";

/// Download a job's outputs and logs
///
/// As with az, files are saved in artifacts/outputs/ and artifacts/user_logs/ in the folder (for a job on several
/// nodes, in artifacts/rank-0/outputs/ and so on), and a named output in named-outputs/NAME/. Existing files with the
/// same names are replaced, each one atomically.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing on the server; writes to the folder.")]
pub struct Args {
    /// Folder to save to; it is created if necessary
    #[arg(short = 'p', long, value_name = "DIR", default_value = ".")]
    download_path: PathBuf,
    /// Also download all named outputs, the checkpoint folder, and the logs of all attempts (user_logs/attempt-1/ and
    /// so on)
    #[arg(long)]
    all: bool,
    /// Download only this named output
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    output_name: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: &Args) -> CliResult {
    let workspace = args.target.scope.workspace()?;
    let client = args.target.scope.connect().await?;
    let path = &args.download_path;
    let mut files = 0;
    if let Some(name) = &args.output_name {
        files += named_outputs(&client, &workspace, args, Some(name)).await?.files;
    } else {
        let named = match args.all {
            true => named_outputs(&client, &workspace, args, None).await?,
            false => Fetched::default(),
        };
        files += named.files + artifacts(&client, &workspace, args, &named.names).await?;
    }
    output::say(&format!("downloaded {files} files to {}", path.display()));
    Ok(())
}

/// The named outputs that were downloaded.
#[derive(Debug, Default)]
struct Fetched {
    files: usize,
    names: BTreeSet<String>,
}

/// Downloads outputs/ and logs, from the files that the attempts left. Named outputs that were downloaded already are
/// skipped; those of a job that did not complete are only here.
async fn artifacts(
    client: &Client,
    workspace: &WorkspaceKey,
    args: &Args,
    fetched: &BTreeSet<String>,
) -> CliResult<usize> {
    let is_wanted = |path: &str| match args.all {
        true => !named_output_of(path).is_some_and(|name| fetched.contains(name)),
        false => path.starts_with(&format!("{OUTPUTS_FOLDER}/")),
    };
    let all = attempts::fetch(client, workspace.clone(), &args.target.name).await?;
    let path = &args.download_path.join(ARTIFACTS);
    let unusable =
        |why: std::io::Error| Failure::error(format!("cannot use {}: {why}", path.display()));
    std::fs::create_dir_all(path).map_err(unusable)?;
    let mut files = 0;
    for saved in &all.saved {
        let place = match all.saved.len() {
            1 => path.clone(),
            _ => path.join(format!("rank-{}", saved.rank)),
        };
        std::fs::create_dir_all(&place).map_err(unusable)?;
        files += download(client, saved, &place, is_wanted).await?;
    }
    let folder = Folder::open(path).map_err(unusable)?;
    for entry in wanted_logs(&all, args.all) {
        files += save_logs(client, entry, &folder, args.all).await?;
    }
    Ok(files)
}

/// Downloads all named outputs, or a single one, from the locations that the server reports.
async fn named_outputs(
    client: &Client,
    workspace: &WorkspaceKey,
    args: &Args,
    only: Option<&str>,
) -> CliResult<Fetched> {
    let job: JobResource = client.get(&args.target.route()?).await?;
    let known: Vec<String> = job.properties.outputs.keys().cloned().collect();
    if let Some(only) = only.filter(|only| !known.iter().any(|known| known == only)) {
        let missing = format!("job {} has no output {}", quoted(&args.target.name), quoted(only));
        return Err(Failure::not_found(missing).hint(match nearest::nearest(only, &known) {
            Some(nearest) => format!("did you mean {}?", quoted(nearest)),
            None if known.is_empty() => "it has no named outputs".to_owned(),
            None => format!("its outputs are {}", known.join(", ")),
        }));
    }
    if !job.properties.status.is_terminal() {
        // With --all, everything else is downloaded anyway.
        if only.is_none() {
            return Ok(Fetched::default());
        }
        return Err(Failure::refused(format!(
            "job {} is {}; named outputs are available once it has completed",
            quoted(&args.target.name),
            job.properties.status.as_str()
        )));
    }
    let asked =
        json!({ "runId": args.target.name.as_str(), "selectRunMetadata": true }).to_string();
    let route = Route::History(HistoryRoute::RunData(workspace.clone()));
    let run: RunData = client.post_body(&route, asked).await?.document()?;
    let left = run.run_metadata.outputs.into_iter();
    let left: Vec<_> = left.filter(|(name, _)| only.is_none_or(|only| only == name)).collect();
    if left.is_empty() {
        output::say("note: there are no named outputs, because the job did not complete");
        return Ok(Fetched::default());
    }
    let ids: Vec<&str> = left.iter().map(|(_, output)| output.asset_id.as_str()).collect();
    let route = Route::History(HistoryRoute::ResolvedData(workspace.clone()));
    let asked = json!({ "values": ids }).to_string();
    let places: ResolvedUris = client.post_body(&route, asked).await?.document()?;
    let mut fetched = Fetched::default();
    for (name, output) in &left {
        let Some(found) = places.values.get(&output.asset_id) else { continue };
        let place = AssetLocation::parse(&found.uri, workspace);
        let Ok(AssetLocation::Datastore { datastore, path }) = place else {
            output::say(&format!(
                "note: output {} is stored elsewhere: {}",
                quoted(name),
                quoted(&found.uri)
            ));
            continue;
        };
        let (_, container) = upload::open(client, workspace, Some(&datastore)).await?;
        let into = args.download_path.join(NAMED_OUTPUTS).join(name);
        fetched.files += upload::download(&container, &path, &into).await?;
        fetched.names.insert(name.clone());
    }
    Ok(fetched)
}

fn wanted_logs(all: &Attempts, wants_all: bool) -> &[AttemptEntry] {
    match wants_all {
        true => &all.value,
        false => &all.value[all.value.len().saturating_sub(1)..],
    }
}

/// `.outputs/model/weights.txt` → `model`.
fn named_output_of(path: &str) -> Option<&str> {
    let below = path.strip_prefix(NAMED_OUTPUTS_FOLDER)?.strip_prefix('/')?;
    below.split('/').next()
}

async fn download(
    client: &Client,
    saved: &SavedEntry,
    place: &Path,
    is_wanted: impl Fn(&str) -> bool,
) -> CliResult<usize> {
    let damaged = || Failure::error("the server's list of files is damaged; look at its log");
    let mut text = Vec::new();
    client
        .download(&saved.url, |piece| {
            text.extend_from_slice(piece);
            Ok(())
        })
        .await?;
    let tree = Tree::parse(&text).map_err(|_| damaged())?;
    if tree_of(&text).to_string() != saved.tree {
        return Err(damaged());
    }
    let folder = Folder::open(place)
        .map_err(|why| Failure::error(format!("cannot use {}: {why}", place.display())))?;
    let mut files = 0;
    for file in tree.files().iter().filter(|file| is_wanted(&file.path)) {
        let failed = |why| Failure::error(printable(&ErrorChain(&why).to_string()));
        let mut placing = folder.place(file).map_err(failed)?;
        let url = file_url(&saved.url, &file.digest.to_string());
        client.download(&url, |piece| placing.write(piece).map_err(failed)).await?;
        placing.finish().map_err(failed)?;
        files += 1;
    }
    Ok(files)
}

/// The digest is inserted after the path, before the signature.
fn file_url(url: &str, digest: &str) -> String {
    match url.split_once('?') {
        Some((path, query)) => format!("{path}/{digest}?{query}"),
        None => format!("{url}/{digest}"),
    }
}

async fn save_logs(
    client: &Client,
    entry: &AttemptEntry,
    folder: &Folder,
    all: bool,
) -> CliResult<usize> {
    for (name, url) in &entry.log_files {
        let path = match (all, name.split_once('/')) {
            (true, Some((top, name))) => format!("{top}/attempt-{}/{name}", entry.number),
            _ => name.clone(),
        };
        let mut log = Vec::new();
        loop {
            let piece = client.log(url, log.len() as u64).await?;
            log.extend_from_slice(&piece.bytes);
            let is_all = piece.total.is_none_or(|total| log.len() as u64 >= total);
            if piece.bytes.is_empty() || is_all {
                break;
            }
        }
        let digest = muster_trees::blob_of(&log);
        let bytes = log.len() as u64;
        let file = File { path: path.into(), is_executable: false, bytes, digest };
        let placed = folder.place(&file).and_then(|mut placing| {
            placing.write(&log)?;
            placing.finish()
        });
        placed.map_err(|why| Failure::error(printable(&ErrorChain(&why).to_string())))?;
    }
    Ok(entry.log_files.len())
}
