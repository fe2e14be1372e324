//! Uploads blobs. The bytes are on disk first, then the row that references them, and then the response is sent.

use axum::body::{Body, HttpBody as _};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_store::storage::{AboutChange, BlobPart, Done, Guard, StorageCommand};
use muster_wire::blob::{
    BLOCK_BYTES_MAX, BLOCK_LIST_BYTES_MAX, PUT_BYTES_MAX, StorageError, is_block_id,
    parse_block_list,
};

use super::{Call, lost, refused, stamp, storage_failure, unavailable, unreadable};
use crate::blobs::Held;
use crate::http::{body, trees};
use crate::room::Kind;
use crate::storage::BlockUpload;

pub async fn blob(call: &Call<'_>, name: &str, content: Body) -> Result<Response, StorageError> {
    let kind = call.asked.get("x-ms-blob-type").unwrap_or("BlockBlob");
    if !kind.eq_ignore_ascii_case("BlockBlob") {
        let message = "only block blobs are supported: BlockBlob";
        return Err(StorageError::invalid_header("x-ms-blob-type", message));
    }
    let mut about = call.asked.about()?;
    // A whole blob in one request, so the headers of the body describe it as well.
    let headers = &mut about.headers;
    let own = |name: &str| call.asked.get(name).filter(|value| !value.is_empty()).map(Into::into);
    headers.content_type = headers.content_type.take().or_else(|| own("content-type"));
    headers.encoding = headers.encoding.take().or_else(|| own("content-encoding"));
    headers.language = headers.language.take().or_else(|| own("content-language"));
    headers.md5 = headers.md5.take().or_else(|| own("content-md5"));
    let guard = guard(call)?;
    let held = take_in(call, content, PUT_BYTES_MAX, Sync::WithFolder).await?;
    let segment = BlobPart { digest: held.digest, bytes: held.bytes };
    changed(
        call,
        StorageCommand::Put { at: call.at(name), segment, about, guard },
        StatusCode::CREATED,
    )
    .await
}

/// The bytes are on disk when this is answered. The name of their file is on disk when the blocks are committed.
pub async fn block(call: &Call<'_>, name: &str, content: Body) -> Result<Response, StorageError> {
    let block = call.query.get("blockid").unwrap_or_default();
    if !is_block_id(block) {
        let message = "give base64 of 1 to 64 bytes, percent-encoded";
        return Err(StorageError::invalid_query("blockid", message));
    }
    let upload = BlockUpload::begin(&call.app.storage, call.at(name));
    let taken = take_in(call, content, BLOCK_BYTES_MAX, Sync::Alone).await;
    let held = taken.map_err(|failed| refuse_upload(&upload, failed))?;
    let segment = BlobPart { digest: held.digest, bytes: held.bytes };
    let command = StorageCommand::Stage { at: call.at(name), block: block.into(), segment };
    submit(call, command).await?;
    Ok(StatusCode::CREATED.into_response())
}

/// An error about missing space ends the whole upload, so that its other blocks take no space.
fn refuse_upload(upload: &BlockUpload, mut failed: StorageError) -> StorageError {
    if failed.is_for_want_of_space() {
        upload.refuse();
        failed.message.push_str("; the earlier blocks of this upload have been dropped");
    }
    failed
}

/// Commits blocks. Nothing is copied, because the blob is a list of their files.
pub async fn block_list(
    call: &Call<'_>,
    name: &str,
    content: Body,
) -> Result<Response, StorageError> {
    let (about, guard) = (call.asked.about()?, guard(call)?);
    let text = body::read(content, BLOCK_LIST_BYTES_MAX).await;
    let text = text.map_err(|failed| StorageError::new(400, "InvalidInput", failed.to_string()))?;
    let blocks = parse_block_list(&text)?;
    let (own, wanted, at) = (call.container.id, blocks.clone(), call.at(name));
    let found = at.name.clone();
    let found =
        call.app.storage.readers.read(move |reader| reader.find_blocks(own, &found, &wanted)).await;
    let found = found.map_err(|failed| unreadable(&failed))?;
    let mut parts = Vec::with_capacity(blocks.len());
    for (block, segment) in blocks.into_iter().zip(found) {
        match segment {
            Some(segment) => parts.push((block, segment)),
            None => return Err(no_block(&block.id)),
        }
    }
    let held = hold(call, &parts).await?;
    let command = StorageCommand::Commit { at, blocks: parts, about, guard };
    let answer = changed(call, command, StatusCode::CREATED).await;
    drop(held);
    answer
}

