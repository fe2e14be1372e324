//! The way of a joined machine's nodes to this server.
//!
//! The machine says for which node it calls and proves who it is; if that node is one of its own, the connection becomes the
//! node's: from there on its bytes are what would come through the node's own socket on the server's machine, TLS of its own
//! included, and whoever speaks is that node.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;
use muster_providers::joined::protocol::RELAY;
use tokio::sync::mpsc;

use super::host;
use super::listener::{Calls, Tunnel};
use super::login::Source;
use super::respond::with_retry_after;
use crate::app::App;

/// Calls that were let in and not yet taken up. More at a time come again.
const WAITING_MAX: usize = 64;

/// What nodes on joined machines call with, and where it is taken up.
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
        return host::stranger(&app, source).await;
    };
    let roster = app.live.roster();
    let is_there = |node: &&str| roster.home_of(node).as_ref() == Some(&host.name);
    let Some(node) = text(request.headers(), "x-muster-node").filter(is_there) else {
        return (StatusCode::FORBIDDEN, "this host has no node of that name").into_response();
    };
    if text(request.headers(), header::UPGRADE.as_str()) != Some(RELAY) {
        let what = format!("this is for connections to be upgraded to {RELAY}");
        return (StatusCode::UPGRADE_REQUIRED, [(header::UPGRADE, RELAY)], what).into_response();
    }
    let node: Arc<str> = node.into();
    let Ok(place) = app.node_calls.clone().try_reserve_owned() else {
        let full = (StatusCode::SERVICE_UNAVAILABLE, "too many calls of nodes at once");
        return with_retry_after(full.into_response());
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(stream) => {
                let source = Source { address: source.address, node: Some(node) };
                place.send((TokioIo::new(stream), source));
            }
            Err(failed) => tracing::debug!(error = %failed, "a node's call broke off"),
        }
    });
    let words = [(header::CONNECTION, "upgrade"), (header::UPGRADE, RELAY)];
    (StatusCode::SWITCHING_PROTOCOLS, words).into_response()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
