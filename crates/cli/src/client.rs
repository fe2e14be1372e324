//! Requests to the server, as any Azure client would send them: a token from the identity endpoint, then ARM.
//!
//! The client trusts only the server's own CA, follows no redirects and uses no proxy: the token is sent only to the
//! server that the state directory names.

mod blobs;
mod events;
#[cfg(test)]
mod fake;
mod files;
mod pacing;

pub use blobs::Container;
pub use events::Changes;
use pacing::Again;

use std::cell::RefCell;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use muster_core::ErrorChain;
use muster_core::model::WorkspaceKey;
use muster_wire::cloud::TokenReply;
use muster_wire::error::ErrorBody;
use muster_wire::spelling::PARTS_HEADER;
use muster_wire::{Login, Page, Route, from_json};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::failure::{CliResult, Failure, printable, quoted};
use crate::nearest;
use crate::server_location::Server;

/// Any version is accepted; this is the newest stable one whose documents we write.
const API_VERSION: &str = "2026-09-01";
const TOKEN_API_VERSION: &str = "2019-08-01";
const IDENTITY_HEADER: HeaderName = HeaderName::from_static("x-identity-header");
const OPERATION_HEADER: HeaderName = HeaderName::from_static("azure-asyncoperation");
/// Errors name fields in a way that we can spell.
const PARTS: HeaderName = HeaderName::from_static(PARTS_HEADER);
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The server responds within one commit; after a minute, it hangs.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Connections that are idle for longer are not reused: the server closes them after ten seconds, perhaps while we
/// write.
const RESTS_FOR: Duration = Duration::from_secs(5);

pub struct Client {
    http: reqwest::Client,
    server: Server,
    /// There is one thread and no borrow across an await, so no lock is needed.
    token: RefCell<HeaderValue>,
}

/// A successful response.
pub struct ApiResponse {
    pub status: StatusCode,
    /// The address for polling a long-running operation.
    pub operation: Option<String>,
    /// The other way to poll an operation: until this address no longer returns 202.
    pub location: Option<String>,
    pub retry_after: Option<Duration>,
    body: Vec<u8>,
}

/// Part of a log, and the current length of the whole, if the server reports it.
pub struct LogPiece {
    pub bytes: Vec<u8>,
    pub total: Option<u64>,
}

/// The only field that is needed to look for a name in a list.
#[derive(Deserialize)]
struct Named {
    name: String,
}

impl Client {
    pub async fn connect(server: Server) -> CliResult<Client> {
        let client = Client {
            http: http_client(&server)?,
            server,
            token: RefCell::new(HeaderValue::from_static("")),
        };
        client.renew_token().await?;
        Ok(client)
    }

    pub fn server_url(&self) -> &str {
        &self.server.url
    }

    /// The file with the CA that the client trusts.
    pub fn ca_file(&self) -> &Path {
        &self.server.ca_file
    }

    pub fn key_source(&self) -> &str {
        &self.server.key_source
    }

    pub async fn get<T: DeserializeOwned>(&self, route: &Route) -> CliResult<T> {
        self.get_with(route, &[]).await
    }

    pub async fn get_with<T: DeserializeOwned>(
        &self,
        route: &Route,
        query: &[(&str, &str)],
    ) -> CliResult<T> {
        match self.send(Method::GET, &self.url(route, query), None).await {
            Ok(answer) => answer.document(),
            Err(failure) => Err(self.explained(route, failure).await),
        }
    }

