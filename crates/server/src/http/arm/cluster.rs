//! Computes and the operations on them.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::catalogue::{Retirement, VmSize};
use muster_core::ids::OperationId;
use muster_core::model::{
    Action, Caller, Capacity, Cluster, ComputeKind, JobIdentity, JobSpec, LowPriority, Power,
    Principal, Scope, Tier, WorkspaceKey,
};
use muster_core::{Input, Reply};
use muster_store::{ClusterView, StoreError};
use muster_wire::compute::{self, ComputeFacts, NodeCounts, NodeFacts, NodeUse, ProvisioningState};
use muster_wire::{ArmError, ComputeAction, Page, Route, notes, operation};

use super::{Call, Failed, paging, unexpected};
use crate::http::on_behalf_of;
use crate::http::respond::{document, with_operation, with_retry_after};
use crate::readers::WorldReader;
use crate::secrets;

pub async fn get(call: &Call, workspace: WorkspaceKey, name: Box<str>) -> Result<Response, Failed> {
    Ok(document(StatusCode::OK, &find(call, &workspace, &name)?))
}

pub(super) fn find(
    call: &Call,
    workspace: &WorkspaceKey,
    name: &str,
) -> Result<compute::ComputeDocument, Failed> {
    let found = call.app.readers.look_up(|reader| view(reader, workspace, name))?;
    let Some((view, by)) = found else { return Err(no_such(workspace, name).into()) };
    Ok(resource(call, workspace, &view, by.as_ref(), None))
}

type Viewed = Option<(ClusterView, Option<Caller>)>;

fn view(reader: &mut WorldReader, key: &WorkspaceKey, name: &str) -> Result<Viewed, StoreError> {
    let Some(view) = reader.cluster(key, name)? else { return Ok(None) };
    let by = reader.principal(view.cluster.created_by)?;
    let by = by.map(|Principal { object_id, name, .. }| Caller { object_id, name });
    Ok(Some((view, by)))
}

pub(super) fn no_such(workspace: &WorkspaceKey, name: &str) -> ArmError {
    ArmError::not_found(
        "name",
        format!(
            "compute '{name}' does not exist in workspace '{}'; check the name, or create it",
            workspace.name
        ),
    )
}

pub async fn list(call: &Call, workspace: WorkspaceKey) -> Result<Response, Failed> {
    let route = Route::Computes(workspace.clone());
    let (value, next) = page(call, workspace, &route).await?;
    Ok(document(StatusCode::OK, &Page::new(value, next)))
}

/// A page of a workspace's computes, and the URL of the next page of this route.
pub(super) async fn page(
    call: &Call,
    workspace: WorkspaceKey,
    route: &Route,
) -> Result<(Vec<compute::ComputeDocument>, Option<String>), Failed> {
    let (after, size) = (call.query.skip().map(str::to_owned), call.page_size(paging::LARGE)?);
    let key = workspace.clone();
    let read = move |reader: &mut WorldReader| reader.clusters(&key, after.as_deref(), size);
    let page = call.app.readers.read(read).await?;
    let value =
        page.items.iter().map(|view| resource(call, &workspace, view, None, None)).collect();
    Ok((value, page.next.and_then(|next| call.next_link(route, &next))))
}

pub async fn put(call: &Call, workspace: WorkspaceKey, name: Box<str>) -> Result<Response, Failed> {
    let wanted = compute::parse_request(&call.body, &secrets::digest)?;
    let input = Input::PutCluster {
        workspace: workspace.clone(),
        name: name.to_string(),
        wanted: Box::new(wanted),
        by: call.caller.clone(),
    };
    let reply = call.submit_in(&workspace, input).await?;
    let Reply::Cluster { cluster, operation, is_new } = reply else {
        return Err(unexpected(&reply));
    };
    let state = if is_new { ProvisioningState::Creating } else { ProvisioningState::Updating };
    let url = operation_url(call, &workspace.subscription, operation);
    let by = Some(&call.caller).filter(|_| is_new);
    let body = changed(call, &workspace, &cluster, by, state);
    // Azure answers 201 to updates as well, and its clients accept only 200 and 201.
    Ok(with_operation(document(StatusCode::CREATED, &body), &url))
}

