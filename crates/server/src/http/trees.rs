//! Files in and out, in pieces: what comes in is never in memory as a whole, nor is what goes out.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt as _, stream};
use http_body_util::BodyExt as _;
use muster_core::ErrorChain;
use muster_core::ids::WorkspaceId;
use muster_core::model::BlobId;
use muster_trees::{PIECE_BYTES, Piece, Pool};
use muster_wire::ArmError;
use tokio::sync::mpsc;

use super::body;
use crate::blobs::{BlobError, Blobs, Content, Incoming};

/// Of what goes out, read at once.
pub const SENT_BYTES: usize = 256 << 10;
/// Whoever sends nothing for so long is gone.
const PIECE_PATIENCE: Duration = Duration::from_secs(30);

/// Why a file did not come in.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error("nothing of the file came for {} s; send it again", PIECE_PATIENCE.as_secs())]
    Late,
    #[error("the file ended too early")]
    Short,
    #[error(transparent)]
    Refused(#[from] BlobError),
    #[error("a bug of the server's; see its log")]
    Panicked,
}

impl From<Lost> for ArmError {
    fn from(lost: Lost) -> ArmError {
        match lost {
            Lost::Late | Lost::Short => ArmError::invalid_content(lost.to_string()),
            Lost::Refused(failed) => refusal(&failed),
            Lost::Panicked => ArmError::internal("blob-writer"),
        }
    }
}

/// Takes in a file. When it returns well, the file is on disk.
pub async fn receive(
    blobs: &Arc<Blobs>,
    workspace: WorkspaceId,
    wanted: BlobId,
    body: Body,
) -> Result<(), ArmError> {
    let announced = body.size_hint().exact();
    let keep = move |blobs: &Arc<Blobs>, pieces: &mut Pieces| {
        let incoming = pieces.write_to(blobs.begin(announced)?)?;
        incoming.keep(workspace, &wanted)
    };
    Ok(take_in(blobs, body, keep).await?)
}

/// Hands the pieces of a body to `keep`, on one thread for as long as it takes: a file on its way is not handed from one
/// to the other.
pub async fn take_in<T: Send + 'static>(
    blobs: &Arc<Blobs>,
    body: Body,
    keep: impl FnOnce(&Arc<Blobs>, &mut Pieces) -> Result<T, BlobError> + Send + 'static,
) -> Result<T, Lost> {
    let (own, is_one) = (blobs.clone(), is_one_piece(&body));
    let (pieces, received) = mpsc::channel(if is_one { 2 } else { 1 });
    let write = move || keep(&own, &mut Pieces(received));
    let pass_on = pass_on(&blobs.pieces, body, pieces);
    // A thread is not woken for what is not here yet, if all of it can wait in memory.
    let (sent, written) = match is_one {
        true => (pass_on.await, tokio::task::spawn_blocking(write)),
        false => {
            let written = tokio::task::spawn_blocking(write);
            (pass_on.await, written)
        }
    };
    match written.await {
        Ok(Ok(kept)) => Ok(kept),
        Ok(Err(failed)) => Err(sent.err().unwrap_or(Lost::Refused(failed))),
        Err(_) => Err(Lost::Panicked),
    }
}

fn is_one_piece(body: &Body) -> bool {
    body.size_hint().exact().is_some_and(|bytes| bytes <= PIECE_BYTES as u64)
}

/// A body on its way. The last piece is empty.
pub struct Pieces(mpsc::Receiver<Piece>);

impl Pieces {
    pub fn write_to<'b>(&mut self, mut incoming: Incoming<'b>) -> Result<Incoming<'b>, BlobError> {
        let mut is_whole = false;
        while let Some(piece) = self.0.blocking_recv() {
            is_whole = piece.is_empty();
            incoming.take(piece)?;
        }
        // An end that nobody announced is a client that went away.
        match is_whole {
            true => Ok(incoming),
            false => Err(BlobError::Io(std::io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// What a connection brings is a few records of TLS at a time. It is put together first: one large write costs the system far
/// less than many small ones.
async fn pass_on(pool: &Pool, mut body: Body, pieces: mpsc::Sender<Piece>) -> Result<(), Lost> {
    let announced = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let empty = || pool.take(announced.unwrap_or(PIECE_BYTES));
    let mut piece = empty();
    while let Some(frame) = next_frame(&mut body).await? {
        let mut rest = &frame[..];
        while !rest.is_empty() {
            rest = piece.fill(rest);
            if piece.is_full() && pieces.send(std::mem::replace(&mut piece, empty())).await.is_err()
            {
                // So that the client hears why.
                body::discard_upload(body).await;
                return Ok(());
            }
        }
    }
    // If nobody takes these, they say why.
    match piece.is_empty() {
        true => pool.give(piece),
        false => drop(pieces.send(piece).await),
    }
    let _ = pieces.send(Piece::default()).await;
    Ok(())
}

async fn next_frame(body: &mut Body) -> Result<Option<Bytes>, Lost> {
    let frame = match body.frame().now_or_never() {
        // The usual case where much comes: no clock is needed for what is here.
        Some(frame) => frame,
        None => {
            let late = tokio::time::timeout(PIECE_PATIENCE, body.frame()).await;
            late.map_err(|_| Lost::Late)?
        }
    };
    let Some(frame) = frame else { return Ok(None) };
    Ok(Some(frame.map_err(|_| Lost::Short)?.into_data().unwrap_or_default()))
}

/// What is wrong with files, for people and programs.
pub fn refusal(failed: &BlobError) -> ArmError {
    let message = failed.to_string();
    match failed {
        BlobError::Full { .. } => ArmError::storage_full(message),
        BlobError::TooLarge { .. }
        | BlobError::WrongDigest { .. }
        | BlobError::WrongMd5
        | BlobError::BadTree(_) => ArmError::invalid_content(message),
        BlobError::Io(_) => {
            tracing::error!(error = %ErrorChain(failed), "the files of jobs cannot be kept or read");
            ArmError::unavailable("the server cannot keep or read files; see its log")
        }
    }
}

/// A file of which nobody knows what is in it: not to be shown, and not to be run.
pub fn send(content: Content) -> Response {
    let length = content.bytes();
    let pieces = stream::unfold(content, |mut content| async move {
        match content.piece(SENT_BYTES).await {
            Ok(piece) if piece.is_empty() => None,
            Ok(piece) => Some((Ok(piece), content)),
            Err(error) => Some((Err(error), content)),
        }
    });
    let mut response = (StatusCode::OK, Body::from_stream(pieces)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, length.into());
    let bytes = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, bytes);
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    response
}
