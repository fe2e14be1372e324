//! One page of a list.

use serde::{Deserialize, Serialize};

use crate::error::ArmError;
use crate::json::shorten;
use crate::path::Query;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    pub value: Vec<T>,
    /// The absolute URL of the next page; `null` on the last page.
    #[serde(rename = "nextLink", default)]
    pub next_link: Option<String>,
}

impl<T> Page<T> {
    pub fn new(value: Vec<T>, next_link: Option<String>) -> Page<T> {
        Page { value, next_link }
    }

    /// A list that fits on one page.
    pub fn whole(value: Vec<T>) -> Page<T> {
        Page::new(value, None)
    }
}

/// The value of `$top`, or else the largest page size.
pub fn page_size(query: &Query, most: usize) -> Result<usize, ArmError> {
    let Some(text) = query.get("$top").filter(|text| !text.trim().is_empty()) else {
        return Ok(most);
    };
    let count = text.trim().parse::<usize>().ok().filter(|count| *count > 0);
    count.map(|count| count.min(most)).ok_or_else(|| {
        let message = format!("$top is '{}'; give a whole number of at least 1", shorten(text));
        ArmError::invalid_property("$top", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_page_has_no_link() {
        let page = Page::whole(vec![1]);
        assert_eq!(crate::to_json(&page), r#"{"value":[1],"nextLink":null}"#);
        let read: Page<i32> = crate::from_json(br#"{"value":[1]}"#).unwrap();
        assert_eq!(read, page);
    }
}
