//! Documents of the resource manager itself: subscriptions, groups, providers, and lists of any resources.
//!
//! A caller sees the subscriptions and groups in which it has a role.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::model::{Action, QuotaScope, ResourceGroup, Scope, Workspace};
use muster_store::{ClusterView, StoreError};
use muster_wire::manager;
use muster_wire::resources::{Found, ResourcesRequest};
use muster_wire::routes::manager::{Delete, Endpoint, Get, Head, Patch, Put};
use muster_wire::{Manager, Page, Route, quota, vm_size};

use super::{Call, Failed, governance};
use crate::Workspaces;
use crate::http::respond::document;
use crate::readers::WorldReader;

/// How many clusters are read at a time.
const BATCH: usize = 500;

pub async fn handle(call: &Call, endpoint: Endpoint) -> Result<Response, Failed> {
    let tenant = call.app.keyring.tenant_id();
    match endpoint {
        Endpoint::Get(Get::Tenants) => Ok(list(vec![manager::tenant(tenant)])),
        Endpoint::Get(Get::Subscriptions) => {
            let governance = call.app.live.governance();
            let names = distinct(governance::groups(call, &governance, None));
            let found = names.iter().map(|name| manager::subscription(name, tenant));
            let found = found.map(|found| (found.id.to_lowercase(), found));
            // They come after all others, so that no client takes one of them as its default.
            let more = placeholders(call).filter(|id| !has(&names, id));
            let more = more.map(|id| (format!("~{id}"), manager::placeholder(id, tenant)));
            let found = found.chain(more).collect();
            call.page(&Route::Manager(Manager::Subscriptions), found)
        }
        Endpoint::Get(Get::Subscription { subscription }) => {
            let governance = call.app.live.governance();
            let names = distinct(governance::groups(call, &governance, Some(&subscription)));
            let found = match names.first() {
                Some(name) => Some(manager::subscription(name, tenant)),
                None => placeholders(call)
                    .find(|id| id.eq_ignore_ascii_case(&subscription))
                    .map(|id| manager::placeholder(id, tenant)),
            };
            let found = found.ok_or_else(|| manager::no_such_subscription(&subscription))?;
            Ok(document(StatusCode::OK, &found))
        }
        Endpoint::Get(Get::Locations { subscription }) => {
            let locations = locations(call, &workspaces(call, &subscription).await?);
            let location = |name: &String| manager::location(&subscription, name);
            Ok(list(locations.iter().map(location).collect()))
        }
        Endpoint::Get(Get::Providers { subscription }) => {
            let locations = locations(call, &workspaces(call, &subscription).await?);
            let locations: Vec<&str> = locations.iter().map(String::as_str).collect();
            Ok(list(manager::providers(&subscription, &locations)))
        }
        Endpoint::Get(Get::Provider { subscription, namespace }) => {
            let locations = locations(call, &workspaces(call, &subscription).await?);
            let locations: Vec<&str> = locations.iter().map(String::as_str).collect();
            let found = manager::provider(&subscription, &namespace, &locations)?;
            Ok(document(StatusCode::OK, &found))
        }
        Endpoint::Get(Get::ResourceGroups { subscription }) => {
            let governance = call.app.live.governance();
            let groups = governance::groups(call, &governance, Some(&subscription));
            let found = groups.map(manager::resource_group);
            let found = found.map(|found| (found.id.to_lowercase(), found)).collect();
            let subscription = subscription.clone();
            call.page(&Route::Manager(Manager::ResourceGroups { subscription }), found)
        }
        Endpoint::Get(Get::ResourceGroup { subscription, name }) => {
            let found = governance::group(call, &subscription, &name)?;
            Ok(document(StatusCode::OK, &manager::resource_group(&found)))
        }
        Endpoint::Head(Head::ResourceGroup { subscription, name }) => {
            let found = governance::group(call, &subscription, &name);
            Ok(found.map_or(StatusCode::NOT_FOUND, |_| StatusCode::NO_CONTENT).into_response())
        }
        Endpoint::Put(Put::ResourceGroup { subscription, name }) => {
            governance::put_group(call, subscription, name, true).await
        }
        Endpoint::Patch(Patch::ResourceGroup { subscription, name }) => {
            governance::put_group(call, subscription, name, false).await
        }
        Endpoint::Delete(Delete::ResourceGroup { subscription, name }) => {
            governance::delete_group(call, subscription, name).await
        }
        Endpoint::Get(Get::Resources { subscription }) => resources(call, subscription, None).await,
        Endpoint::Get(Get::ResourcesOfGroup { subscription, name }) => {
            resources(call, subscription, Some(name)).await
        }
        Endpoint::Get(Get::MachineSizes { .. }) => {
            Ok(list(vm_size::machine_sizes(call.app.catalogue.iter())))
        }
        Endpoint::Get(Get::MachineUsages { subscription, location }) => {
            call.check_region(&location).await?;
            let scope = QuotaScope::new(&subscription, &location);
            let figures = call.app.writer.quota(&call.caller, scope).await?;
            Ok(list(figures.iter().map(quota::machine_usage).collect()))
        }
    }
}

