//! A provider carried out a wish of the outbox, or could not.

use std::sync::Arc;

use crate::attempts;
use crate::change::{Change, EffectKind};
use crate::ids::{EffectId, NodeId};
use crate::input::{Answer, Reply};
use crate::meter;
use crate::model::{Category, NodeEvent, NodePhase, NodeState, Trouble};
use crate::planted::{Bug, is_planted};
use crate::step::Turn;

pub(crate) fn on_effect_done(
    turn: &mut Turn<'_>,
    effect: EffectId,
    result: &Result<(), String>,
) -> Answer {
    // Effects are carried out at least once, so they can be reported done more than once.
    let Some(effect) = turn.world.effect(effect).cloned() else { return Ok(Reply::Noted) };
    match (&effect.kind, result) {
        (EffectKind::CreateNode(order), Ok(())) => on_created(turn, order.node),
        (EffectKind::CreateNode(order), Err(_)) if is_planted(Bug::FailedCreateTrusted) => {
            on_created(turn, order.node);
        }
        (EffectKind::CreateNode(order), Err(message)) => {
            on_create_failed(turn, order.node, message)
        }
        (EffectKind::DeleteNode { node, .. }, Ok(())) => on_deleted(turn, *node),
        // Stays in the outbox: whoever carries it out tries again.
        (EffectKind::DeleteNode { .. }, Err(_)) => return Ok(Reply::Noted),
    }
    turn.emit(Change::EffectSettled { id: effect.id });
    Ok(Reply::Noted)
}

fn on_created(turn: &mut Turn<'_>, node: NodeId) {
    let Some(node) = turn.world.node(node) else { return };
    if node.phase() == NodePhase::Requested {
        let mut node = node.clone();
        node.state = NodeState::Booting;
        meter::switch(turn, &mut node, Some(Category::Start));
        turn.emit(Change::NodeChanged { event: NodeEvent::Created, node: Arc::new(node) });
    }
}

fn on_create_failed(turn: &mut Turn<'_>, node: NodeId, message: &str) {
    let Some(node) = turn.world.node(node) else { return };
    let id = node.id;
    if node.phase() != NodePhase::Requested {
        return; // It reported, or is being deleted already: the answer no longer matters.
    }
    attempts::back_off(turn, id, message);
    attempts::lose_node(turn, id, Trouble::CreateFailed { message: message.into() });
}

pub(crate) fn on_deleted(turn: &mut Turn<'_>, node: NodeId) {
    let Some(node) = turn.world.node(node) else { return };
    let mut node = node.clone();
    meter::switch(turn, &mut node, None);
    node.state = NodeState::Gone;
    turn.emit(Change::NodeChanged { event: NodeEvent::Deleted, node: Arc::new(node) });
}
