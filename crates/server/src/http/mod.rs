//! HTTP: who is asking, what for, and the answer in Azure's words.

mod agent;
mod arm;
mod auth;
mod body;
mod health;
mod listener;
mod log_files;
mod login;
mod respond;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use tokio::net::TcpListener;

use crate::app::App;

/// Of a report: a node holds a handful of attempts.
const REPORT_BYTES_MAX: usize = 256 << 10;

pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    app: Arc<App>,
    shutdown: impl Future<Output = ()>,
) {
    listener::serve(listener, tls, router(app), shutdown).await;
}

fn router(app: Arc<App>) -> Router {
    let agents = Router::new()
        .route("/agent/v1/sync", post(agent::sync))
        .layer(DefaultBodyLimit::max(REPORT_BYTES_MAX));
    let agent_logs = Router::new()
        .route("/agent/v1/logs/{epoch}", post(agent::log))
        .layer(DefaultBodyLimit::max(agent::LOG_CHUNK_BYTES_MAX));
    Router::new()
        .merge(agents)
        .merge(agent_logs)
        .route("/agent/v1/specs/{hash}", get(agent::spec))
        .route("/logs/{job}/{file}", get(log_files::get))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .fallback(arm::handle)
        .layer(DefaultBodyLimit::max(arm::BODY_BYTES_MAX))
        .with_state(app)
}
