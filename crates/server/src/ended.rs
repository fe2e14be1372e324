//! Tells core of nodes that ended by themselves, so that their jobs need not wait for the end of a lease.

use std::sync::Arc;
use std::time::Duration;

use muster_core::{ErrorChain, Input};
use muster_providers::Provider;
use tracing::warn;

use crate::live::Live;
use crate::writer::Handle;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks again and again, until dropped. What ended is told at every look while it is known: the first time it may
/// have been too early, as core does not hear of the end of a node before it heard that it was made.
pub async fn run(provider: Arc<dyn Provider>, live: Arc<Live>, writer: Handle) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let provider = provider.clone();
        let ended = match tokio::task::spawn_blocking(move || provider.ended()).await {
            Ok(Ok(ended)) => ended,
            Ok(Err(failed)) => {
                warn!(error = %ErrorChain(&failed), "the provider cannot look at its nodes");
                continue;
            }
            Err(_) => {
                warn!("the provider panicked while it looked at its nodes");
                continue;
            }
        };
        for node in ended.into_iter().filter(|node| live.knows_node(node)) {
            let _ = writer.say(Input::NodeEnded { node }).await;
        }
    }
}
