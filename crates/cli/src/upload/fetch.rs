//! Downloads blobs into a folder. Each file appears under its name only when it is complete.

use std::path::Path;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use muster_core::ErrorChain;
use muster_trees::Folder;
use muster_wire::blob::client::Entry;

use super::send::bar;
use crate::client::Container;
use crate::failure::{CliResult, Failure, printable, quoted};
use crate::output;

const AT_ONCE: usize = 8;

/// Downloads everything below a prefix, or the blob with exactly that name, into a folder, which is created. Returns
/// the number of files.
pub async fn download(container: &Container, prefix: &str, into: &Path) -> CliResult<usize> {
    let top = prefix.trim_end_matches('/');
    let inside = format!("{top}/");
    let entries = container.list(top).await?;
    let wanted: Vec<(&Entry, String)> = entries
        .iter()
        .filter_map(|entry| {
            let name = match entry.name.strip_prefix(&inside) {
                Some(rest) => rest,
                None if entry.name == top => top.rsplit('/').next().unwrap_or(top),
                // The name only starts with the same letters.
                None => return None,
            };
            (!name.is_empty()).then(|| (entry, name.to_owned()))
        })
        .collect();
    let unusable =
        |why: std::io::Error| Failure::error(format!("cannot use {}: {why}", into.display()));
    std::fs::create_dir_all(into).map_err(unusable)?;
    let folder = Folder::open(into).map_err(unusable)?;
    let bytes = wanted.iter().map(|(entry, _)| entry.bytes).sum();
    let bar = bar(&into.display().to_string(), bytes);
    let (folder, shown) = (&folder, &bar);
    let fetched = stream::iter(wanted.iter())
        .map(|(entry, name)| async move {
            let failed = |why| Failure::error(printable(&ErrorChain(&why).to_string()));
            let mut placing = match folder.place_any(name, false, entry.bytes, None) {
                Ok(placing) => placing,
                // Storage accepts any name; a file system does not.
                Err(muster_trees::InstallError::Path { why, .. }) => {
                    output::say(&format!("note: {} is skipped: its name {why}", quoted(name)));
                    return Ok(0);
                }
                Err(why) => return Err(failed(why)),
            };
            container
                .get(&entry.name, |piece| {
                    shown.inc(piece.len() as u64);
                    placing.write(piece).map_err(failed)
                })
                .await?;
            placing.finish().map_err(failed)?;
            Ok::<usize, Failure>(1)
        })
        .buffer_unordered(AT_ONCE)
        .try_fold(0, |all, one| async move { Ok(all + one) })
        .await;
    bar.finish_and_clear();
    fetched
}
