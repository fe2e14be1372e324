//! Resource manager's own documents: subscriptions, groups, providers, and lists of anything.
//!
//! Subscriptions and groups are those that have workspaces which the caller may read.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::model::{Action, QuotaScope, Scope, Workspace, WorkspaceKey};
use muster_store::{ClusterView, Reader, StoreError};
use muster_wire::manager;
use muster_wire::resources::{Found, ResourcesRequest};
use muster_wire::{ArmError, Manager, Page, Route, quota, vm_size};

use super::{Call, Failed};
use crate::http::respond::document;

/// Clusters that are read at a time.
const BATCH: usize = 500;

pub async fn route(call: &Call, method: &str, route: Manager) -> Result<Response, Failed> {
    let tenant = call.app.keyring.tenant_id();
    match (method, route) {
        ("GET", Manager::Tenants) => Ok(list(vec![manager::tenant(tenant)])),
        ("GET", Manager::Subscriptions) => {
            let found = workspaces(call, None).await?;
            let names = distinct(&found, |key| &key.subscription);
            Ok(list(names.iter().map(|name| manager::subscription(name, tenant)).collect()))
        }
        ("GET", Manager::Subscription { subscription }) => {
            let name = known(call, &subscription).await?;
            Ok(document(StatusCode::OK, &manager::subscription(&name, tenant)))
        }
        ("GET", Manager::Locations { subscription }) => {
            let locations = locations(call, &workspaces(call, Some(&subscription)).await?);
            let location = |name: &String| manager::location(&subscription, name);
            Ok(list(locations.iter().map(location).collect()))
        }
        ("GET", Manager::Providers { subscription }) => {
            let locations = locations(call, &workspaces(call, Some(&subscription)).await?);
            let locations: Vec<&str> = locations.iter().map(String::as_str).collect();
            Ok(list(manager::providers(&subscription, &locations)))
        }
        ("GET", Manager::Provider { subscription, namespace }) => {
            let locations = locations(call, &workspaces(call, Some(&subscription)).await?);
            let locations: Vec<&str> = locations.iter().map(String::as_str).collect();
            let found = manager::provider(&subscription, &namespace, &locations)?;
            Ok(document(StatusCode::OK, &found))
        }
        ("GET", Manager::ResourceGroups { subscription }) => {
            let found = workspaces(call, Some(&subscription)).await?;
            let names = distinct(&found, |key| &key.resource_group);
            Ok(list(names.iter().filter_map(|name| group(&found, name)).collect()))
        }
        ("GET", Manager::ResourceGroup { subscription, name }) => {
            let found = group(&workspaces(call, Some(&subscription)).await?, &name);
            let found = found.ok_or_else(|| manager::no_such_group(&subscription, &name))?;
            Ok(document(StatusCode::OK, &found))
        }
        ("HEAD", Manager::ResourceGroup { subscription, name }) => {
            let found = group(&workspaces(call, Some(&subscription)).await?, &name);
            Ok(found.map_or(StatusCode::NOT_FOUND, |_| StatusCode::NO_CONTENT).into_response())
        }
        ("GET", Manager::Resources { subscription }) => resources(call, subscription, None).await,
        ("GET", Manager::ResourcesOfGroup { subscription, name }) => {
            resources(call, subscription, Some(name)).await
        }
        ("GET", Manager::MachineSizes { .. }) => {
            Ok(list(vm_size::machine_sizes(call.app.catalogue.iter())))
        }
        ("GET", Manager::MachineUsages { subscription, location }) => {
            let scope = QuotaScope::new(&subscription, &location);
            let figures = call.app.writer.quota(scope).await?;
            Ok(list(figures.iter().map(quota::machine_usage).collect()))
        }
        (method, route) => {
            let methods = Route::Manager(route).methods();
            Err(ArmError::method_not_allowed(method, methods).into())
        }
    }
}

fn list<T: serde::Serialize>(value: Vec<T>) -> Response {
    document(StatusCode::OK, &Page::whole(value))
}

async fn workspaces(call: &Call, subscription: Option<&str>) -> Result<Vec<Workspace>, Failed> {
    let subscription = subscription.map(str::to_owned);
    let read = move |reader: &mut dyn Reader| match &subscription {
        Some(subscription) => reader.workspaces(subscription, None),
        None => reader.all_workspaces(),
    };
    let mut found = call.app.readers.read(read).await?;
    found.retain(|workspace| call.may(Action::Read, &Scope::workspace(&workspace.key)));
    Ok(found)
}

/// Names without regard to their case, each as it was first written.
fn distinct<'a>(
    workspaces: &'a [Workspace],
    name: impl Fn(&'a WorkspaceKey) -> &'a str,
) -> Vec<&'a str> {
    let mut names: Vec<&str> = workspaces.iter().map(|workspace| name(&workspace.key)).collect();
    names.sort_by_key(|name| name.to_ascii_lowercase());
    names.dedup_by(|a, b| a.eq_ignore_ascii_case(b));
    names
}

async fn known(call: &Call, subscription: &str) -> Result<String, Failed> {
    let found = workspaces(call, Some(subscription)).await?;
    let first = found.first().map(|workspace| workspace.key.subscription.to_string());
    Ok(first.ok_or_else(|| manager::no_such_subscription(subscription))?)
}

/// Where workspaces are, and where the next one will be. Clusters may name any region.
fn locations(call: &Call, workspaces: &[Workspace]) -> Vec<String> {
    let mut names = vec![call.app.location.to_string()];
    names.extend(workspaces.iter().map(|workspace| workspace.location.to_string()));
    names.sort();
    names.dedup();
    names
}

fn group(workspaces: &[Workspace], name: &str) -> Option<manager::ResourceGroup> {
    let is_there = |found: &&Workspace| found.key.resource_group.eq_ignore_ascii_case(name);
    let first = workspaces.iter().find(is_there)?;
    let key = &first.key;
    Some(manager::resource_group(&key.subscription, &key.resource_group, &first.location))
}

async fn resources(
    call: &Call,
    subscription: Box<str>,
    group: Option<Box<str>>,
) -> Result<Response, Failed> {
    let request = ResourcesRequest::parse(&call.query)?;
    let (wanted, within) = (subscription.clone(), group.clone());
    let read = move |reader: &mut dyn Reader| everything(reader, &wanted, within.as_deref());
    let mut everything = call.app.readers.read(read).await?;
    everything.retain(|(workspace, _)| call.may(Action::Read, &Scope::workspace(&workspace.key)));
    if let Some(name) = group.as_deref().filter(|_| everything.is_empty()) {
        return Err(manager::no_such_group(&subscription, name).into());
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
    let next = next.and_then(|token| {
        let kept = ["api-version", "$filter", "$expand", "$top"];
        let kept = kept.into_iter().filter_map(|key| Some((key, call.query.get(key)?)));
        let query: Vec<_> = kept.chain([("$skipToken", token.as_str())]).collect();
        route.url(&call.app.base_url, &query)
    });
    Ok(document(StatusCode::OK, &Page::new(value, next)))
}

type WithClusters = Vec<(Workspace, Vec<ClusterView>)>;

fn everything(
    reader: &mut dyn Reader,
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
