//! A provider took a low-priority node back.

use crate::attempts;
use crate::input::{InputResult, Reply};
use crate::model::{NodePhase, Trouble};
use crate::step::Transaction;

pub(crate) fn on_evicted(tx: &mut Transaction<'_>, name: &str) -> InputResult {
    // Said of a node that is gone, or twice: nothing is left to take back.
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
