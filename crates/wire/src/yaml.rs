//! YAML that users write: job and compute files, conda specifications. There is one reader, with limits.

mod dump;
pub mod tree;

pub use dump::dump;

/// A text that is no YAML, or not of the kind that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct BadYaml {
    /// Line and column, from 1.
    pub place: (usize, usize),
    pub words: String,
}
