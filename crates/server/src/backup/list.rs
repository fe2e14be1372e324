//! The list of a backup's files, with one line per file: digest, size and path.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Component, Path};

use muster_core::ids::WorkspaceId;
use muster_core::model::BlobId;

use super::error::{BackupError, damaged};
use super::{FOLDERS, SINGLE};
use crate::state_dir::names::{BLOBS, DATABASE, SERIES, STORAGE};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub digest: BlobId,
    pub bytes: u64,
    /// Relative to the state directory.
    pub path: String,
}

#[derive(Debug, Default)]
pub struct List(Vec<Entry>);

impl Entry {
    pub fn new(path: &Path, digest: BlobId, bytes: u64) -> Result<Entry, BackupError> {
        match path.to_str().filter(|text| is_ours(Path::new(text)) && !text.contains('\n')) {
            Some(text) => Ok(Entry { digest, bytes, path: text.to_owned() }),
            None => Err(damaged(path, "a server does not create files with this name")),
        }
    }
}

/// Whether a file can be part of a backup. A server writes no other files into its state directory.
fn is_ours(path: &Path) -> bool {
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let top = path.components().next().map(|part| part.as_os_str());
    let is_in = |folder: &&str| top.is_some_and(|top| top == *folder) && Path::new(folder) != path;
    let is_single = |name: &str| Path::new(name) == path;
    is_plain
        && (FOLDERS.iter().any(is_in)
            || SINGLE.into_iter().chain([DATABASE, STORAGE, SERIES]).any(is_single)
            || blob_of_path(path).is_some())
}

/// The digest that a blob must have according to its path: `blobs/WORKSPACE/ab/abcdef…`.
pub fn blob_of_path(path: &Path) -> Option<BlobId> {
    place_of_blob(path).map(|(_, digest)| digest)
}

/// The same, with the workspace that the blob belongs to.
pub fn place_of_blob(path: &Path) -> Option<(WorkspaceId, BlobId)> {
    let mut parts = path.to_str()?.split('/');
    let [top, workspace, shard, name] = [(); 4].map(|()| parts.next());
    let workspace = workspace?.parse().ok()?;
    let digest: BlobId = name?.parse().ok()?;
    let fits = top? == BLOBS && digest.to_string() == name? && name?.get(..2) == shard;
    (fits && parts.next().is_none()).then_some((workspace, digest))
}

impl List {
    pub fn push(&mut self, entry: Entry) {
        self.0.push(entry);
    }

    pub fn remove(&mut self, path: &str) {
        self.0.retain(|entry| entry.path != path);
    }

    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|entry| entry.bytes).sum()
    }

    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    pub fn paths(&self) -> BTreeSet<&str> {
        self.0.iter().map(|entry| entry.path.as_str()).collect()
    }

    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for Entry { digest, bytes, path } in &self.0 {
            writeln!(text, "{digest} {bytes} {path}").expect("writing to a String cannot fail");
        }
        text
    }

    /// The error says what is wrong.
    pub fn parse(text: &str) -> Result<List, String> {
        let mut list = List::default();
        let mut seen = BTreeSet::new();
        for (number, line) in (1..).zip(text.lines()) {
            let entry = parse_line(line)
                .ok_or_else(|| format!("line {number} does not describe a file"))?;
            if !seen.insert(entry.path.clone()) {
                return Err(format!("line {number} repeats a file"));
            }
            list.push(entry);
        }
        Ok(list)
    }
}

fn parse_line(line: &str) -> Option<Entry> {
    let mut parts = line.splitn(3, ' ');
    let (digest, bytes, path) = (parts.next()?, parts.next()?, parts.next()?);
    Entry::new(Path::new(path), digest.parse().ok()?, bytes.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "0c05d5fe5c3492ed154cb090cf62e031b0fc26308d8bc5a3764f4f7f6c955081";

    #[test]
    fn only_paths_that_a_server_makes_are_taken() {
        let blob = format!("blobs/{}/0c/{DIGEST}", WorkspaceId(1));
        for good in ["muster.db", "keys/token.key", "logs/j1/a2.0.log", "clock", blob.as_str()] {
            let text = format!("{DIGEST} 7 {good}\n");
            let list = List::parse(&text).unwrap();
            assert_eq!((list.to_text(), list.len(), list.bytes()), (text, 1, 7));
        }
        let twice = format!("{DIGEST} 7 clock\n{DIGEST} 7 clock\n");
        assert!(List::parse(&twice).is_err());
        for bad in [
            "/etc/passwd",
            "../clock",
            "keys/../../clock",
            "keys",
            "nodes/n/secret",
            "connection.json",
            "blobs/w1/0c/short",
            &format!("blobs/w1/0c/{DIGEST}"),
            &blob.replace("/0c/", "/aa/"),
            &format!("{blob}/more"),
            "",
        ] {
            assert!(List::parse(&format!("{DIGEST} 7 {bad}\n")).is_err(), "{bad}");
        }
        for bad in ["clock", "xyz 7 clock", &format!("{DIGEST} many clock")] {
            assert!(List::parse(bad).is_err(), "{bad}");
        }
    }
}
