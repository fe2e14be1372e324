//! Resource groups, locks, and the activity log.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::governance::Governance;
use muster_core::model::{Action, ResourceGroup, Scope};
use muster_core::{GovernanceRequest, Input, NewLock, Reply};
use muster_store::{ActivityEntry, ActivityQuery};
use muster_wire::activity::{self, ActivityFilter, ChainDocument};
use muster_wire::routes::governance::{Delete, Endpoint, Get, Put};
use muster_wire::{ArmError, GovernanceRoute, Page, Route, lock, manager};

use super::{Call, Failed, unexpected};
use crate::http::auth;
use crate::http::respond::document;
use crate::readers::WorldReader;

/// The number of log entries on one page, and how many are read at a time to find them.
const ACTIVITY_PAGE: usize = 200;
const ACTIVITY_BATCH: usize = 1_000;

pub async fn handle(call: &Call, endpoint: Endpoint) -> Result<Response, Failed> {
    match endpoint {
        Endpoint::Get(Get::Locks(scope)) => locks(call, scope),
        Endpoint::Get(Get::Lock { scope, name }) => get_lock(call, &scope, &name),
        Endpoint::Put(Put::Lock { scope, name }) => put_lock(call, scope, name).await,
        Endpoint::Delete(Delete::Lock { scope, name }) => {
            match ask(call, GovernanceRequest::DeleteLock { scope, name }).await? {
                Reply::NothingToDelete => Ok(StatusCode::NO_CONTENT.into_response()),
                _ => Ok(StatusCode::OK.into_response()),
            }
        }
        Endpoint::Get(Get::Activity { subscription }) => activity(call, Some(subscription)).await,
        Endpoint::Get(Get::ServerActivity) => activity(call, None).await,
        Endpoint::Get(Get::ActivityChain) => {
            let chain = call.app.readers.read(|reader| reader.verify_activity()).await?;
            let head = chain.head.into();
            let found = ChainDocument { entries: chain.entries, head, broken_at: chain.broken_at };
            Ok(document(StatusCode::OK, &found))
        }
    }
}

async fn ask(call: &Call, request: GovernanceRequest) -> Result<Reply, Failed> {
    call.submit(Input::ChangeGovernance(Box::new(request))).await
}

/// The locks that apply to a scope: those on it, above it and below it, as far as the caller may read there.
fn locks(call: &Call, scope: Scope) -> Result<Response, Failed> {
    let governance = call.app.live.governance();
    let value = governance
        .locks()
        .filter(|lock| lock.scope.contains(&scope) || scope.contains(&lock.scope))
        .filter(|lock| sees(call, &lock.scope))
        .map(|found| (found.id().to_lowercase(), lock::document(found)))
        .collect();
    call.page(&Route::Governance(GovernanceRoute::Locks(scope)), value)
}

/// A caller with a role on a resource must be able to see which locks apply to it.
fn sees(call: &Call, scope: &Scope) -> bool {
    auth::sees(&call.app, &call.caller, scope)
}

fn get_lock(call: &Call, scope: &Scope, name: &str) -> Result<Response, Failed> {
    let governance = call.app.live.governance();
    let missing =
        || ArmError::not_found("name", "there is no such lock on this scope; list the locks");
    let found = governance.lock(scope, name).ok_or_else(missing)?;
    Ok(document(StatusCode::OK, &lock::document(found)))
}

async fn put_lock(call: &Call, scope: Scope, name: Box<str>) -> Result<Response, Failed> {
    let (level, notes) = lock::parse_request(&call.body)?;
    let reply =
        ask(call, GovernanceRequest::PutLock(NewLock { name, scope, level, notes })).await?;
    let Reply::Lock { lock: made, is_new } = reply else { return Err(unexpected(&reply)) };
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(document(status, &lock::document(&made)))
}

/// Newest first.
async fn activity(call: &Call, subscription: Option<Box<str>>) -> Result<Response, Failed> {
    let filter = ActivityFilter::parse(call.query.get("$filter"))?;
    let query = ActivityQuery {
        subscription: subscription.clone(),
        since: filter.since,
        until: filter.until,
    };
    let size = call.page_size(ACTIVITY_PAGE)?;
    let (mut found, mut after) = (Vec::new(), call.query.skip().map(str::to_owned));
    loop {
        let (query, from) = (query.clone(), after.clone());
        let read = move |reader: &mut WorldReader| {
            reader.activity(&query, from.as_deref(), ACTIVITY_BATCH)
        };
        let page = call.app.readers.read(read).await?;
        let is_wanted = |entry: &ActivityEntry| {
            filter.fits(&entry.activity) && call.may(Action::Read, &entry.activity.request.scope)
        };
        found.extend(page.items.into_iter().filter(is_wanted));
        after = page.next;
        if after.is_none() || found.len() >= size {
            break;
        }
    }
    if found.len() > size {
        found.truncate(size);
        after = found.last().map(|entry| entry.number.to_string());
    }
    let value =
        found.iter().map(|entry| activity::document(&entry.activity, entry.number, &entry.digest));
    let route = Route::Governance(match subscription {
        Some(subscription) => GovernanceRoute::Activity { subscription },
        None => GovernanceRoute::ServerActivity,
    });
    let next = after.and_then(|token| call.next_link(&route, &token));
    Ok(document(StatusCode::OK, &Page::new(value.collect(), next)))
}

/// The resource groups of a subscription, or of all, in which the caller has a role.
pub fn groups<'e>(
    call: &'e Call,
    governance: &'e Governance,
    subscription: Option<&'e str>,
) -> impl Iterator<Item = &'e ResourceGroup> {
    governance
        .groups()
        .map(|group| &**group)
        .filter(move |group| {
            subscription.is_none_or(|wanted| group.subscription.eq_ignore_ascii_case(wanted))
        })
        .filter(|group| sees(call, &group.scope()))
}

pub fn group(call: &Call, subscription: &str, name: &str) -> Result<ResourceGroup, ArmError> {
    let governance = call.app.live.governance();
    let mut groups = groups(call, &governance, Some(subscription));
    let found = groups.find(|group| group.name.eq_ignore_ascii_case(name)).cloned();
    found.ok_or_else(|| manager::no_such_group(subscription, name))
}

pub async fn put_group(
    call: &Call,
    subscription: Box<str>,
    name: Box<str>,
    is_put: bool,
) -> Result<Response, Failed> {
    let mut wanted = manager::parse_group(&call.body, is_put)?;
    if is_put && wanted.tags.is_none() {
        wanted.tags = Some(Default::default());
    }
    let reply = ask(call, GovernanceRequest::PutGroup { subscription, name, wanted }).await?;
    let Reply::Group { group, is_new } = reply else { return Err(unexpected(&reply)) };
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(document(status, &manager::resource_group(&group)))
}

pub async fn delete_group(
    call: &Call,
    subscription: Box<str>,
    name: Box<str>,
) -> Result<Response, Failed> {
    group(call, &subscription, &name)?;
    let request = GovernanceRequest::DeleteGroup { subscription: subscription.clone(), name };
    let reply = ask(call, request).await?;
    super::workspace::deleting(call, &subscription, reply)
}
