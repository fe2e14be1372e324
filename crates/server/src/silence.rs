//! Reports joined hosts that have become silent to the core, so that no new nodes are placed there. When they are back,
//! their own reports say so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_core::{HostRequest, Input};

use crate::live::Live;
use crate::writer::Handle;

/// Checks periodically, until dropped.
pub async fn run(live: Arc<Live>, writer: Handle, look_every: Duration) {
    loop {
        tokio::time::sleep(look_every).await;
        let now = Instant::now();
        let roster = live.roster();
        let hosts = live.hosts();
        let heard = hosts.hosts().filter(|host| !host.is_silent && !host.name.is_local());
        let silent = heard.filter(|host| roster.is_silent(&host.name, now));
        for host in silent {
            tracing::warn!(host = %host.name, "a host has stopped reporting");
            let request = HostRequest::Silent { name: host.name.clone() };
            // If it fails now, it is reported again.
            let _ = writer.submit(Input::ChangeHosts(Box::new(request))).await;
        }
    }
}
