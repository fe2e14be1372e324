//! The services of running jobs: their state as last reported by the nodes, and the connections to them.
//!
//! Nodes cannot be reached from outside. A client that wants a connection waits here; the node learns of it with the
//! response to its next report, and connects to the server; that becomes the connection. None of this is stored: after
//! a restart, the nodes report again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use muster_core::agent::{ServiceCalls, ServiceReport, ServicesReport};
use muster_core::ids::Epoch;
use muster_core::model::WorkspaceKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use crate::http::{ServiceClient, Tunnel};
use crate::secrets;

/// The number of connections to the services of one member of a job, in use or kept for the next request.
pub const CONNECTIONS_MAX: usize = 64;
/// The number of connections to all services together.
pub const ALL_CONNECTIONS_MAX: usize = 1_024;
/// A node that is running answers within milliseconds.
const DIAL_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    #[error("there are already {0} connections to the services of this job on this node")]
    Full(usize),
    #[error("the node does not answer")]
    Silent,
    #[error("nothing answers on its port: {0}")]
    Refused(String),
}

/// The members of live attempts that have services.
pub struct Services {
    stations: Mutex<BTreeMap<(Epoch, usize), Arc<MemberServices>>>,
    places: Arc<Semaphore>,
}

impl Default for Services {
    fn default() -> Services {
        Services {
            stations: Mutex::default(),
            places: Arc::new(Semaphore::new(ALL_CONNECTIONS_MAX)),
        }
    }
}

impl Services {
    pub fn of(&self, epoch: Epoch, rank: usize) -> Option<Arc<MemberServices>> {
        lock(&self.stations).get(&(epoch, rank)).cloned()
    }

    /// Adds the services of a member. `is_live` tells which of the other attempts still exist; the rest are removed.
    pub fn add(
        &self,
        (epoch, rank): (Epoch, usize),
        workspace: WorkspaceKey,
        names: BTreeSet<String>,
        is_live: impl Fn(Epoch) -> bool,
    ) -> Arc<MemberServices> {
        let mut stations = lock(&self.stations);
        stations.retain(|(epoch, _), _| is_live(*epoch));
        let services_of_member = MemberServices::new(workspace, names, self.places.clone());
        stations.entry((epoch, rank)).or_insert_with(|| Arc::new(services_of_member)).clone()
    }
}

/// The services of one member of an attempt.
pub struct MemberServices {
    pub workspace: WorkspaceKey,
    /// The services that the job's specification names.
    pub names: BTreeSet<String>,
    report: Mutex<ServicesReport>,
    /// Connections that are in use or kept.
    pub pool: OnceLock<ServiceClient>,
    waiting: Mutex<BTreeMap<u64, Waiting>>,
    next: AtomicU64,
    /// Counts the clients that began to wait.
    news: watch::Sender<u64>,
    places: Arc<Semaphore>,
    all_places: Arc<Semaphore>,
}

struct Waiting {
    service: Box<str>,
    answer: oneshot::Sender<Result<Tunnel, String>>,
}

/// A connection to a service, and its place among all of them.
pub struct ServiceConnection {
    pub stream: Tunnel,
    pub places: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

impl MemberServices {
    fn new(
        workspace: WorkspaceKey,
        names: BTreeSet<String>,
        all_places: Arc<Semaphore>,
    ) -> MemberServices {
        MemberServices {
            workspace,
            names,
            report: Mutex::default(),
            pool: OnceLock::new(),
            waiting: Mutex::default(),
            // Random, because a node may still hold calls of an earlier run.
            next: AtomicU64::new(secrets::random_number() >> 1),
            news: watch::Sender::new(0),
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            all_places,
        }
    }

    /// Stores a report about the services.
    pub fn update(&self, report: ServicesReport) {
        *lock(&self.report) = report;
    }

    pub fn service(&self, name: &str) -> Option<ServiceReport> {
        lock(&self.report).services.get(name).cloned()
    }

    /// All waiting calls, as soon as there is one, or when `held` is over.
    pub async fn wanted(&self, held: Duration) -> ServiceCalls {
        let mut news = self.news.subscribe();
        let deadline = tokio::time::Instant::now() + held;
        loop {
            let calls = self.calls();
            if !calls.calls.is_empty() {
                return calls;
            }
            if tokio::time::timeout_at(deadline, news.changed()).await.is_err() {
                return calls;
            }
        }
    }

