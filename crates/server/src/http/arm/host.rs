//! The hosts on which nodes run, and join tokens for new ones.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::model::{Host, HostState};
use muster_core::{HostRequest, Input, Reply};
use muster_providers::joined::JoinToken;
use muster_wire::host::{self, HostDocument};
use muster_wire::routes::hosts::{Delete, Endpoint, Get, Post};
use muster_wire::{ArmError, HostAction, HostRoute, Route};

use super::{Call, Failed, unexpected};
use crate::http::respond::document;
use crate::tokens;

pub async fn handle(call: &Call, endpoint: Endpoint) -> Result<Response, Failed> {
    match endpoint {
        Endpoint::Get(Get::Hosts) => list(call),
        Endpoint::Get(Get::Host { name }) => show(call, &name),
        Endpoint::Delete(Delete::Host { name }) => remove(call, &name, false).await,
        Endpoint::Post(Post::HostAction { name, action }) => act(call, &name, action).await,
        Endpoint::Post(Post::HostToken) => issue(call).await,
    }
}

async fn submit(call: &Call, request: HostRequest) -> Result<Reply, Failed> {
    call.submit(Input::ChangeHosts(Box::new(request))).await
}

fn shown(call: &Call, found: &Host) -> HostDocument {
    let not_enforced = match found.name.is_local() {
        true => call.app.not_enforced.clone(),
        false => call.app.live.roster().not_enforced(&found.name),
    };
    host::document(found, call.app.live.load_of(&found.name), call.app.over_commit, not_enforced)
}

fn list(call: &Call) -> Result<Response, Failed> {
    let hosts = call.app.live.hosts();
    let value = hosts.hosts().map(|host| (host.name.to_string(), shown(call, host))).collect();
    call.page(&Route::Hosts(HostRoute::Hosts), value)
}

fn show(call: &Call, name: &str) -> Result<Response, Failed> {
    let hosts = call.app.live.hosts();
    let found = hosts.host(&host::host_name(name)?).ok_or_else(|| {
        ArmError::not_found("name", "there is no such host; `muster host list` shows all hosts")
    })?;
    Ok(document(StatusCode::OK, &shown(call, found)))
}

async fn act(call: &Call, name: &str, action: HostAction) -> Result<Response, Failed> {
    let state = match action {
        HostAction::Cordon => HostState::Cordoned,
        HostAction::Uncordon => HostState::Open,
        HostAction::Drain => HostState::Draining,
        HostAction::GiveUp => return remove(call, name, true).await,
    };
    let name = host::host_name(name)?;
    match submit(call, HostRequest::SetState { name, state }).await? {
        Reply::Host(host) => Ok(document(StatusCode::OK, &shown(call, &host))),
        other => Err(unexpected(&other)),
    }
}

async fn remove(call: &Call, name: &str, is_forced: bool) -> Result<Response, Failed> {
    let name = host::host_name(name)?;
    submit(call, HostRequest::Remove { name, is_forced }).await?;
    Ok(StatusCode::OK.into_response())
}

/// The response contains the secret; only its digest is stored.
async fn issue(call: &Call) -> Result<Response, Failed> {
    let wanted = host::parse_ticket(&call.body)?;
    let (secret, digest) = tokens::new_ticket().map_err(|failed| {
        tracing::error!(error = %failed, "cannot get random numbers");
        Failed(ArmError::internal("no-random-numbers"))
    })?;
    let host::JoinTokenRequest { intent, host, good_for } = wanted;
    match submit(call, HostRequest::IssueTicket { digest, intent, host, good_for }).await? {
        Reply::Ticket(ticket) => {
            let token = JoinToken { secret, authority: call.app.offer.authority.clone() };
            let document = host::token(&ticket, token.to_string(), &call.app.base_url);
            Ok(self::document(StatusCode::OK, &document))
        }
        other => Err(unexpected(&other)),
    }
}
