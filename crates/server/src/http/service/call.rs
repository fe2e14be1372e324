//! One request to a service: sent over a connection that its node has opened, without credentials for this server, and
//! answered with the restrictions of [`super::fence`].

use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::response::{IntoResponse as _, Response};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use muster_core::ErrorChain;
use muster_core::agent::{NODE_HEADER, ServiceReport};
use tokio::sync::OwnedSemaphorePermit;

use super::fence::{Mount, fence};
use super::quiet::{Paced, TooSlow};
use super::{page, pass, quiet};
use crate::app::App;
use crate::http::limits::{BODY_PATIENCE, HEAD_BYTES_MAX, HEADERS_MAX};
use crate::http::listener;
use crate::http::respond::with_retry_after;
use crate::services::{DialError, MemberServices, ServiceConnection};

/// How long a service may be silent before the request is given up, and also how long both sides of a connection may
/// be.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// How many idle connections to one service are kept for the next request, and for how long.
const KEPT_MAX: usize = 8;
const KEPT_FOR: Duration = Duration::from_secs(10);
const WEBSOCKET: &str = "websocket";
/// Headers that concern only the connection between two neighbours.
const HOPS: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Headers that a caller could forge, that are for this server, or that are set again.
const OURS: [HeaderName; 7] = [
    header::AUTHORIZATION,
    header::COOKIE,
    header::HOST,
    header::EXPECT,
    HeaderName::from_static("forwarded"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static(NODE_HEADER),
];

/// Connections to the services of one member of a job.
pub type ServiceClient = Client<Connector, Body>;

fn pool(services_of_member: &Arc<MemberServices>) -> ServiceClient {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(KEPT_FOR)
        .pool_max_idle_per_host(KEPT_MAX)
        .http1_max_buf_size(HEAD_BYTES_MAX)
        .http1_max_headers(HEADERS_MAX)
        .build(Connector(Arc::downgrade(services_of_member)))
}

#[derive(Clone)]
pub struct Connector(Weak<MemberServices>);

impl tower_service::Service<Uri> for Connector {
    type Response = Line;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Line, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let services_of_member = self.0.upgrade();
        Box::pin(async move {
            let services_of_member = services_of_member.ok_or(DialError::Silent)?;
            let name = uri.host().and_then(|host| name_of(&services_of_member, host));
            let name = name.ok_or(DialError::Silent)?;
            let ServiceConnection { stream, places } = services_of_member.dial(&name).await?;
            Ok(Line { stream: stream.into_inner(), _places: places })
        })
    }
}

/// A service as the host of a URI. Its index is used instead of its name, because hosts are not case-sensitive.
fn host_of(services_of_member: &MemberServices, name: &str) -> Option<String> {
    let at = services_of_member.names.iter().position(|known| known == name)?;
    Some(format!("s{at}.invalid"))
}

fn name_of(services_of_member: &MemberServices, host: &str) -> Option<String> {
    let at: usize = host.strip_prefix('s')?.strip_suffix(".invalid")?.parse().ok()?;
    services_of_member.names.iter().nth(at).cloned()
}