fn list<T: serde::Serialize>(value: Vec<T>) -> Response {
    document(StatusCode::OK, &Page::whole(value))
}

async fn workspaces(call: &Call, subscription: &str) -> Result<Vec<Workspace>, Failed> {
    let subscription = subscription.to_owned();
    let read = move |reader: &mut WorldReader| reader.workspaces(&subscription, None);
    let mut found = call.app.readers.read(read).await?;
    found.retain(|workspace| call.may(Action::Read, &Scope::workspace(&workspace.key)));
    Ok(found)
}

/// Subscriptions that are listed although they are empty, because workspaces are created in them on first use.
fn placeholders(call: &Call) -> impl Iterator<Item = &'static str> {
    let is_open = call.app.workspaces == Workspaces::OnFirstUse
        && call.may(Action::ManageWorkspaces, &Scope::Everything);
    manager::PLACEHOLDERS.into_iter().filter(move |_| is_open)
}

fn has(names: &[&str], wanted: &str) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case(wanted))
}

/// The subscriptions of these groups, ignoring case, each as it was first written.
fn distinct<'e>(groups: impl Iterator<Item = &'e ResourceGroup>) -> Vec<&'e str> {
    let mut names: Vec<&str> = groups.map(|group| &*group.subscription).collect();
    names.sort_by_key(|name| name.to_ascii_lowercase());
    names.dedup_by(|a, b| a.eq_ignore_ascii_case(b));
    names
}

/// The regions in which resources can be created, and those of existing workspaces.
fn locations(call: &Call, workspaces: &[Workspace]) -> Vec<String> {
    let mut names: Vec<String> = call.app.regions.iter().map(str::to_owned).collect();
    names.extend(workspaces.iter().map(|workspace| workspace.location.to_string()));
    names.sort();
    names.dedup();
    names
}

async fn resources(
    call: &Call,
    subscription: Box<str>,
    group: Option<Box<str>>,
) -> Result<Response, Failed> {
    let request = ResourcesRequest::parse(&call.query)?;
    let (wanted, within) = (subscription.clone(), group.clone());
    let read = move |reader: &mut WorldReader| everything(reader, &wanted, within.as_deref());
    let mut everything = call.app.readers.read(read).await?;
    everything.retain(|(workspace, _)| call.may(Action::Read, &Scope::workspace(&workspace.key)));
    if let Some(name) = &group {
        governance::group(call, &subscription, name)?;
    }
    let found = everything.iter().flat_map(|(workspace, clusters)| {
        let clusters = clusters.iter().map(|view| Found::Cluster(&workspace.key, &view.cluster));
        std::iter::once(Found::Workspace(workspace)).chain(clusters)
    });
    let (value, next) = request.page(found.collect());
    let route = Route::Manager(match group {
        Some(name) => Manager::ResourcesOfGroup { subscription, name },
        None => Manager::Resources { subscription },
    });
    let next = next.and_then(|token| call.next_link(&route, &token));
    Ok(document(StatusCode::OK, &Page::new(value, next)))
}

type WithClusters = Vec<(Workspace, Vec<ClusterView>)>;

fn everything(
    reader: &mut WorldReader,
    subscription: &str,
    group: Option<&str>,
) -> Result<WithClusters, StoreError> {
    let mut everything = Vec::new();
    for workspace in reader.workspaces(subscription, group)? {
        let mut clusters = Vec::new();
        let mut after = None;
        loop {
            let page = reader.clusters(&workspace.key, after.as_deref(), BATCH)?;
            clusters.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        everything.push((workspace, clusters));
    }
    Ok(everything)
}
