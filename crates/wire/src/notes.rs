//! Notes for the owner of a resource although nothing is wrong with it, above all about requested settings that have no
//! effect.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::model::{ClusterSpec, JobSpec, LowPriority, RemoteLogin};

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
    let has_login = spec.admin.is_some() || spec.remote_login == RemoteLogin::Enabled;
    let identities = spec.identity.as_ref().map_or(0, |identity| identity.user_assigned.len());
    let said = [
        (
            has_login,
            "the SSH settings are stored but have no effect: nodes do not accept SSH connections",
        ),
        (
            spec.subnet.is_some(),
            "the subnet is stored but has no effect: the nodes of each cluster are in a network of their own that \
             Muster creates, and they cannot reach that subnet",
        ),
        (
            !spec.enable_node_public_ip,
            "enableNodePublicIp=false has no effect: nodes never have a public address",
        ),
        (
            spec.isolated_network,
            "isolatedNetwork has no effect: nodes of different clusters can never reach each other",
        ),
        (
            spec.virtual_machine_image.is_some(),
            "the virtual machine image is stored but not used: nodes use the file system of their host",
        ),
        (
            identities > 0,
            "the user-assigned identities are stored but have no effect: jobs cannot get tokens for them; use a \
             system-assigned identity",
        ),
    ];
    let known = said.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text.to_owned());
    known.chain(without_effect(&spec.ignored)).collect()
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
