//! A provider found that all processes of a node have ended. On the server's own host this is noticed at once, long
//! before the node's lease or its start timeout is over.

use crate::attempts;
use crate::input::{InputResult, Reply};
use crate::model::{NodePhase, Trouble};
use crate::step::Transaction;

pub(crate) fn on_ended(tx: &mut Transaction<'_>, name: &str) -> InputResult {
    let Some(node) = tx.world.node_by_name(name) else { return Ok(Reply::Noted) };
    let id = node.id;
    match node.phase() {
        // It is still being created, perhaps for the second time. The result of the create call decides.
        NodePhase::Requested => {}
        NodePhase::Booting => {
            attempts::back_off(tx, id, "the node ended before it reported");
            attempts::lose_node(tx, id, Trouble::Ended);
        }
        NodePhase::Idle | NodePhase::Leased => attempts::lose_node(tx, id, Trouble::Ended),
        // This was requested.
        NodePhase::Unusable | NodePhase::Leaving | NodePhase::Gone => {}
    }
    Ok(Reply::Noted)
}
