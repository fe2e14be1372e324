//! Muster's own responses about environments: substitute environments, and how environments were built.

use serde::{Deserialize, Serialize};

/// An environment or image that is not run, and its substitute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Substitute {
    /// The name of the environment or image; `*` matches any text.
    pub name: String,
    /// `environment` or `image`.
    pub of: String,
    /// The name of the substitute environment; without one it is the Python of the host.
    pub recipe: Option<String>,
    /// The Python version that is requested.
    pub python: Option<String>,
    /// In pip's syntax.
    pub packages: Vec<String>,
    /// Notes for a job that uses it.
    pub notes: Vec<String>,
}

/// How an environment was built, if it was built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildLog {
    /// The id under which the environment is stored; `None` if the host's own Python is used, so that nothing is built.
    pub id: Option<String>,
    /// `ready`, `building`, `failed`, `not built` or `not needed`.
    pub state: String,
    pub python: Option<String>,
    pub packages: Vec<String>,
    pub notes: Vec<String>,
    /// The output of the last build.
    pub log: Option<String>,
}
