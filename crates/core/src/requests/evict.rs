//! Rehearsing an eviction: a user evicts a low-priority node to see how their jobs handle it.

use super::{find_workspace, shorten};
use crate::attempts;
use crate::input::{InputResult, Refused, Reply};
use crate::model::{NodePhase, Tier, WorkspaceKey};
use crate::refusal::words;
use crate::step::Transaction;
use crate::time::Span;
use crate::why::{Listing, Remedy};

pub(crate) fn evict(
    tx: &mut Transaction<'_>,
    workspace: &WorkspaceKey,
    cluster: &str,
    node: &str,
) -> InputResult {
    let id = find_workspace(tx, workspace)?.id;
    let Some(cluster) = tx.world.cluster_by_name(id, cluster) else {
        let message = format!(
            "compute '{}' does not exist in workspace '{}'; check the name",
            shorten(cluster),
            workspace.name
        );
        return Err(Refused::not_found("name", message));
    };
    let found = tx.world.node_by_name(node).filter(|found| found.cluster == cluster.id);
    let Some(found) = found else {
        let message = words![
            format!("'{}' has no node '{}'; `", cluster.name, shorten(node)),
            Remedy::List(Listing::Nodes),
            "` shows its nodes"
        ];
        return Err(Refused::not_found("node", message));
    };
    if found.tier == Tier::Dedicated {
        let message = format!(
            "node '{}' is dedicated, and only low-priority nodes can be evicted; \
             use a cluster with tier low_priority",
            found.name
        );
        return Err(Refused::invalid("node", message));
    }
    let id = found.id;
    match found.phase() {
        NodePhase::Requested | NodePhase::Booting | NodePhase::Idle => {
            attempts::notice_eviction(tx, id);
            Ok(Reply::Evicting { within: Span::ZERO })
        }
        NodePhase::Leased => {
            // A repeated request finds the eviction already under way.
            if found.evict_at.is_none() {
                attempts::notice_eviction(tx, id);
            }
            Ok(Reply::Evicting { within: tx.world.settings.eviction_grace })
        }
        NodePhase::Unusable | NodePhase::Leaving | NodePhase::Gone => {
            let message =
                format!("node '{}' is already being deleted; choose another one", found.name);
            Err(Refused::conflict("node", message))
        }
    }
}
