//! Tells core of joined machines that say nothing any more, so that nothing new is ordered there. That they say something
//! again, they say themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_core::{HostRequest, Input};

use crate::live::Live;
use crate::writer::Handle;

/// Looks again and again, until dropped.
pub async fn run(live: Arc<Live>, writer: Handle, look_every: Duration) {
    loop {
        tokio::time::sleep(look_every).await;
        let now = Instant::now();
        let roster = live.roster();
        let hosts = live.hosts();
        let heard = hosts.hosts().filter(|host| !host.is_silent && !host.name.is_local());
        let silent = heard.filter(|host| roster.is_silent(&host.name, now));
        for host in silent {
            tracing::warn!(host = %host.name, "a host says nothing any more");
            let request = HostRequest::Silent { name: host.name.clone() };
            // If it does not get through now, it is said again.
            let _ = writer.say(Input::ChangeHosts(Box::new(request))).await;
        }
    }
}
