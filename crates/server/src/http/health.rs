//! Health checks for monitoring: whether the server is running, and whether it is ready. Neither needs a token, and
//! neither reveals anything else.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;

use crate::app::App;

/// A commit takes milliseconds, so a writer that is busy for longer than this cannot serve requests.
const PATIENCE: Duration = Duration::from_secs(2);

/// The process answers.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// The writer answers too, so requests can be served.
pub async fn readyz(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    match tokio::time::timeout(PATIENCE, app.writer.is_there()).await {
        Ok(Ok(())) => (StatusCode::OK, "ready\n"),
        Ok(Err(_)) | Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}
