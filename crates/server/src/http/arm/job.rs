//! Command jobs: submit, show, list, cancel, and their view in run history.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::ids::{Epoch, JobId};
use muster_core::model::{ChildCounts, Cost, JobPhase, JobSpec, SavedTree, SpecHash, WorkspaceKey};
use muster_core::{ErrorChain, Input, JobAction, JobEdit, JobRequest, Reply};
use muster_store::{Archived, JobQuery, JobView, ParentView};
use muster_wire::asset::View;
use muster_wire::job::{self, Family, JobFacts, JobResource, STUDIO, ServiceEntry, Waits};
use muster_wire::{ArmError, Page, Route, notes};

use super::first_use::home;
use super::job_data::Names;
use super::{Call, Failed, cluster, paging, tree, unexpected};
use crate::app::App;
use crate::artifacts::{self, ArtifactError, removal};
use crate::http::respond::document;
use crate::http::{log_files, service, studio, tree_files};
use crate::readers::WorldReader;
use crate::secrets;
use crate::{clock, environments};

/// The number of jobs on a page whose wait reasons are computed; each takes some of the writer's time.
const EXPLAINED_MAX: usize = 100;

pub async fn put(call: &Call, workspace: WorkspaceKey, name: Box<str>) -> Result<Response, Failed> {
    let (request, spec) = request(call, &workspace, &name).await?;
    if let Some(code) = spec.code {
        tree::check_code(&call.app, &workspace, code).await?;
    }
    removal::clear_name(&call.app, &workspace, &name).await.map_err(unremoved)?;
    let reply = call.submit_in(&workspace, Input::SubmitJob(Box::new(request))).await?;
    let Reply::JobAccepted { job, is_new } = reply else { return Err(unexpected(&reply)) };
    if !is_new {
        let view = find(call, &workspace, &name).await?;
        return Ok(document(StatusCode::OK, &shown(call, &facts(&workspace, &view, None))));
    }
    let notes = notes_on(call, &workspace, &spec).await?;
    // Everything about a new job is known here, so the response does not wait for a read.
    let facts = JobFacts {
        workspace: &workspace,
        job: &job,
        spec: &spec,
        submitted_by: Some(&call.caller.name),
        attempts: &[],
        waits: None,
        is_archived: false,
        notes: &notes,
        family: match job.children() {
            0 => Family::Alone,
            tasks => {
                let counts = ChildCounts { waiting: tasks, ..ChildCounts::default() };
                Family::Parent { counts, cost: Cost::default() }
            }
        },
    };
    Ok(document(StatusCode::CREATED, &shown(call, &facts)))
}

/// Checks whether a job would be accepted, apart from its name and files that have not been sent yet.
pub async fn check(
    call: &Call,
    workspace: WorkspaceKey,
    name: Box<str>,
) -> Result<Response, Failed> {
    let (request, _) = request(call, &workspace, &name).await?;
    match call.submit_in(&workspace, Input::CheckJob(Box::new(request))).await? {
        Reply::Noted => Ok(StatusCode::NO_CONTENT.into_response()),
        other => Err(unexpected(&other)),
    }
}

/// Reads the request from the body.
async fn request(
    call: &Call,
    workspace: &WorkspaceKey,
    name: &str,
) -> Result<(JobRequest, Arc<JobSpec>), Failed> {
    let home = home(call, workspace).await?;
    let names = Names { app: &call.app, home: &home };
    let mut spec = job::parse_request(&call.body, &home.key, name, &names)?;
    let recipe = spec.environment.as_deref().and_then(|environment| environment.recipe.as_ref());
    if let Some(note) = recipe.and_then(environments::python_note) {
        notes::add(&mut spec.properties, note);
    }
    let spec = Arc::new(spec);
    let spec_hash = SpecHash(secrets::sha256(job::spec_text(&spec).as_bytes()));
    let request = JobRequest {
        workspace: workspace.clone(),
        name: name.to_owned(),
        spec: Arc::clone(&spec),
        spec_hash,
        by: call.caller.clone(),
        is_archived: job::is_archived(&call.body)?,
        existing: None,
        numbered: <_>::default(),
    };
    Ok((request, spec))
}

/// The job with the URL of its page, which clients show as the studio's.
fn shown(call: &Call, facts: &JobFacts<'_>) -> JobResource {
    let mut resource = job::resource(facts);
    let page = studio::url(&call.app.base_url, facts.workspace, &resource.name);
    resource.properties.services.insert(STUDIO.to_owned(), ServiceEntry::page(page));
    resource
}

pub async fn get(call: &Call, workspace: WorkspaceKey, name: Box<str>) -> Result<Response, Failed> {
    let view = find(call, &workspace, &name).await?;
    let waits = wait_reason(call, &view).await?;
    let notes = notes_on(call, &workspace, &view.spec).await?;
    let facts = JobFacts { notes: &notes, ..facts(&workspace, &view, waits.as_ref()) };
    let mut shown = shown(call, &facts);
    if let Some(attempt) = view.job.attempt() {
        for (name, entry) in &mut shown.properties.services {
            if let Some(known) = service::view(&call.app, None, (attempt.epoch, 0), name) {
                entry.tell(&known);
            }
        }
    }
    Ok(document(StatusCode::OK, &shown))
}