    fn calls(&self) -> ServiceCalls {
        let waiting = lock(&self.waiting);
        let calls = waiting.iter().map(|(call, waiting)| (*call, waiting.service.clone()));
        ServiceCalls { calls: calls.collect() }
    }

    /// The call with this number, for the node that connects for it.
    pub fn take(&self, call: u64) -> Option<ServiceReply> {
        lock(&self.waiting).remove(&call).map(|waiting| ServiceReply(waiting.answer))
    }

    pub async fn dial(&self, service: &str) -> Result<ServiceConnection, DialError> {
        let place = self.places.clone().try_acquire_owned();
        let place = place.map_err(|_| DialError::Full(CONNECTIONS_MAX))?;
        let shared = self.all_places.clone().try_acquire_owned();
        let shared = shared.map_err(|_| DialError::Full(ALL_CONNECTIONS_MAX))?;
        let (answer, answered) = oneshot::channel();
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.waiting).insert(call, Waiting { service: service.into(), answer });
        let _waits = Waits { services_of_member: self, call };
        self.news.send_modify(|count| *count = count.wrapping_add(1));
        match tokio::time::timeout(DIAL_WITHIN, answered).await {
            Ok(Ok(Ok(stream))) => Ok(ServiceConnection { stream, places: (place, shared) }),
            Ok(Ok(Err(why))) => Err(DialError::Refused(why)),
            Ok(Err(_)) | Err(_) => Err(DialError::Silent),
        }
    }
}

/// Passes a node's connection, or its refusal, to the client that waits.
pub struct ServiceReply(oneshot::Sender<Result<Tunnel, String>>);

impl ServiceReply {
    pub fn give(self, answer: Result<Tunnel, String>) {
        // The client may have disconnected by now.
        let _ = self.0.send(answer);
    }
}

/// Removes the call when the client disconnects.
struct Waits<'s> {
    services_of_member: &'s MemberServices,
    call: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        lock(&self.services_of_member.waiting).remove(&self.call);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every update is a single insert, remove or replacement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn services_of_member() -> Arc<MemberServices> {
        let services = Services::default();
        services.add((Epoch(1), 0), WorkspaceKey::new("s", "g", "w"), BTreeSet::new(), |_| true)
    }

    #[tokio::test]
    async fn a_client_waits_until_the_node_connects_or_refuses() {
        let services_of_member = services_of_member();
        let caller = tokio::spawn({
            let services_of_member = services_of_member.clone();
            async move { services_of_member.dial("web").await.map(drop) }
        });
        let wanted = services_of_member.wanted(Duration::from_secs(5)).await;
        let [(call, service)] = wanted.calls.iter().collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!(&**service, "web");
        services_of_member.take(*call).unwrap().give(Err("connection refused".to_owned()));
        assert_eq!(caller.await.unwrap(), Err(DialError::Refused("connection refused".to_owned())));
        assert!(
            services_of_member.take(*call).is_none() && services_of_member.calls().calls.is_empty()
        );
    }

    #[tokio::test]
    async fn a_client_that_disconnects_releases_its_place() {
        let services_of_member = services_of_member();
        for _ in 0..2 {
            let all: Vec<_> = (0..CONNECTIONS_MAX)
                .map(|_| {
                    let services_of_member = services_of_member.clone();
                    tokio::spawn(async move { services_of_member.dial("web").await.map(drop) })
                })
                .collect();
            while services_of_member.calls().calls.len() < CONNECTIONS_MAX {
                tokio::task::yield_now().await;
            }
            let full = services_of_member.dial("web").await.map(drop);
            assert_eq!(full, Err(DialError::Full(CONNECTIONS_MAX)));
            for caller in all {
                caller.abort();
                let _ = caller.await;
            }
            assert!(services_of_member.calls().calls.is_empty());
        }
    }

    #[test]
    fn ended_attempts_are_removed_when_another_begins() {
        let services = Services::default();
        let key = WorkspaceKey::new("s", "g", "w");
        services.add((Epoch(1), 0), key.clone(), BTreeSet::new(), |_| true);
        services.add((Epoch(2), 0), key, BTreeSet::new(), |epoch| epoch != Epoch(1));
        assert!(services.of(Epoch(1), 0).is_none() && services.of(Epoch(2), 0).is_some());
    }
}
