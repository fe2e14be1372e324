//! Serves the data that an attempt reads from the blob storage: its code, and its inputs by name. An attempt can read
//! only what its specification names, and only while it is live.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use muster_core::agent::{DataFile, DataList, DataQuery};
use muster_core::limits::DATA_FILES_MAX;
use muster_core::model::{DataLocation, JobInput, JobSpec, Source, check_path};
use muster_store::storage::{Container, ListQuery, Listed, Span};

use super::agent_trees::{Asking, asking};
use super::blob;
use crate::app::App;

const PAGE: usize = 5_000;
/// The prefix of the name of an input.
const INPUT: &str = "inputs.";

type Refused = (StatusCode, String);

pub async fn list(
    State(app): State<Arc<App>>,
    Path((epoch, what)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    match listed(&app, &headers, &epoch, &what).await {
        Ok(list) => Json(list).into_response(),
        Err(refused) => refused.into_response(),
    }
}

pub async fn file(
    State(app): State<Arc<App>>,
    Path((epoch, what)): Path<(String, String)>,
    Query(DataQuery { path }): Query<DataQuery>,
    headers: HeaderMap,
) -> Response {
    match opened(&app, &headers, &epoch, &what, &path).await {
        Ok(response) => response,
        Err(refused) => refused.into_response(),
    }
}

async fn listed(
    app: &App,
    headers: &HeaderMap,
    epoch: &str,
    what: &str,
) -> Result<DataList, Refused> {
    let (container, place) = find(app, headers, epoch, what).await?;
    let exact = place.path.clone();
    let one = app
        .storage
        .readers
        .look_up(|reader| reader.blob(container.id, &exact))
        .map_err(unreadable)?;
    if let Some(blob) = one {
        let name = exact.rsplit('/').next().unwrap_or(&exact);
        check(name)?;
        let file = DataFile { path: name.into(), bytes: blob.bytes };
        return Ok(DataList { is_file: true, files: vec![file] });
    }
    let prefix: Box<str> = match place.path.is_empty() {
        true => "".into(),
        false => format!("{}/", place.path).into(),
    };
    let mut files = Vec::new();
    let mut after = None;
    loop {
        let query = ListQuery { prefix: prefix.clone(), delimiter: None, after, limit: PAGE };
        let page = app.storage.readers.read(move |reader| reader.list(container.id, &query)).await;
        let page = page.map_err(unreadable)?;
        for item in page.items {
            let Listed::Blob(blob) = item else { continue };
            let rest = blob.name.strip_prefix(&*prefix).unwrap_or_default();
            // Some clients mark folders with such a blob.
            if rest.is_empty() || rest.ends_with('/') {
                continue;
            }
            check(rest)?;
            files.push(DataFile { path: rest.into(), bytes: blob.bytes });
        }
        if files.len() > DATA_FILES_MAX {
            let message =
                format!("more than {DATA_FILES_MAX} files; pack small ones into archives");
            return Err((StatusCode::BAD_REQUEST, message));
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    match files.is_empty() {
        true => Err(nothing_at(&place)),
        false => Ok(DataList { is_file: false, files }),
    }
}

/// Names of blobs may contain any character; names of files may not.
fn check(path: &str) -> Result<(), Refused> {
    check_path(path).map_err(|why| {
        let shown: String = path.chars().take(80).collect();
        (StatusCode::BAD_REQUEST, format!("the path {shown:?} {why}, so it cannot be a file"))
    })
}

async fn opened(
    app: &Arc<App>,
    headers: &HeaderMap,
    epoch: &str,
    what: &str,
    path: &str,
) -> Result<Response, Refused> {
    let (container, place) = find(app, headers, epoch, what).await?;
    check(path)?;
    let is_it = place.path.rsplit('/').next() == Some(path);
    let inside: Box<str> = match place.path.is_empty() {
        true => path.into(),
        false => format!("{}/{path}", place.path).into(),
    };
    let look = |name: Box<str>| {
        app.storage.readers.read(move |reader| reader.content(container.id, &name, Span::ALL))
    };
    let mut found = look(inside).await.map_err(unreadable)?;
    if found.is_none() && is_it {
        found = look(place.path.clone()).await.map_err(unreadable)?;
    }
    let content = found.ok_or((StatusCode::NOT_FOUND, format!("{path} no longer exists")))?;
    Ok(blob::whole(app, container.workspace, content))
}

/// Where the attempt's specification says that the data is, if that place belongs to the workspace.
async fn find(
    app: &App,
    headers: &HeaderMap,
    epoch: &str,
    what: &str,
) -> Result<(Container, DataLocation), Refused> {
    let asking =
        asking(app, headers, epoch).map_err(|(status, words)| (status, words.to_owned()))?;
    let spec = spec_of(app, &asking).await?;
    let place = place(&spec, what)
        .ok_or((StatusCode::NOT_FOUND, format!("the job has no data named {what}")))?;
    let found = app.storage.readers.look_up(|reader| reader.container(&place.container));
    let found = found.map_err(unreadable)?.filter(|found| found.workspace == asking.workspace);
    Ok((found.ok_or_else(|| nothing_at(&place))?, place))
}

fn nothing_at(place: &DataLocation) -> Refused {
    let message =
        format!("there is nothing at {}; put the data there, or correct the address", place.path);
    (StatusCode::NOT_FOUND, message)
}

fn place(spec: &JobSpec, what: &str) -> Option<DataLocation> {
    if what == "code" {
        return spec.code_asset.as_ref().map(|code| code.at.clone());
    }
    match spec.inputs.get(what.strip_prefix(INPUT)?)? {
        JobInput::Data { source: Source::Blobs(place), .. } => Some(place.clone()),
        JobInput::Data { source: Source::Url | Source::Web(_), .. } | JobInput::Literal(_) => None,
    }
}

async fn spec_of(app: &App, asking: &Asking) -> Result<JobSpec, Refused> {
    let job = asking.job;
    let read = app.readers.read(move |reader| match reader.job_by_id(job)? {
        Some(job) => reader.spec_of(&job),
        None => Ok(None),
    });
    let gone = || (StatusCode::GONE, "this attempt has ended".to_owned());
    read.await.map_err(unreadable)?.ok_or_else(gone)
}

fn unreadable(error: muster_store::StoreError) -> Refused {
    tracing::error!(error = %muster_core::ErrorChain(&error), "cannot look up the data of a job");
    (StatusCode::SERVICE_UNAVAILABLE, "the data could not be looked up".to_owned())
}
