//! Carries out the wishes of the outbox: at least once, in order per node, many nodes at a time.

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

/// Calls to the provider at a time.
const CALLS_MAX: usize = 32;
const RETRY_PAUSE_FIRST: Duration = Duration::from_millis(500);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Runs until the writer's end of the channel closes.
pub async fn run(
    mut wishes: mpsc::UnboundedReceiver<Effect>,
    context: EffectContext,
    writer: Handle,
) {
    let calls = Arc::new(Semaphore::new(CALLS_MAX));
    let (finished, mut finishes) = mpsc::unbounded_channel();
    let mut queues = Queues::default();
    loop {
        let next = tokio::select! {
            effect = wishes.recv() => match effect {
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

/// How it went with a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EffectOutcome {
    /// The writer has it on disk.
    Recorded,
    /// It is still in the outbox.
    Unrecorded,
}

/// What waits, in order for each node, and what is being carried out.
#[derive(Default)]
struct Queues {
    waiting: BTreeMap<NodeId, VecDeque<Effect>>,
    busy: BTreeSet<NodeId>,
    /// A wish can be told twice, since the writer may read the rows again: it is carried out once at a time.
    known: BTreeSet<EffectId>,
}

impl Queues {
    /// Takes in a wish, and returns one that can be carried out now.
    fn add(&mut self, effect: Effect) -> Option<Effect> {
        if !self.known.insert(effect.id) {
            return None;
        }
        let node = effect.kind.node();
        self.waiting.entry(node).or_default().push_back(effect);
        self.next(node)
    }

    /// Notes that nothing is being done to a node any more, and returns what can be carried out now. A wish that was not
    /// recorded is carried out again when it is told again.
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

/// Until the provider has done it and the writer has it on disk, or stops.
async fn carry_out(
    effect: Effect,
    context: EffectContext,
    writer: Handle,
    calls: Arc<Semaphore>,
) -> EffectOutcome {
    let mut pause = RETRY_PAUSE_FIRST;
    loop {
        let permit = calls.clone().acquire_owned().await.expect("never closed");
        let (kind, context) = (effect.kind.clone(), context.clone());
        let called = tokio::task::spawn_blocking(move || context.call(&kind)).await;
        drop(permit);
        let result = called.unwrap_or_else(|_| Err("the provider panicked".to_owned()));
        if let Err(message) = &result {
            warn!(effect = %effect.id, %message, "the provider could not do it");
        }
        let must_succeed = matches!(effect.kind, EffectKind::DeleteNode { .. });
        if result.is_ok() || !must_succeed {
            let done = Input::EffectDone { effect: effect.id, result };
            match writer.say(done).await {
                Ok(_) => return EffectOutcome::Recorded,
                // It is in the outbox: the next start goes on.
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

/// What wishes are carried out with.
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
                info!(node = %request.name, size = %request.vm_size, "creating");
                // It sees this folder, and others see to theirs.
                if request.host.is_local() {
                    let opened = self.environments.open_to(request.cluster);
                    opened.map_err(|failed| format!("no folder for its environments: {failed}"))?;
                }
                self.provider.create(request).map_err(|failed| ErrorChain(&failed).to_string())
            }
            EffectKind::DeleteNode { name, failure, .. } => {
                info!(node = %name, "deleting");
                if let Some(failure) = failure {
                    let kept =
                        self.post_mortems.keep(name, failure, || self.provider.remains(name));
                    // It goes all the same: what it takes is worth more than what it could tell.
                    if let Err(error) = kept {
                        warn!(node = %name, error = %ErrorChain(&error), "no post-mortem is kept");
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
    fn wishes_for_one_node_are_carried_out_in_order_and_once() {
        let mut queues = Queues::default();
        assert_eq!(id(queues.add(delete(1, 7))), Some(1));
        assert_eq!(id(queues.add(delete(2, 7))), None, "one at a time for a node");
        assert_eq!(id(queues.add(delete(3, 8))), Some(3), "other nodes do not wait for it");
        assert_eq!(id(queues.add(delete(1, 7))), None, "it is told again");
        assert_eq!(id(queues.finish(EffectId(1), NodeId(7), EffectOutcome::Recorded)), Some(2));
        assert_eq!(id(queues.finish(EffectId(2), NodeId(7), EffectOutcome::Recorded)), None);
        assert_eq!(id(queues.add(delete(1, 7))), None, "it is done");
    }

    /// Its id stayed known, so the node was neither made nor deleted before the next start of the server.
    #[test]
    fn a_wish_that_was_not_recorded_is_carried_out_when_it_is_told_again() {
        let mut queues = Queues::default();
        assert_eq!(id(queues.add(delete(1, 7))), Some(1));
        assert_eq!(id(queues.finish(EffectId(1), NodeId(7), EffectOutcome::Unrecorded)), None);
        assert_eq!(id(queues.add(delete(1, 7))), Some(1));
    }
}
