//! Connects the nodes of a joined host to this server.
//!
//! The host names the node for which it connects, and proves its own identity. If the node is one of its own, the
//! connection becomes the node's. From then on, its bytes are the same that would come through the node's own socket on
//! the server's machine, including TLS, and the peer is that node.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;
use muster_core::agent::NODE_HEADER;
use muster_providers::joined::protocol::RELAY;
use tokio::sync::mpsc;

use super::host;
use super::listener::{Calls, Tunnel};
use super::login::Source;
use super::respond::with_retry_after;
use crate::app::App;

/// How many accepted connections may wait to be served. Nodes beyond that try again.
const WAITING_MAX: usize = 64;

/// A channel for connections from nodes on joined hosts.
pub fn calls() -> (mpsc::Sender<(Tunnel, Source)>, Calls) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    (sender, Calls(receiver.into()))
}

pub async fn relay(
    State(app): State<Arc<App>>,
    Extension(source): Extension<Source>,
    mut request: Request,
) -> Response {
    let Some(host) = host::host_of(&app, request.headers()) else {
        return host::wrong_key(&app, source).await;
    };
    let roster = app.live.roster();
    let is_there = |node: &&str| roster.home_of(node).as_ref() == Some(&host.name);
    let Some(node) = text(request.headers(), NODE_HEADER).filter(is_there) else {
        return (StatusCode::FORBIDDEN, "this host has no node of that name").into_response();
    };
    if text(request.headers(), header::UPGRADE.as_str()) != Some(RELAY) {
        let what = format!("this is only for connections that are upgraded to {RELAY}");
        return (StatusCode::UPGRADE_REQUIRED, [(header::UPGRADE, RELAY)], what).into_response();
    }
    let node: Arc<str> = node.into();
    let Ok(place) = app.node_calls.clone().try_reserve_owned() else {
        let full = (StatusCode::SERVICE_UNAVAILABLE, "too many connections of nodes at once");
        return with_retry_after(full.into_response());
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(stream) => {
                let source = Source { address: source.address, node: Some(node) };
                place.send((TokioIo::new(stream), source));
            }
            Err(failed) => {
                tracing::debug!(error = %failed, "the connection of a node was interrupted")
            }
        }
    });
    let words = [(header::CONNECTION, "upgrade"), (header::UPGRADE, RELAY)];
    (StatusCode::SWITCHING_PROTOCOLS, words).into_response()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
