//! Downloads blobs in pieces, and lists them.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use muster_core::ids::WorkspaceId;
use muster_store::storage::{Blob, BlobPart, Content, Holds, ListQuery, Span};
use muster_wire::blob::{Page, StorageError, block_list, http_date};

use super::{Call, XML, stamp, unreadable};
use crate::app::App;
use crate::blobs::{Blobs, Content as File};
use crate::http::trees::SENT_BYTES;

/// The maximum number of entries on one page, as in Azure.
const PAGE_MAX: usize = 5_000;

pub async fn blob(call: &Call<'_>, name: &str, is_head: bool) -> Result<Response, StorageError> {
    let guard = call.asked.guard()?;
    let span = if is_head { None } else { call.asked.span()? };
    let (container, wanted) = (call.container.id, name.to_owned());
    let looked = span.unwrap_or(Span::ALL);
    let found =
        match is_head {
            true => call.app.storage.readers.look_up(|reader| reader.blob(container, name)).map(
                |found| found.map(|blob| (Content { blob, starts: 0, segments: Vec::new() }, None)),
            ),
            false => {
                let (blobs, workspace) = (call.app.blobs.clone(), call.container.workspace);
                let read = call.app.storage.readers.read(move |reader| {
                    let found = reader.content(container, &wanted, looked)?;
                    // Opened on this thread, which may block; most blobs are a single file.
                    Ok(found.map(|content| {
                        let first = open_first(&blobs, workspace, &content);
                        (content, first)
                    }))
                });
                read.await
            }
        };
    let found = found.map_err(|failed| unreadable(&failed))?;
    let (content, first) = found.ok_or_else(StorageError::no_blob)?;
    let blob = content.blob;
    match guard.check(Some((blob.tag, blob.changed))) {
        Holds::Yes => {}
        Holds::NotModified => {
            return Err(StorageError::new(304, "ConditionNotMet", "nothing has changed"));
        }
        Holds::No => return Err(StorageError::condition()),
    }
    let Some(span) = span else {
        let body = match is_head {
            true => Body::empty(),
            false => {
                let (blobs, workspace) = (&call.app.blobs, call.container.workspace);
                body_of(blobs, workspace, content.segments, first, 0, blob.bytes)
            }
        };
        return Ok(described(StatusCode::OK, body, &blob, blob.bytes));
    };
    if span.from >= blob.bytes {
        return Err(StorageError::bad_range(blob.bytes));
    }
    let last = span.to.unwrap_or(u64::MAX).min(blob.bytes - 1);
    let length = last - span.from + 1;
    let (blobs, workspace) = (&call.app.blobs, call.container.workspace);
    let skip = span.from - content.starts;
    let body = body_of(blobs, workspace, content.segments, first, skip, length);
    let mut response = described(StatusCode::PARTIAL_CONTENT, body, &blob, length);
    let range = format!("bytes {}-{last}/{}", span.from, blob.bytes);
    put(&mut response, header::CONTENT_RANGE, &range);
    // The digest of the whole blob does not apply to a part.
    if let Some(md5) = response.headers_mut().remove("content-md5") {
        response.headers_mut().insert("x-ms-blob-content-md5", md5);
    }
    Ok(response)
}

fn put(response: &mut Response, name: impl TryInto<HeaderName>, value: &str) {
    if let (Ok(name), Ok(value)) = (name.try_into(), HeaderValue::from_str(value)) {
        response.headers_mut().insert(name, value);
    }
}

fn described(status: StatusCode, body: Body, blob: &Blob, length: u64) -> Response {
    let mut response = (status, body).into_response();
    let headers = &blob.about.headers;
    let kind = headers.content_type.as_deref().unwrap_or("application/octet-stream");
    for (name, value) in [
        ("content-type", Some(kind)),
        ("content-encoding", headers.encoding.as_deref()),
        ("content-language", headers.language.as_deref()),
        ("content-disposition", headers.disposition.as_deref()),
        ("cache-control", headers.cache_control.as_deref()),
        ("content-md5", headers.md5.as_deref()),
        ("accept-ranges", Some("bytes")),
        ("x-ms-blob-type", Some("BlockBlob")),
        ("x-ms-lease-status", Some("unlocked")),
        ("x-ms-lease-state", Some("available")),
        ("x-ms-server-encrypted", Some("false")),
    ] {
        if let Some(value) = value {
            put(&mut response, name, value);
        }
    }
    put(&mut response, "x-ms-creation-time", &http_date(blob.made));
    for (name, value) in &blob.about.metadata {
        put(&mut response, format!("x-ms-meta-{name}"), value);
    }
    stamp(&mut response, blob.tag, blob.changed);
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    response
}

/// Reads files one after the other, starting at an offset in the first.
struct Reading {
    blobs: Arc<Blobs>,
    workspace: WorkspaceId,
    segments: std::vec::IntoIter<BlobPart>,
    open: Option<File>,
    skip: u64,
    left: u64,
}

/// The whole blob, without headers about it.
pub fn whole(app: &App, workspace: WorkspaceId, content: Content) -> Response {
    let length = content.blob.bytes;
    let body = body_of(&app.blobs, workspace, content.segments, None, 0, length);
    let mut response = body.into_response();
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    response
}

