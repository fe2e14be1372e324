//! HTTP: who is asking, what for, and the answer in Azure's words.

mod agent;
mod arm;
mod auth;
mod body;
mod files;
mod health;
mod limits;
mod listener;
mod log_files;
mod login;
mod metrics;
mod request_log;
mod respond;
mod template;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{self, from_fn};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::app::App;

/// Of a report: a node holds a handful of attempts.
const REPORT_BYTES_MAX: usize = 256 << 10;

/// What is listened on.
pub struct Doors {
    pub api: TcpListener,
    pub files: TcpListener,
    /// Without TLS and without a key.
    pub metrics: Option<TcpListener>,
}

/// Serves until `stop` is true, and then for at most as long as `drain`.
pub async fn serve(
    doors: Doors,
    tls: Arc<rustls::ServerConfig>,
    app: Arc<App>,
    stop: watch::Receiver<bool>,
    drain: Duration,
) {
    let with_tls = |listener, router, places| {
        listener::serve(listener, Some(tls.clone()), router, places, stop.clone(), drain)
    };
    // Each has its own share of the descriptors: a flood at one door leaves the others open.
    let places = limits::connections();
    let metrics = async {
        if let Some(listener) = doors.metrics {
            let router = metrics::router(app.clone());
            listener::serve(listener, None, router, places / 16, stop.clone(), drain).await;
        }
    };
    tokio::join!(
        with_tls(doors.api, router(app.clone()), places / 4 * 3),
        with_tls(doors.files, files::router(app.clone()), places / 16 * 3),
        metrics,
    );
}

fn router(app: Arc<App>) -> Router {
    let agents = Router::new()
        .route("/agent/v1/sync", post(agent::sync))
        .layer(from_fn(body::arrived::<REPORT_BYTES_MAX>));
    let agent_logs = Router::new()
        .route("/agent/v1/logs/{epoch}", post(agent::log))
        .layer(from_fn(body::arrived::<{ agent::LOG_CHUNK_BYTES_MAX }>));
    Router::new()
        .merge(agents)
        .merge(agent_logs)
        .route("/agent/v1/specs/{hash}", get(agent::spec))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::with_key))
        .fallback(arm::handle)
        .layer(DefaultBodyLimit::max(arm::BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(app.clone(), request_log::record))
        .with_state(app)
}
