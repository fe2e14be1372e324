//! Carries out the effects in the outbox: at least once, in order per node, for many nodes at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use muster_core::ids::{EffectId, NodeId};
use muster_core::{Effect, EffectKind, ErrorChain, Input};
use muster_providers::Provider;
use tokio::sync::{Semaphore, mpsc};
use tracing::{info, warn};

use crate::environments::Service;
use crate::post_mortems::PostMortems;
use crate::writer::{Handle, Unavailable};

/// How many calls to the provider run at a time.
const CALLS_MAX: usize = 32;
const RETRY_PAUSE_FIRST: Duration = Duration::from_millis(500);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Runs until the writer's end of the channel closes.
pub async fn run(
    mut effect_queue: mpsc::UnboundedReceiver<Effect>,
    context: EffectContext,
    writer: Handle,
) {
    let calls = Arc::new(Semaphore::new(CALLS_MAX));
    let (finished, mut finishes) = mpsc::unbounded_channel();
    let mut queues = Queues::default();
    loop {
        let next = tokio::select! {
            effect = effect_queue.recv() => match effect {
                Some(effect) => queues.add(effect),
                None => return,
            },
            Some((effect, node, outcome)) = finishes.recv() => queues.finish(effect, node, outcome),
        };
        let Some(effect) = next else { continue };
        let (context, writer) = (context.clone(), writer.clone());
        let (calls, finished) = (calls.clone(), finished.clone());
        tokio::spawn(async move {
            let (id, node) = (effect.id, effect.kind.node());
            let outcome = carry_out(effect, context, writer, calls).await;
            let _ = finished.send((id, node, outcome));
        });
    }
}

/// The outcome of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EffectOutcome {
    /// The writer has recorded it on disk.
    Recorded,
    /// The effect is still in the outbox.
    Unrecorded,
}

/// The effects that wait, in order for each node, and those that are being carried out.
#[derive(Default)]
struct Queues {
    waiting: BTreeMap<NodeId, VecDeque<Effect>>,
    busy: BTreeSet<NodeId>,
    /// An effect can arrive twice, because the writer may read the rows again; it is carried out once at a time.
    known: BTreeSet<EffectId>,
}

impl Queues {
    /// Adds an effect, and returns one that can be carried out now.
    fn add(&mut self, effect: Effect) -> Option<Effect> {
        if !self.known.insert(effect.id) {
            return None;
        }
        let node = effect.kind.node();
        self.waiting.entry(node).or_default().push_back(effect);
        self.next(node)
    }

    /// Notes that no effect of a node is being carried out any more, and returns one that can be carried out now. An
    /// effect that was not recorded is carried out again when it arrives again.
    fn finish(&mut self, effect: EffectId, node: NodeId, outcome: EffectOutcome) -> Option<Effect> {
        self.busy.remove(&node);
        if outcome == EffectOutcome::Unrecorded {
            self.known.remove(&effect);
        }
        self.next(node)
    }

    fn next(&mut self, node: NodeId) -> Option<Effect> {
        if self.busy.contains(&node) {
            return None;
        }
        let next = self.waiting.get_mut(&node).and_then(VecDeque::pop_front);
        match next {
            Some(_) => self.busy.insert(node),
            None => self.waiting.remove(&node).is_some(),
        };
        next
    }
}

