//! Azure's own API: a single entry point that normalises the path, identifies the caller and finds the handler.
//!
//! A new endpoint is a row of `wire/src/routes.rs`, an arm of [`answer_endpoint`] or of its group, and a function in one of the modules
//! below.

mod access;
mod asset;
mod build_context;
mod cluster;
mod compute_history;
mod datastore;
mod deployment;
mod events;
mod first_use;
mod governance;
mod history;
mod host;
mod job;
mod job_data;
mod manager;
mod paging;
mod post_mortem;
mod quota;
mod tree;
mod v1;
mod why;
mod workspace;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::{Body, Bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use muster_core::model::{Action, Activity, ActivityOutcome, ActivityRequest, Caller, Scope};
use muster_core::time::Wall;
use muster_core::{Input, Reply};
use muster_wire::job::Dialect;
use muster_wire::path::table::Table as _;
use muster_wire::routes::root::{Delete, Endpoint, Get, Patch, Post, Put};
use muster_wire::spelling::PARTS_HEADER;
use muster_wire::{ArmError, Query, Request, Route};

use super::auth::Need;
use super::request_log::Noted;
use super::respond::Failed;
use super::run_access::{self, Run};
use super::{auth, body, login, trees};
use crate::Workspaces;
use crate::app::App;
use crate::rates::TooFast;
use crate::room::Kind;
use crate::{clock, refusals};

/// The largest body that any of these routes accepts.
/// Larger requests are refused while uploads are.
const SMALL_BODY_BYTES: usize = 16 * 1024;
pub const BODY_BYTES_MAX: usize = muster_wire::job::BODY_BYTES_MAX;

/// A request as the handlers see it.
struct Call {
    app: Arc<App>,
    caller: Caller,
    query: Query,
    body: Bytes,
    /// The spelling of resource types that the client expects.
    dialect: Dialect,
    /// The name of the request in the activity log; `None` for a request that changes nothing.
    activity_request: Option<ActivityRequest>,
    /// Whether the core recorded the request, or the handler has said that it changes nothing.
    is_recorded: AtomicBool,
    /// The run that sends the request, if it comes from a job.
    run: Option<Run>,
    /// The event after which a client resumes a stream.
    last_event: Option<Box<str>>,
}

pub async fn handle(State(app): State<Arc<App>>, request: HttpRequest) -> Response {
    let wants_parts = request.headers().contains_key(PARTS_HEADER);
    match answer(app, request).await {
        Ok(response) => response,
        Err(failed) if wants_parts => failed.into_response_in_parts(),
        Err(failed) => failed.into_response(),
    }
}

async fn answer(app: Arc<App>, request: HttpRequest) -> Result<Response, Failed> {
    let (parts, content) = request.into_parts();
    let Request { route, query } = match Request::parse(parts.uri.path(), parts.uri.query()) {
        Ok(request) => request,
        Err(unreadable) => {
            body::discard(content).await;
            return Err(ArmError::from(unreadable).into());
        }
    };
    let log = parts.extensions.get::<Noted>().cloned().unwrap_or_default();
    log.route(route.label());
    if let Route::Login(login) = route {
        return login::answer(&app, &parts, login, &query, content).await;
    }
    let (caller, run) = match caller(&app, &parts.headers, &route) {
        Ok(known) => known,
        Err(refused) => {
            body::discard(content).await;
            return Err(refused.into());
        }
    };
    log.caller(&caller.name);
    if let Err(fast) = app.rates.of_user(&caller.object_id) {
        body::discard(content).await;
        return Err(too_fast(fast, "one user may send", "user-requests-per-second").into());
    }
    let need = auth::need(parts.method.as_str(), &route);
    let activity_request = activity_request(&parts, &route, &need, log.correlation());
    let noted = activity_request
        .clone()
        .map(|activity_request| (Arc::clone(&app), caller.clone(), activity_request));
    let permitted = async {
        let permitted = match &run {
            Some(run) => run.check(parts.method.as_str(), &route).map_err(Failed::from),
            None => permit(&app, &caller, &route, &need),
        };
        let permitted = permitted.and_then(|()| keep_pace(&app, &need));
        let endpoint = permitted.and_then(|()| endpoint(&parts, route));
        let endpoint = match endpoint {
            Ok(endpoint) => endpoint,
            Err(refused) => {
                body::discard(content).await;
                return Err(refused);
            }
        };
        // The bytes of a file are not read as a whole.
        let (body, content) = match endpoint {
            Endpoint::Put(Put::Blob { .. }) => (Bytes::new(), content),
            _ => (body::read(content, BODY_BYTES_MAX).await?, Body::empty()),
        };
        // Files and their lists have their own formats.
        if !matches!(endpoint, Endpoint::Put(Put::Blob { .. } | Put::Tree { .. })) {
            check_content_type(&parts.headers, &body)?;
        }
        check_room(&app, &parts.method, &body)?;
        let agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let dialect = Dialect::of(agent.unwrap_or_default());
        let is_recorded = AtomicBool::new(false);
        let last_event = parts.headers.get(events::LAST_EVENT_ID);
        let last_event = last_event.and_then(|id| id.to_str().ok()).map(Box::from);
        let call = Call {
            app,
            caller,
            query,
            body,
            dialect,
            activity_request,
            is_recorded,
            run,
            last_event,
        };
        let answer = answer_endpoint(&call, endpoint, content).await?;
        call.note_action().await;
        Ok(answer)
    };
    match (permitted.await, noted) {
        (Err(Failed(error)), Some((app, caller, activity_request))) => {
            note_refusal(&app, caller, activity_request, &error).await;
            Err(Failed(error))
        }
        (answer, _) => answer,
    }
}

/// Requests that the store keeps could otherwise use up the space that is kept for it and for the files of jobs. Small ones,
/// such as usual jobs, are accepted until the store itself is full.
fn check_room(app: &App, method: &Method, body: &Bytes) -> Result<(), Failed> {
    let is_stored = matches!(*method, Method::PUT | Method::PATCH | Method::POST);
    if !is_stored || body.len() <= SMALL_BODY_BYTES {
        return Ok(());
    }
    // A row and an event.
    let bytes = 2 * body.len() as u64;
    app.blobs.check_room(bytes, Kind::Upload).map_err(|full| trees::refusal(&full).into())
}

/// The caller, and its run if it is a job.
fn caller(
    app: &App,
    headers: &HeaderMap,
    route: &Route,
) -> Result<(Caller, Option<Run>), ArmError> {
    match run_access::of(app, headers) {
        Some(Ok(run)) => Ok((run.caller(), Some(run))),
        Some(Err(why)) => Err(ArmError::unauthorized(&app.base_url, &why)),
        None => Ok((auth::caller(app, headers, route)?, None)),
    }
}

fn endpoint(parts: &Parts, route: Route) -> Result<Endpoint, Failed> {
    let method = parts.method.as_str();
    Ok(route.on(method).map_err(|none| ArmError::no_endpoint(&none, method, parts.uri.path()))?)
}

fn activity_request(
    parts: &Parts,
    route: &Route,
    need: &Need,
    correlation: &str,
) -> Option<ActivityRequest> {
    let operation = route.operation(parts.method.as_str())?;
    let resource = route.path().unwrap_or_else(|| parts.uri.path().to_owned());
    Some(ActivityRequest {
        operation: operation.into(),
        resource: resource.into(),
        scope: need.scope(),
        correlation: correlation.into(),
    })
}

/// Records a refusal in the activity log before the caller receives it.
async fn note_refusal(app: &App, by: Caller, activity_request: ActivityRequest, error: &ArmError) {
    let is_refusal = (400..500).contains(&error.status);
    if !is_refusal || !app.refusals.admit(&by.object_id, clock::unix_seconds()) {
        return;
    }
    let outcome = ActivityOutcome::Refused {
        status: error.status,
        code: error.code().into(),
        message: refusals::shorten(&error.to_string()),
    };
    note(app, Activity { at: Wall(0), by, request: activity_request, outcome }).await;
}

/// Records a request without the core, which does not know about it.
async fn note(app: &App, activity: Activity) {
    match app.writer.submit(Input::NoteActivity(Box::new(activity))).await {
        Ok(_) => app.refusals.written(),
        Err(why) => app.refusals.missed(&why),
    }
}

/// Only permitted requests count, so a caller without permission cannot use up the rate of a workspace.
fn keep_pace(app: &App, need: &Need) -> Result<(), Failed> {
    let (Scope::Workspace(key) | Scope::Compute { workspace: key, .. }) = need.scope() else {
        return Ok(());
    };
    let paced = app.rates.of_workspace(&key);
    let lane = "one workspace may get";
    paced.map_err(|fast| Failed(too_fast(fast, lane, "workspace-requests-per-second")))
}

fn too_fast(fast: TooFast, lane: &str, setting: &str) -> ArmError {
    ArmError::too_fast(fast.words(lane, setting), fast.wait_s())
}

fn permit(app: &App, caller: &Caller, route: &Route, need: &Need) -> Result<(), Failed> {
    auth::authorize(app, caller, need)?;
    refuse_unknown_workspace(app, route, need)
}

/// If workspaces must be created explicitly, requests below a missing one are refused, even for an empty list.
fn refuse_unknown_workspace(app: &App, route: &Route, need: &Need) -> Result<(), Failed> {
    let Need::To(_, Scope::Workspace(key)) = need else { return Ok(()) };
    if app.workspaces == Workspaces::OnFirstUse
        || matches!(route, Route::Workspace(_) | Route::Access(_))
    {
        return Ok(());
    }
    match app.readers.look_up(|reader| reader.workspace(key))? {
        Some(_) => Ok(()),
        None => Err(workspace::no_such(key).into()),
    }
}

/// Every endpoint has an arm here or in its group: a row of the table without a handler does not compile.
#[expect(clippy::too_many_lines, reason = "an arm for each endpoint")]
async fn answer_endpoint(
    call: &Call,
    endpoint: Endpoint,
    content: Body,
) -> Result<Response, Failed> {
    match endpoint {
        Endpoint::Get(Get::WorkspacesOfSubscription { subscription }) => {
            workspace::list(call, subscription, None).await
        }
        Endpoint::Get(Get::WorkspacesOfGroup { subscription, resource_group }) => {
            workspace::list(call, subscription, Some(resource_group)).await
        }
        Endpoint::Get(Get::Workspace(key)) => workspace::get(call, key).await,
        Endpoint::Put(Put::Workspace(key)) => workspace::put(call, key).await,
        Endpoint::Patch(Patch::Workspace(key)) => workspace::patch(call, key).await,
        Endpoint::Delete(Delete::Workspace(key)) => workspace::delete(call, key).await,
        Endpoint::Post(Post::WorkspaceDiagnosis(key)) => workspace::diagnose(call, key).await,
        Endpoint::Post(Post::WorkspaceKeys(key)) => workspace::resync_keys(call, key).await,
        Endpoint::Get(Get::Computes(key)) => cluster::list(call, key).await,
        Endpoint::Get(Get::Compute { workspace, name }) => {
            cluster::get(call, workspace, name).await
        }
        Endpoint::Put(Put::Compute { workspace, name }) => {
            cluster::put(call, workspace, name).await
        }
        Endpoint::Patch(Patch::Compute { workspace, name }) => {
            cluster::patch(call, workspace, name).await
        }
        Endpoint::Delete(Delete::Compute { workspace, name }) => {
            cluster::delete(call, workspace, name).await
        }
        Endpoint::Get(Get::ComputeNodes { workspace, name })
        | Endpoint::Post(Post::ComputeNodes { workspace, name }) => {
            cluster::nodes(call, workspace, name).await
        }
        Endpoint::Post(Post::ComputeAction { workspace, name, action }) => {
            cluster::act(call, workspace, name, action).await
        }
        Endpoint::Post(Post::ComputeKeys { workspace, name }) => {
            cluster::no_keys(call, workspace, name).await
        }
        Endpoint::Post(Post::EvictNode { workspace, compute, node }) => {
            cluster::evict(call, workspace, compute, node).await
        }
        Endpoint::Get(Get::PostMortems { workspace, compute }) => {
            post_mortem::list(call, workspace, compute).await
        }
        Endpoint::Get(Get::PostMortem { workspace, compute, node }) => {
            post_mortem::get(call, workspace, compute, node).await
        }
        Endpoint::Get(Get::Operation { id, .. }) => cluster::operation(call, &id).await,
        Endpoint::Get(Get::Jobs(key)) => job::list(call, key).await,
        Endpoint::Get(Get::Job { workspace, name }) => job::get(call, workspace, name).await,
        Endpoint::Put(Put::Job { workspace, name }) => job::put(call, workspace, name).await,
        Endpoint::Delete(Delete::Job { workspace, name }) => {
            job::delete(call, workspace, name).await
        }
        Endpoint::Post(Post::JobCancel { workspace, name }) => {
            job::cancel(call, workspace, name).await
        }
        Endpoint::History(endpoint) => history::handle(call, endpoint).await,
        Endpoint::Post(Post::JobCheck { workspace, name }) => {
            job::check(call, workspace, name).await
        }
        Endpoint::V1(endpoint) => v1::handle(call, endpoint).await,
        Endpoint::Get(Get::JobAttempts { workspace, name }) => {
            job::attempts(call, workspace, name).await
        }
        Endpoint::Put(Put::Tree { workspace, id }) => tree::put(call, workspace, id).await,
        Endpoint::Put(Put::Blob { workspace, digest }) => {
            tree::put_blob(&call.app, &workspace, &digest, content).await
        }
        Endpoint::Get(Get::Events(key)) => events::follow(call, key).await,
        Endpoint::Get(Get::ComputeHistory { workspace, name }) => {
            compute_history::get(call, workspace, name).await
        }
        Endpoint::Get(Get::Ledger(key)) => workspace::ledger(call, key).await,
        Endpoint::Get(Get::WorkspaceUsages(key)) => quota::of_workspace(call, key).await,
        Endpoint::Get(Get::WhyJob { workspace, name }) => why::job(call, workspace, name).await,
        Endpoint::Get(Get::WhyCompute { workspace, name }) => {
            why::compute(call, workspace, name).await
        }
        Endpoint::Get(Get::Usages { subscription, location }) => {
            quota::usages(call, &subscription, &location).await
        }
        Endpoint::Get(Get::VmSizes { .. }) => Ok(quota::vm_sizes(call)),
        Endpoint::Get(Get::Quotas { subscription, location }) => {
            quota::quotas(call, &subscription, &location).await
        }
        Endpoint::Post(Post::UpdateQuotas { subscription, location }) => {
            quota::update(call, &subscription, &location).await
        }
        Endpoint::Governance(endpoint) => governance::handle(call, endpoint).await,
        Endpoint::Deployments(endpoint) => deployment::handle(call, endpoint).await,
        Endpoint::Storage(endpoint) => datastore::handle(call, endpoint).await,
        Endpoint::Assets(endpoint) => asset::handle(call, endpoint).await,
        Endpoint::Hosts(endpoint) => host::handle(call, endpoint).await,
        Endpoint::Access(endpoint) => access::handle(call, endpoint).await,
        Endpoint::Manager(endpoint) => manager::handle(call, endpoint).await,
        Endpoint::Login(_) => Err(ArmError::internal("login-with-caller").into()),
    }
}

fn check_content_type(headers: &HeaderMap, body: &Bytes) -> Result<(), ArmError> {
    // A small compressed body may be arbitrarily large when it is decompressed.
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING) {
        let encoding = encoding.to_str().unwrap_or("");
        if !encoding.eq_ignore_ascii_case("identity") {
            return Err(ArmError::unsupported_encoding(encoding));
        }
    }
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let value = value.to_str().unwrap_or("");
    let kind = value.split(';').next().unwrap_or("").trim();
    if body.is_empty() || kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ArmError::unsupported_media_type(value))
}