    /// The resource, if it exists. Unlike [`Client::get`] it never creates anything: where workspaces are created on
    /// first use, a GET in a missing workspace would be that use.
    pub async fn find<T: DeserializeOwned>(&self, route: &Route) -> CliResult<Option<T>> {
        if let Some(key) = workspace_of(route) {
            let (subscription, resource_group) =
                (key.subscription.clone(), key.resource_group.clone());
            let list = Route::WorkspacesOfGroup { subscription, resource_group };
            let known: Vec<Named> = self.list(&list, None).await?;
            if !known.iter().any(|known| known.name.eq_ignore_ascii_case(&key.name)) {
                return Ok(None);
            }
        }
        match self.send(Method::GET, &self.url(route, &[]), None).await {
            Ok(answer) => answer.document().map(Some),
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Like [`Client::find`], for a resource that must exist.
    pub async fn found<T: DeserializeOwned>(&self, route: &Route) -> CliResult<T> {
        if let Some(found) = self.find(route).await? {
            return Ok(found);
        }
        let name = nearest::listing(route).map_or_else(String::new, |(_, name)| quoted(name));
        let missing = Failure::not_found(format!("{name} does not exist"));
        Err(self.suggest(route, missing).await)
    }

    /// The address of a route, for people.
    pub fn url_of(&self, route: &Route) -> String {
        self.url(route, &[])
    }

    /// The items of a list, page by page, until there are enough.
    pub async fn list<T: DeserializeOwned>(
        &self,
        route: &Route,
        max: Option<u32>,
    ) -> CliResult<Vec<T>> {
        self.list_with(route, &[], max).await
    }

    pub async fn list_with<T: DeserializeOwned>(
        &self,
        route: &Route,
        query: &[(&str, &str)],
        max: Option<u32>,
    ) -> CliResult<Vec<T>> {
        let wanted = max.map_or(usize::MAX, |count| count as usize);
        let mut page: Page<T> = self.get_with(route, query).await?;
        let mut items = std::mem::take(&mut page.value);
        while let Some(link) = page.next_link.take().filter(|_| items.len() < wanted) {
            page = self.follow(&link).await?.document()?;
            items.append(&mut page.value);
        }
        items.truncate(wanted);
        Ok(items)
    }

    /// A link that the server returned: the next page, or the state of an operation.
    pub async fn follow(&self, link: &str) -> CliResult<ApiResponse> {
        let rest = link.strip_prefix(self.server.url.trim_end_matches('/'));
        if !rest.is_some_and(|rest| rest.starts_with('/')) {
            return Err(Failure::error(format!(
                "the server at {} sent a link to {}; it is not followed, because that would send your token there",
                self.server.url,
                quoted(link)
            )));
        }
        self.send(Method::GET, link, None).await
    }

    pub async fn put(&self, route: &Route, body: String) -> CliResult<ApiResponse> {
        self.send(Method::PUT, &self.url(route, &[]), Some(body)).await
    }

    pub async fn patch(&self, route: &Route, body: String) -> CliResult<ApiResponse> {
        match self.send(Method::PATCH, &self.url(route, &[]), Some(body)).await {
            Err(failure) => Err(self.explained(route, failure).await),
            answered => answered,
        }
    }

    pub async fn post(&self, route: &Route) -> CliResult<ApiResponse> {
        self.post_body(route, String::new()).await
    }

    pub async fn post_body(&self, route: &Route, body: String) -> CliResult<ApiResponse> {
        match self.send(Method::POST, &self.url(route, &[]), Some(body)).await {
            Err(failure) => Err(self.explained(route, failure).await),
            answered => answered,
        }
    }

    pub async fn delete(&self, route: &Route) -> CliResult<ApiResponse> {
        let url = self.url(route, &[("underlyingResourceAction", "Delete")]);
        self.send(Method::DELETE, &url, None).await
    }

    /// Adds the most similar name to a failure that a misspelt name may have caused.
    pub async fn suggest(&self, route: &Route, failure: Failure) -> Failure {
        let Some((list, name)) = nearest::listing(route) else { return failure };
        // One page is cheap. A second failure would only hide the first.
        let listed = self.send(Method::GET, &self.url(&list, &[]), None).await;
        let page = listed.and_then(|answer| answer.document::<Page<Named>>());
        let names: Vec<_> =
            page.into_iter().flat_map(|page| page.value).map(|it| it.name).collect();
        match nearest::nearest(name, &names) {
            Some(nearest) => failure.hint(format!("did you mean {}?", quoted(nearest))),
            None => failure,
        }
    }

    async fn explained(&self, route: &Route, failure: Failure) -> Failure {
        match failure.is_not_found() {
            true => self.suggest(route, failure).await,
            false => failure,
        }
    }

    /// The log at a signed address, from byte `from` on.
    pub async fn log(&self, url: &str, from: u64) -> CliResult<LogPiece> {
        let range = format!("bytes={from}-");
        let request = || Ok(self.http.get(url).header(header::RANGE, &range));
        let response = self.paced(&Method::GET, request).await?;
        let status = response.status();
        if status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(LogPiece { bytes: Vec::new(), total: None });
        }
        let total = total_of(response.headers());
        let body = response.bytes().await.map_err(|why| self.unreachable(why))?;
        if !status.is_success() {
            return Err(refusal(status, &body));
        }
        // A server may return the whole instead of the requested range.
        let known = if status == StatusCode::PARTIAL_CONTENT { 0 } else { from };
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(body.len());
        Ok(LogPiece { bytes: body[known..].to_vec(), total })
    }

    fn url(&self, route: &Route, more: &[(&str, &str)]) -> String {
        let query = [&[("api-version", API_VERSION)], more].concat();
        route.url(&self.server.url, &query).expect("every route that is asked for has a path")
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        body: Option<String>,
    ) -> CliResult<ApiResponse> {
        let attempt = || {
            let request = self.http.request(method.clone(), url);
            let request = request.header(header::AUTHORIZATION, self.token.borrow().clone());
            Ok(with_body(request, body.clone()))
        };
        let mut response = self.paced(&method, attempt).await?;
        // A stream may outlive its token: try once more with a new one.
        if response.status() == StatusCode::UNAUTHORIZED {
            self.renew_token().await?;
            response = self.paced(&method, attempt).await?;
        }
        self.read_answer(response).await
    }

    /// Sends a request, which is built again for each try, and waits if the server asks for that.
    async fn paced(
        &self,
        method: &Method,
        make: impl FnMut() -> CliResult<RequestBuilder>,
    ) -> CliResult<reqwest::Response> {
        pacing::send(method, Again::WhenTold, make, |why| self.unreachable(why)).await
    }

    async fn read_answer(&self, response: reqwest::Response) -> CliResult<ApiResponse> {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(|why| self.unreachable(why))?.to_vec();
        if !status.is_success() {
            return Err(refusal(status, &body));
        }
        let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::to_owned);
        Ok(ApiResponse {
            status,
            operation: text(OPERATION_HEADER),
            location: text(header::LOCATION),
            retry_after: retry_after(text(RETRY_AFTER_MS), text(header::RETRY_AFTER)),
            body,
        })
    }

