//! Documents that a client reads before its first request for a resource, to find the endpoints.

use axum::http::StatusCode;
use axum::response::Response;
use muster_wire::{Query, cloud};

use crate::app::App;
use crate::http::respond::document;

pub fn metadata(app: &App, query: &Query) -> Response {
    document(StatusCode::OK, &cloud::metadata(&app.base_url, query.api_version()))
}

pub fn discovery(app: &App) -> Response {
    document(StatusCode::OK, &cloud::discovery(&app.base_url))
}
