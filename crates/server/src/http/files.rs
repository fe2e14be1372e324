//! The second listener, and so another origin, which serves the files that users and their jobs have written. Every
//! address that is neither a log nor a tree belongs to the blob storage.
//!
//! A browser that shows such a file must not let it use the API's origin. So nothing of the API is here, no cookie is
//! set or read, and every response forbids scripts. Services of running jobs are separate: their pages do run scripts,
//! see [`super::service`].

use std::sync::Arc;

use axum::Router;

use axum::http::{HeaderValue, header};
use axum::middleware;
use axum::response::Response;

use super::{request_log, routes};
use crate::app::App;

pub fn router(app: Arc<App>) -> Router {
    routes::files()
        .layer(middleware::map_response(harmless))
        .merge(routes::services())
        .layer(middleware::from_fn_with_state(app.clone(), request_log::record))
        .with_state(app)
}

async fn harmless(mut response: Response) -> Response {
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    // Unless the uploader of a blob has set it.
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(no_store);
    response
}
