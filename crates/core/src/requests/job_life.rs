//! What becomes of a job after its submit: what is written on it, the archive, and its end as a record.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::estate::locked;
use super::{check_tags, check_text, find_workspace, shorten, workspace_to_change};
use crate::change::Change;
use crate::ids::{JobId, WorkspaceId};
use crate::input::{Answer, JobEdit, JobPatch, JobRequest, JobWish, KnownJob, Refused, Reply};
use crate::limits;
use crate::model::{Job, JobFace, Scope};
use crate::step::Turn;

pub(crate) fn edit(turn: &mut Turn<'_>, edit: &JobEdit) -> Answer {
    match &edit.wish {
        JobWish::Patch(patch) => {
            let home = workspace_to_change(turn, &edit.workspace, ("job", &edit.name, "changed"))?;
            let Some(known) = known(turn, home, &edit.name, edit.known.as_ref()) else {
                return Err(Refused::not_found(
                    "name",
                    format!(
                        "job '{}' does not exist in workspace '{}'; `muster job list` shows what does",
                        shorten(&edit.name),
                        edit.workspace.name
                    ),
                ));
            };
            let face = patched(known.face(), patch);
            put_face(turn, &known, face)?;
            Ok(Reply::Noted)
        }
        JobWish::Delete => delete(turn, edit),
    }
}

/// A PUT of a job that is there: the same submit again (a retry after a lost answer), or other words on it.
pub(super) fn put_again(turn: &mut Turn<'_>, request: &JobRequest, known: &KnownJob) -> Answer {
    if known.job.spec != request.spec_hash && !known.spec.is_same_work(&request.spec) {
        return Err(another(request));
    }
    let before = known.face();
    // Clients send what they read and what is new: properties are only ever added, as with Azure.
    let mut properties = before.properties.clone();
    properties.extend(request.spec.properties.clone());
    let is_archived = request.is_archived.unwrap_or(before.is_archived);
    let face = JobFace { properties, is_archived, ..JobFace::of(&request.spec) };
    if face != before {
        let deed = ("job", request.name.as_str(), "changed");
        workspace_to_change(turn, &request.workspace, deed)?;
        put_face(turn, known, face)?;
    }
    Ok(Reply::JobAccepted { job: Arc::clone(&known.job), is_new: false })
}

pub(super) fn accept_by_hash(turn: &Turn<'_>, request: &JobRequest, live: JobId) -> Answer {
    match turn.world.shared_job(live) {
        Some(job) if job.spec == request.spec_hash => {
            Ok(Reply::JobAccepted { job: Arc::clone(job), is_new: false })
        }
        Some(_) | None => Err(another(request)),
    }
}

fn another(request: &JobRequest) -> Refused {
    Refused::conflict(
        "name",
        format!(
            "a job named '{}' exists and does something else; only displayName, description, tags, \
             properties and isArchived of a job can be changed, so choose another name",
            request.name
        ),
    )
}

fn patched(mut face: JobFace, patch: &JobPatch) -> JobFace {
    let JobPatch { display_name, description, tags, properties, is_archived } = patch.clone();
    face.tags.extend(tags);
    face.properties.extend(properties);
    JobFace {
        display_name: display_name.or(face.display_name),
        description: description.or(face.description),
        is_archived: is_archived.unwrap_or(face.is_archived),
        ..face
    }
}

fn put_face(turn: &mut Turn<'_>, known: &KnownJob, face: JobFace) -> Result<(), Refused> {
    check_text("displayName", face.display_name.as_deref(), limits::JOB_NAME_BYTES_MAX)?;
    check_text("description", face.description.as_deref(), limits::DESCRIPTION_BYTES_MAX)?;
    check_tags(&face.tags)?;
    check_properties(&face.properties)?;
    if face != known.face() {
        turn.emit(Change::JobFaceChanged { job: known.job.id, face: Box::new(face) });
    }
    Ok(())
}

/// One that still waits or runs has to be canceled first: whoever deletes it may not know that it does.
fn delete(turn: &mut Turn<'_>, edit: &JobEdit) -> Answer {
    let JobEdit { workspace: key, name, known: before, .. } = edit;
    let home = find_workspace(turn, key)?.id;
    if let Some(lock) = turn.world.estate().against_delete(&Scope::workspace(key)) {
        return Err(locked("job", name, "deleted", lock));
    }
    let Some(known) = known(turn, home, name, before.as_ref()) else {
        return Ok(Reply::NothingToDelete);
    };
    let job = known.job;
    if !job.phase().is_terminal() {
        return Err(Refused::conflict(
            "name",
            format!(
                "job '{}' has not ended ({:?}), and only jobs that have can be deleted; cancel it first: \
                 muster job cancel --name {}",
                job.name,
                job.phase(),
                job.name
            ),
        ));
    }
    let name = job.name.to_ascii_lowercase().into();
    turn.emit(Change::JobGone { job: job.id, workspace: home, name });
    Ok(Reply::Noted)
}

/// The job of this name, live or ended: what the rows showed, and what this very step has changed since they were
/// asked.
pub(super) fn known(
    turn: &Turn<'_>,
    workspace: WorkspaceId,
    name: &str,
    before: Option<&KnownJob>,
) -> Option<KnownJob> {
    let is_it = |job: &Job| job.workspace == workspace && job.name.eq_ignore_ascii_case(name);
    let live = turn.world.job_by_name(workspace, name);
    let live = live.and_then(|job| turn.world.shared_job(job.id));
    let now = live.or_else(|| turn.ended.iter().rev().find(|job| is_it(job)));
    if now.is_none() && before.is_none() {
        return None;
    }
    // Of a workspace of that name that is gone by now.
    let mut known = before.filter(|known| known.job.workspace == workspace).cloned();
    for change in &turn.changes {
        match change {
            Change::JobSubmitted { job, spec } if is_it(job) => {
                let (job, spec) = (Arc::clone(job), Arc::clone(spec));
                known = Some(KnownJob { job, spec, face: None });
            }
            Change::JobFaceChanged { job, face } => {
                if let Some(known) = known.as_mut().filter(|known| known.job.id == *job) {
                    known.face = Some(face.clone());
                }
            }
            Change::JobGone { job, .. } if known.as_ref().is_some_and(|it| it.job.id == *job) => {
                known = None;
            }
            _ => {}
        }
    }
    let known = known?;
    let now = now.filter(|job| job.id == known.job.id).cloned();
    Some(KnownJob { job: now.unwrap_or_else(|| Arc::clone(&known.job)), ..known })
}

pub(super) fn check_properties(properties: &BTreeMap<String, String>) -> Result<(), Refused> {
    let bytes: usize = properties.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes <= limits::JOB_PROPERTIES_BYTES_MAX {
        return Ok(());
    }
    Err(Refused::invalid(
        "properties",
        format!(
            "the properties have {bytes} bytes; at most {} are allowed, so put what is large into a file",
            limits::JOB_PROPERTIES_BYTES_MAX
        ),
    ))
}