pub(super) async fn find(
    call: &Call,
    workspace: &WorkspaceKey,
    name: &str,
) -> Result<JobView, Failed> {
    let (key, wanted) = (workspace.clone(), name.to_owned());
    let found = call.app.readers.read(move |reader| reader.job(&key, &wanted)).await?;
    let missing = || {
        ArmError::not_found(
            "name",
            format!(
                "job '{name}' does not exist in workspace '{}'; check the name, or list the jobs",
                workspace.name
            ),
        )
    };
    Ok(found.ok_or_else(missing)?)
}

pub(super) fn facts<'a>(
    workspace: &'a WorkspaceKey,
    view: &'a JobView,
    waits: Option<&'a Waits>,
) -> JobFacts<'a> {
    JobFacts {
        workspace,
        job: &view.job,
        spec: &view.spec,
        submitted_by: view.submitted_by.as_ref().map(|by| &*by.name),
        attempts: &view.attempts,
        waits,
        is_archived: view.is_archived,
        notes: &[],
        family: match (&view.parent, &view.children) {
            (Some(ParentView { name, index }), _) => Family::Child { parent: name, index: *index },
            (None, Some(children)) => {
                let cost = children.cost(clock::now().wall);
                Family::Parent { counts: children.counts, cost }
            }
            (None, None) => Family::Alone,
        },
    }
}

/// Notes about the compute for the user who submits or views a job.
async fn notes_on(
    call: &Call,
    workspace: &WorkspaceKey,
    spec: &JobSpec,
) -> Result<Vec<String>, Failed> {
    let (key, compute) = (workspace.clone(), spec.cluster_name());
    let found = call.app.readers.read(move |reader| reader.cluster(&key, compute.as_str())).await?;
    let Some(view) = found else { return Ok(Vec::new()) };
    Ok(match spec.is_serverless() {
        // The other notes are about settings of a compute, and users cannot change those of a serverless one.
        true => cluster::gpu_note(call, workspace, &view).into_iter().collect(),
        false => cluster::notes_for_job(call, workspace, &view, spec),
    })
}

/// All wait reasons of a job, if it waits.
async fn wait_reason(call: &Call, view: &JobView) -> Result<Option<Waits>, Failed> {
    if !matches!(view.job.phase(), JobPhase::Queued | JobPhase::Starting) {
        return Ok(None);
    }
    Ok(Waits::of(&call.app.writer.why(&call.caller, view.job.id).await?))
}

/// The same for a page of jobs. If very many of them wait, only for the first of those.
async fn wait_reasons(call: &Call, views: &[JobView]) -> Result<BTreeMap<JobId, Waits>, Failed> {
    let waiting = views.iter().filter(|view| view.job.phase() == JobPhase::Queued);
    let ids: Vec<JobId> = waiting.map(|view| view.job.id).take(EXPLAINED_MAX).collect();
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let reasons = call.app.writer.why_each(&call.caller, ids.clone()).await?;
    let each = ids.into_iter().zip(reasons);
    Ok(each.filter_map(|(id, reasons)| Some((id, Waits::of(&reasons)?))).collect())
}

pub async fn list(call: &Call, workspace: WorkspaceKey) -> Result<Response, Failed> {
    let (after, size) = (call.query.skip().map(str::to_owned), call.page_size(paging::LARGE)?);
    let route = Route::Jobs(workspace.clone());
    let tag = call.query.get("tag").filter(|tag| !tag.is_empty()).map(Box::from);
    let parent = call.query.get("parentJobName").filter(|name| !name.is_empty()).map(Box::from);
    let query = JobQuery { archived: archived(View::parse(&call.query)?), tag, parent };
    if !job::asks_for_commands(&call.query)? {
        return Ok(document(StatusCode::OK, &Page::<JobResource>::new(Vec::new(), None)));
    }
    let key = workspace.clone();
    let read = move |reader: &mut WorldReader| reader.jobs(&key, &query, after.as_deref(), size);
    let page = call.app.readers.read(read).await?;
    let waits = wait_reasons(call, &page.items).await?;
    let resource = |view: &JobView| shown(call, &facts(&workspace, view, waits.get(&view.job.id)));
    let value = page.items.iter().map(resource).collect();
    let next = page.next.and_then(|next| call.next_link(&route, &next));
    Ok(document(StatusCode::OK, &Page::new(value, next)))
}

fn archived(view: View) -> Archived {
    match view {
        View::Active => Archived::No,
        View::Archived => Archived::Yes,
        View::All => Archived::Both,
    }
}