impl Call {
    /// Sends an input to the writer on behalf of the caller.
    async fn submit(&self, input: Input) -> Result<Reply, Failed> {
        Ok(self.app.writer.submit(self.asked(input)).await??)
    }

    /// Records an action that was carried out without the core: it issued credentials, or changed blobs.
    async fn note_action(&self) {
        let Some(request) = &self.activity_request else { return };
        if self.is_recorded.load(Ordering::Relaxed) || !request.operation.ends_with("/action") {
            return;
        }
        let (by, request) = (self.caller.clone(), request.clone());
        let outcome = ActivityOutcome::Done { before: None, after: None };
        note(&self.app, Activity { at: Wall(0), by, request, outcome }).await;
    }

    /// Keeps an action that changes nothing, such as a dry run, out of the activity log.
    fn changes_nothing(&self) {
        self.is_recorded.store(true, Ordering::Relaxed);
    }

    fn asked(&self, input: Input) -> Input {
        self.is_recorded.store(true, Ordering::Relaxed);
        match &self.activity_request {
            Some(activity_request) => {
                let (by, activity_request) =
                    (self.caller.clone(), Box::new(activity_request.clone()));
                Input::Asked { by, activity_request, input: Box::new(input) }
            }
            None => input,
        }
    }

    fn may(&self, action: Action, scope: &Scope) -> bool {
        auth::may(&self.app, &self.caller, action, scope)
    }

    /// Refuses a region that does not exist.
    async fn check_region(&self, location: &str) -> Result<(), Failed> {
        Ok(self.app.writer.check_region(&self.caller, location).await??)
    }
}

/// Reports a bug without its details.
fn unexpected(reply: &Reply) -> Failed {
    tracing::error!(?reply, "the core sent an unexpected reply");
    Failed(ArmError::internal("unexpected-reply"))
}