pub async fn patch(
    call: &Call,
    workspace: WorkspaceKey,
    name: Box<str>,
) -> Result<Response, Failed> {
    let wanted = compute::parse_patch(&call.body, &secrets::digest)?;
    let input = Input::PatchCluster {
        workspace: workspace.clone(),
        name: name.to_string(),
        wanted: Box::new(wanted),
    };
    let reply = call.submit_in(&workspace, input).await?;
    let Reply::Cluster { cluster, operation, .. } = reply else {
        return Err(unexpected(&reply));
    };
    let url = operation_url(call, &workspace.subscription, operation);
    let body = changed(call, &workspace, &cluster, None, ProvisioningState::Updating);
    // Without the operation, Azure's clients read a 200 as another kind of compute.
    Ok(with_operation(document(StatusCode::OK, &body), &url))
}

/// A cluster right after a change; its nodes have not followed yet.
fn changed(
    call: &Call,
    workspace: &WorkspaceKey,
    cluster: &Cluster,
    by: Option<&Caller>,
    state: ProvisioningState,
) -> compute::ComputeDocument {
    let (cluster, home) = (cluster.clone(), cluster.spec.location.clone());
    let view = ClusterView { cluster, home, counts: Default::default() };
    resource(call, workspace, &view, by, Some(state))
}

/// The URL of an operation. Operations are identified by their ids alone; the region in the path is the server's.
pub fn operation_url(call: &Call, subscription: &str, operation: OperationId) -> String {
    let route = Route::Operation {
        subscription: subscription.into(),
        location: call.app.location.clone(),
        id: operation.to_string().into(),
    };
    let version = call.query.api_version().unwrap_or("2025-12-01");
    route.url(&call.app.base_url, &[("api-version", version)]).expect("an operation has a URL")
}

pub async fn delete(
    call: &Call,
    workspace: WorkspaceKey,
    name: Box<str>,
) -> Result<Response, Failed> {
    check_action(call.query.get("underlyingResourceAction"))?;
    let input = Input::DeleteCluster { workspace: workspace.clone(), name: name.to_string() };
    let reply = call.submit_in(&workspace, input).await?;
    super::workspace::deleting(call, &workspace.subscription, reply)
}

fn check_action(action: Option<&str>) -> Result<(), ArmError> {
    match action {
        None => Ok(()),
        Some(action) if action.eq_ignore_ascii_case("Delete") => Ok(()),
        Some(action) if action.eq_ignore_ascii_case("Detach") => Err(ArmError::not_supported(
            "underlyingResourceAction",
            "underlyingResourceAction is 'Detach', but a cluster has no underlying resource that could be kept; \
             use 'Delete'",
        )),
        Some(action) => Err(ArmError::invalid_property(
            "underlyingResourceAction",
            format!("underlyingResourceAction is {action:?}; use 'Delete'"),
        )),
    }
}

pub async fn nodes(
    call: &Call,
    workspace: WorkspaceKey,
    name: Box<str>,
) -> Result<Response, Failed> {
    let (key, wanted) = (workspace.clone(), name.clone());
    let read = move |reader: &mut WorldReader| {
        let Some(view) = reader.cluster(&key, &wanted)? else { return Ok(None) };
        Ok(Some((view.cluster.spec.kind, reader.nodes(&key, &wanted)?)))
    };
    let Some((kind, views)) = call.app.readers.read(read).await? else {
        return Err(no_such(&workspace, &name).into());
    };
    // Ids increase, so a list in their order has new nodes at its end.
    let keyed = views.iter().map(|view| {
        let usage = call.app.live.usage_of(&view.node.name).map(|load| NodeUse {
            cpu_millicores: load.millicores,
            memory_bytes: load.memory_bytes,
            disk_bytes: load.disk_bytes,
            disk_size_bytes: load.disk_size_bytes,
        });
        let facts = NodeFacts { node: &view.node, job: view.job.as_deref(), usage };
        (format!("{:020}", view.node.id.0), facts)
    });
    let (page, next_link) = call.cut(&Route::ComputeNodes { workspace, name }, keyed.collect())?;
    Ok(document(StatusCode::OK, &compute::nodes(kind, &page, next_link)))
}

/// Starts, stops or restarts an instance. An action that does not suit the kind of compute gets a 400 that says so, as
/// in Azure, whose specification has no keys for either kind.
pub async fn act(
    call: &Call,
    workspace: WorkspaceKey,
    name: Box<str>,
    action: ComputeAction,
) -> Result<Response, Failed> {
    let power = match action {
        ComputeAction::Start => Power::Start,
        ComputeAction::Stop => Power::Stop,
        ComputeAction::Restart => Power::Restart,
    };
    let input =
        Input::PowerInstance { workspace: workspace.clone(), name: name.to_string(), power };
    let reply = call.submit_in(&workspace, input).await?;
    let Reply::InstanceChanging { operation, .. } = reply else {
        return Err(unexpected(&reply));
    };
    let url = operation_url(call, &workspace.subscription, operation);
    Ok(with_operation(StatusCode::ACCEPTED.into_response(), &url))
}