    async fn renew_token(&self) -> CliResult {
        let base = self.server.url.trim_end_matches('/');
        let query = [("api-version", TOKEN_API_VERSION), ("resource", base)];
        let url =
            Route::Login(Login::Token).url(base, &query).expect("the token's route has a path");
        let mut key = HeaderValue::from_str(&self.server.key).map_err(|_| self.bad_key())?;
        key.set_sensitive(true);
        let request = || Ok(self.http.get(&url).header(IDENTITY_HEADER, &key));
        let response = self.paced(&Method::GET, request).await?;
        let status = response.status();
        let body = response.bytes().await.map_err(|why| self.unreachable(why))?;
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            return Err(self.bad_key());
        }
        if !status.is_success() {
            return Err(refusal(status, &body));
        }
        let reply: TokenReply = read(&body)?;
        let bearer = HeaderValue::from_str(&format!("Bearer {}", reply.access_token));
        let mut bearer = bearer.map_err(|_| Failure::error("the server's token is damaged"))?;
        bearer.set_sensitive(true);
        self.token.replace(bearer);
        Ok(())
    }

    fn bad_key(&self) -> Failure {
        let text = format!(
            "the server at {} does not accept the key in {}",
            self.server.url, self.server.key_source
        );
        Failure::error(text).hint(match self.server.dir {
            Some(_) => {
                "another server may have taken its address: start the one that this key belongs to, \
                 or choose the right directory with --state-dir"
            }
            None => "it may have been rotated or revoked: ask an owner of the server for a new one",
        })
    }

    fn unreachable(&self, why: reqwest::Error) -> Failure {
        let url = &self.server.url;
        // The address may contain a signature, which the error would repeat.
        let why = why.without_url();
        let start = match &self.server.dir {
            Some(dir) => format!("{} --state-dir {}", dir.start_command(), dir.root().display()),
            None => "muster serve, on its machine".to_owned(),
        };
        if why.is_timeout() {
            let text = format!("the server at {url} did not respond in time");
            return Failure::error(text)
                .passing()
                .hint(format!("look at its log: MUSTER_LOG=info {start}"));
        }
        let why = printable(&ErrorChain(&why).to_string());
        let text = format!("cannot reach the server at {url}: {why}");
        // The type cannot be checked: the client library wraps the errors of its TLS library, and exposes neither.
        if why.contains("certificate") {
            return Failure::error(text).hint(format!(
                "another server may have taken its address: restart the right one, \
                 {start}"
            ));
        }
        let hint = format!("is it running? start it: {start}");
        Failure::error(text).passing().hint(hint)
    }
}

