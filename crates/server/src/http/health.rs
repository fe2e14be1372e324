//! For whoever watches the server: is it there, and can it be used. Both without a token, and without a word
//! more than that.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;

use crate::app::App;

/// A commit takes milliseconds: a writer that is busy for longer serves nobody.
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
