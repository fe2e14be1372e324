//! Reports nodes that ended by themselves to the core, so that their jobs do not have to wait for a lease to expire.

use std::sync::Arc;
use std::time::Duration;

use muster_core::{ErrorChain, Input};
use muster_providers::Provider;
use tracing::warn;

use crate::live::Live;
use crate::writer::Handle;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Asks the provider periodically, until dropped. Every node that has ended is reported each time while the server
/// knows it: the first report may have been too early, because the core ignores the end of a node until it knows that
/// the node was created.
pub async fn run(provider: Arc<dyn Provider>, live: Arc<Live>, writer: Handle) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let provider = provider.clone();
        let ended = match tokio::task::spawn_blocking(move || provider.ended()).await {
            Ok(Ok(ended)) => ended,
            Ok(Err(failed)) => {
                warn!(error = %ErrorChain(&failed), "the provider cannot check its nodes");
                continue;
            }
            Err(_) => {
                warn!("the provider panicked while it checked its nodes");
                continue;
            }
        };
        for node in ended.into_iter().filter(|node| live.knows_node(node)) {
            let _ = writer.submit(Input::NodeEnded { node }).await;
        }
    }
}
