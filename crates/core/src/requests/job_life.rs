//! Requests about a job after its submit: changing its metadata, archiving it and deleting it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::governance::locked;
use super::{check_tags, check_text, find_workspace, shorten, workspace_to_change};
use crate::change::Change;
use crate::ids::WorkspaceId;
use crate::input::{
    InputResult, JobAction, JobEdit, JobPatch, JobRequest, KnownJob, Refused, Reply,
};
use crate::limits;
use crate::model::{Job, JobMetadata, Scope, WorkspaceKey, parent_and_index};
use crate::refusal::{JobField, JobRule, words};
use crate::step::Transaction;
use crate::why::{Listing, Remedy};

pub(crate) fn edit(tx: &mut Transaction<'_>, edit: &JobEdit) -> InputResult {
    match &edit.action {
        JobAction::Patch(patch) => {
            let home = workspace_to_change(tx, &edit.workspace, ("job", &edit.name, "changed"))?;
            let Some(known) = known(tx, home, &edit.name, edit.known.as_ref()) else {
                return Err(missing(&edit.name, &edit.workspace));
            };
            check_is_whole(&known.job, "change that job instead")?;
            let metadata = patched(known.metadata(), patch);
            put_metadata(tx, &known, metadata)?;
            Ok(Reply::Noted)
        }
        JobAction::Delete => delete(tx, edit),
    }
}

/// A PUT of an existing job: the same submit again (a retry after a lost answer), or a change of its metadata.
pub(super) fn put_again(
    tx: &mut Transaction<'_>,
    request: &JobRequest,
    known: &KnownJob,
) -> InputResult {
    check_is_whole(&known.job, "choose another name, or change that job instead")?;
    if known.job.spec != request.spec_hash && !known.spec.is_same_work(&request.spec) {
        return Err(another(request));
    }
    let before = known.metadata();
    // Clients send what they read together with what is new: as on Azure, properties are only ever added.
    let mut properties = before.properties.clone();
    properties.extend(request.spec.properties.clone());
    let is_archived = request.is_archived.unwrap_or(before.is_archived);
    let metadata = JobMetadata { properties, is_archived, ..JobMetadata::of(&request.spec) };
    if metadata != before {
        let activity_request = ("job", request.name.as_str(), "changed");
        workspace_to_change(tx, &request.workspace, activity_request)?;
        put_metadata(tx, known, metadata)?;
    }
    Ok(Reply::JobAccepted { job: Arc::clone(&known.job), is_new: false })
}

pub(super) fn accept_by_hash(request: &JobRequest, live: Arc<Job>) -> InputResult {
    match live.spec == request.spec_hash && live.parent.is_none() {
        true => Ok(Reply::JobAccepted { job: live, is_new: false }),
        false => Err(another(request)),
    }
}

fn another(request: &JobRequest) -> Refused {
    Refused::conflict("name", JobRule::Taken { name: request.name.as_str().into() })
}

pub(super) fn missing(name: &str, workspace: &WorkspaceKey) -> Refused {
    let (name, workspace) = (shorten(name), &workspace.name);
    let words = words![
        format!("job '{name}' does not exist in workspace '{workspace}'; `"),
        Remedy::List(Listing::Jobs),
        "` shows all jobs"
    ];
    Refused::not_found("name", words)
}

fn patched(mut metadata: JobMetadata, patch: &JobPatch) -> JobMetadata {
    let JobPatch { display_name, description, tags, properties, is_archived } = patch.clone();
    metadata.tags.extend(tags);
    metadata.properties.extend(properties);
    JobMetadata {
        display_name: display_name.or(metadata.display_name),
        description: description.or(metadata.description),
        is_archived: is_archived.unwrap_or(metadata.is_archived),
        ..metadata
    }
}

fn put_metadata(
    tx: &mut Transaction<'_>,
    known: &KnownJob,
    metadata: JobMetadata,
) -> Result<(), Refused> {
    check_text(
        JobField::DisplayName,
        metadata.display_name.as_deref(),
        limits::JOB_NAME_BYTES_MAX,
    )?;
    check_text(
        JobField::Description,
        metadata.description.as_deref(),
        limits::DESCRIPTION_BYTES_MAX,
    )?;
    check_tags(&metadata.tags)?;
    check_properties(&metadata.properties)?;
    if metadata != known.metadata() {
        tx.emit(Change::JobMetadataChanged { job: known.job.id, metadata: Box::new(metadata) });
    }
    Ok(())
}

