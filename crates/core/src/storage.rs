//! Blobs as clients know them, and what a request may demand of the one that is there. They are kept apart from World
//! (`muster_store::storage`); nothing here decides about nodes or jobs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::model::{AssetKind, BlobId};
use crate::time::{Span as Time, Wall};

/// Blocks that one blob is made of.
pub const BLOCKS_MAX: usize = 50_000;

/// The kinds whose versions get a container for their files, if a client asks where to put them.
const UPLOADED: [AssetKind; 3] = [AssetKind::Code, AssetKind::Data, AssetKind::Model];
/// Hexadecimal: what makes one of these containers differ from all others.
const UPLOAD_ID_CHARS: usize = 32;
/// Addresses that open such a container hold for an hour. After this time nobody comes back to finish.
pub const UPLOAD_LIFETIME: Time = Time::seconds(24 * 3_600);

/// The name of the container for the files of a version. `id` has 32 hexadecimal digits.
pub fn upload_container(kind: AssetKind, id: &str) -> String {
    format!("{}-{id}", kind.as_str())
}

/// The names of such containers in a text. Whatever refers to files in one has its name in it, however it spells the
/// rest.
pub fn upload_containers(text: &str) -> impl Iterator<Item = &str> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    text.match_indices('-').filter_map(move |(at, _)| {
        let kind = UPLOADED.into_iter().find(|kind| text[..at].ends_with(kind.as_str()))?;
        let digits = text.as_bytes()[at + 1..].iter().take_while(|byte| is_digit(byte)).count();
        let start = at - kind.as_str().len();
        (digits == UPLOAD_ID_CHARS).then(|| &text[start..=at + UPLOAD_ID_CHARS])
    })
}

/// Whether a container was made for the files of a version.
pub fn is_upload_container(name: &str) -> bool {
    upload_containers(name).next() == Some(name)
}

/// Of containers with when something was put there last, those that nobody needs: they were made for a version's files,
/// nothing names them, and nobody is putting files there. Users' own are never among them.
pub fn forgotten_uploads<'a>(
    containers: impl Iterator<Item = (&'a str, Wall)>,
    named: &BTreeSet<Box<str>>,
    now: Wall,
) -> Vec<&'a str> {
    containers
        .filter(|(name, touched)| {
            let is_old = now.0.saturating_sub(touched.0) >= UPLOAD_LIFETIME.0;
            is_upload_container(name) && is_old && !named.contains(*name)
        })
        .map(|(name, _)| name)
        .collect()
}

/// Changes whenever its blob does, and is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(pub u64);

/// A file of the byte store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobPart {
    pub digest: BlobId,
    pub bytes: u64,
}

/// What a client said about a blob's content, for whoever reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentHeaders {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disposition: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_control: Option<Box<str>>,
    /// In base64, as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub md5: Option<Box<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    #[serde(default)]
    pub headers: ContentHeaders,
    #[serde(default)]
    pub metadata: BTreeMap<Box<str>, Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub name: Box<str>,
    pub tag: Tag,
    pub made: Wall,
    pub changed: Wall,
    pub bytes: u64,
    pub about: About,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// Whatever is there.
    Any,
    Tag(Tag),
    /// A tag that was never ours.
    Foreign,
}

/// What must be so for a request to be carried out. Times are compared by the second, as HTTP writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guard {
    pub if_match: Option<Match>,
    pub if_none_match: Option<Match>,
    pub if_modified_since_s: Option<u64>,
    pub if_unmodified_since_s: Option<u64>,
    /// Whoever asks may make blobs, but not change any.
    pub may_only_create: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    Yes,
    /// Nothing has changed, for whoever reads.
    NotModified,
    No,
}

impl Guard {
    /// For a blob that is there, or `None` for one that is not.
    pub fn check(&self, blob: Option<(Tag, Wall)>) -> Holds {
        let is_it = |wanted: Match| match (wanted, blob) {
            (_, None) | (Match::Foreign, _) => false,
            (Match::Any, Some(_)) => true,
            (Match::Tag(tag), Some((found, _))) => tag == found,
        };
        let changed_s = blob.map(|(_, changed)| changed.0 / 1_000_000);
        let changed_after = |limit_s: u64| changed_s.is_none_or(|changed_s| changed_s > limit_s);
        if self.if_match.is_some_and(|wanted| !is_it(wanted))
            || self.if_unmodified_since_s.is_some_and(changed_after)
        {
            return Holds::No;
        }
        // A tag is the better witness: with one, times do not count.
        let is_unchanged = match (self.if_none_match, self.if_modified_since_s) {
            (Some(unwanted), _) => is_it(unwanted),
            (None, Some(since_s)) => !changed_after(since_s),
            (None, None) => false,
        };
        if is_unchanged { Holds::NotModified } else { Holds::Yes }
    }
}

/// A block in a list of blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRef {
    pub id: Box<str>,
    pub from: BlockFrom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockFrom {
    Committed,
    Uncommitted,
    /// The uncommitted one if there is one.
    Latest,
}

/// Which part of a blob: from a byte, up to and with another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub from: u64,
    pub to: Option<u64>,
}

impl Span {
    pub const ALL: Span = Span { from: 0, to: None };
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    Blob(Blob),
    /// All names that begin so, up to the delimiter.
    Prefix(Box<str>),
}

/// Blocks with their sizes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blocks {
    pub blob: Option<Blob>,
    pub committed: Vec<(Box<str>, u64)>,
    pub uncommitted: Vec<(Box<str>, u64)>,
}
