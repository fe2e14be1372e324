//! Azure's own API: a single entry point that normalises the path, identifies the caller and finds the handler.
//!
//! A new endpoint is a `wire::Route`, an arm of [`route`], and a function in one of the modules below.

mod access;
mod asset;
mod build_context;
mod cloud;
mod cluster;
mod datastore;
mod deployment;
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

use axum::body::Bytes;
use axum::extract::{Request as HttpRequest, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use muster_core::model::{Action, Activity, ActivityOutcome, ActivityRequest, Caller, Scope};
use muster_core::time::Wall;
use muster_core::{Input, Reply};
use muster_wire::job::Dialect;
use muster_wire::spelling::PARTS_HEADER;
use muster_wire::{ArmError, Query, Request, Route, activity};

use super::auth::Need;
use super::request_log::Noted;
use super::respond::Failed;
use super::run_access::{self, Run};
use super::{auth, body, login, template, trees};
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
    /// The run that sends the request, if it comes from a job.
    run: Option<Run>,
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
    log.route(template::of(&route));
    // Documents that a client reads before it can have a token.
    match (&parts.method, &route) {
        (&Method::GET, Route::Metadata) => return Ok(cloud::metadata(&app, &query)),
        (&Method::GET, Route::Discovery) => return Ok(cloud::discovery(&app)),
        (_, Route::Token | Route::Login(_)) => {
            return login::answer(&app, &parts, &route, &query, content).await;
        }
        _ => {}
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
        if let Err(refused) = permitted {
            body::discard(content).await;
            return Err(refused);
        }
        if let (&Method::PUT, Route::Blob { .. }) = (&parts.method, &route) {
            return tree::put_blob(&app, &route, content).await;
        }
        let body = body::read(content, BODY_BYTES_MAX).await?;
        // A file list has its own text format.
        if !matches!(route, Route::Tree { .. }) {
            check_content_type(&parts.headers, &body)?;
        }
        check_room(&app, &parts.method, &body)?;
        let agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let dialect = Dialect::of(agent.unwrap_or_default());
        let call = Call { app, caller, query, body, dialect, activity_request, run };
        self::route(&call, &parts.method, route, parts.uri.path()).await
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

fn activity_request(
    parts: &Parts,
    route: &Route,
    need: &Need,
    correlation: &str,
) -> Option<ActivityRequest> {
    let operation = activity::operation(parts.method.as_str(), route)?;
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
    let activity = Activity { at: Wall(0), by, request: activity_request, outcome };
    match app.writer.submit(Input::NoteRefusal(Box::new(activity))).await {
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

async fn route(call: &Call, method: &Method, route: Route, path: &str) -> Result<Response, Failed> {
    match (method.as_str(), route) {
        ("GET", route @ Route::WorkspacesOfSubscription { .. })
        | ("GET", route @ Route::WorkspacesOfGroup { .. }) => workspace::list(call, route).await,
        ("GET", Route::Workspace(key)) => workspace::get(call, key).await,
        ("PUT", Route::Workspace(key)) => workspace::put(call, key).await,
        ("PATCH", Route::Workspace(key)) => workspace::patch(call, key).await,
        ("DELETE", Route::Workspace(key)) => workspace::delete(call, key).await,
        ("POST", Route::WorkspaceAction { workspace, action }) => {
            workspace::act(call, workspace, action).await
        }
        ("GET", Route::Computes(key)) => cluster::list(call, key).await,
        ("GET", Route::Compute { workspace, name }) => cluster::get(call, workspace, name).await,
        ("PUT", Route::Compute { workspace, name }) => cluster::put(call, workspace, name).await,
        ("PATCH", Route::Compute { workspace, name }) => {
            cluster::patch(call, workspace, name).await
        }
        ("DELETE", Route::Compute { workspace, name }) => {
            cluster::delete(call, workspace, name).await
        }
        ("GET" | "POST", Route::ComputeNodes { workspace, name }) => {
            cluster::nodes(call, workspace, name).await
        }
        ("POST", Route::ComputeAction { workspace, name, action }) => {
            cluster::act(call, workspace, name, action).await
        }
        ("POST", Route::EvictNode { workspace, compute, node }) => {
            cluster::evict(call, workspace, compute, node).await
        }
        ("GET", Route::PostMortems { workspace, compute }) => {
            post_mortem::list(call, workspace, compute).await
        }
        ("GET", Route::PostMortem { workspace, compute, node }) => {
            post_mortem::get(call, workspace, compute, node).await
        }
        ("GET", Route::Operation { id, .. }) => cluster::operation(call, &id).await,
        ("GET", Route::Jobs(key)) => job::list(call, key).await,
        ("GET", Route::Job { workspace, name }) => job::get(call, workspace, name).await,
        ("PUT", Route::Job { workspace, name }) => job::put(call, workspace, name).await,
        ("DELETE", Route::Job { workspace, name }) => job::delete(call, workspace, name).await,
        ("POST", Route::JobCancel { workspace, name }) => job::cancel(call, workspace, name).await,
        (method, Route::History(route)) => history::handle(call, method, route).await,
        ("POST", Route::JobCheck { workspace, name }) => job::check(call, workspace, name).await,
        (method, Route::V1(route)) => v1::handle(call, method, route).await,
        ("GET", Route::JobAttempts { workspace, name }) => {
            job::attempts(call, workspace, name).await
        }
        ("PUT", Route::Tree { workspace, id }) => tree::put(call, workspace, id).await,
        ("GET", Route::Ledger(key)) => workspace::ledger(call, key).await,
        ("GET", Route::WorkspaceUsages(key)) => quota::of_workspace(call, key).await,
        ("GET", Route::WhyJob { workspace, name }) => why::job(call, workspace, name).await,
        ("GET", Route::WhyCompute { workspace, name }) => why::compute(call, workspace, name).await,
        ("GET", Route::Usages { subscription, location }) => {
            quota::usages(call, &subscription, &location).await
        }
        ("GET", Route::VmSizes { .. }) => Ok(quota::vm_sizes(call)),
        ("GET", Route::Quotas { subscription, location }) => {
            quota::quotas(call, &subscription, &location).await
        }
        ("POST", Route::UpdateQuotas { subscription, location }) => {
            quota::update(call, &subscription, &location).await
        }
        (method, Route::Governance(route)) => governance::handle(call, method, route).await,
        (method, Route::Deployments(route)) => deployment::handle(call, method, route).await,
        (method, Route::Storage(route)) => datastore::handle(call, method, route).await,
        (method, Route::Assets(route)) => asset::handle(call, method, route).await,
        (method, Route::Hosts(route)) => host::handle(call, method, route).await,
        (method, Route::Access(route)) => access::handle(call, method, route).await,
        (method, Route::Manager(route)) => manager::route(call, method, route).await,
        (_, Route::Unknown) => Err(ArmError::no_route(path).into()),
        (method, route) => Err(ArmError::method_not_allowed(method, route.methods()).into()),
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

    fn asked(&self, input: Input) -> Input {
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