fn no_block(id: &str) -> StorageError {
    let message = format!("block {id:?} does not exist; send it again");
    StorageError::new(400, "InvalidBlockList", message)
}

/// Ensures that the files of these blocks exist, are kept, and are on disk with their names.
async fn hold(
    call: &Call<'_>,
    parts: &[(muster_core::storage::BlockRef, BlobPart)],
) -> Result<Vec<Held>, StorageError> {
    let (blobs, workspace) = (call.app.blobs.clone(), call.container.workspace);
    let parts = parts.to_vec();
    let held = tokio::task::spawn_blocking(move || {
        let mut held = Vec::with_capacity(parts.len());
        for (block, segment) in &parts {
            let found = blobs.hold(workspace, segment.digest, segment.bytes);
            match found.map_err(|failed| storage_failure(&failed))? {
                Some(found) => held.push(found),
                None => return Err(no_block(&block.id)),
            }
        }
        let digests = parts.iter().map(|(_, segment)| segment.digest);
        blobs.sync_folders(workspace, digests).map_err(|failed| storage_failure(&failed))?;
        Ok(held)
    });
    held.await.map_err(|_| StorageError::internal())?
}

pub async fn metadata(call: &Call<'_>, name: &str) -> Result<Response, StorageError> {
    let change = AboutChange::Metadata(call.asked.metadata()?);
    let command = StorageCommand::Change { at: call.at(name), change, guard: guard(call)? };
    changed(call, command, StatusCode::OK).await
}

pub async fn properties(call: &Call<'_>, name: &str) -> Result<Response, StorageError> {
    let change = AboutChange::Headers(call.asked.content_headers()?);
    let command = StorageCommand::Change { at: call.at(name), change, guard: guard(call)? };
    changed(call, command, StatusCode::OK).await
}

pub async fn delete(call: &Call<'_>, name: &str) -> Result<Response, StorageError> {
    submit(call, StorageCommand::Delete { at: call.at(name), guard: guard(call)? }).await?;
    Ok(StatusCode::ACCEPTED.into_response())
}

fn guard(call: &Call<'_>) -> Result<Guard, StorageError> {
    Ok(Guard { may_only_create: call.holder.may_only_create, ..call.asked.guard()? })
}

async fn submit(call: &Call<'_>, command: StorageCommand) -> Result<Done, StorageError> {
    call.app.storage.submit(command).await.map_err(unavailable)?.map_err(refused)
}

async fn changed(
    call: &Call<'_>,
    command: StorageCommand,
    status: StatusCode,
) -> Result<Response, StorageError> {
    let Done::Blob { tag, changed } = submit(call, command).await? else {
        return Err(StorageError::internal());
    };
    let mut response = status.into_response();
    stamp(&mut response, tag, changed);
    Ok(response)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    /// Syncs the bytes.
    Alone,
    /// Syncs the bytes and the name of their file.
    WithFolder,
}

async fn take_in(
    call: &Call<'_>,
    content: Body,
    limit: u64,
    sync: Sync,
) -> Result<Held, StorageError> {
    let (md5, announced) = (call.asked.content_md5()?, content.size_hint().exact());
    // An upload that is announced as too large is refused before it ends.
    if announced.is_some_and(|announced| announced > limit) {
        body::discard_upload(content).await;
        return Err(StorageError::too_large(limit));
    }
    let (workspace, blobs) = (call.container.workspace, call.app.blobs.clone());
    let begin = move || blobs.begin_up_to(workspace, limit, announced, md5, Kind::Upload);
    let blobs = call.app.blobs.clone();
    let kept = trees::take_in(&call.app.blobs, workspace, content, begin, move |incoming| {
        let held = incoming.keep_as_found()?;
        if sync == Sync::WithFolder {
            blobs.sync_folders(workspace, [held.digest])?;
        }
        Ok(held)
    });
    kept.await.map_err(lost)
}