/// A file that cannot be opened now is reported when it is read.
fn open_first(blobs: &Blobs, workspace: WorkspaceId, content: &Content) -> Option<File> {
    blobs.open(workspace, &content.segments.first()?.digest).ok()?
}

/// `first` is the file of the first segment, if it is already open.
fn body_of(
    blobs: &Arc<Blobs>,
    workspace: WorkspaceId,
    segments: Vec<BlobPart>,
    mut first: Option<File>,
    mut skip: u64,
    left: u64,
) -> Body {
    let mut segments = segments.into_iter();
    if let Some(file) = &mut first {
        file.skip(std::mem::take(&mut skip));
        segments.next();
    }
    let reading = Reading { blobs: blobs.clone(), workspace, segments, open: first, skip, left };
    let pieces = stream::unfold(Some(reading), |reading| async move {
        let mut reading = reading?;
        match reading.next().await {
            Ok(Some(piece)) => Some((Ok(piece), Some(reading))),
            Ok(None) => None,
            // The connection is broken, so that the client does not take the part for the whole.
            Err(failed) => Some((Err(failed), None)),
        }
    });
    Body::from_stream(pieces)
}

impl Reading {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        while self.left > 0 {
            let Some(file) = &mut self.open else {
                self.open = Some(self.next_file().await?);
                continue;
            };
            let limit = usize::try_from(self.left).unwrap_or(SENT_BYTES).min(SENT_BYTES);
            let piece = file.piece(limit).await?;
            if !piece.is_empty() {
                self.left -= piece.len() as u64;
                return Ok(Some(piece));
            }
            self.open = None;
        }
        Ok(None)
    }

    async fn next_file(&mut self) -> std::io::Result<File> {
        let gone = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let segment = self.segments.next().ok_or_else(gone)?;
        let (blobs, workspace) = (self.blobs.clone(), self.workspace);
        let open = tokio::task::spawn_blocking(move || blobs.open(workspace, &segment.digest));
        let open = open.await.map_err(std::io::Error::other)?.map_err(std::io::Error::other)?;
        let Some(mut file) = open else {
            tracing::error!(digest = %segment.digest, "a file of a blob is missing");
            return Err(gone());
        };
        file.skip(std::mem::take(&mut self.skip));
        Ok(file)
    }
}

pub fn container(call: &Call<'_>) -> Response {
    let mut response = StatusCode::OK.into_response();
    let made = call.container.made;
    stamp(&mut response, muster_core::storage::Tag(made.0), made);
    for (name, value) in [("x-ms-lease-status", "unlocked"), ("x-ms-lease-state", "available")] {
        put(&mut response, name, value);
    }
    response
}

pub async fn list(call: &Call<'_>) -> Result<Response, StorageError> {
    let limit = match call.query.filled("maxresults") {
        None => None,
        Some(text) => {
            let number = text.parse::<usize>().ok().filter(|number| *number > 0);
            let bad = || StorageError::invalid_query("maxresults", "give a number greater than 0");
            Some(number.ok_or_else(bad)?.min(PAGE_MAX))
        }
    };
    let marker = call.query.filled("marker");
    let after = marker.map(|marker| {
        crate::secrets::unhex(marker).ok_or_else(|| {
            StorageError::invalid_query(
                "marker",
                "it does not belong to this list; list from the start",
            )
        })
    });
    let prefix = call.query.get("prefix").unwrap_or_default();
    let delimiter = call.query.filled("delimiter");
    let query = ListQuery {
        prefix: prefix.into(),
        delimiter: delimiter.map(Into::into),
        after: after.transpose()?,
        limit: limit.unwrap_or(PAGE_MAX),
    };
    let container = call.container.id;
    let found = call.app.storage.readers.read(move |reader| reader.list(container, &query)).await;
    let found = found.map_err(|failed| unreadable(&failed))?;
    let include = call.query.get("include").unwrap_or_default();
    let page = Page {
        endpoint: &call.app.files_url,
        container: &call.container.name,
        prefix,
        delimiter,
        marker,
        limit,
        with_metadata: include.split(',').any(|word| word.trim() == "metadata"),
        items: &found.items,
        next: &found.next.as_deref().map(crate::secrets::hex).unwrap_or_default(),
    };
    let mut response = page.to_xml().into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, XML);
    Ok(response)
}

pub async fn blocks(call: &Call<'_>, name: &str) -> Result<Response, StorageError> {
    let (with_committed, with_uncommitted) = match call.query.filled("blocklisttype") {
        None | Some("committed") => (true, false),
        Some("uncommitted") => (false, true),
        Some("all") => (true, true),
        Some(_) => {
            let message = "give committed, uncommitted or all";
            return Err(StorageError::invalid_query("blocklisttype", message));
        }
    };
    let (container, wanted) = (call.container.id, name.to_owned());
    let found =
        call.app.storage.readers.read(move |reader| reader.blocks(container, &wanted)).await;
    let found = found.map_err(|failed| unreadable(&failed))?;
    if found.blob.is_none() && found.uncommitted.is_empty() {
        return Err(StorageError::no_blob());
    }
    let mut response = block_list(&found, with_committed, with_uncommitted).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, XML);
    if let Some(blob) = &found.blob {
        stamp(&mut response, blob.tag, blob.changed);
        put(&mut response, "x-ms-blob-content-length", &blob.bytes.to_string());
    }
    Ok(response)
}
