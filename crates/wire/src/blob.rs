//! The blob storage's protocol: URLs, headers, XML, errors, and signed URLs (SAS).
//!
//! A path is never normalised: everything after the container, decoded once, is the name of the blob. `..`, `//` and
//! `%2F` have no special meaning.

mod address;
mod batch;
pub mod client;
mod error;
mod headers;
mod query;
mod range;
mod sas;
mod xml;

pub use address::{Address, NAME_CHARS_MAX, is_container_name};
pub use batch::{
    BATCH_BYTES_MAX, BATCH_PARTS_MAX, BatchAnswer, BatchPart, batch_answer, parse_batch,
};
pub use error::StorageError;
pub use headers::{
    Asked, METADATA_BYTES_MAX, format_tag, http_date, is_block_id, parse_http_date, parse_tag,
};
pub use query::BlobQuery;
pub use range::parse as parse_range;
pub use sas::{Right, Sas, SasScope};
pub use xml::{BLOCK_LIST_BYTES_MAX, Page, block_list, parse_block_list};

/// Limits for a single request.
pub const PUT_BYTES_MAX: u64 = 5_000 << 20;
pub const BLOCK_BYTES_MAX: u64 = 4_000 << 20;

/// The version that is sent to clients that do not name one.
pub const VERSION: &str = "2026-10-06";