/// A connection to a service. It keeps its place for as long as it is open, even after an upgrade.
pub struct Line {
    stream: Upgraded,
    _places: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

impl Connection for Line {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl Write for Line {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Returns the response of the service, or an error page.
pub async fn pass_on(
    app: &App,
    services_of_member: &Arc<MemberServices>,
    name: &str,
    rest: &str,
    service: &ServiceReport,
    mount: &Mount<'_>,
    mut request: Request,
) -> Result<Response, Box<Response>> {
    let Some(host) = host_of(services_of_member, name) else {
        return Ok(page(StatusCode::NOT_FOUND, "this job has no such service"));
    };
    let is_socket = wants_socket(&request);
    let near = is_socket.then(|| hyper::upgrade::on(&mut request));
    let (mut parts, body) = request.into_parts();
    let path = if service.keeps_path { parts.uri.path() } else { rest };
    let query = parts.uri.query().map_or(String::new(), |query| format!("?{query}"));
    let uri =
        Uri::builder().scheme("http").authority(host).path_and_query(format!("{path}{query}"));
    let Ok(uri) = uri.build() else {
        return Ok(page(StatusCode::BAD_REQUEST, "this address cannot be forwarded"));
    };
    outgoing(&mut parts.headers, service, mount, is_socket);
    let mut asked = Request::new(Body::new(Paced::new(body, BODY_PATIENCE)));
    *asked.method_mut() = parts.method;
    *asked.uri_mut() = uri;
    *asked.version_mut() = Version::HTTP_11;
    *asked.headers_mut() = parts.headers;
    let pool = services_of_member.pool.get_or_init(|| pool(services_of_member));
    let answered = match tokio::time::timeout(IDLE_MAX, pool.request(asked)).await {
        Ok(Ok(answered)) => answered,
        Ok(Err(failed)) => return Err(Box::new(refusal(&failed))),
        Err(_) => {
            let text = format!("the service did not answer within {} s", IDLE_MAX.as_secs());
            return Err(Box::new(page(StatusCode::GATEWAY_TIMEOUT, &text)));
        }
    };
    Ok(match (answered.status(), near) {
        (StatusCode::SWITCHING_PROTOCOLS, Some(near)) => switched(app, answered, near, mount),
        (StatusCode::SWITCHING_PROTOCOLS, None) => {
            page(StatusCode::BAD_GATEWAY, "the service switched protocols without being asked")
        }
        _ => {
            let (mut parts, body) = answered.into_parts();
            strip_hops(&mut parts.headers);
            fence(&mut parts.headers, mount);
            let body = Paced::new(Body::new(body), IDLE_MAX);
            Response::from_parts(parts, Body::new(body))
        }
    })
}

/// From here on, both ends use a protocol of their own.
fn switched(
    app: &App,
    mut answered: hyper::Response<hyper::body::Incoming>,
    near: OnUpgrade,
    mount: &Mount<'_>,
) -> Response {
    let far = hyper::upgrade::on(&mut answered);
    let mut stopping = app.stopping.clone();
    tokio::spawn(async move {
        let passing = async {
            let (near, far) = (near.await?, far.await?);
            let passed = quiet::pass_on(TokioIo::new(near), TokioIo::new(far), IDLE_MAX).await;
            Ok::<_, hyper::Error>(passed)
        };
        tokio::select! {
            passed = passing => match passed {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a connection to a service was interrupted"),
                Err(error) => tracing::debug!(%error, "a connection to a service could not be upgraded"),
            },
            () = listener::stopped(&mut stopping) => {}
        }
    });
    let mut headers = std::mem::take(answered.headers_mut());
    strip_hops(&mut headers);
    fence(&mut headers, mount);
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(WEBSOCKET));
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

fn wants_socket(request: &Request) -> bool {
    let upgrade = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
    request.method() == Method::GET
        && upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case(WEBSOCKET))
}

/// The headers that a job receives, without any credentials for this server.
fn outgoing(headers: &mut HeaderMap, service: &ServiceReport, mount: &Mount<'_>, is_socket: bool) {
    let cookies = pass::others(headers);
    strip_hops(headers);
    let forged = |name: &&HeaderName| name.as_str().starts_with("x-forwarded-");
    let forged: Vec<HeaderName> = headers.keys().filter(forged).cloned().collect();
    for name in OURS.into_iter().chain(forged) {
        headers.remove(name);
    }
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(header::HOST, mount.authority());
    set(HeaderName::from_static("x-forwarded-host"), mount.authority());
    set(HeaderName::from_static("x-forwarded-proto"), "https");
    if !mount.is_kept {
        set(HeaderName::from_static("x-forwarded-prefix"), mount.path);
    }
    if let Some(authorization) = &service.authorization {
        set(header::AUTHORIZATION, authorization);
    }
    if is_socket {
        set(header::CONNECTION, "upgrade");
        set(header::UPGRADE, WEBSOCKET);
    }
    // The service's own cookie comes first: of two with the same name, the first counts.
    let theirs = cookies.as_ref().and_then(|cookies| cookies.to_str().ok());
    let all: Vec<&str> = service.cookie.as_deref().into_iter().chain(theirs).collect();
    if !all.is_empty() {
        set(header::COOKIE, &all.join("; "));
    }
}

fn strip_hops(headers: &mut HeaderMap) {
    let said = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> = said
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.into_iter().chain(HOPS) {
        headers.remove(name);
    }
}

fn refusal(failed: &Error) -> Response {
    let mut cause = failed.source();
    while let Some(error) = cause {
        if let Some(dial) = error.downcast_ref::<DialError>() {
            return match dial {
                DialError::Full(_) => {
                    let text = format!("{dial}; try again soon");
                    with_retry_after(page(StatusCode::SERVICE_UNAVAILABLE, &text))
                }
                DialError::Silent => page(StatusCode::GATEWAY_TIMEOUT, &dial.to_string()),
                DialError::Refused(_) => page(StatusCode::BAD_GATEWAY, &dial.to_string()),
            };
        }
        if let Some(slow) = error.downcast_ref::<TooSlow>() {
            return page(StatusCode::REQUEST_TIMEOUT, &slow.to_string());
        }
        cause = error.source();
    }
    let text = format!("the service did not send a valid HTTP response: {}", ErrorChain(failed));
    page(StatusCode::BAD_GATEWAY, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_receives_no_credentials_for_this_server() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer secret"),
            ("cookie", "muster-service=secret; own=1"),
            ("connection", "keep-alive, X-Hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("proxy-authorization", "secret"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-prefix", "/elsewhere"),
            ("host", "other"),
            ("accept", "text/html"),
            ("upgrade", "h2c"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let service = ServiceReport {
            phase: muster_core::agent::ServicePhase::Listening,
            port: Some(1),
            keeps_path: false,
            authorization: None,
            cookie: Some("session=known".into()),
        };
        let mount = Mount { origin: "https://host:1", path: "/services/a/0/x", is_kept: false };
        outgoing(&mut headers, &service, &mount, false);
        let mut left: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or("?")))
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                "accept: text/html",
                "cookie: session=known; own=1",
                "host: host:1",
                "x-forwarded-host: host:1",
                "x-forwarded-prefix: /services/a/0/x",
                "x-forwarded-proto: https",
            ]
        );
    }
}
