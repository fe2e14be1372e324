//! Python environments of jobs: what they contain, and what a job specifies about its own.
//!
//! This module only describes them. `muster-environments` reads, builds and stores them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// The content of an environment. Equal recipes are the same environment, which is identified by the digest of its
/// text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// A version such as `3.10`, or bounds such as `>=3.8,<3.12`. If there is none, another version is used instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<Box<str>>,
    /// The lines of a requirements file: canonical, sorted and without duplicates.
    pub requirements: Vec<Box<str>>,
    /// The package index to use instead of the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<Box<str>>,
    /// Additional package indexes, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_indexes: Vec<Box<str>>,
}

impl Recipe {
    /// Sorts the requirements, so that recipes with the same content are equal.
    pub fn new(python: Option<Box<str>>, mut requirements: Vec<Box<str>>) -> Recipe {
        requirements.sort_unstable();
        requirements.dedup();
        Recipe { python, requirements, index: None, extra_indexes: Vec::new() }
    }

    /// The text that its digest is computed from. If this format changed, every environment would be built again.
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

/// A short hash that tells recipes apart where a collision does no harm: which host has which environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecipeMark(pub u64);

impl Recipe {
    /// The FNV-1a hash of its text.
    pub fn mark(&self) -> RecipeMark {
        let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        RecipeMark(self.text().bytes().fold(0xcbf2_9ce4_8422_2325, add))
    }
}

/// The environment of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnvironment {
    /// The name or ID as the user wrote it.
    pub id: Box<str>,
    /// `None` means the Python of the host, with the packages that are installed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
    /// The image that a container engine would run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Box<str>>,
    /// Notes for the user about how the environment was chosen, for the job's log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Box<str>>,
    /// Environment variables of its processes, unless the job itself sets them.
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
            "stored environments are found again"
        );
    }
}
