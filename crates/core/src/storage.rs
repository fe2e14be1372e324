//! Blobs as clients know them, and the preconditions that a request can set. Blobs are stored apart from World
//! (`muster_store::storage`); no decision about nodes or jobs depends on them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::model::{AssetKind, BlobId};
use crate::time::{Span as Time, Wall};

/// The most blocks that one blob can have.
pub const BLOCKS_MAX: usize = 50_000;

/// The kinds of assets whose versions get a container for their files when a client asks where to upload them.
const UPLOADED: [AssetKind; 3] = [AssetKind::Code, AssetKind::Data, AssetKind::Model];
/// The length of the hexadecimal ID that makes the name of each such container unique.
const UPLOAD_ID_CHARS: usize = 32;
/// Upload addresses are valid for an hour, so after this time an upload will not be finished any more.
pub const UPLOAD_LIFETIME: Time = Time::seconds(24 * 3_600);

/// The name of the container for the files of a version. `id` has 32 hexadecimal digits.
pub fn upload_container(kind: AssetKind, id: &str) -> String {
    format!("{}-{id}", kind.as_str())
}

/// The names of such containers in a text. Every reference to files in such a container includes its name, however the
/// rest is spelled.
pub fn upload_containers(text: &str) -> impl Iterator<Item = &str> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    text.match_indices('-').filter_map(move |(at, _)| {
        let kind = UPLOADED.into_iter().find(|kind| text[..at].ends_with(kind.as_str()))?;
        let digits = text.as_bytes()[at + 1..].iter().take_while(|byte| is_digit(byte)).count();
        let start = at - kind.as_str().len();
        (digits == UPLOAD_ID_CHARS).then(|| &text[start..=at + UPLOAD_ID_CHARS])
    })
}

/// Whether a container was created for the files of a version.
pub fn is_upload_container(name: &str) -> bool {
    upload_containers(name).next() == Some(name)
}

/// The containers that are no longer needed, from a list with the time of the last upload to each: they were created
/// for a version's files, no row references them, and no upload is in progress. Users' own containers are never
/// included.
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

/// The ETag of a blob. It changes whenever the blob does, and is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(pub u64);

/// A file of the byte store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobPart {
    pub digest: BlobId,
    pub bytes: u64,
}

/// What a client declared about a blob's content, for its readers.
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
    /// In base64, as the client sent it.
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
    /// Matches any existing blob.
    Any,
    Tag(Tag),
    /// A tag that this server never issued.
    Foreign,
}

/// The preconditions of a request. Times are compared by the second, as HTTP writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guard {
    pub if_match: Option<Match>,
    pub if_none_match: Option<Match>,
    pub if_modified_since_s: Option<u64>,
    pub if_unmodified_since_s: Option<u64>,
    /// The caller may create blobs, but not change existing ones.
    pub may_only_create: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    Yes,
    /// The content that the reader has is still current.
    NotModified,
    No,
}

impl Guard {
    /// Checks the preconditions against a blob, or against `None` if it does not exist.
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
        // A tag is more precise: if there is one, times are ignored.
        let is_unchanged = match (self.if_none_match, self.if_modified_since_s) {
            (Some(unwanted), _) => is_it(unwanted),
            (None, Some(since_s)) => !changed_after(since_s),
            (None, None) => false,
        };
        if is_unchanged { Holds::NotModified } else { Holds::Yes }
    }
}

/// A block in a block list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRef {
    pub id: Box<str>,
    pub from: BlockFrom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockFrom {
    Committed,
    Uncommitted,
    /// The uncommitted block if there is one, otherwise the committed one.
    Latest,
}

/// A range of a blob, from one byte to another, inclusive.
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
    /// All names with this prefix, up to the delimiter.
    Prefix(Box<str>),
}

/// Blocks with their sizes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blocks {
    pub blob: Option<Blob>,
    pub committed: Vec<(Box<str>, u64)>,
    pub uncommitted: Vec<(Box<str>, u64)>,
}