impl ApiResponse {
    pub fn document<T: DeserializeOwned>(&self) -> CliResult<T> {
        read(&self.body)
    }
}

/// Why the figures of a server are not available.
#[derive(Debug)]
pub enum NoMetrics {
    /// This key may not read them.
    NotAllowed(StatusCode),
    Failed(String),
}

impl fmt::Display for NoMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoMetrics::NotAllowed(status) => write!(f, "the server returned {status}"),
            NoMetrics::Failed(why) => f.write_str(why),
        }
    }
}

/// The server's figures, for a key that may read everything.
pub async fn metrics(server: &Server, within: Duration) -> Result<String, NoMetrics> {
    let http = http_client(server).map_err(|failure| NoMetrics::Failed(failure.to_string()))?;
    let url = format!("{}/metrics", server.url.trim_end_matches('/'));
    let request = http.get(url).bearer_auth(&server.key).timeout(within);
    let page = async { request.send().await?.error_for_status()?.text().await };
    page.await.map_err(|why| no_metrics(why, within))
}

fn no_metrics(why: reqwest::Error, within: Duration) -> NoMetrics {
    match why.status() {
        Some(status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) => {
            NoMetrics::NotAllowed(status)
        }
        _ => NoMetrics::Failed(unanswered(why, within)),
    }
}

fn unanswered(why: reqwest::Error, within: Duration) -> String {
    match why.is_timeout() {
        true => format!("no response within {} ms", within.as_millis()),
        false => printable(&ErrorChain(&why.without_url()).to_string()),
    }
}

/// The result of the server's readiness check, which needs no token; or why it does not respond.
pub async fn readiness(server: &Server, within: Duration) -> Result<u16, String> {
    let http = http_client(server).map_err(|failure| failure.to_string())?;
    let url = format!("{}/readyz", server.url.trim_end_matches('/'));
    let answer = http.get(url).timeout(within).send().await;
    answer.map(|answer| answer.status().as_u16()).map_err(|why| unanswered(why, within))
}

/// The workspace that must exist for the requested resource to exist.
fn workspace_of(route: &Route) -> Option<&WorkspaceKey> {
    match route {
        Route::Workspace(workspace)
        | Route::Compute { workspace, .. }
        | Route::Job { workspace, .. } => Some(workspace),
        _ => None,
    }
}

fn http_client(server: &Server) -> CliResult<reqwest::Client> {
    let bad_ca = || {
        let path = server.ca_file.clone();
        Failure::error(format!("{} is not a CA certificate", path.display())).hint(
            match &server.dir {
                Some(dir) => {
                    format!(
                        "restart the server: `{}` explains how to repair it",
                        dir.start_command()
                    )
                }
                None => "get it again from the operator of the server".to_owned(),
            },
        )
    };
    let cas = reqwest::Certificate::from_pem_bundle(&server.ca_pem).map_err(|_| bad_ca())?;
    if cas.is_empty() {
        return Err(bad_ca());
    }
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")))
        .default_headers(HeaderMap::from_iter([(PARTS, HeaderValue::from_static("1"))]))
        .tls_certs_only(cas)
        .https_only(true)
        .http1_only()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .pool_idle_timeout(RESTS_FOR)
        .connect_timeout(CONNECT_WITHIN)
        .timeout(ANSWER_WITHIN);
    if let Some(port) = localhost_port(&server.url) {
        // This name always means this machine (RFC 6761), and a resolver would take longer than the request.
        let here = [
            SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
        ];
        builder = builder.resolve_to_addrs("localhost", &here);
    }
    builder.build().map_err(|_| bad_ca())
}

