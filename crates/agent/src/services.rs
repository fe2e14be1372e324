//! The services of a running job that people open: a notebook or a board that is started beside its command, or a port
//! that the command listens on.
//!
//! Nodes cannot be reached from outside. The node therefore asks the server for clients that want to connect, and dials
//! out once for each of them; from then on bytes are forwarded unchanged. The processes belong to the job: they are in
//! its sandbox and within its limits, and end with its command.

mod listening;
mod plan;

pub(crate) use plan::Services;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_core::ErrorChain;
use muster_core::agent::{ServiceCalls, ServicePhase, ServiceReport, ServicesReport};
use muster_core::ids::Epoch;
use muster_sandbox::network::JobNetwork;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::backoff::Backoff;
use crate::client::{CallError, Client};

/// The interval between two checks of the listening ports.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A notebook takes some seconds to start, and longer on a busy node.
const START_WITHIN: Duration = Duration::from_secs(60);
/// The server lets fewer clients wait.
const CALLS_MAX: usize = 128;

const PAUSE: Duration = Duration::from_millis(5);

enum News {
    Asked(Result<ServiceCalls, CallError>),
    Changed(ServicesReport),
}

/// The state of each service so far.
#[derive(Default)]
struct Seen {
    listened: BTreeSet<String>,
}

impl Services {
    /// Reports the states of the services and connects clients, until it is dropped. It uses the job's own network, if
    /// it has one.
    pub(crate) async fn serve(
        &self,
        client: &Client,
        epoch: Epoch,
        network: Option<Arc<JobNetwork>>,
    ) -> Infallible {
        if self.is_empty() {
            return std::future::pending().await;
        }
        let (mut seen, since) = (Seen::default(), Instant::now());
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        let mut calls: JoinSet<u64> = JoinSet::new();
        let mut taken = BTreeSet::new();
        let network = network.as_ref();
        let mut report = self.report(network, &mut seen, since);
        loop {
            let news = {
                let mut asking = pin!(client.services(epoch, &report));
                let mut changed = pin!(self.changed(network, &report, &mut seen, since));
                loop {
                    tokio::select! {
                        asked = &mut asking => break News::Asked(asked),
                        now = &mut changed => break News::Changed(now),
                        Some(Ok(done)) = calls.join_next(), if !calls.is_empty() => {
                            taken.remove(&done);
                        }
                    }
                }
            };
            match news {
                News::Changed(now) => report = now,
                News::Asked(Ok(wanted)) => {
                    backoff.reset();
                    let mut is_new = false;
                    for (call, service) in wanted.calls {
                        let port = report.services.get(&*service).and_then(|service| service.port);
                        if calls.len() < CALLS_MAX && taken.insert(call) {
                            is_new = true;
                            let (client, network) = (client.clone(), network.cloned());
                            calls.spawn(async move {
                                connect(&client, epoch, call, network, port).await;
                                call
                            });
                        }
                    }
                    // The server repeats a call that is already being connected.
                    if !is_new {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                News::Asked(Err(error)) => {
                    tracing::debug!(%epoch, error = %ErrorChain(&error), "cannot report services");
                    tokio::time::sleep(backoff.grow()).await;
                }
            }
        }
    }

    /// Waits until there is something new to report.
    async fn changed(
        &self,
        network: Option<&Arc<JobNetwork>>,
        report: &ServicesReport,
        seen: &mut Seen,
        since: Instant,
    ) -> ServicesReport {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = self.report(network, seen, since);
            if now != *report {
                return now;
            }
        }
    }

    fn report(
        &self,
        network: Option<&Arc<JobNetwork>>,
        seen: &mut Seen,
        since: Instant,
    ) -> ServicesReport {
        let ports = match network {
            Some(network) => network.inside(|| Ok(listening::ports())).unwrap_or_default(),
            None => listening::ports(),
        };
        let mut services = BTreeMap::new();
        for (name, service) in self.all() {
            let is_heard = service.port.is_some_and(|port| ports.contains(&port));
            let log = if service.is_ours() { plan::log_words(name) } else { String::new() };
            let phase = match (&service.refused, is_heard) {
                (Some(why), _) => ServicePhase::Failed(why.as_str().into()),
                (None, true) => {
                    seen.listened.insert(name.clone());
                    ServicePhase::Listening
                }
                (None, false) if seen.listened.contains(name) => {
                    ServicePhase::Failed(format!("it has stopped listening{log}").into())
                }
                (None, false) if service.is_ours() && since.elapsed() > START_WITHIN => {
                    let within = START_WITHIN.as_secs();
                    ServicePhase::Failed(
                        format!("it is not listening after {within} s{log}").into(),
                    )
                }
                (None, false) => ServicePhase::Starting,
            };
            let report = ServiceReport {
                phase,
                port: service.port,
                keeps_path: service.keeps_path(),
                authorization: service.authorization(),
                cookie: service.cookie(),
            };
            services.insert(name.clone(), report);
        }
        ServicesReport { services }
    }
}

/// Connects one client to the port, until either side hangs up.
async fn connect(
    client: &Client,
    epoch: Epoch,
    call: u64,
    network: Option<Arc<JobNetwork>>,
    port: Option<u16>,
) {
    let reached = match (port, network) {
        (Some(port), None) => reach(port).await,
        (Some(port), Some(network)) => reach_inside(network, port).await,
        (None, _) => Err(io::Error::other("it has no port")),
    };
    let done = match reached {
        Err(error) => client.refuse_service_call(epoch, call, error.to_string()).await,
        Ok(mut service) => match client.take_service_call(epoch, call).await {
            Ok(mut caller) => {
                let _ = tokio::io::copy_bidirectional(&mut caller, &mut service).await;
                Ok(())
            }
            Err(error) => Err(error),
        },
    };
    if let Err(error) = done {
        tracing::debug!(%epoch, call, error = %ErrorChain(&error), "cannot connect a client to a service");
    }
}

/// Connects on the job's own loopback, and nowhere else.
async fn reach_inside(network: Arc<JobNetwork>, port: u16) -> io::Result<TcpStream> {
    let connect = move || {
        network.inside(|| {
            let first = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port));
            first.or_else(|first| {
                std::net::TcpStream::connect((Ipv6Addr::LOCALHOST, port)).map_err(|_| first)
            })
        })
    };
    let stream = tokio::task::spawn_blocking(connect).await.map_err(io::Error::other)??;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    TcpStream::from_std(stream)
}

/// Connects on this node's own loopback, and nowhere else.
async fn reach(port: u16) -> io::Result<TcpStream> {
    let stream = match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        Ok(stream) => stream,
        Err(first) => TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.map_err(|_| first)?,
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}
