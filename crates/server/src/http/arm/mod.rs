//! Azure's own API: one entrance that normalises the path, knows the caller, and finds the handler.
//!
//! A new endpoint is a `wire::Route`, an arm of [`route`], and a function in one of the files beside this.

mod access;
mod cloud;
mod cluster;
mod job;
mod manager;
mod quota;
mod why;
mod workspace;

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request as HttpRequest, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use muster_core::model::{Action, Caller, Scope, WorkspaceKey};
use muster_core::{Answer, Input, RefusalKind, Reply};
use muster_wire::{ArmError, Query, Request, Route};

use super::auth::Need;
use super::request_log::Noted;
use super::respond::Failed;
use super::{auth, body, template};
use crate::Workspaces;
use crate::app::App;

/// The largest body that any of these routes takes.
pub const BODY_BYTES_MAX: usize = muster_wire::job::BODY_BYTES_MAX;

/// A request as the handlers see it.
struct Call {
    app: Arc<App>,
    caller: Caller,
    query: Query,
    body: Bytes,
}

pub async fn handle(State(app): State<Arc<App>>, request: HttpRequest) -> Response {
    match answer(app, request).await {
        Ok(response) => response,
        Err(failed) => failed.into_response(),
    }
}

async fn answer(app: Arc<App>, request: HttpRequest) -> Result<Response, Failed> {
    let (parts, content) = request.into_parts();
    let (caller, route, query) = match admit(&app, &parts).await {
        Ok(Admission::Entered { caller, route, query }) => (caller, route, query),
        Ok(Admission::Answered(response)) => return Ok(response),
        Err(refused) => {
            // What is left unread would close the connection under the client's next request.
            body::discard(content).await;
            return Err(refused);
        }
    };
    let body = body::read(content, BODY_BYTES_MAX).await?;
    check_content_type(&parts.headers, &body)?;
    let call = Call { app, caller, query, body };
    self::route(&call, &parts.method, route, parts.uri.path()).await
}

enum Admission {
    Answered(Response),
    Entered { caller: Caller, route: Route, query: Query },
}

/// Everything that is decided without the body: what is asked for, by whom, and whether they may.
async fn admit(app: &App, parts: &Parts) -> Result<Admission, Failed> {
    let Request { route, query } =
        Request::parse(parts.uri.path(), parts.uri.query()).map_err(ArmError::from)?;
    let noted = parts.extensions.get::<Noted>().cloned().unwrap_or_default();
    noted.route(template::of(&route));
    // What a client reads before it can have a token.
    let open = match (&parts.method, &route) {
        (&Method::GET, Route::Metadata) => Some(cloud::metadata(app, &query)),
        (&Method::GET, Route::Discovery) => Some(cloud::discovery(app)),
        (&Method::GET, Route::Token) => Some(cloud::token(app, &query, &parts.headers).await?),
        _ => None,
    };
    if let Some(response) = open {
        return Ok(Admission::Answered(response));
    }
    let caller = auth::caller(app, &parts.headers)?;
    noted.caller(&caller.name);
    let need = auth::need(parts.method.as_str(), &route);
    auth::authorize(app, &caller, &need)?;
    refuse_unknown_workspace(app, &route, &need).await?;
    Ok(Admission::Entered { caller, route, query })
}

/// Where workspaces are made by hand, nothing is in one that nobody made: not even an empty list.
async fn refuse_unknown_workspace(app: &App, route: &Route, need: &Need) -> Result<(), Failed> {
    let Need::To(_, Scope::Workspace(key)) = need else { return Ok(()) };
    if app.workspaces == Workspaces::OnFirstUse
        || matches!(route, Route::Workspace(_) | Route::Access(_))
    {
        return Ok(());
    }
    let wanted = key.clone();
    match app.readers.read(move |reader| reader.workspace(&wanted)).await? {
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
        ("GET", Route::Computes(key)) => cluster::list(call, key).await,
        ("GET", Route::Compute { workspace, name }) => cluster::get(call, workspace, name).await,
        ("PUT", Route::Compute { workspace, name }) => cluster::put(call, workspace, name).await,
        ("PATCH", Route::Compute { workspace, name }) => {
            cluster::patch(call, workspace, name).await
        }
        ("DELETE", Route::Compute { workspace, name }) => {
            cluster::delete(call, workspace, name).await
        }
        ("POST", Route::ComputeNodes { workspace, name }) => {
            cluster::nodes(call, workspace, name).await
        }
        ("POST", Route::ComputeAction { workspace, name, action }) => {
            cluster::act(call, workspace, name, action).await
        }
        ("GET", Route::Operation { id, .. }) => cluster::operation(call, &id).await,
        ("GET", Route::Jobs(key)) => job::list(call, key).await,
        ("GET", Route::Job { workspace, name }) => job::get(call, workspace, name).await,
        ("PUT", Route::Job { workspace, name }) => job::put(call, workspace, name).await,
        ("POST", Route::JobCancel { workspace, name }) => job::cancel(call, workspace, name).await,
        ("GET", Route::RunDetails { workspace, run }) => job::details(call, workspace, run).await,
        ("GET", Route::Ledger(key)) => workspace::ledger(call, key).await,
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
        (method, Route::Access(route)) => access::handle(call, method, route).await,
        (method, Route::Manager(route)) => manager::route(call, method, route).await,
        (_, Route::Unknown) => Err(ArmError::no_route(path).into()),
        (method, route) => Err(ArmError::method_not_allowed(method, route.methods()).into()),
    }
}

fn check_content_type(headers: &HeaderMap, body: &Bytes) -> Result<(), ArmError> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let value = value.to_str().unwrap_or("");
    let kind = value.split(';').next().unwrap_or("").trim();
    if body.is_empty() || kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ArmError::unsupported_media_type(value))
}

impl Call {
    /// Says something to the writer about a workspace. Where workspaces come into being when they are first
    /// named, a missing one is made and the same is said again.
    async fn say(&self, workspace: &WorkspaceKey, input: Input) -> Result<Reply, Failed> {
        let first: Answer = self.app.writer.say(input.clone()).await?;
        match first {
            Err(refused)
                if refused.kind == RefusalKind::NotFound
                    && &*refused.target == "workspace"
                    && self.may_make(workspace) =>
            {
                self.create_workspace(workspace, &self.app.location).await?;
                Ok(self.app.writer.say(input).await??)
            }
            other => Ok(other?),
        }
    }

    /// Whether naming a workspace is enough for it to be there.
    fn may_make(&self, key: &WorkspaceKey) -> bool {
        self.app.workspaces == Workspaces::OnFirstUse
            && self.may(Action::ManageWorkspaces, &Scope::workspace(key))
    }

    fn may(&self, action: Action, scope: &Scope) -> bool {
        auth::may(&self.app, &self.caller, action, scope)
    }

    async fn create_workspace(&self, key: &WorkspaceKey, location: &str) -> Result<(), Failed> {
        let create = Input::CreateWorkspace {
            key: key.clone(),
            location: location.into(),
            by: self.caller.clone(),
        };
        self.app.writer.say(create).await??;
        Ok(())
    }
}

/// A bug of ours, said without its insides.
fn unexpected(reply: &Reply) -> Failed {
    tracing::error!(?reply, "the core answered another question");
    Failed(ArmError::internal("unexpected-reply"))
}
