//! Services of running jobs on the second listener: `/services/{epoch}/{rank}/{name}/…` leads to the node, for users
//! who may run jobs in that workspace.

mod call;
mod fence;
mod pass;
mod quiet;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use muster_core::agent::{ServicePhase, ServiceReport};
use muster_core::ids::Epoch;
use muster_core::model::{Caller, SERVICES_PATH, service_path};
use muster_wire::job::{ServiceStatus, ServiceView};

use self::fence::Mount;
use self::pass::By;
use super::request_log::Noted;
use super::respond::with_retry_after;
use crate::app::App;

pub use self::call::ServiceClient;

/// Where to get a valid link.
const HOW: &str = "open the address that `muster job show-services --name JOB` prints";

/// The parts of a path below `/services`.
struct Address<'a> {
    epoch: Epoch,
    rank: usize,
    name: &'a str,
    /// Unchanged, starting with the slash after the name.
    rest: &'a str,
}

impl<'a> Address<'a> {
    fn parse(path: &'a str) -> Option<Address<'a>> {
        let below = path.strip_prefix(SERVICES_PATH)?.strip_prefix('/')?;
        let (epoch, below) = below.split_once('/')?;
        let (rank, below) = below.split_once('/')?;
        let (name, rest) = below.split_at(below.find('/').unwrap_or(below.len()));
        let address = Address { epoch: epoch.parse().ok()?, rank: rank.parse().ok()?, name, rest };
        // Only one spelling of each path is accepted, because cookies and policies compare text.
        path.starts_with(&address.path()).then_some(address)
    }

    fn path(&self) -> String {
        service_path(self.epoch, u32::try_from(self.rank).unwrap_or(u32::MAX), self.name)
    }
}

pub async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    let uri = request.uri().clone();
    let Some(address) = Address::parse(uri.path()) else {
        return page(StatusCode::NOT_FOUND, &format!("there is no service at this address; {HOW}"));
    };
    match admit(&app, &request, &address) {
        Ok(Admitted { mount_path, service, services_of_member }) => {
            let (name, rest) = (address.name, address.rest);
            let mount =
                Mount { origin: &app.files_url, path: &mount_path, is_kept: service.keeps_path };
            let said =
                call::pass_on(&app, &services_of_member, name, rest, &service, &mount, request)
                    .await;
            said.unwrap_or_else(|refusal| match ending(&app, address.epoch) {
                Some(text) => page(StatusCode::GONE, &text),
                None => *refusal,
            })
        }
        Err(response) => *response,
    }
}

/// The message for a service that does not answer because its job is ending or has ended.
fn ending(app: &App, epoch: Epoch) -> Option<String> {
    match app.live.attempt(epoch) {
        None => Some(over()),
        Some(attempt) if attempt.is_ending => {
            Some(format!("the job was cancelled and is ending; if it runs again, {HOW}"))
        }
        Some(_) => None,
    }
}

fn over() -> String {
    format!("the job, or this attempt of it, is no longer running; if it runs again, {HOW}")
}

struct Admitted {
    mount_path: String,
    service: ServiceReport,
    services_of_member: Arc<crate::services::MemberServices>,
}

/// Checks that the service exists, and that the caller may use it.
fn admit(app: &App, request: &Request, address: &Address<'_>) -> Result<Admitted, Box<Response>> {
    let refuse = |status, text: &str| Err(Box::new(page(status, text)));
    let (method, headers) = (request.method(), request.headers());
    if matches!(*method, Method::CONNECT | Method::TRACE) {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "this method is not forwarded to services");
    }
    let path = address.path();
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let link = request.uri().query().filter(|_| reads && address.rest == "/");
    let visitor = match pass::visitor(app, headers, &path, link) {
        Ok(visitor) => visitor,
        Err(why) => {
            let mut response = page(StatusCode::UNAUTHORIZED, &format!("{why}; {HOW}"));
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
            return Err(Box::new(response));
        }
    };
    if let Some(noted) = request.extensions().get::<Noted>() {
        noted.caller(&visitor.caller.name);
    }
    if visitor.by == By::Cookie && !is_of_this_page(headers, &app.files_url) {
        return refuse(
            StatusCode::FORBIDDEN,
            "this request came from a page of another server; nothing was forwarded",
        );
    }
    if app.live.attempt(address.epoch).is_none() {
        return refuse(StatusCode::GONE, &over());
    }
    let Some(services_of_member) = app.services.of(address.epoch, address.rank) else {
        let wait = page(StatusCode::SERVICE_UNAVAILABLE, "the job is starting; try again soon");
        return Err(Box::new(with_retry_after(wait)));
    };
    if !pass::may(app, &visitor.caller, &services_of_member.workspace) {
        let text = format!(
            "'{}' may not run jobs in the workspace of this job; ask an owner for a role there",
            visitor.caller.name
        );
        return refuse(StatusCode::FORBIDDEN, &text);
    }
    let Some(service) = services_of_member.service(address.name) else {
        return refuse(StatusCode::NOT_FOUND, &format!("this job has no such service; {HOW}"));
    };
    if visitor.by == By::Link {
        return Err(Box::new(exchange(app, &visitor.caller, &path)));
    }
    // Without the slash, relative addresses on the page would not lead to the service.
    if address.rest.is_empty() {
        let query = request.uri().query().map_or(String::new(), |query| format!("?{query}"));
        let words = [(header::LOCATION, format!("{path}/{query}"))];
        return Err(Box::new((StatusCode::TEMPORARY_REDIRECT, words).into_response()));
    }
    // A service worker would keep running behind every page of its path, for as long as the browser likes.
    if headers.contains_key("service-worker") {
        return refuse(StatusCode::FORBIDDEN, "service workers are not allowed here");
    }
    if let ServicePhase::Failed(why) = &service.phase {
        return match ending(app, address.epoch) {
            Some(text) => refuse(StatusCode::GONE, &text),
            None => refuse(StatusCode::BAD_GATEWAY, &format!("the service is not running: {why}")),
        };
    }
    Ok(Admitted { mount_path: path, service, services_of_member })
}

