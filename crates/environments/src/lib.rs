//! Python environments for jobs: a user's specification becomes a recipe, and a recipe becomes a folder that jobs
//! share.
//!
//! * [`conda`], [`pip`] and [`dockerfile`] read specifications; [`table`] knows the substitutes for images and for
//!   Azure's curated environments. These are pure: text in, [`muster_core::model::Recipe`] and notes out;
//! * [`store`] builds with `uv` and keeps what is built, each recipe once.
//!
//! Only wheels are installed, so no package's code runs during a build. This crate knows nothing about jobs, nodes and
//! HTTP.

pub mod conda;
pub mod dockerfile;
mod marker;
mod notes;
pub mod pip;
pub mod python;
pub mod store;
pub mod table;
mod variables;
mod version;

use aws_lc_rs::digest::{SHA256, digest};
use muster_core::model::{Recipe, RecipeId};

/// Returns the id of an environment.
pub fn id_of(recipe: &Recipe) -> RecipeId {
    let digest = digest(&SHA256, recipe.text().as_bytes());
    RecipeId(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

/// Prepares a user's text for a message: quoted, shortened, and without control characters.
fn brief(text: &str) -> String {
    format!("'{}'", shown(text))
}

/// The same without quotes.
fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut shown: String = text.chars().take(CHARS_MAX).map(plain).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}
