//! The API for hosts. A machine joins with a join token and registers its own key; afterwards the host and the server
//! exchange whole states by long poll.
//!
//! A host's key gives access to this API only, and a host learns only about its own nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use muster_core::model::{ActivityRequest, Caller, Host, HostName, KeyDigest};
use muster_core::{
    ErrorChain, HostRequest, Input, NewHost, NodeRequest, RefusalKind, Refused, Reply,
};
use muster_providers::joined::protocol::{
    BadBody, JoinReply, JoinRequest, Stamp, SyncAnswer, SyncRequest, Terms, WantedEnvironment,
    WantedNode,
};
use muster_wire::spelling;

use super::login::Source;
use super::respond::with_retry_after;
use super::{listener, routes};
use crate::app::App;
use crate::guesses::TooMany;
use crate::tokens;
use crate::writer::Unavailable;

const NO_JOIN_TOKEN: &str = "this join token is invalid, expired or already used; `muster host token` creates another \
     one";

/// What hosts learn about this server.
pub struct Offer {
    pub ca_pem: String,
    /// The fingerprint by which a join token identifies the certificate authority.
    pub authority: String,
    pub terms: Terms,
}

/// The certificate of the authority, for machines that can verify it with their join token.
pub async fn ca(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "application/x-pem-file")], app.offer.ca_pem.clone()).into_response()
}

/// Lets a machine join, once for each join token.
pub async fn join(
    State(app): State<Arc<App>>,
    Extension(source): Extension<Source>,
    body: Bytes,
) -> Response {
    let request = match JoinRequest::parse(&body) {
        Ok(request) => request,
        Err(bad) => return not_read(&bad),
    };
    let ticket = tokens::digest_of(&request.secret);
    let hosts = app.live.hosts();
    let came_with_it = hosts.host(&request.name).is_some_and(|host| host.ticket == Some(ticket));
    if !came_with_it && hosts.ticket(&ticket).is_none() {
        // Wrong tokens do not get as far as the writer and its log.
        return slowed(&app, source, NO_JOIN_TOKEN.to_owned()).await;
    }
    let new = NewHost {
        ticket,
        name: request.name.clone(),
        capacity: request.capacity,
        key: request.key,
    };
    match app.writer.submit(asked(new)).await {
        Ok(Ok(Reply::Host(host))) => {
            tracing::info!(host = %host.name, "a host joined");
            app.live.roster().meet(&host.name, Instant::now());
            Json(JoinReply { name: host.name.clone(), terms: app.offer.terms.clone() })
                .into_response()
        }
        Ok(Ok(other)) => unexpected(&other),
        Ok(Err(refused)) if refused.kind == RefusalKind::NotFound => {
            slowed(&app, source, spelling::message(&refused.words())).await
        }
        Ok(Err(refused)) => refusal_response(&refused),
        Err(unavailable) => busy(&unavailable),
    }
}

/// Appears in the activity log under the name that the machine gave itself.
fn asked(new: NewHost) -> Input {
    let by = Caller { object_id: "".into(), name: new.name.as_str().into() };
    let activity_request = ActivityRequest {
        operation: routes::operation("/host/v1/join").into(),
        resource: format!("/providers/Muster.Hosts/hosts/{}", new.name).into(),
        scope: muster_core::model::Scope::Everything,
        correlation: "".into(),
    };
    let input = Box::new(Input::ChangeHosts(Box::new(HostRequest::Join(new))));
    Input::Asked { by, activity_request: Box::new(activity_request), input }
}

