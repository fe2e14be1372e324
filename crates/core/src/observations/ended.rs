//! A provider saw that nothing of a node lives any more. On the machine of the server that is seen at once, long
//! before its lease or the time to come up is over.

use crate::attempts;
use crate::input::{InputResult, Reply};
use crate::model::{NodePhase, Trouble};
use crate::step::Transaction;

pub(crate) fn on_ended(tx: &mut Transaction<'_>, name: &str) -> InputResult {
    let Some(node) = tx.world.node_by_name(name) else { return Ok(Reply::Noted) };
    let id = node.id;
    match node.phase() {
        // It is still being made, perhaps for the second time: whoever makes it will say.
        NodePhase::Requested => {}
        NodePhase::Booting => {
            attempts::back_off(tx, id, "it ended before it reported");
            attempts::lose_node(tx, id, Trouble::Ended);
        }
        NodePhase::Idle | NodePhase::Leased => attempts::lose_node(tx, id, Trouble::Ended),
        // That was asked for.
        NodePhase::Unusable | NodePhase::Leaving | NodePhase::Gone => {}
    }
    Ok(Reply::Noted)
}
