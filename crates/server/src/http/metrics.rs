//! `/metrics`, for Prometheus. It tells of every workspace, so whoever reads it on the API's port needs to be allowed
//! to read everything, by token or by key; a port of its own, if one is configured, needs nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use muster_core::model::{Action, Caller, Scope};

use super::auth::{self, Need};
use super::respond::Failed;
use crate::app::App;
use crate::tokens;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// As for a token: whoever tries keys waits.
const WRONG_KEY_PAUSE: Duration = Duration::from_secs(1);

pub async fn with_key(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Failed> {
    let caller = match key_holder(&app, &headers) {
        Some(caller) => caller,
        None => match auth::caller(&app, &headers) {
            Ok(caller) => caller,
            Err(refused) => {
                tokio::time::sleep(WRONG_KEY_PAUSE).await;
                return Err(refused.into());
            }
        },
    };
    auth::authorize(&app, &caller, &Need::To(Action::Read, Scope::Everything))?;
    page(&app).await
}

/// Prometheus sends what is in a file, and a token lives for an hour only.
fn key_holder(app: &App, headers: &HeaderMap) -> Option<Caller> {
    let sent = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let key = tokens::bearer(Some(sent)).ok()?;
    let principal = app.keyring.authenticate_key(key, &app.live.directory())?;
    Some(Caller { object_id: principal.id.into(), name: principal.name.into() })
}

async fn page(app: &App) -> Result<Response, Failed> {
    let present = app.writer.present().await?;
    let page = app.live.metrics.page(&present);
    Ok(([(header::CONTENT_TYPE, TEXT)], page).into_response())
}

/// The port of its own.
pub fn router(app: Arc<App>) -> Router {
    let open = |State(app): State<Arc<App>>| async move { page(&app).await };
    Router::new().route("/metrics", get(open)).with_state(app)
}