/// Processes the state of a host, and answers as soon as its list of nodes must change.
pub async fn sync(
    State(app): State<Arc<App>>,
    Extension(source): Extension<Source>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some(host) = host_of(&app, &headers) else { return wrong_key(&app, source).await };
    let request = match SyncRequest::parse(&body) {
        Ok(request) => request,
        Err(bad) => return not_read(&bad),
    };
    let roster = app.live.roster();
    let mut news = roster.news_of(&host.name);
    let mut stopping = app.stopping.clone();
    let deadline =
        tokio::time::Instant::now() + Duration::from_millis(request.wait_ms).min(app.held);
    // A server that was replaced must not tell a host to delete nodes of its successor: a reply from the writer proves
    // that this server is the current one.
    let seen = HostRequest::Seen { name: host.name.clone(), capacity: request.report.capacity };
    match app.writer.submit(Input::ChangeHosts(Box::new(seen))).await {
        Ok(Ok(_)) => {}
        Ok(Err(refused)) if refused.kind == RefusalKind::NotFound => {
            return wrong_key(&app, source).await;
        }
        Ok(Err(refused)) => return refusal_response(&refused),
        Err(unavailable) => return busy(&unavailable),
    }
    roster.hear(&host.name, &request, Instant::now());
    loop {
        news.mark_unchanged();
        // The host may have been removed in the meantime.
        if host_of(&app, &headers).is_none() {
            return wrong_key(&app, source).await;
        }
        let (stamp, requests) = roster.wanted(&host.name);
        let recipes = roster.wanted_environments(&host.name);
        let is_late = tokio::time::Instant::now() >= deadline || *stopping.borrow();
        if request.report.following != Some(stamp) || is_late {
            return Json(answer(&app, request.sequence, stamp, requests, recipes)).into_response();
        }
        tokio::select! {
            _ = tokio::time::timeout_at(deadline, news.changed()) => {}
            () = listener::stopped(&mut stopping) => {}
        }
    }
}

fn answer(
    app: &App,
    sequence: u64,
    stamp: Stamp,
    requests: Vec<NodeRequest>,
    environments: Vec<WantedEnvironment>,
) -> SyncAnswer {
    let wanted = |request: NodeRequest| WantedNode {
        secret: app.keyring.node_secret(&request.name),
        name: request.name.to_string(),
        cluster: request.cluster,
        capacity: request.capacity,
    };
    let nodes = requests.into_iter().map(wanted).collect();
    SyncAnswer { sequence, stamp, terms: app.offer.terms.clone(), nodes, environments }
}

/// The host that sends this request, if it proves its identity.
pub fn host_of(app: &App, headers: &HeaderMap) -> Option<Arc<Host>> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let name = HostName::new(text("x-muster-host")?).ok()?;
    let key = tokens::bearer(text(header::AUTHORIZATION.as_str())).ok()?;
    let presented: KeyDigest = tokens::digest_of(key);
    let hosts = app.live.hosts();
    let host = hosts.host(&name)?;
    host.key.is_some_and(|key| tokens::is_same(&key, &presented)).then(|| Arc::clone(host))
}

pub async fn wrong_key(app: &App, source: Source) -> Response {
    slowed(app, source, "the key is not valid for this host, or there is no such host".into()).await
}

/// Refuses a wrong secret after a pause, or at once if there are too many guesses.
async fn slowed(app: &App, Source { address, .. }: Source, message: String) -> Response {
    match app.guesses.pause(address, None).await {
        Ok(()) => (StatusCode::UNAUTHORIZED, message).into_response(),
        Err(TooMany) => with_retry_after(
            (StatusCode::TOO_MANY_REQUESTS, "too many wrong secrets at once").into_response(),
        ),
    }
}

fn not_read(bad: &BadBody) -> Response {
    (StatusCode::BAD_REQUEST, ErrorChain(bad).to_string()).into_response()
}

fn refusal_response(refused: &Refused) -> Response {
    let status = match refused.kind {
        RefusalKind::Invalid => StatusCode::BAD_REQUEST,
        _ => StatusCode::CONFLICT,
    };
    (status, spelling::message(&refused.words())).into_response()
}

fn busy(unavailable: &Unavailable) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, unavailable.to_string()).into_response()
}

fn unexpected(reply: &Reply) -> Response {
    tracing::error!(?reply, "the core sent an unexpected reply to a host");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}
