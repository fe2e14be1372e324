//! The HTTP server: authenticates requests, routes them, and answers in the format of Azure's APIs.

mod agent;
mod agent_data;
mod agent_environments;
mod agent_run;
mod agent_services;
mod agent_trees;
mod arm;
mod auth;
mod blob;
mod body;
mod cloud;
mod connections;
mod files;
mod health;
mod host;
mod host_relay;
pub mod limits;
mod listener;
mod log_files;
mod login;
mod metrics;
mod on_behalf_of;
mod read_ahead;
mod request_log;
mod respond;
mod routes;
mod run_access;
mod service;
mod studio;
mod tree_files;
mod trees;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use muster_providers::sandboxed::Opened;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::app::App;
pub use host::Offer;
pub use host_relay::calls;
use listener::Places;
pub use listener::{Calls, Tunnel};
pub use login::Source;
pub use service::ServiceClient;

/// The connections of one node, for its agent and its jobs.
const RELAY_PLACES: Places = Places { all: 256, per_address: None };

/// The listeners of a server.
pub struct Listeners {
    pub api: TcpListener,
    pub files: TcpListener,
    /// Serves metrics without TLS and without a key.
    pub metrics: Option<TcpListener>,
}

/// Serves until `stop` is true, and then for at most as long as `drain`.
pub async fn serve(
    listeners: Listeners,
    relays: mpsc::UnboundedReceiver<Opened>,
    node_calls: Calls,
    tls: Arc<rustls::ServerConfig>,
    app: Arc<App>,
    stop: watch::Receiver<bool>,
    drain: Duration,
) {
    let from_anywhere = |all| {
        let per_address = Some(connections::per_address(all, app.connections_per_address));
        Places { all, per_address }
    };
    let with_tls = |listener, router, places| {
        let places = from_anywhere(places);
        listener::serve(listener, Some(tls.clone()), router, places, stop.clone(), drain)
    };
    let called = |calls, places| {
        let (tls, router) = (Some(tls.clone()), router(app.clone()));
        let places = Places { all: places, per_address: None };
        listener::serve(calls, tls, router, places, stop.clone(), drain)
    };
    // Each listener has its own share of the file descriptors, so a flood on one does not block the others.
    let places = limits::connections();
    let metrics = async {
        if let Some(listener) = listeners.metrics {
            let router = routes::scrapes().with_state(app.clone());
            let places = from_anywhere(places / 16);
            listener::serve(listener, None, router, places, stop.clone(), drain).await;
        }
    };
    let relayed = relay(relays, tls.clone(), router(app.clone()), stop.clone(), drain);
    tokio::join!(
        relayed,
        with_tls(listeners.api, router(app.clone()), places / 2),
        called(node_calls, places / 4),
        with_tls(listeners.files, files::router(app.clone()), places / 16 * 3),
        metrics,
    );
}

/// Serves the socket of each node until the node is deleted.
async fn relay(
    mut relays: mpsc::UnboundedReceiver<Opened>,
    tls: Arc<rustls::ServerConfig>,
    router: Router,
    mut stop: watch::Receiver<bool>,
    drain: Duration,
) {
    let mut open = tokio::task::JoinSet::new();
    loop {
        let opened = tokio::select! {
            Some(opened) = relays.recv() => opened,
            () = listener::stopped(&mut stop) => break,
        };
        let (tls, router, stop) = (tls.clone(), router.clone(), stop.clone());
        open.spawn(async move {
            let Opened { listener, node, address, closed } = opened;
            let listener = match tokio::net::UnixListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => {
                    return tracing::error!(%error, "cannot listen on the socket of a node");
                }
            };
            let incoming = listener::Relay { listener, address, node };
            tokio::select! {
                () = listener::serve(incoming, Some(tls), router, RELAY_PLACES, stop, drain) => {}
                _ = closed => {}
            }
        });
        while open.try_join_next().is_some() {}
    }
    while open.join_next().await.is_some() {}
}

fn router(app: Arc<App>) -> Router {
    routes::api()
        .fallback(arm::handle)
        .layer(DefaultBodyLimit::max(arm::BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(app.clone(), request_log::record))
        .with_state(app)
}
