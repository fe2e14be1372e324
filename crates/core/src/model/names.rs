//! Names that users choose, checked once where they enter.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::limits;

/// Why a name was refused, with the rule that it broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error("the name has {got} characters; it must have 3 to 24")]
    Length { got: usize },
    #[error("the name starts with {got:?}; it must start with a {wanted}")]
    Start { got: char, wanted: &'static str },
    #[error("the name contains {got:?}; only letters, digits and {allowed} are allowed")]
    Character { got: char, allowed: &'static str },
    #[error("the last '-' of the name is not followed by a letter; add one after it")]
    DashWithoutLetter,
    #[error("the name starts or ends with '-'; remove it there")]
    DashAtTheEdge,
    #[error(
        "'{name}' and names that begin with '{name}-' are reserved for Muster; choose another name"
    )]
    Reserved { name: &'static str },
    #[error("the name is empty; give it 1 to {max} characters")]
    Empty { max: usize },
    #[error("the name has {got} bytes; at most {max} are allowed")]
    TooLong { got: usize, max: usize },
}

/// The name of a compute cluster: 3 to 24 letters, digits and dashes, a letter first, and a letter
/// somewhere after every dash. Compared without case, shown as given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterName(Box<str>);

impl ClusterName {
    pub fn new(text: &str) -> Result<ClusterName, BadName> {
        let length = text.chars().count();
        if !(3..=24).contains(&length) {
            return Err(BadName::Length { got: length });
        }
        if let Some(got) = text.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-') {
            return Err(BadName::Character { got, allowed: "'-'" });
        }
        match text.chars().next() {
            Some(first) if first.is_ascii_alphabetic() => {}
            Some(got) => return Err(BadName::Start { got, wanted: "letter" }),
            None => return Err(BadName::Length { got: 0 }),
        }
        let after_last_dash = text.rsplit('-').next().unwrap_or(text);
        if after_last_dash.len() < text.len()
            && !after_last_dash.chars().any(|c| c.is_ascii_alphabetic())
        {
            return Err(BadName::DashWithoutLetter);
        }
        let folded = text.to_ascii_lowercase();
        if folded
            .strip_prefix(super::SERVERLESS)
            .is_some_and(|end| end.is_empty() || end.starts_with('-'))
        {
            return Err(BadName::Reserved { name: super::SERVERLESS });
        }
        Ok(ClusterName(text.into()))
    }

    /// For names that Muster generates itself.
    pub(super) fn unchecked(text: &str) -> ClusterName {
        ClusterName(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of one of its nodes, which is the only name that users see.
    pub fn of_node(&self, node: NodeId) -> String {
        format!("{}-{:x}", self.folded(), node.0)
    }

    /// The form that is equal for all spellings of the same name.
    pub fn folded(&self) -> String {
        self.0.to_ascii_lowercase()
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name that becomes part of a path or an environment variable: letters, digits, `-`, `_` and `.`, not
/// starting with a dot, dash or underscore. Used for jobs, workspaces and resource groups.
pub fn check_path_name(text: &str, max: usize) -> Result<(), BadName> {
    let Some(first) = text.chars().next() else {
        return Err(BadName::Empty { max });
    };
    if text.len() > max {
        return Err(BadName::TooLong { got: text.len(), max });
    }
    if let Some(got) =
        text.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.'))
    {
        return Err(BadName::Character { got, allowed: "'-', '_', '.'" });
    }
    if !first.is_ascii_alphanumeric() {
        return Err(BadName::Start { got: first, wanted: "letter or digit" });
    }
    Ok(())
}

pub fn check_job_name(text: &str) -> Result<(), BadName> {
    check_path_name(text, limits::JOB_NAME_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_names_follow_the_published_rule() {
        let good = [
            "abc",
            "cpu-cluster",
            "A1b",
            "serverlessness",
            "a-1-b",
            "gpu-training-cluster",
            "abcdefghijklmnopqrstuvwx",
        ];
        for name in good {
            assert!(ClusterName::new(name).is_ok(), "{name}");
        }
        let bad = [
            ("", BadName::Length { got: 0 }),
            ("ab", BadName::Length { got: 2 }),
            ("abcdefghijklmnopqrstuvwxy", BadName::Length { got: 25 }),
            ("1abc", BadName::Start { got: '1', wanted: "letter" }),
            ("-abc", BadName::Start { got: '-', wanted: "letter" }),
            ("a_bc", BadName::Character { got: '_', allowed: "'-'" }),
            ("a bc", BadName::Character { got: ' ', allowed: "'-'" }),
            ("abc-", BadName::DashWithoutLetter),
            ("abc-1", BadName::DashWithoutLetter),
            ("ab-c-12", BadName::DashWithoutLetter),
            ("abcé", BadName::Character { got: 'é', allowed: "'-'" }),
            ("Serverless", BadName::Reserved { name: "serverless" }),
            ("serverless-mine", BadName::Reserved { name: "serverless" }),
            ("abc/def", BadName::Character { got: '/', allowed: "'-'" }),
        ];
        for (name, why) in bad {
            assert_eq!(ClusterName::new(name), Err(why), "{name}");
        }
    }

    #[test]
    fn job_names_cannot_leave_their_folder() {
        assert!(check_job_name("happy_tree-12.x").is_ok());
        for name in ["", "..", ".hidden", "a/b", "a\0b", "-rf"] {
            assert!(check_job_name(name).is_err(), "{name}");
        }
        assert!(check_job_name(&"a".repeat(256)).is_err());
    }
}
