//! YAML that users write: job and compute files, conda specifications. One way to read it, with its bounds.

mod dump;
pub mod tree;

pub use dump::dump;

use serde::de::DeserializeOwned;

/// What aliases (`*name`) may stand for, in all: each may be as long as the file.
const ALIASED_MAX: usize = 1_000;

/// A text that is no YAML, or not of the kind that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct BadYaml {
    /// Line and column, from 1.
    pub place: Option<(u64, u64)>,
    pub words: String,
}

pub fn from_yaml<T: DeserializeOwned>(text: &str) -> Result<T, BadYaml> {
    let options = serde_saphyr::options! {
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: ALIASED_MAX },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|why| bad(&why))
}

fn bad(why: &serde_saphyr::Error) -> BadYaml {
    let place = why.location().map(|at| (at.line(), at.column()));
    // The first line says what; the others draw the place, which is said already.
    let text = why.without_snippet().to_string();
    let text = text.lines().next().unwrap_or_default();
    let words = text.split(" at line ").next().unwrap_or(text).to_owned();
    BadYaml { place, words }
}
