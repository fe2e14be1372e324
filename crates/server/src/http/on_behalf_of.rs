//! A token of the user who submitted a job, for the programs of that job (`AzureMLOnBehalfOfCredential`).
//!
//! Azure's client sends nothing but the address that the job was given (`OBO_ENDPOINT`), so that address holds the token
//! of the attempt. That alone is not enough: it is taken only on the socket of a node that runs the attempt. Someone who reads
//! the address in a log can therefore do nothing with it.

use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use muster_wire::cloud::TokenReply;
use muster_wire::login::RUN;
use muster_wire::{ArmError, Query};

use super::login;
use super::respond::{Failed, document};
use crate::app::App;
use crate::clock;
use crate::tokens::{Principal, RunToken};

/// Also the note for such a job at its submission.
pub const DISABLED: &str = "identity UserIdentity has no effect on this server, because user-identity is not enabled; ask its \
    operator to enable it";
const ELSEWHERE: &str =
    "a token of a job's user is given only to that job, on the nodes that run it";
const NO_RUN: &str = "run is missing, or no token of a run; ask at the address in OBO_ENDPOINT";
const OTHER: &str = "the attempt that this address was made for is over, or runs on other nodes";

pub async fn answer(app: &App, parts: &Parts, query: &Query) -> Result<Response, Failed> {
    let refused = |why: &str| ArmError::unauthorized(&app.base_url, why);
    if !app.user_identity {
        return Err(ArmError::forbidden(DISABLED).into());
    }
    let node = login::source(parts).and_then(|source| source.node.as_deref());
    let node = node.ok_or_else(|| refused(ELSEWHERE))?;
    let token = query.get(RUN).and_then(|run| app.keyring.verify_run(run, clock::unix_seconds()));
    let run = match token {
        Some(Ok(run)) => run,
        Some(Err(rejected)) => return Err(refused(&rejected.to_string()).into()),
        None => return Err(login::slowed(app, parts, refused(NO_RUN)).await.into()),
    };
    if app.live.attempt_on(run.epoch, node).is_none_or(|attempt| attempt.job != run.job) {
        return Err(refused(OTHER).into());
    }
    let resource = query.resource().ok_or_else(|| {
        ArmError::invalid_property("resource", "resource is missing; name what the token is for")
    })?;
    let epoch = run.epoch;
    let principal = submitter(app, run).await?;
    let (now, directory) = (clock::stamp(), app.live.directory());
    let issued = app
        .keyring
        .issue_to(Some(epoch), &principal, resource, &app.audiences, now, &directory)
        .map_err(|refused| ArmError::invalid_property("resource", refused.to_string()))?;
    let ends = clock::to_wall_clock(issued.expires_unix);
    Ok(document(StatusCode::OK, &TokenReply::new(&issued.token, ends, resource)))
}

/// The user whom this run may act as.
async fn submitter(app: &App, run: RunToken) -> Result<Principal, Failed> {
    let RunToken { job, name, workspace, .. } = run;
    let wanted = name.clone();
    let view = app.readers.read(move |reader| reader.job(&workspace, &wanted)).await?;
    let view = view.filter(|view| view.job.id == job);
    let Some(view) = view.filter(|view| view.spec.acts_as_submitter()) else {
        return Err(ArmError::forbidden(format!(
            "job '{name}' does not run as its user; submit it with the identity user_identity, and without services"
        ))
        .into());
    };
    // A token must end with its user's key.
    let directory = app.live.directory();
    let user = view.submitted_by.filter(|user| app.keyring.has_key(&user.object_id, &directory));
    let user = user.ok_or_else(|| {
        ArmError::forbidden(format!("the user who submitted job '{name}' has no key any more"))
    })?;
    tracing::info!(job = %name, user = %user.name, "a job asked for a token of its user");
    Ok(Principal { id: user.object_id.into(), name: user.name.into() })
}
