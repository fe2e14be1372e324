//! What our own endpoints say about environments: what stands in for those that are not here, and how they were built.

use serde::{Deserialize, Serialize};

/// Something that is not run here, and what is run in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandIn {
    /// `*` stands for any letters.
    pub name: String,
    /// `environment` or `image`.
    pub of: String,
    /// What stands in for it, by its name; without one it is the machine's own Python.
    pub recipe: Option<String>,
    /// The version that is wished for.
    pub python: Option<String>,
    /// As pip has them.
    pub packages: Vec<String>,
    /// What a job that uses it is told.
    pub notes: Vec<String>,
}

/// How an environment was built, if it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildLog {
    /// What it is known by where it is kept; none is made where the machine's own Python stands in.
    pub id: Option<String>,
    /// `ready`, `building`, `failed`, `not built` or `not needed`.
    pub state: String,
    pub python: Option<String>,
    pub packages: Vec<String>,
    pub notes: Vec<String>,
    /// What was said while it was built last.
    pub log: Option<String>,
}
