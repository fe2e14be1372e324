//! The hosts that nodes are created on. In some seeds there are two, which can be full; in the others there is one
//! without limits.

use std::collections::BTreeMap;

use muster_core::model::{Capacity, HostName, KeyDigest, NodeEvent, Scope};
use muster_core::time::Span;
use muster_core::{Change, HostRequest, Input, NewHost, World};

use crate::failure::{Held, promise};

/// Every fourth seed has limited hosts.
const STRICT_EVERY: u64 = 4;
/// Fewer nodes than all clusters together may have, but on one host as many as the largest job needs in addition to
/// those that are always running.
const LOCAL_NODES: u32 = 6;
const JOINED_NODES: u32 = 12;

/// Whether the hosts of this seed take only the nodes that they have room for.
pub(crate) fn is_strict(seed: u64) -> bool {
    seed % STRICT_EVERY == STRICT_EVERY - 1
}

/// What a server learns when it starts: the capacity of its own host, and another host that joins or joined before.
pub(crate) fn heard_at_start(seed: u64) -> Vec<Input> {
    if !is_strict(seed) {
        return Vec::new();
    }
    let name = HostName::new("second").expect("a name");
    let (digest, key) = (KeyDigest::made_up("ticket"), KeyDigest::made_up("key"));
    let (intent, good_for) = (Scope::Everything, Span::seconds(3600));
    let requests = [
        HostRequest::Seen { name: HostName::local(), capacity: room(LOCAL_NODES) },
        HostRequest::IssueTicket { digest, intent, host: None, good_for },
        HostRequest::Join(NewHost { ticket: digest, name, capacity: room(JOINED_NODES), key }),
    ];
    requests.into_iter().map(|request| Input::ChangeHosts(Box::new(request))).collect()
}

/// Room for this many of the largest nodes.
fn room(nodes: u32) -> Capacity {
    Capacity { gpus: nodes, vcpus: 4 * nodes, memory_mb: 28 * 1024 * u64::from(nodes) }
}

/// No node is requested on a host that has no room for it, and no job is on two hosts. This is counted from the nodes
/// themselves.
pub(crate) fn check(world: &World, changes: &[Change]) -> Held {
    let is_request =
        |change: &Change| matches!(change, Change::NodeChanged { event: NodeEvent::Requested, .. });
    if !world.settings.over_commit && changes.iter().any(is_request) {
        let mut used: BTreeMap<&HostName, Capacity> = BTreeMap::new();
        for node in world.nodes() {
            let sum = used.entry(&node.host).or_default();
            *sum = sum.with(node.capacity);
        }
        for (name, used) in used {
            let host = world.hosts().host(name);
            let holds = host.is_some_and(|host| used.fits_into(host.capacity));
            promise(holds, || format!("{used:?} on {name}, which is {host:?}"))?;
        }
    }
    for change in changes {
        let Change::JobChanged { job, .. } = change else { continue };
        let members = job.attempt().into_iter().flat_map(|attempt| &attempt.members);
        let mut hosts = members.filter_map(|member| Some(&world.node(member.node)?.host));
        let first = hosts.next();
        promise(hosts.all(|host| Some(host) == first), || format!("{} is on two hosts", job.id))?;
    }
    Ok(())
}