/// The children of a job are changed and deleted together with it.
fn check_is_whole(job: &Job, remedy: &str) -> Result<(), Refused> {
    let Some((parent, _)) = job.parent.and(parent_and_index(&job.name)) else { return Ok(()) };
    Err(Refused::conflict(
        "name",
        format!("'{}' is a task of the job '{parent}'; {remedy}", job.name),
    ))
}

/// Deletes a job that has ended. A live one has to be canceled first, because the caller may not know that it is.
fn delete(tx: &mut Transaction<'_>, edit: &JobEdit) -> InputResult {
    let JobEdit { workspace: key, name, known: before, .. } = edit;
    let home = find_workspace(tx, key)?.id;
    if let Some(lock) = tx.world.governance().against_delete(&Scope::workspace(key)) {
        return Err(locked("job", name, "deleted", lock));
    }
    let Some(known) = known(tx, home, name, before.as_ref()) else {
        return Ok(Reply::NothingToDelete);
    };
    let job = known.job;
    check_is_whole(&job, "delete that job instead")?;
    if !job.phase().is_terminal() {
        return Err(Refused::conflict(
            "name",
            words![
                format!(
                    "job '{}' has not ended ({:?}), and only jobs that have can be deleted; cancel it first: ",
                    job.name,
                    job.phase()
                ),
                Remedy::Cancel { job: job.name.clone() }
            ],
        ));
    }
    let name = job.name.to_ascii_lowercase().into();
    tx.emit(Change::JobGone { job: job.id, last: job.last_id(), workspace: home, name });
    Ok(Reply::Noted)
}

/// The job with this name, live or ended: what the rows showed, updated with what this step has changed since they were
/// read.
pub(super) fn known(
    tx: &Transaction<'_>,
    workspace: WorkspaceId,
    name: &str,
    before: Option<&KnownJob>,
) -> Option<KnownJob> {
    let is_it = |job: &Job| job.workspace == workspace && job.name.eq_ignore_ascii_case(name);
    let live = tx.world.live_job_by_name(workspace, name);
    let now = live.or_else(|| tx.ended.iter().rev().find(|job| is_it(job)).cloned());
    if now.is_none() && before.is_none() {
        return None;
    }
    // The row may belong to a deleted workspace of the same name.
    let mut known = before.filter(|known| known.job.workspace == workspace).cloned();
    for change in &tx.changes {
        match change {
            Change::JobSubmitted { job, spec } if is_it(job) => {
                let (job, spec) = (Arc::clone(job), Arc::clone(spec));
                known = Some(KnownJob { job, spec, metadata: None });
            }
            Change::JobSubmitted { job, spec } if job.workspace == workspace => {
                let child = job.child_named(name).and_then(|child| job.child(child));
                if let Some(child) = child {
                    let (job, spec) = (Arc::new(child), Arc::clone(spec));
                    known = Some(KnownJob { job, spec, metadata: None });
                }
            }
            Change::JobMetadataChanged { job, metadata } => {
                if let Some(known) = known.as_mut().filter(|known| known.job.id == *job) {
                    known.metadata = Some(metadata.clone());
                }
            }
            Change::JobGone { job, last, .. } => {
                known = known.filter(|known| !(job..=last).contains(&&known.job.id));
            }
            _ => {}
        }
    }
    let known = known?;
    let now = now.filter(|job| job.id == known.job.id);
    Some(KnownJob { job: now.unwrap_or_else(|| Arc::clone(&known.job)), ..known })
}

pub(super) fn check_properties(properties: &BTreeMap<String, String>) -> Result<(), Refused> {
    let bytes: usize = properties.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes <= limits::JOB_PROPERTIES_BYTES_MAX {
        return Ok(());
    }
    Err(Refused::invalid(
        JobField::Properties,
        format!(
            "the properties have {bytes} bytes; at most {} are allowed, so put large values into a file",
            limits::JOB_PROPERTIES_BYTES_MAX
        ),
    ))
}
