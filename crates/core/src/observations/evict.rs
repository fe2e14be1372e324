//! A provider took a low-priority node back.

use crate::attempts;
use crate::input::{Answer, Reply};
use crate::model::{NodePhase, Trouble};
use crate::step::Turn;

pub(crate) fn on_evicted(turn: &mut Turn<'_>, name: &str) -> Answer {
    // Said of a node that is gone, or twice: nothing is left to take back.
    let Some(node) = turn.world.node_by_name(name) else { return Ok(Reply::Noted) };
    match node.phase() {
        NodePhase::Requested | NodePhase::Booting | NodePhase::Idle | NodePhase::Leased => {
            let id = node.id;
            attempts::lose_node(turn, id, Trouble::Evicted);
        }
        NodePhase::Unusable | NodePhase::Leaving | NodePhase::Gone => {}
    }
    Ok(Reply::Noted)
}
