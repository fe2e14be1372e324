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
use muster_trees::{PIECE_BYTES, Piece};
use muster_wire::ArmError;
use tokio::task::JoinHandle;

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

/// How a file is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Plain,
    /// In frames, without its holes.
    Packed,
}

/// Takes in a file. When it returns well, the file is on disk.
pub async fn receive(
    blobs: &Arc<Blobs>,
    workspace: WorkspaceId,
    wanted: BlobId,
    form: Form,
    body: Body,
) -> Result<(), ArmError> {
    let (announced, own) = (body.size_hint().exact(), blobs.clone());
    let begin = move || match form {
        Form::Plain => own.begin(workspace, announced),
        Form::Packed => own.begin_packed(workspace, announced),
    };
    let keep = move |incoming: Incoming| incoming.keep(&wanted);
    Ok(take_in(blobs, workspace, body, begin, keep).await?)
}

/// What a connection brings is a few records of TLS at a time. It is put together first: one large write costs the system far
/// less than many small ones. A thread writes what has come, and waits for nothing: clients may be slow, and threads are few.
pub async fn take_in<T: Send + 'static>(
    blobs: &Arc<Blobs>,
    workspace: WorkspaceId,
    mut body: Body,
    begin: impl FnOnce() -> Result<Incoming, BlobError> + Send + 'static,
    keep: impl FnOnce(Incoming) -> Result<T, BlobError> + Send + 'static,
) -> Result<T, Lost> {
    if let Err(unknown) = blobs.measured(workspace).await {
        body::discard_upload(body).await;
        return Err(unknown.into());
    }
    let announced = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let empty = || blobs.pieces.take(announced.unwrap_or(PIECE_BYTES));
    let (mut file, mut piece) = (Written::Not(Box::new(begin)), empty());
    while let Some(frame) = next_frame(&mut body).await? {
        let mut rest = &frame[..];
        while !rest.is_empty() {
            rest = piece.fill(rest);
            if !piece.is_full() {
                continue;
            }
            let full = std::mem::replace(&mut piece, empty());
            file = match file.append(full, Ok).await {
                Ok(writing) => Written::Soon(writing),
                Err(lost) => {
                    // So that the client hears why.
                    body::discard_upload(body).await;
                    return Err(lost);
                }
            };
        }
    }
    ended(file.append(piece, keep).await?).await
}

type Open = Box<dyn FnOnce() -> Result<Incoming, BlobError> + Send>;

/// A file on its way, up to the last piece of it.
enum Written {
    Not(Open),
    Soon(JoinHandle<Result<Incoming, BlobError>>),
}

impl Written {
    /// Begins to write one more piece when the last one is written, and then to do what is said.
    async fn append<T: Send + 'static>(
        self,
        piece: Piece,
        then: impl FnOnce(Incoming) -> Result<T, BlobError> + Send + 'static,
    ) -> Result<JoinHandle<Result<T, BlobError>>, Lost> {
        let open = match self {
            Written::Not(open) => open,
            Written::Soon(writing) => {
                let incoming = ended(writing).await?;
                Box::new(move || Ok(incoming))
            }
        };
        Ok(tokio::task::spawn_blocking(move || {
            let mut incoming = open()?;
            incoming.take(piece)?;
            then(incoming)
        }))
    }
}

async fn ended<T>(writing: JoinHandle<Result<T, BlobError>>) -> Result<T, Lost> {
    match writing.await {
        Ok(written) => Ok(written?),
        Err(_) => Err(Lost::Panicked),
    }
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
        BlobError::Full(_) => ArmError::storage_full(message),
        BlobError::ShareUsed { .. } => ArmError::share_used(message),
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