/// Tries until the provider has done it and the writer has recorded it, or the server stops.
async fn carry_out(
    effect: Effect,
    context: EffectContext,
    writer: Handle,
    calls: Arc<Semaphore>,
) -> EffectOutcome {
    let mut pause = RETRY_PAUSE_FIRST;
    loop {
        let permit = calls.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (kind, context) = (effect.kind.clone(), context.clone());
        let called = tokio::task::spawn_blocking(move || context.call(&kind)).await;
        drop(permit);
        let result = called.unwrap_or_else(|_| Err("the provider panicked".to_owned()));
        if let Err(message) = &result {
            warn!(effect = %effect.id, %message, "the provider could not carry out an effect");
        }
        let must_succeed = matches!(effect.kind, EffectKind::DeleteNode { .. });
        if result.is_ok() || !must_succeed {
            let done = Input::EffectDone { effect: effect.id, result };
            match writer.submit(done).await {
                Ok(_) => return EffectOutcome::Recorded,
                // The effect is in the outbox, so the next start continues with it.
                Err(Unavailable::Stopping) => return EffectOutcome::Unrecorded,
                Err(
                    Unavailable::Busy
                    | Unavailable::TooMany
                    | Unavailable::Full
                    | Unavailable::OnReserve
                    | Unavailable::ReadOnly
                    | Unavailable::Unreadable
                    | Unavailable::Failing
                    | Unavailable::Unchecked
                    | Unavailable::Unconfirmed,
                ) => {}
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_PAUSE_MAX);
    }
}

/// Everything that is needed to carry out effects.
#[derive(Clone)]
pub struct EffectContext {
    pub provider: Arc<dyn Provider>,
    pub post_mortems: Arc<PostMortems>,
    pub environments: Arc<Service>,
}

impl EffectContext {
    fn call(&self, kind: &EffectKind) -> Result<(), String> {
        match kind {
            EffectKind::CreateNode(request) => {
                info!(node = %request.name, size = %request.vm_size, "creating a node");
                // Nodes on this machine see this folder; other hosts prepare their own.
                if request.host.is_local() {
                    let opened = self.environments.open_to(request.cluster);
                    opened.map_err(|failed| {
                        format!("cannot prepare the folder for its environments: {failed}")
                    })?;
                }
                self.provider.create(request).map_err(|failed| ErrorChain(&failed).to_string())
            }
            EffectKind::DeleteNode { name, failure, .. } => {
                info!(node = %name, "deleting");
                if let Some(failure) = failure {
                    let kept =
                        self.post_mortems.keep(name, failure, || self.provider.remains(name));
                    // The node is deleted anyway: its resources are worth more than its post-mortem.
                    if let Err(error) = kept {
                        warn!(node = %name, error = %ErrorChain(&error), "cannot write a post-mortem");
                    }
                }
                self.provider.delete(name).map_err(|failed| ErrorChain(&failed).to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_core::time::Wall;

    use super::*;

    fn delete(id: u64, node: u64) -> Effect {
        let kind = EffectKind::DeleteNode { node: NodeId(node), name: "n".into(), failure: None };
        Effect { id: EffectId(id), queued_at: Wall(0), kind }
    }

    fn id(effect: Option<Effect>) -> Option<u64> {
        effect.map(|effect| effect.id.0)
    }

    #[test]
    fn effects_of_one_node_are_carried_out_in_order_and_once() {
        let mut queues = Queues::default();
        assert_eq!(id(queues.add(delete(1, 7))), Some(1));
        assert_eq!(id(queues.add(delete(2, 7))), None, "one effect at a time for a node");
        assert_eq!(id(queues.add(delete(3, 8))), Some(3), "other nodes do not wait");
        assert_eq!(id(queues.add(delete(1, 7))), None, "the effect arrives again");
        assert_eq!(id(queues.finish(EffectId(1), NodeId(7), EffectOutcome::Recorded)), Some(2));
        assert_eq!(id(queues.finish(EffectId(2), NodeId(7), EffectOutcome::Recorded)), None);
        assert_eq!(id(queues.add(delete(1, 7))), None, "the effect is done");
    }

    /// The id used to remain known, so the node was neither created nor deleted before the next start of the server.
    #[test]
    fn an_effect_that_was_not_recorded_is_carried_out_when_it_arrives_again() {
        let mut queues = Queues::default();
        assert_eq!(id(queues.add(delete(1, 7))), Some(1));
        assert_eq!(id(queues.finish(EffectId(1), NodeId(7), EffectOutcome::Unrecorded)), None);
        assert_eq!(id(queues.add(delete(1, 7))), Some(1));
    }
}
