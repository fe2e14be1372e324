//! Paging, the same for all lists.
//!
//! A page ends with the key of its last item, and the next page begins after that key. So even if items are created or
//! deleted in the meantime, none is shown twice, and no item that existed throughout is left out.

use axum::http::StatusCode;
use axum::response::Response;
use muster_wire::{Page, Route, page_size};
use serde::Serialize;

use super::{Call, Failed};
use crate::http::respond::document;

/// The page size of Azure for small items.
pub const SMALL: usize = 1_000;
/// The page size for larger items: jobs and computes.
pub const LARGE: usize = 100;

/// Query parameters that the URL of the next page repeats.
const KEPT: [&str; 10] = [
    "api-version",
    "$filter",
    "$expand",
    "$top",
    "$orderBy",
    "compute-type",
    "listViewType",
    "tag",
    "jobType",
    "parentJobName",
];

impl Call {
    /// The page size that `$top` requests, limited to `most`.
    pub fn page_size(&self, most: usize) -> Result<usize, Failed> {
        Ok(page_size(&self.query, most)?)
    }

    /// The URL of the page after `token`.
    pub fn next_link(&self, route: &Route, token: &str) -> Option<String> {
        let kept = KEPT.into_iter().filter_map(|key| Some((key, self.query.get(key)?)));
        let query: Vec<_> = kept.chain([("$skipToken", token)]).collect();
        route.url(&self.app.base_url, &query)
    }

    /// One page of a list that is completely in memory, in which each item has the key that it is sorted by.
    pub fn page<T: Serialize>(
        &self,
        route: &Route,
        all: Vec<(String, T)>,
    ) -> Result<Response, Failed> {
        let (value, next) = self.cut(route, all)?;
        Ok(document(StatusCode::OK, &Page::new(value, next)))
    }

    /// The items of that page, and the URL of the next.
    pub fn cut<T>(
        &self,
        route: &Route,
        mut all: Vec<(String, T)>,
    ) -> Result<(Vec<T>, Option<String>), Failed> {
        let size = self.page_size(SMALL)?;
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        let after = self.query.skip().unwrap_or("");
        let mut rest = all.split_off(all.partition_point(|(key, _)| key.as_str() <= after));
        let is_more = rest.len() > size;
        rest.truncate(size);
        let next = rest.last().filter(|_| is_more).and_then(|(key, _)| self.next_link(route, key));
        Ok((rest.into_iter().map(|(_, item)| item).collect(), next))
    }
}
