//! One page of a list.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    pub value: Vec<T>,
    /// The absolute address of the next page; `null` on the last.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_page_says_so() {
        let page = Page::whole(vec![1]);
        assert_eq!(crate::to_json(&page), r#"{"value":[1],"nextLink":null}"#);
        let read: Page<i32> = crate::from_json(br#"{"value":[1]}"#).unwrap();
        assert_eq!(read, page);
    }
}