/// Rehearses an eviction. Refused if the provider never evicts nodes.
pub async fn evict(
    call: &Call,
    workspace: WorkspaceKey,
    compute: Box<str>,
    node: Box<str>,
) -> Result<Response, Failed> {
    let (cluster, name) = (compute.to_string(), node.to_string());
    let input = Input::EvictNode { workspace: workspace.clone(), cluster, node: name };
    match call.submit_in(&workspace, input).await? {
        Reply::Evicting { within } => {
            Ok(document(StatusCode::OK, &compute::Eviction::new(&node, within)))
        }
        other => Err(unexpected(&other)),
    }
}

pub async fn no_keys(
    call: &Call,
    workspace: WorkspaceKey,
    name: Box<str>,
) -> Result<Response, Failed> {
    let (key, wanted) = (workspace.clone(), name.clone());
    let found = call.app.readers.read(move |reader| reader.cluster(&key, &wanted)).await?;
    let Some(view) = found else { return Err(no_such(&workspace, &name).into()) };
    let kind = match view.cluster.spec.kind {
        ComputeKind::Cluster => "a cluster (AmlCompute)",
        ComputeKind::Instance => "an instance (ComputeInstance)",
        ComputeKind::Serverless => "a serverless cluster of this server",
    };
    let message = format!(
        "listKeys is not possible: '{name}' is {kind}, which has no keys; its nodes accept jobs only from this server"
    );
    Err(ArmError::not_supported("computeType", message).into())
}

pub async fn operation(call: &Call, id: &str) -> Result<Response, Failed> {
    let unknown = || ArmError::not_found("operation", format!("operation '{id}' does not exist"));
    let parsed = id.parse::<OperationId>().map_err(|_| unknown())?;
    let found = call.app.readers.look_up(|reader| reader.operation(parsed))?;
    let found = found.ok_or_else(unknown)?;
    // The path does not name the resource, so permission is checked here. Operations of other users are reported as
    // non-existent.
    let is_own = found.by.as_deref() == Some(&*call.caller.object_id);
    if !is_own && !call.may(Action::Read, &found.scope) {
        return Err(unknown().into());
    }
    Ok(with_retry_after(document(StatusCode::OK, &operation::document(&found))))
}

fn resource(
    call: &Call,
    workspace: &WorkspaceKey,
    view: &ClusterView,
    created_by: Option<&Caller>,
    state: Option<ProvisioningState>,
) -> compute::ComputeDocument {
    let counts = view.counts;
    let note = notes::joined(notes_on(call, workspace, view));
    let directory = call.app.live.directory();
    let identity = directory.identity_of(view.cluster.id);
    compute::document(&ComputeFacts {
        workspace,
        cluster: &view.cluster,
        counts: NodeCounts {
            preparing: counts.preparing,
            idle: counts.idle,
            running: counts.running,
            unusable: counts.unusable,
            leaving: counts.leaving,
            preempted: counts.preempted,
        },
        created_by: created_by.map(|by| &*by.name),
        creator_id: created_by.map(|by| &*by.object_id),
        identity: identity.map(|user| (&*user.object_id, call.app.keyring.tenant_id())),
        state,
        resized_at: None,
        note: note.as_deref(),
    })
}

/// Notes for the owner of a cluster about things that are not errors.
pub(super) fn notes_on(call: &Call, workspace: &WorkspaceKey, view: &ClusterView) -> Vec<String> {
    let size = call.app.catalogue.get(&view.cluster.spec.vm_size);
    let ours =
        [size.and_then(retirement_note), region_note(view), host_note(call, workspace, view)];
    ours.into_iter().flatten().chain(notes::of_cluster(&view.cluster.spec)).collect()
}

/// Clusters of a retired size keep running, but their owners should know.
fn retirement_note(size: &VmSize) -> Option<String> {
    match &size.retirement {
        Retirement::Current => None,
        Retirement::Announced { on } | Retirement::Retired { on } => Some(format!(
            "the VM size {} was retired in the cloud on {on}; plan to recreate the cluster with another",
            size.name
        )),
    }
}

