//! Workspaces that exist as soon as they are used. A missing one is created here and nowhere else.

use muster_core::model::{Action, ActivityRequest, Scope, Workspace, WorkspaceKey};
use muster_core::refusal::Target;
use muster_core::{Input, RefusalKind, Reply};
use muster_wire::Route;

use super::{Call, Failed, workspace};
use crate::Workspaces;

/// The workspace, which must exist or is created by this request.
pub async fn home(call: &Call, key: &WorkspaceKey) -> Result<Workspace, Failed> {
    let find = || call.app.readers.look_up(|reader| reader.workspace(key));
    if let Some(found) = find()? {
        return Ok(found);
    }
    let found = if create(call, key).await? { find()? } else { None };
    found.ok_or_else(|| workspace::no_such(key).into())
}

impl Call {
    /// Sends an input about a workspace to the writer. If workspaces are created on first use, a missing one is created
    /// and the input is sent again.
    pub(super) async fn submit_in(
        &self,
        workspace: &WorkspaceKey,
        input: Input,
    ) -> Result<Reply, Failed> {
        match self.app.writer.submit(self.asked(input.clone())).await? {
            Err(refused)
                if refused.kind == RefusalKind::NotFound
                    && refused.target == Target::from("workspace") =>
            {
                match create(self, workspace).await? {
                    true => self.submit(input).await,
                    false => Err(refused.into()),
                }
            }
            other => Ok(other?),
        }
    }
}

/// Creates a workspace if workspaces are created on first use, and the caller may. Returns whether it did.
async fn create(call: &Call, key: &WorkspaceKey) -> Result<bool, Failed> {
    let scope = Scope::workspace(key);
    if call.app.workspaces != Workspaces::OnFirstUse || !call.may(Action::ManageWorkspaces, &scope)
    {
        return Ok(false);
    }
    let route = Route::Workspace(key.clone());
    let correlation = call.activity_request.as_ref().map(|request| request.correlation.clone());
    let activity_request = Box::new(ActivityRequest {
        operation: route.operation("PUT").unwrap_or_default().into(),
        resource: route.path().unwrap_or_default().into(),
        scope,
        correlation: correlation.unwrap_or_else(|| "".into()),
    });
    let by = call.caller.clone();
    let input = Box::new(Input::workspace(key.clone(), &call.app.location, by.clone()));
    call.app.writer.submit(Input::Asked { by, activity_request, input }).await??;
    Ok(true)
}
