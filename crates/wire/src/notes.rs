//! What the owner of a resource has to know although nothing is wrong with it: above all, which of the things that were
//! asked for have no effect here.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::model::{ClusterSpec, JobSpec, LowPriority, RemoteLogin};

/// Under this name clients that show nothing else of ours find the note, among tags or properties. What they send back
/// under it is left out.
pub const NOTE: &str = JobSpec::NOTE;

/// Adds one to those that a resource has already.
pub fn add(properties: &mut BTreeMap<String, String>, note: String) {
    let before = properties.remove(NOTE);
    let all = joined(before.into_iter().chain([note]));
    properties.extend(all.map(|all| (NOTE.to_owned(), all)));
}

/// Several notes as one.
pub fn joined(notes: impl IntoIterator<Item = String>) -> Option<String> {
    notes.into_iter().reduce(|all, next| format!("{all}; {next}"))
}

/// What was asked for and is not known here, if there is anything.
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

/// What a compute asks for and does not get.
pub fn of_cluster(spec: &ClusterSpec) -> Vec<String> {
    let has_login = spec.admin.is_some() || spec.remote_login == RemoteLogin::Enabled;
    let identities = spec.identity.as_ref().map_or(0, |identity| identity.user_assigned.len());
    let said = [
        (has_login, "the SSH settings are kept but have no effect: nothing on a node accepts SSH"),
        (
            spec.subnet.is_some(),
            "the subnet is kept but has no effect: the nodes of each cluster are in a network of their own that \
             Muster makes, and they do not reach that subnet",
        ),
        (
            !spec.enable_node_public_ip,
            "enableNodePublicIp=false changes nothing: no node has a public address here",
        ),
        (
            spec.isolated_network,
            "isolatedNetwork changes nothing: nodes of different clusters never reach each other",
        ),
        (
            spec.virtual_machine_image.is_some(),
            "the virtual machine image is kept but not used: nodes see the files of the machine that they run on",
        ),
        (
            identities > 0,
            "the user-assigned identities are kept but have no effect: no job gets a token for them; use a \
             system-assigned identity",
        ),
    ];
    let known = said.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text.to_owned());
    known.chain(without_effect(&spec.ignored)).collect()
}

/// Whether a job suits nodes that can be taken away at any time.
pub fn at_low_priority(spec: &JobSpec) -> &'static str {
    match spec.at_low_priority() {
        LowPriority::Suits => {
            "suits low priority: after an eviction it is tried again and finds its last checkpoint"
        }
        LowPriority::BeginsAnew => {
            "suits low priority only if it is short: after an eviction it is tried again from its beginning; give it a \
             checkpoint folder (muster.checkpoint, --checkpoint) to let it go on"
        }
        LowPriority::Fails => {
            "does not suit low priority: it fails when a node is taken away (muster.onEviction, --on-eviction)"
        }
    }
}

#[cfg(test)]
mod tests;