/// A note about nodes that fit on no host, or that would have fewer GPUs than their size.
pub(super) fn host_note(
    call: &Call,
    workspace: &WorkspaceKey,
    view: &ClusterView,
) -> Option<String> {
    let (node, size) = (view.cluster.capacity, &view.cluster.spec.vm_size);
    let place = Scope::compute(workspace, view.cluster.name.as_str());
    let hosts = call.app.live.hosts();
    let is_any =
        |fits: &dyn Fn(Capacity) -> bool| hosts.takers(&place).any(|host| fits(host.capacity));
    if !call.app.over_commit && !is_any(&|has| node.fits_into(has)) {
        return Some(format!(
            "a node of {size} fits on no host, so none will be created: choose a smaller size, or join a larger host \
             (`muster host token`)"
        ));
    }
    gpu_note(call, workspace, view)
}

/// Notes for the user who submits a job to this compute.
pub(super) fn notes_for_job(
    call: &Call,
    workspace: &WorkspaceKey,
    view: &ClusterView,
    spec: &JobSpec,
) -> Vec<String> {
    let gang = gang_note(call, workspace, view, spec.nodes);
    let is_low = view.cluster.spec.tier == Tier::LowPriority;
    let is_unsuited = is_low && spec.at_low_priority() != LowPriority::Suits;
    let unsuited = is_unsuited.then(|| {
        format!(
            "compute '{}' has low priority, and this job {}",
            view.cluster.name,
            notes::at_low_priority(spec)
        )
    });
    let wants_identity = matches!(spec.identity.as_deref(), Some(JobIdentity::Managed { .. }));
    let has_identity = call.app.live.directory().identity_of(view.cluster.id).is_some();
    let no_identity = (wants_identity && !has_identity).then(|| {
        format!(
            "the job asks for a managed identity, but compute '{}' has none, so its programs get no token; give the \
             compute a system-assigned identity",
            view.cluster.name
        )
    });
    let is_disabled = spec.acts_as_submitter() && !call.app.user_identity;
    let disabled = is_disabled.then(|| on_behalf_of::DISABLED.to_owned());
    let host = gang.or_else(|| host_note(call, workspace, view));
    host.into_iter().chain(unsuited).chain(no_identity).chain(disabled).collect()
}

/// A note about nodes of one job that no host has room for together, even if it is empty.
fn gang_note(
    call: &Call,
    workspace: &WorkspaceKey,
    view: &ClusterView,
    nodes: u32,
) -> Option<String> {
    if call.app.over_commit || nodes < 2 {
        return None;
    }
    let (node, size) = (view.cluster.capacity, &view.cluster.spec.vm_size);
    let place = Scope::compute(workspace, view.cluster.name.as_str());
    let hosts = call.app.live.hosts();
    let most = hosts.takers(&place).map(|host| host.capacity.holds(node)).max().unwrap_or(0);
    (most < nodes).then(|| {
        format!(
            "All nodes of a job must be on one host; no host has room for {nodes} × {size}, so the job waits until \
             a larger host joins (`muster host token`); the largest has room for {most}"
        )
    })
}

/// A note about a size with more GPUs than any host has.
pub(super) fn gpu_note(
    call: &Call,
    workspace: &WorkspaceKey,
    view: &ClusterView,
) -> Option<String> {
    let (node, size) = (view.cluster.capacity, &view.cluster.spec.vm_size);
    let place = Scope::compute(workspace, view.cluster.name.as_str());
    let hosts = call.app.live.hosts();
    let most = hosts.takers(&place).map(|host| host.capacity.gpus).max().unwrap_or(0);
    (node.gpus > most).then(|| match most {
        0 => format!(
            "no host has a GPU, but a node of {size} should have {}: its jobs find none, and CUDA_VISIBLE_DEVICES is \
             empty, although they cost the full price of the size",
            node.gpus
        ),
        most => format!(
            "no host has the {} GPUs of {size}, but at most {most}: its jobs find fewer, although they cost the full price of \
             the size",
            node.gpus
        ),
    })
}

/// A note about a cluster in another region than its workspace. Azure shows a similar warning.
fn region_note(view: &ClusterView) -> Option<String> {
    let (region, home) = (&view.cluster.spec.location, &view.home);
    (region != home).then(|| {
        format!(
            "the region {region} is not that of the workspace, {home}; moving data between them takes time and may \
             cost money"
        )
    })
}