/// The files of the job are removed once the delete is on disk, so a delete that is refused changes nothing. Named
/// outputs are kept, because other jobs and assets may use them.
pub async fn delete(
    call: &Call,
    workspace: WorkspaceKey,
    name: Box<str>,
) -> Result<Response, Failed> {
    let app = &call.app;
    removal::clear_name(app, &workspace, &name).await.map_err(unremoved)?;
    let (key, wanted) = (workspace.clone(), name.to_string());
    let found = app.readers.read(move |reader| reader.job(&key, &wanted)).await?;
    let job = found.map(|view| view.job);
    if let Some(job) = &job {
        removal::begin(app, job).await;
    }
    let (key, wanted) = (workspace.clone(), name.clone());
    let edit = JobEdit { workspace, name, action: JobAction::Delete, known: None };
    let outcome = call.submit(Input::EditJob(Box::new(edit))).await;
    if let (Err(Failed(refused)), Some(job)) = (&outcome, &job)
        // After an internal error, the job may have been deleted.
        && refused.status != StatusCode::INTERNAL_SERVER_ERROR.as_u16()
    {
        removal::give_up(app, job.id).await;
    }
    match outcome? {
        Reply::Noted => {
            if let Some(job) = &job {
                removal::finish(app, job).await;
            }
            Ok(StatusCode::OK.into_response())
        }
        Reply::NothingToDelete => {
            removal::clear_leftovers(app, &key, &wanted).await.map_err(unremoved)?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        other => Err(unexpected(&other)),
    }
}

fn unremoved(failed: ArtifactError) -> Failed {
    match failed {
        ArtifactError::Storage(unavailable) => unavailable.into(),
        ArtifactError::Store(failed) => failed.into(),
        failed => {
            tracing::error!(error = %ErrorChain(&failed), "cannot remove the files of a job");
            Failed(ArmError::internal("artifacts"))
        }
    }
}

pub(super) async fn patch(
    call: &Call,
    workspace: WorkspaceKey,
    run: Box<str>,
) -> Result<Response, Failed> {
    let action = JobAction::Patch(job::parse_patch(&call.body)?);
    let edit = JobEdit { workspace: workspace.clone(), name: run.clone(), action, known: None };
    match call.submit(Input::EditJob(Box::new(edit))).await? {
        Reply::Noted => super::history::run(call, workspace, run).await,
        other => Err(unexpected(&other)),
    }
}

pub async fn cancel(
    call: &Call,
    workspace: WorkspaceKey,
    name: Box<str>,
) -> Result<Response, Failed> {
    let input =
        Input::CancelJob { workspace: workspace.clone(), name: name.to_string(), known: None };
    match call.submit_in(&workspace, input).await? {
        Reply::CancelAccepted => Ok(StatusCode::OK.into_response()),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn details(
    call: &Call,
    workspace: WorkspaceKey,
    run: Box<str>,
) -> Result<Response, Failed> {
    let view = find(call, &workspace, &run).await?;
    let waits = wait_reason(call, &view).await?;
    let logs = log_urls(call, &view);
    let facts = facts(&workspace, &view, waits.as_ref());
    Ok(document(StatusCode::OK, &job::details(&facts, &logs)))
}

pub async fn attempts(
    call: &Call,
    workspace: WorkspaceKey,
    name: Box<str>,
) -> Result<Response, Failed> {
    let view = find(call, &workspace, &name).await?;
    let (app, job) = (&call.app, view.job.id);
    let saved = app.readers.read(move |reader| reader.saved_trees(job)).await?;
    let ended = view.attempts.iter().map(|ended| (ended.number, ended.epoch, ended.members.len()));
    let live = view.job.attempt().map(|live| (live.number, live.epoch, live.members.len()));
    let logs = ended
        .chain(live)
        .map(|(number, epoch, members)| (number, logs_of(app, job, epoch, members)))
        .collect();
    let facts = facts(&workspace, &view, None);
    let url = |saved: &SavedTree| tree_files::url(app, saved.workspace, &saved.tree);
    let shown = job::attempts(&facts, clock::now().wall, &logs, &saved, url);
    Ok(document(StatusCode::OK, &shown))
}

/// The log URLs of the current attempt, or of the last one.
fn log_urls(call: &Call, view: &JobView) -> BTreeMap<String, String> {
    let last = || view.attempts.last().map(|attempt| (attempt.epoch, attempt.members.len()));
    let attempt = view.job.attempt().map(|attempt| (attempt.epoch, attempt.members.len()));
    let Some((epoch, members)) = attempt.or_else(last) else { return BTreeMap::new() };
    logs_of(&call.app, view.job.id, epoch, members)
}

/// One per member, under the names that clients stream.
fn logs_of(app: &App, job: JobId, epoch: Epoch, members: usize) -> BTreeMap<String, String> {
    let url = |rank| (artifacts::log_name(rank, members), log_files::url(app, job, epoch, rank));
    (0..members).map(url).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Unavailable;

    #[test]
    fn a_storage_that_cannot_write_is_no_bug_and_can_be_retried() {
        for why in [Unavailable::Full, Unavailable::OnReserve, Unavailable::ReadOnly] {
            let answer = unremoved(ArtifactError::Storage(why));
            assert_eq!(answer.0.status, 503);
            assert!(answer.0.to_string().contains(&why.to_string()), "{}", answer.0);
            let response = answer.into_response();
            assert!(response.headers().contains_key(axum::http::header::RETRY_AFTER));
        }
        assert_eq!(unremoved(ArtifactError::Panicked).0.status, 500);
    }
}
