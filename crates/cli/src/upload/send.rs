//! Uploads files: several in parallel, large ones in blocks, and never with more than a few pieces in memory.

use std::io::{IsTerminal as _, stderr};
use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Local, local::LocalFile};
use crate::client::Container;
use crate::failure::CliResult;

/// The number of parallel requests: enough to use the whole network, few enough for the server's disk.
const AT_ONCE: usize = 8;
/// Larger files are uploaded in blocks of this size, so that a single file also uses several connections.
const BLOCK_BYTES: u64 = 8 << 20;
/// The maximum number of blocks in a blob; larger files have larger blocks.
const BLOCKS_MAX: u64 = 50_000;

/// Uploads all files below `top`, which ends with a slash or is empty.
pub async fn all(container: &Container, local: &Local, top: &str) -> CliResult {
    let bar = bar(local.name(), local.bytes());
    let (small, large): (Vec<_>, Vec<_>) =
        local.files().iter().partition(|file| file.bytes() <= BLOCK_BYTES);
    let sent = async {
        stream::iter(small.into_iter().map(Ok))
            .try_for_each_concurrent(AT_ONCE, |file| {
                one(container, local, file, format!("{top}{}", local.target(file)), &bar)
            })
            .await?;
        for file in large {
            in_blocks(container, local, file, &format!("{top}{}", local.target(file)), &bar)
                .await?;
        }
        Ok(())
    };
    let sent = sent.await;
    bar.finish_and_clear();
    sent
}

async fn one(
    container: &Container,
    local: &Local,
    file: &LocalFile,
    name: String,
    bar: &ProgressBar,
) -> CliResult {
    let body = || body(local, file, 0, file.bytes(), bar);
    container.put(&name, None, file.bytes(), body).await
}

async fn in_blocks(
    container: &Container,
    local: &Local,
    file: &LocalFile,
    name: &str,
    bar: &ProgressBar,
) -> CliResult {
    let bytes = BLOCK_BYTES.max(file.bytes().div_ceil(BLOCKS_MAX));
    let count = file.bytes().div_ceil(bytes);
    let blocks: Vec<String> = (0..count).map(block_id).collect();
    stream::iter(blocks.iter().zip(0..count).map(Ok))
        .try_for_each_concurrent(AT_ONCE, |(id, index)| async move {
            let offset = index * bytes;
            let length = bytes.min(file.bytes() - offset);
            let body = || body(local, file, offset, length, bar);
            container.put(name, Some(id), length, body).await
        })
        .await?;
    container.put_together(name, &blocks).await
}

/// Block ids have the same length, which is a multiple of three bytes, as base64 requires.
fn block_id(index: u64) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |shift: u32| {
        let at = usize::try_from(index >> shift & 63).expect("six bits fit");
        char::from(DIGITS[at])
    };
    [18, 12, 6, 0].map(digit).into_iter().collect()
}

fn body(
    local: &Local,
    file: &LocalFile,
    offset: u64,
    bytes: u64,
    bar: &ProgressBar,
) -> CliResult<reqwest::Body> {
    let opened = local.open(file, offset)?;
    let bar = Arc::new(bar.clone());
    let pieces = muster_trees::pieces(opened, bytes).map(move |piece| {
        if let Ok(piece) = &piece {
            bar.inc(piece.len() as u64);
        }
        piece
    });
    Ok(reqwest::Body::wrap_stream(pieces))
}

/// A progress bar on a terminal; elsewhere nothing.
pub fn bar(name: &str, bytes: u64) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}";
    let style = ProgressStyle::with_template(style).unwrap_or(ProgressStyle::default_bar());
    ProgressBar::new(bytes).with_style(style).with_message(crate::failure::printable(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_blocks_differ_and_are_base64() {
        let ids: Vec<String> = [0, 1, 63, 64, BLOCKS_MAX - 1].map(block_id).to_vec();
        assert_eq!(ids, ["AAAA", "AAAB", "AAA/", "AABA", "AMNP"]);
    }
}
