//! Deletes what a provider runs for us and nobody wants: nodes of a future that a restored backup forgot.
//!
//! The intent to have a node is on disk before the provider is asked, and goes only after the provider has
//! deleted it. So whatever the provider lists and World does not know is an orphan, however young.

use std::sync::Arc;
use std::time::Duration;

use muster_core::ErrorChain;
use muster_providers::Provider;
use tracing::{info, warn};

use crate::live::Live;

const PAUSE: Duration = Duration::from_secs(60);

/// Sweeps at start and then once a minute, until dropped.
pub async fn run(provider: Arc<dyn Provider>, live: Arc<Live>) {
    loop {
        let (provider, live) = (provider.clone(), live.clone());
        let swept = tokio::task::spawn_blocking(move || sweep(provider.as_ref(), &live)).await;
        if swept.is_err() {
            warn!("the provider panicked while it was swept");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn sweep(provider: &dyn Provider, live: &Live) {
    // Listed first, looked up after: a node that comes up in between is known.
    let listed = match provider.list() {
        Ok(listed) => listed,
        Err(failed) => {
            return warn!(error = %ErrorChain(&failed), "the provider cannot list its nodes");
        }
    };
    for name in listed.iter().filter(|name| !live.knows_node(name)) {
        info!(node = %name, "deleting an orphan");
        if let Err(failed) = provider.delete(name) {
            warn!(node = %name, error = %ErrorChain(&failed), "an orphan could not be deleted; trying again later");
        }
    }
}
