//! Who is asking: a bearer token made by us, for an audience that this route takes.

use axum::http::{HeaderMap, header};
use muster_core::model::Caller;
use muster_wire::ArmError;

use crate::app::App;
use crate::clock;
use crate::tokens;

/// The caller of an ARM or run-history route, or the 401 that says why not.
pub fn caller(app: &App, headers: &HeaderMap) -> Result<Caller, ArmError> {
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let accepted: [&[String]; 2] = [&app.audiences.arm, &app.audiences.ml];
    let principal = tokens::bearer(authorization)
        .and_then(|token| app.keyring.verify(token, &accepted, clock::unix_seconds()))
        .map_err(|rejected| ArmError::unauthorized(&app.base_url, &rejected.to_string()))?;
    Ok(Caller { object_id: principal.id.into(), name: principal.name.into() })
}