fn localhost_port(url: &str) -> Option<u16> {
    url.strip_prefix("https://localhost:")?.trim_end_matches('/').parse().ok()
}

fn with_body(request: RequestBuilder, body: Option<String>) -> RequestBuilder {
    match body {
        Some(body) if !body.is_empty() => {
            request.header(header::CONTENT_TYPE, "application/json").body(body)
        }
        // Set explicitly: some servers require a length with every POST.
        Some(_) => request.header(header::CONTENT_LENGTH, 0),
        None => request,
    }
}

fn refusal(status: StatusCode, body: &[u8]) -> Failure {
    match from_json::<ErrorBody>(body) {
        Ok(body) => Failure::answered(status.as_u16(), &body.error),
        Err(_) => Failure::error(format!("the server returned {status} without a reason")),
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> CliResult<T> {
    from_json(body).map_err(|why| {
        Failure::error(format!(
            "cannot read the server's response: {}",
            printable(&why.to_string())
        ))
        .hint("does the server have another version? `muster --version` shows that of this program")
    })
}

fn retry_after(milliseconds: Option<String>, seconds: Option<String>) -> Option<Duration> {
    let milliseconds = milliseconds.and_then(|text| text.trim().parse().ok());
    let seconds = seconds.and_then(|text| text.trim().parse().ok());
    milliseconds.map(Duration::from_millis).or_else(|| seconds.map(Duration::from_secs))
}

/// `bytes 0-4/11` → 11.
fn total_of(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    range.rsplit_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::fake::{Fake, answer};
    use super::*;

    #[tokio::test]
    async fn figures_that_cannot_be_read_are_a_matter_of_the_key_only_if_the_server_says_so() {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let within = Duration::from_secs(1);
        let failed = async |answered: String| {
            let fake = Fake::start(vec![answered]);
            let page = async {
                let answered = http.get(&fake.url).timeout(within).send().await?;
                answered.error_for_status()?.text().await
            };
            no_metrics(page.await.unwrap_err(), within)
        };
        for (status, is_refused) in
            [(401, true), (403, true), (404, false), (500, false), (503, false)]
        {
            let none = failed(answer(status, "", "")).await;
            assert_eq!(matches!(none, NoMetrics::NotAllowed(_)), is_refused, "{status}: {none}");
        }
        let none = failed(String::new()).await;
        assert!(matches!(none, NoMetrics::Failed(_)), "no answer at all: {none}");
    }

    #[test]
    fn headers_are_read_in_every_form() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(retry_after(None, text("1")), Some(Duration::from_secs(1)));
        assert_eq!(retry_after(text("200"), text("1")), Some(Duration::from_millis(200)));
        assert_eq!(retry_after(None, text("Wed, 21 Oct 2026 07:28:00 GMT")), None);
        assert_eq!(retry_after(None, None), None);
        let mut headers = HeaderMap::new();
        assert_eq!(total_of(&headers), None);
        headers.insert(header::CONTENT_RANGE, HeaderValue::from_static("bytes 0-4/11"));
        assert_eq!(total_of(&headers), Some(11));
        headers.insert(header::CONTENT_RANGE, HeaderValue::from_static("bytes 0-4/*"));
        assert_eq!(total_of(&headers), None);
    }

    #[test]
    fn only_this_machines_own_name_is_resolved_here() {
        assert_eq!(localhost_port("https://localhost:7443"), Some(7443));
        assert_eq!(localhost_port("https://localhost:7443/"), Some(7443));
        for other in ["https://localhost.example:7443", "https://127.0.0.1:1", "https://localhost"]
        {
            assert_eq!(localhost_port(other), None, "{other}");
        }
    }

    #[test]
    fn a_response_without_a_reason_is_still_reported() {
        let failure = refusal(StatusCode::BAD_GATEWAY, b"<html>");
        assert_eq!(failure.to_string(), "the server returned 502 Bad Gateway without a reason");
        let body = br#"{"error":{"code":"C","message":"m"}}"#;
        assert_eq!(refusal(StatusCode::CONFLICT, body).to_string(), "(C) m");
    }
}
