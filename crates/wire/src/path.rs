//! The path and the query of a request, normalised once, before any access check.
//!
//! Clients spell ARM paths in several ways: `resourcegroups` or `resourceGroups`, `//` in the middle, names with the
//! prefix `azureml:`. [`Request::parse`] turns them all into one [`Route`]; names keep the case in which the user wrote
//! them. Blob paths are not handled here, because every byte of them counts.

mod actions;
mod authority;
pub(crate) mod declare;
mod documentation;
pub(crate) mod fields;
#[cfg(test)]
mod group_tests;
mod home;
mod ids;
mod query;
mod route;
mod scopes;
mod segments;
pub mod table;

pub use actions::{ComputeAction, HostAction};
pub use authority::Authority;
pub use documentation::{documentation, examples};
pub(crate) use fields::{asset_kind_of, asset_word};
pub use home::Home;
pub use ids::workspace_id;
pub(crate) use ids::{parse_id, quota_id, strip_prefix};
pub use query::{QUERY_BYTES_MAX, Query};
pub use scopes::{lockable_of, scope_of};
pub use segments::PATH_BYTES_MAX;
pub(crate) use segments::{encode as encode_text, unescape};

use crate::routes::Route;

/// The canonical spelling of a region: `East US` becomes `eastus`.
pub fn location_name(text: &str) -> Box<str> {
    let plain = text.chars().filter(|c| !c.is_whitespace());
    plain.map(|c| c.to_ascii_lowercase()).collect::<String>().into()
}

/// The route of a request, and its query parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub route: Route,
    pub query: Query,
}

impl Request {
    /// `path` and `query` are those of the request line, not decoded yet.
    pub fn parse(path: &str, query: Option<&str>) -> Result<Request, PathError> {
        let segments = segments::split(path)?;
        let query = Query::parse(query.unwrap_or(""))?;
        Ok(Request { route: Route::of(&segments)?, query })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path has {got} bytes; at most {PATH_BYTES_MAX} are allowed")]
    PathTooLong { got: usize },
    #[error("the query has {got} bytes; at most {QUERY_BYTES_MAX} are allowed")]
    QueryTooLong { got: usize },
    #[error("the path does not start with '/'; give an absolute path")]
    NotAbsolute,
    #[error("'%' in '{text}' is not followed by two hexadecimal digits; write a plain '%' as %25")]
    BadEscape { text: String },
    #[error("'{text}' is not UTF-8 when decoded; encode names as UTF-8")]
    NotUtf8 { text: String },
    #[error("the path contains the segment '{text}'; write the path without it")]
    DotSegment { text: String },
    #[error("'{text}' contains a control character; remove it")]
    Control { text: String },
    #[error("'{text}' contains an encoded '/'; names cannot contain one")]
    EncodedSlash { text: String },
    #[error("the name '{text}' is empty after its prefix; give a name")]
    EmptyName { text: String },
}
