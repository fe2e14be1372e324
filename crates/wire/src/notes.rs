//! Notes for the owner of a resource although nothing is wrong with it, above all about requested settings that have no
//! effect.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::model::{ClusterSpec, JobSpec, LowPriority};
use muster_core::refusal::ClusterProperty;

use crate::compute::properties;

/// The key of the note among tags or properties, for clients that do not show Muster's own properties. What clients
/// send back under this key is ignored.
pub const NOTE: &str = JobSpec::NOTE;

/// Adds a note to those that a resource already has.
pub fn add(properties: &mut BTreeMap<String, String>, note: String) {
    let before = properties.remove(NOTE);
    let all = joined(before.into_iter().chain([note]));
    properties.extend(all.map(|all| (NOTE.to_owned(), all)));
}

/// Joins several notes to one.
pub fn joined(notes: impl IntoIterator<Item = String>) -> Option<String> {
    notes.into_iter().reduce(|all, next| format!("{all}; {next}"))
}

/// A note about requested properties that are not supported, if there are any.
pub fn without_effect(unread: &BTreeSet<Box<str>>) -> Option<String> {
    let names: Vec<&str> = unread.iter().map(|path| &**path).collect();
    match names.as_slice() {
        [] => None,
        [one] => Some(format!("{one} is not supported in this version and has no effect")),
        many => {
            let many = many.join(", ");
            Some(format!("these are not supported in this version and have no effect: {many}"))
        }
    }
}

/// Notes about the settings of a compute that have no effect.
pub fn of_cluster(spec: &ClusterSpec) -> Vec<String> {
    let notes =
        ClusterProperty::ALL.iter().filter_map(|property| properties::note(*property, spec));
    notes.map(str::to_owned).chain(without_effect(&spec.ignored)).collect()
}

/// Whether a job suits nodes that may be evicted at any time.
pub fn at_low_priority(spec: &JobSpec) -> &'static str {
    match spec.at_low_priority() {
        LowPriority::Suits => {
            "suits low priority: after an eviction it is retried and continues from its last checkpoint"
        }
        LowPriority::BeginsAnew => {
            "suits low priority only if it is short: after an eviction it is retried from the beginning; give it a \
             checkpoint folder (muster.checkpoint, --checkpoint) to let it continue"
        }
        LowPriority::Fails => {
            "does not suit low priority: it fails when a node is evicted (muster.onEviction, --on-eviction)"
        }
    }
}

#[cfg(test)]
mod tests;