/// Replaces the link by a cookie, so that the link is not in any history, bookmark or referrer.
fn exchange(app: &App, caller: &Caller, path: &str) -> Response {
    let Some(cookie) = pass::cookie(app, caller, path) else {
        return page(StatusCode::UNAUTHORIZED, &format!("this link is not valid; {HOW}"));
    };
    let mut response = page(StatusCode::SEE_OTHER, "");
    let headers = response.headers_mut();
    headers.insert(header::SET_COOKIE, cookie);
    let own = HeaderValue::from_str(&format!("{path}/")).expect("a service path is plain ASCII");
    headers.insert(header::LOCATION, own);
    response
}

/// Browsers also send the cookie with requests from pages of other servers on this host.
fn is_of_this_page(headers: &HeaderMap, origin: &str) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let own = origin.strip_suffix(":443").unwrap_or(origin);
    let is_own = text("origin").is_none_or(|said| said.eq_ignore_ascii_case(own));
    let is_opened = text("sec-fetch-mode") == Some("navigate")
        && text("sec-fetch-dest").is_none_or(|kind| kind == "document");
    let is_near = matches!(text("sec-fetch-site"), None | Some("same-origin" | "none"));
    is_own && (is_near || is_opened)
}

/// A message of the server itself: plain text that no browser runs.
pub fn page(status: StatusCode, text: &str) -> Response {
    let text = if text.is_empty() { String::new() } else { format!("muster: {text}\n") };
    let mut response = (status, text).into_response();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The state and the address of a service, with a link that opens it if the caller may use it.
pub fn view(
    app: &App,
    caller: Option<&Caller>,
    (epoch, rank): (Epoch, u32),
    name: &str,
) -> Option<ServiceView> {
    let services_of_member = app.services.of(epoch, rank as usize)?;
    let service = services_of_member.service(name)?;
    let path = service_path(epoch, rank, name);
    let (status, error) = match &service.phase {
        ServicePhase::Starting => (ServiceStatus::Starting, None),
        ServicePhase::Listening => (ServiceStatus::Running, None),
        ServicePhase::Failed(why) => (ServiceStatus::Failed, Some(why.to_string())),
    };
    let caller = caller.filter(|caller| pass::may(app, caller, &services_of_member.workspace));
    let link = caller.and_then(|caller| pass::link(app, caller, &path));
    let endpoint = link.unwrap_or_else(|| format!("{}{path}/", app.files_url));
    Some(ServiceView { status, port: service.port, error, endpoint: Some(endpoint) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_spelling() {
        let epoch = Epoch(7);
        let good = format!("/services/{epoch}/0/web/a%2Fb");
        let address = Address::parse(&good).expect("whole");
        assert_eq!((address.rank, address.name, address.rest), (0, "web", "/a%2Fb"));
        assert_eq!(address.path(), format!("/services/{epoch}/0/web"));
        let bare = format!("/services/{epoch}/3/web");
        assert_eq!(Address::parse(&bare).expect("whole").rest, "");
        for bad in ["/services", "/services/x/0/web/", "/services/7", "/other/x/0/y/"] {
            assert!(Address::parse(bad).is_none(), "{bad}");
        }
        for bad in ["00/web/", "+0/web/", "-1/web/"] {
            assert!(Address::parse(&format!("/services/{epoch}/{bad}")).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_cookie_works_for_pages_of_this_server_only() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                (name.parse().expect("a name"), HeaderValue::from_static(value))
            });
            pairs.collect::<HeaderMap>()
        };
        let is_own = |pairs: &[_]| is_of_this_page(&headers(pairs), "https://host:7444");
        assert!(is_own(&[]));
        assert!(is_own(&[("origin", "https://host:7444"), ("sec-fetch-site", "same-origin")]));
        assert!(is_own(&[
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document")
        ]));
        assert!(!is_own(&[("origin", "https://host:7443")]));
        assert!(!is_own(&[("origin", "null")]));
        assert!(!is_own(&[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "no-cors")]));
        assert!(!is_own(&[
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "iframe")
        ]));
    }
}
