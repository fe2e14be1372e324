//! Records every request: an id that the client also receives, a line in the log, and an entry in the histograms.
//!
//! The URL is never recorded as received, because it may contain signatures. Headers are never recorded, except ids
//! that clients send for this purpose.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use muster_core::agent::NODE_HEADER;
use tracing::{Instrument as _, Level, error_span};

use super::routes::{self, From};
use crate::app::App;
use crate::tokens;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");
const CORRELATION_ID: HeaderName = HeaderName::from_static("x-ms-correlation-request-id");
const CLIENT_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");
const RETURN_CLIENT_ID: HeaderName = HeaderName::from_static("x-ms-return-client-request-id");
/// Clients send GUIDs; a much longer value is not an id.
const ID_BYTES_MAX: usize = 128;

/// Facts that a handler adds about its request.
#[derive(Clone, Default)]
pub struct Noted(Arc<Facts>);

#[derive(Default)]
struct Facts {
    route: OnceLock<String>,
    caller: OnceLock<Box<str>>,
    correlation: Box<str>,
}

impl Noted {
    fn new(correlation: &str) -> Noted {
        Noted(Arc::new(Facts { correlation: correlation.into(), ..Facts::default() }))
    }

    /// The id that relates this request to others of the same client.
    pub fn correlation(&self) -> &str {
        &self.0.correlation
    }

    pub fn route(&self, route: String) {
        let _ = self.0.route.set(route);
    }

    pub fn caller(&self, name: &str) {
        let _ = self.0.caller.set(name.into());
    }
}

pub async fn record(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = tokens::new_id().unwrap_or_else(|_| "none".to_owned());
    let ids = Ids::of(request.headers(), &id);
    let method = known(request.method());
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let node = request.headers().get(NODE_HEADER).and_then(|name| name.to_str().ok());
    let node = node.map(str::to_owned);
    let correlation_id = ids.correlation.to_str().unwrap_or("");
    let noted = Noted::new(correlation_id);
    request.extensions_mut().insert(noted.clone());
    // Nodes, hosts and probes send requests all the time, so these are logged only at the debug level.
    let row = matched.as_deref().and_then(routes::row);
    let is_agent = row.is_some_and(|row| row.from == From::Node);
    let is_routine =
        is_agent || matches!(matched.as_deref(), Some("/healthz" | "/readyz" | "/host/v1/sync"));
    // At the highest level, so that the id is in every line about this request, whatever the log filter is.
    let span = error_span!("request", id, correlation_id);
    let mut response = next.run(request).instrument(span.clone()).await;
    let took = started.elapsed();
    let route = matched.or_else(|| noted.0.route.get().cloned()).unwrap_or("unknown".to_owned());
    let status = response.status();
    app.live.metrics.request(method, &route, status.as_u16(), took);
    if let Some(node) = node.filter(|_| is_agent && status.is_success()) {
        noted.caller(&node); // The node has proved its identity, or it would have been refused.
    }
    let caller = noted.0.caller.get().map_or("-", |caller| &**caller);
    let line = Line { method, route: &route, status, took_us: took.as_micros(), caller };
    span.in_scope(|| line.write(is_routine));
    ids.put(response.headers_mut());
    response
}

struct Line<'a> {
    method: &'static str,
    route: &'a str,
    status: StatusCode,
    took_us: u128,
    caller: &'a str,
}

impl Line<'_> {
    fn write(&self, is_routine: bool) {
        let Line { method, route, status, caller, .. } = self;
        let (status, duration_us) =
            (status.as_u16(), u64::try_from(self.took_us).unwrap_or(u64::MAX));
        if is_routine && status < 500 {
            tracing::event!(Level::DEBUG, method, route, status, duration_us, caller, "answered");
        } else {
            tracing::event!(Level::INFO, method, route, status, duration_us, caller, "answered");
        }
    }
}

/// The ids that are returned to the client, as in Azure.
struct Ids {
    own: HeaderValue,
    /// The client's id, if it sent one; it may apply to several requests.
    correlation: HeaderValue,
    /// Only for clients that ask for it.
    client: Option<HeaderValue>,
}

impl Ids {
    fn of(headers: &HeaderMap, id: &str) -> Ids {
        let own = HeaderValue::from_str(id).expect("an id is a header value");
        let sent = |name| headers.get(name).filter(|value| is_id(value)).cloned();
        let wants_its_own = headers
            .get(RETURN_CLIENT_ID)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"));
        Ids {
            correlation: sent(CORRELATION_ID).unwrap_or_else(|| own.clone()),
            client: sent(CLIENT_ID).filter(|_| wants_its_own),
            own,
        }
    }

    fn put(self, headers: &mut HeaderMap) {
        headers.insert(REQUEST_ID, self.own);
        headers.insert(CORRELATION_ID, self.correlation);
        if let Some(client) = self.client {
            headers.insert(CLIENT_ID, client);
        }
    }
}

fn is_id(value: &HeaderValue) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:|".contains(byte);
    !value.is_empty() && value.len() <= ID_BYTES_MAX && value.as_bytes().iter().all(is_plain)
}

/// Clients can invent methods; only these are counted by name.
fn known(method: &Method) -> &'static str {
    const METHODS: [&str; 7] = ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"];
    METHODS.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}
