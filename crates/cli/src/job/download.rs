//! What a job left, into a folder here.

use std::path::{Path, PathBuf};

use muster_core::ErrorChain;
use muster_core::model::OUTPUTS_FOLDER;
use muster_trees::{File, Folder, Tree, tree_of};
use muster_wire::job::{AttemptEntry, Attempts, SavedEntry};

use super::{Target, attempts};
use crate::client::Client;
use crate::failure::{Failure, Outcome, printable};
use crate::output;

/// Download what a job left: its outputs/ and its logs
///
/// Files go to outputs/ and user_logs/ below the folder, those of a job on several nodes to rank-0/outputs/ and so on.
/// What is there under the same names is replaced.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing on the server, and writes to the folder.")]
pub struct Args {
    /// The folder; it is made if it is not there
    #[arg(short = 'p', long, value_name = "DIR", default_value = ".")]
    download_path: PathBuf,
    /// Also the checkpoint folder, and the logs of all attempts, in user_logs/attempt-1/ and so on
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: &Args) -> Outcome {
    let workspace = args.target.scope.workspace()?;
    let client = args.target.scope.connect().await?;
    let all = attempts::fetch(&client, workspace, &args.target.name).await?;
    let path = &args.download_path;
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
        files += download(&client, saved, &place, args.all).await?;
    }
    let folder = Folder::open(path).map_err(unusable)?;
    for entry in wanted_logs(&all, args.all) {
        files += save_logs(&client, entry, &folder, args.all).await?;
    }
    output::say(&format!("{files} files in {}", path.display()));
    Ok(())
}

fn wanted_logs(all: &Attempts, wants_all: bool) -> &[AttemptEntry] {
    match wants_all {
        true => &all.value,
        false => &all.value[all.value.len().saturating_sub(1)..],
    }
}

async fn download(client: &Client, saved: &SavedEntry, place: &Path, all: bool) -> Outcome<usize> {
    let damaged = || Failure::error("the server's list of files is damaged; see its log");
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
    let is_output = |file: &&File| all || file.path.starts_with(&format!("{OUTPUTS_FOLDER}/"));
    let mut files = 0;
    for file in tree.files().iter().filter(is_output) {
        let failed = |why| Failure::error(printable(&ErrorChain(&why).to_string()));
        let mut placing = folder.place(file).map_err(failed)?;
        let url = file_url(&saved.url, &file.digest.to_string());
        client.download(&url, |piece| placing.write(piece).map_err(failed)).await?;
        placing.finish().map_err(failed)?;
        files += 1;
    }
    Ok(files)
}

/// The digest goes behind the path, before the signature.
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
) -> Outcome<usize> {
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
