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
pub async fn run(mut wishes: mpsc::UnboundedReceiver<Effect>, hands: Hands, writer: Handle) {
    let calls = Arc::new(Semaphore::new(CALLS_MAX));
    let (finished, mut finishes) = mpsc::unbounded_channel::<NodeId>();
    let mut waiting: BTreeMap<NodeId, VecDeque<Effect>> = BTreeMap::new();
    let mut busy: BTreeSet<NodeId> = BTreeSet::new();
    // A wish can be told twice (the writer read the rows again): it is carried out once at a time.
    let mut known: BTreeSet<EffectId> = BTreeSet::new();
    loop {
        let node = tokio::select! {
            wish = wishes.recv() => {
                let Some(effect) = wish else { return };
                if !known.insert(effect.id) {
                    continue;
                }
                let node = effect.kind.node();
                waiting.entry(node).or_default().push_back(effect);
                node
            }
            Some(node) = finishes.recv() => {
                busy.remove(&node);
                node
            }
        };
        if busy.contains(&node) {
            continue;
        }
        match waiting.get_mut(&node).and_then(VecDeque::pop_front) {
            Some(effect) => {
                busy.insert(node);
                let (hands, writer) = (hands.clone(), writer.clone());
                let (calls, finished) = (calls.clone(), finished.clone());
                tokio::spawn(async move {
                    carry_out(effect, hands, writer, calls).await;
                    let _ = finished.send(node);
                });
            }
            None => {
                waiting.remove(&node);
            }
        }
    }
}

/// Until the provider has done it and the writer has it on disk.
async fn carry_out(effect: Effect, hands: Hands, writer: Handle, calls: Arc<Semaphore>) {
    let mut pause = RETRY_PAUSE_FIRST;
    loop {
        let permit = calls.clone().acquire_owned().await.expect("never closed");
        let (kind, hands) = (effect.kind.clone(), hands.clone());
        let called = tokio::task::spawn_blocking(move || hands.call(&kind)).await;
        drop(permit);
        let result = called.unwrap_or_else(|_| Err("the provider panicked".to_owned()));
        if let Err(message) = &result {
            warn!(effect = %effect.id, %message, "the provider could not do it");
        }
        let must_succeed = matches!(effect.kind, EffectKind::DeleteNode { .. });
        if result.is_ok() || !must_succeed {
            let done = Input::EffectDone { effect: effect.id, result };
            match writer.say(done).await {
                Ok(_) => return,
                Err(Unavailable::Stopping) => return, // It is in the outbox: the next start goes on.
                Err(
                    Unavailable::Busy
                    | Unavailable::TooMany
                    | Unavailable::Full
                    | Unavailable::OnReserve
                    | Unavailable::ReadOnly
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
pub struct Hands {
    pub provider: Arc<dyn Provider>,
    pub post_mortems: Arc<PostMortems>,
    pub environments: Arc<Service>,
}

impl Hands {
    fn call(&self, kind: &EffectKind) -> Result<(), String> {
        match kind {
            EffectKind::CreateNode(order) => {
                info!(node = %order.name, size = %order.vm_size, "creating");
                // It sees this folder, and others see to theirs.
                if order.host.is_local() {
                    let opened = self.environments.open_to(order.cluster);
                    opened.map_err(|failed| format!("no folder for its environments: {failed}"))?;
                }
                self.provider.create(order).map_err(|failed| ErrorChain(&failed).to_string())
            }
            EffectKind::DeleteNode { name, fate, .. } => {
                info!(node = %name, "deleting");
                if let Some(fate) = fate {
                    let kept = self.post_mortems.keep(name, fate, || self.provider.remains(name));
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
