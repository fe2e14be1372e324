//! A provider evicted a low-priority node.

use crate::attempts;
use crate::input::{InputResult, Reply};
use crate::model::{NodePhase, Trouble};
use crate::step::Transaction;

pub(crate) fn on_evicted(tx: &mut Transaction<'_>, name: &str) -> InputResult {
    // The node is already deleted, or this was reported twice: there is nothing left to do.
    let Some(node) = tx.world.node_by_name(name) else { return Ok(Reply::Noted) };
    match node.phase() {
        NodePhase::Requested | NodePhase::Booting | NodePhase::Idle | NodePhase::Leased => {
            let id = node.id;
            attempts::lose_node(tx, id, Trouble::Evicted);
        }
        NodePhase::Unusable | NodePhase::Leaving | NodePhase::Gone => {}
    }
    Ok(Reply::Noted)
}
