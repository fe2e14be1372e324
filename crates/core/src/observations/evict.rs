//! A provider took a node away.

use crate::attempts;
use crate::input::{Answer, Reply};
use crate::model::{NodePhase, Trouble};
use crate::step::Turn;

pub(crate) fn on_evicted(turn: &mut Turn<'_>, name: &str) -> Answer {
    let Some(node) = turn.world.node_by_name(name) else { return Ok(Reply::Noted) };
    let id = node.id;
    match node.phase() {
        NodePhase::Requested | NodePhase::Booting | NodePhase::Idle | NodePhase::Leased => {
            attempts::lose_node(turn, id, Trouble::Evicted);
        }
        // On its way out already.
        NodePhase::Unusable | NodePhase::Leaving | NodePhase::Gone => {}
    }
    Ok(Reply::Noted)
}
