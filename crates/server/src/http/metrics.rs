//! `/metrics`, for Prometheus. It covers every workspace, so on the API's port the caller needs the right to read
//! everything, with a token or a key. A separate port, if one is configured, needs no credentials.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use muster_core::model::{Action, Caller, Scope};
use muster_wire::Route;

use super::auth::{self, Need};
use super::login;
use super::respond::Failed;
use crate::app::App;
use crate::tokens;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub async fn with_key(State(app): State<Arc<App>>, request: Request) -> Result<Response, Failed> {
    let (parts, _) = request.into_parts();
    let caller = match key_holder(&app, &parts.headers) {
        Some(caller) => caller,
        // As with tokens, the refusal of a wrong key is delayed.
        None => match auth::caller(&app, &parts.headers, &Route::Unknown) {
            Ok(caller) => caller,
            Err(refused) => return Err(login::slowed(&app, &parts, refused).await.into()),
        },
    };
    auth::authorize(&app, &caller, &Need::To(Action::Read, Scope::Everything))?;
    page(&app).await
}

/// Prometheus sends the contents of a file as the bearer token, and tokens are valid for only an hour, so keys are
/// accepted as well.
fn key_holder(app: &App, headers: &HeaderMap) -> Option<Caller> {
    let sent = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let key = tokens::bearer(Some(sent)).ok()?;
    let principal = app.keyring.authenticate_key(key, &app.live.directory())?;
    Some(Caller { object_id: principal.id.into(), name: principal.name.into() })
}

async fn page(app: &App) -> Result<Response, Failed> {
    let present = app.writer.present().await?;
    let page = app.live.metrics.page(&present, &app.live.usage(), app.environments.builds());
    Ok(([(header::CONTENT_TYPE, TEXT)], page).into_response())
}

/// On the separate port.
pub async fn open(State(app): State<Arc<App>>) -> Result<Response, Failed> {
    page(&app).await
}
