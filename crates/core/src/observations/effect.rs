//! A provider carried out an effect from the outbox, or failed to.

use std::sync::Arc;

use crate::attempts;
use crate::change::{Change, EffectKind};
use crate::ids::{EffectId, NodeId};
use crate::input::{InputResult, Reply};
use crate::meter;
use crate::model::{Category, NodeEvent, NodePhase, NodeState, Trouble};
use crate::planted::{Bug, is_planted};
use crate::step::Transaction;

pub(crate) fn on_effect_done(
    tx: &mut Transaction<'_>,
    effect: EffectId,
    result: &Result<(), String>,
) -> InputResult {
    // Effects are carried out at least once, so the same one can be reported more than once.
    let Some(effect) = tx.world.effect(effect).cloned() else { return Ok(Reply::Noted) };
    match (&effect.kind, result) {
        (EffectKind::CreateNode(assignment), Ok(())) => on_created(tx, assignment.node),
        (EffectKind::CreateNode(assignment), Err(_)) if is_planted(Bug::FailedCreateTrusted) => {
            on_created(tx, assignment.node);
        }
        (EffectKind::CreateNode(assignment), Err(message)) => {
            on_create_failed(tx, assignment.node, message)
        }
        (EffectKind::DeleteNode { node, .. }, Ok(())) => on_deleted(tx, *node),
        // It remains in the outbox and is retried.
        (EffectKind::DeleteNode { .. }, Err(_)) => return Ok(Reply::Noted),
    }
    tx.emit(Change::EffectSettled { id: effect.id });
    Ok(Reply::Noted)
}

fn on_created(tx: &mut Transaction<'_>, node: NodeId) {
    let Some(node) = tx.world.node(node) else { return };
    if node.phase() == NodePhase::Requested {
        let mut node = node.clone();
        node.state = NodeState::Booting;
        meter::switch(tx, &mut node, Some(Category::Start));
        tx.emit(Change::NodeChanged { event: NodeEvent::Created, node: Arc::new(node) });
    }
}

fn on_create_failed(tx: &mut Transaction<'_>, node: NodeId, message: &str) {
    let Some(node) = tx.world.node(node) else { return };
    let id = node.id;
    if node.phase() != NodePhase::Requested {
        return; // It has reported or is already being deleted, so the answer no longer matters.
    }
    attempts::back_off(tx, id, message);
    attempts::lose_node(tx, id, Trouble::CreateFailed { message: message.into() });
}

pub(crate) fn on_deleted(tx: &mut Transaction<'_>, node: NodeId) {
    let Some(node) = tx.world.node(node) else { return };
    let mut node = node.clone();
    meter::switch(tx, &mut node, None);
    node.state = NodeState::Gone;
    tx.emit(Change::NodeChanged { event: NodeEvent::Deleted, node: Arc::new(node) });
}
