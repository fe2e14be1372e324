//! Python environments that jobs run in: what is to be in one, and what a job says about its own.
//!
//! Here are only the words. Who reads them from files, builds them and keeps them is `muster-environments`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// What is in an environment. The same recipe is the same environment, which is known by the digest of its text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// `3.10`, or bounds as in `>=3.8,<3.12`. A wish: where there is none such, another one stands in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<Box<str>>,
    /// Canonical, sorted, none twice: one line each, as in a requirements file.
    pub requirements: Vec<Box<str>>,
    /// Instead of the usual index of packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<Box<str>>,
    /// Beside it, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_indexes: Vec<Box<str>>,
}

impl Recipe {
    /// Sorted, so that two recipes with the same in them are the same.
    pub fn new(python: Option<Box<str>>, mut requirements: Vec<Box<str>>) -> Recipe {
        requirements.sort_unstable();
        requirements.dedup();
        Recipe { python, requirements, index: None, extra_indexes: Vec::new() }
    }

    /// What its digest is of. A change of this form would build every environment anew, and find none of the old.
    pub fn text(&self) -> String {
        let mut text = String::from("muster recipe 1\n");
        let one = |text: &mut String, what: &str, value: &str| {
            writeln!(text, "{what} {value}").expect("a text takes any text");
        };
        self.python.iter().for_each(|request| one(&mut text, "python", request));
        self.index.iter().for_each(|url| one(&mut text, "index", url));
        self.extra_indexes.iter().for_each(|url| one(&mut text, "extra-index", url));
        self.requirements.iter().for_each(|line| one(&mut text, "requirement", line));
        text
    }
}

/// Tells recipes apart where it does not matter much if two are taken for one: which host has built what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecipeMark(pub u64);

impl Recipe {
    /// FNV-1a of its text.
    pub fn mark(&self) -> RecipeMark {
        let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        RecipeMark(self.text().bytes().fold(0xcbf2_9ce4_8422_2325, add))
    }
}

/// The environment of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnvironment {
    /// As the user named it.
    pub id: Box<str>,
    /// `None`: the Python of the machine that the job runs on, with what is installed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
    /// What an engine for containers would run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Box<str>>,
    /// What the user should know about how it came about, for the job's log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Box<str>>,
    /// What its processes find in their environment, where the job itself says nothing else.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_repetition_make_no_difference_and_everything_else_does() {
        let recipe =
            |lines: &[&str]| Recipe::new(None, lines.iter().map(|line| Box::from(*line)).collect());
        assert_eq!(recipe(&["b", "a", "b"]).text(), recipe(&["a", "b"]).text());
        let base = recipe(&["a"]);
        let others = [
            recipe(&["a", "b"]),
            Recipe { python: Some("3.10".into()), ..base.clone() },
            Recipe { index: Some("https://x/".into()), ..base.clone() },
            Recipe { extra_indexes: vec!["https://x/".into()], ..base.clone() },
        ];
        let mut texts: Vec<String> = others.iter().map(Recipe::text).collect();
        texts.push(base.text());
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 5);
        assert_eq!(
            others[1].text(),
            "muster recipe 1\npython 3.10\nrequirement a\n",
            "environments that are kept are found again"
        );
    }
}
