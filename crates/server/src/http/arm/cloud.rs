//! What a client reads before it asks for the first resource: where things are, and a token.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use muster_wire::{ArmError, Query, cloud};

use super::Failed;
use crate::app::App;
use crate::clock;
use crate::http::respond::document;

pub fn metadata(app: &App, query: &Query) -> Response {
    document(StatusCode::OK, &cloud::metadata(&app.base_url, query.api_version()))
}

pub fn discovery(app: &App) -> Response {
    document(StatusCode::OK, &cloud::discovery(&app.base_url))
}

/// How long a wrong key has to wait for its refusal. Keys have 256 random bits, so nobody guesses one; but
/// whoever tries takes a connection each.
const WRONG_KEY_PAUSE: Duration = Duration::from_secs(1);

/// App Service's identity endpoint: the API key in, a token for one audience out.
pub async fn token(app: &App, query: &Query, headers: &HeaderMap) -> Result<Response, Failed> {
    let key = headers.get("x-identity-header").and_then(|value| value.to_str().ok());
    let directory = app.live.directory();
    let principal = key.and_then(|key| app.keyring.authenticate_key(key, &directory));
    let Some(principal) = principal else {
        tokio::time::sleep(WRONG_KEY_PAUSE).await;
        return Err(ArmError::unauthorized(
            &app.base_url,
            "X-IDENTITY-HEADER is not a valid API key; run `muster env` again and use what it prints",
        )
        .into());
    };
    let resource = query.resource().ok_or_else(|| {
        ArmError::invalid_property("resource", "resource is missing; name what the token is for")
    })?;
    let issued = app
        .keyring
        .issue(&principal, resource, &app.audiences, clock::unix_seconds(), &directory)
        .map_err(|refused| ArmError::invalid_property("resource", refused.to_string()))?;
    let reply = cloud::TokenReply::new(&issued.token, issued.expires_unix, resource);
    Ok(document(StatusCode::OK, &reply))
}
