//! Deletes orphans: nodes that a provider runs and the store does not know. `core` decides which nodes these are.

use std::sync::Arc;
use std::time::Duration;

use muster_core::orphans::OrphanSearch;
use muster_core::{ErrorChain, Input};
use muster_providers::Provider;
use tracing::{info, warn};

use crate::clock;
use crate::live::Live;
use crate::writer::Handle;

const PAUSE: Duration = Duration::from_secs(60);

/// Looks for orphans at start and then once a minute, until dropped.
pub async fn run(provider: Arc<dyn Provider>, live: Arc<Live>, writer: Handle) {
    let mut remove_orphans = OrphanSearch::default();
    loop {
        if let Some(listed) = list(&provider).await
            // Only the current server may delete orphans: a reply proves that this server still was it after the
            // listing.
            && writer.submit(Input::Tick).await.is_ok()
        {
            let now = clock::now().elapsed;
            let orphans = remove_orphans.orphans(&listed, |name| live.knows_node(name), now);
            delete(&provider, orphans).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn list(provider: &Arc<dyn Provider>) -> Option<Vec<String>> {
    let provider = provider.clone();
    match tokio::task::spawn_blocking(move || provider.list()).await {
        Ok(Ok(listed)) => Some(listed),
        Ok(Err(failed)) => {
            warn!(error = %ErrorChain(&failed), "the provider cannot list its nodes");
            None
        }
        Err(_) => {
            warn!("the provider panicked while it listed its nodes");
            None
        }
    }
}

async fn delete(provider: &Arc<dyn Provider>, orphans: Vec<String>) {
    for name in orphans {
        info!(node = %name, "deleting an orphan");
        let (provider, node) = (provider.clone(), name.clone());
        match tokio::task::spawn_blocking(move || provider.delete(&node)).await {
            Ok(Ok(())) => {}
            Ok(Err(failed)) => {
                warn!(node = %name, error = %ErrorChain(&failed), "cannot delete an orphan; trying again later");
            }
            Err(_) => warn!(node = %name, "the provider panicked while it deleted an orphan"),
        }
    }
}
