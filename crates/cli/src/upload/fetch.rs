//! Blobs into a folder here.

use std::path::Path;

use muster_core::ErrorChain;
use muster_trees::Folder;
use muster_wire::blob::client::Entry;

use super::send::bar;
use crate::client::Container;
use crate::failure::{Failure, Outcome, printable, quoted};

/// Everything below a prefix, or the one blob of that name, into a folder that is made if it is not there. Each file has
/// its name when it is whole. `shown` is what it is called while it comes. How many files there were.
pub async fn download(
    container: &Container,
    prefix: &str,
    target: &Path,
    shown: &str,
) -> Outcome<usize> {
    let listed = container.list(prefix).await?;
    let files: Vec<(&Entry, &str)> =
        listed.iter().filter_map(|entry| Some((entry, below(prefix, &entry.name)?))).collect();
    if files.is_empty() {
        return Ok(0);
    }
    let unusable = |why: std::io::Error| {
        Failure::error(format!("cannot use {}: {why}", quoted(&target.display().to_string())))
    };
    std::fs::create_dir_all(target).map_err(unusable)?;
    let folder = Folder::open(target).map_err(unusable)?;
    let bar = bar(shown, files.iter().map(|(entry, _)| entry.bytes).sum());
    for (entry, path) in &files {
        let failed = |why| Failure::error(printable(&ErrorChain(&why).to_string()));
        // Names that would lead out of the folder are refused there.
        let mut placing = folder.place_any(path, false, entry.bytes, None).map_err(failed)?;
        container
            .get(&entry.name, |piece| {
                bar.inc(piece.len() as u64);
                placing.write(piece).map_err(failed)
            })
            .await?;
        placing.finish().map_err(failed)?;
    }
    bar.finish_and_clear();
    Ok(files.len())
}

/// What a blob is called below a prefix; the prefix itself is a file of its own name.
fn below<'n>(prefix: &str, name: &'n str) -> Option<&'n str> {
    let rest = match prefix {
        "" => name,
        prefix => match name.strip_prefix(prefix)? {
            "" => name.rsplit('/').next()?,
            rest => rest.strip_prefix('/')?,
        },
    };
    // Some tools mark a folder by an empty blob with a slash at its end.
    Some(rest).filter(|rest| !rest.is_empty() && !rest.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_folder_or_a_file() {
        for (prefix, name, wanted) in [
            ("a/b", "a/b", Some("b")),
            ("a/b", "a/b/c/d", Some("c/d")),
            ("a/b", "a/bc", None),
            ("a/b", "a/b/", None),
            ("a/b", "a/b/c/", None),
            ("", "x/y", Some("x/y")),
        ] {
            assert_eq!(below(prefix, name), wanted, "{prefix} {name}");
        }
    }
}
