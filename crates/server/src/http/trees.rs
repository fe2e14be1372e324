//! Uploads and downloads files in pieces, so that no file is in memory as a whole.

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
use crate::room::Kind;

/// How many bytes of a download are read at once.
pub const SENT_BYTES: usize = 256 << 10;
/// A client that sends nothing for this long is considered disconnected.
const PIECE_PATIENCE: Duration = Duration::from_secs(30);

/// Why an upload failed.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error("no data of the file arrived for {} s; send it again", PIECE_PATIENCE.as_secs())]
    Late,
    #[error("the file ended too early")]
    Short,
    #[error(transparent)]
    Refused(#[from] BlobError),
    #[error("a bug in the server; see its log")]
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

/// The format in which a file is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    Plain,
    /// As frames, without its holes, by this node.
    Packed {
        node: String,
    },
}

/// Receives a file. When this returns `Ok`, the file is on disk.
pub async fn receive(
    blobs: &Arc<Blobs>,
    workspace: WorkspaceId,
    wanted: BlobId,
    form: Form,
    kind: Kind,
    body: Body,
) -> Result<(), ArmError> {
    let (announced, own) = (body.size_hint().exact(), blobs.clone());
    let keep = move |incoming: Incoming| incoming.keep(&wanted);
    match form {
        Form::Plain => {
            let begin = move || own.begin(workspace, announced, kind);
            take_in(blobs, workspace, body, begin, keep).await?;
        }
        Form::Packed { node } => {
            let begin = move || own.begin_packed(workspace, announced, kind);
            let file = Written::new(blobs, Some(&node), begin);
            let file = write_all(file, workspace, body).await?;
            file.then(keep).await?;
        }
    }
    Ok(())
}

/// Receives a file in plain format.
pub async fn take_in<T: Send + 'static>(
    blobs: &Arc<Blobs>,
    workspace: WorkspaceId,
    body: Body,
    begin: impl FnOnce() -> Result<Incoming, BlobError> + Send + 'static,
    keep: impl FnOnce(Incoming) -> Result<T, BlobError> + Send + 'static,
) -> Result<T, Lost> {
    write_all(Written::new(blobs, None, begin), workspace, body).await?.then(keep).await
}

/// A connection delivers a few TLS records at a time. They are collected first, because one large write costs the
/// system far less than many small ones. A thread writes what has arrived, and never waits for the client: clients may
/// be slow, and threads are few.
async fn write_all(
    mut file: Written<'_>,
    workspace: WorkspaceId,
    mut body: Body,
) -> Result<Written<'_>, Lost> {
    if let Err(unknown) = file.blobs.measured(workspace).await {
        body::discard_upload(body).await;
        return Err(unknown.into());
    }
    let announced = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    while let Some(frame) = next_frame(&mut body).await? {
        let mut rest = &frame[..];
        while !rest.is_empty() {
            let blobs = file.blobs;
            let empty = || blobs.pieces.take(announced.unwrap_or(PIECE_BYTES));
            let piece = file.next.get_or_insert_with(empty);
            rest = piece.fill(rest);
            if !piece.is_full() {
                continue;
            }
            if let Err(lost) = file.write().await {
                // Lets the client receive the reason.
                body::discard_upload(body).await;
                return Err(lost);
            }
        }
    }
    Ok(file)
}

type Open = Box<dyn FnOnce() -> Result<Incoming, BlobError> + Send>;

/// An upload in progress, up to its next piece.
struct Written<'b> {
    blobs: &'b Arc<Blobs>,
    /// The node that sends the file, if it is a file with holes.
    node: Option<&'b str>,
    state: State,
    /// The bytes that arrived since the last write.
    next: Option<Piece>,
}

enum State {
    Not(Open),
    Soon(JoinHandle<Result<Incoming, BlobError>>),
}

impl<'b> Written<'b> {
    fn new(
        blobs: &'b Arc<Blobs>,
        node: Option<&'b str>,
        begin: impl FnOnce() -> Result<Incoming, BlobError> + Send + 'static,
    ) -> Written<'b> {
        Written { blobs, node, state: State::Not(Box::new(begin)), next: None }
    }

    /// Waits until the last piece is written, and returns how to continue with the file.
    async fn ready(state: State, blobs: &Blobs, node: Option<&str>) -> Result<Open, Lost> {
        match state {
            State::Not(open) => Ok(open),
            State::Soon(writing) => {
                let incoming = filled(blobs, node, ended(writing).await?).await?;
                Ok(Box::new(move || Ok(incoming)))
            }
        }
    }

    /// Waits until the earlier pieces are written, and begins to write the next one.
    async fn write(&mut self) -> Result<(), Lost> {
        let Some(piece) = self.next.take() else { return Ok(()) };
        // This remains only if the upload is given up below.
        let gone =
            State::Not(Box::new(|| Err(BlobError::Io(std::io::ErrorKind::Interrupted.into()))));
        let state = std::mem::replace(&mut self.state, gone);
        let open = Written::ready(state, self.blobs, self.node).await?;
        self.state = State::Soon(tokio::task::spawn_blocking(move || {
            let mut incoming = open()?;
            incoming.take(piece)?;
            Ok(incoming)
        }));
        Ok(())
    }

    /// Writes the rest, and completes the file with `keep`.
    async fn then<T: Send + 'static>(
        mut self,
        keep: impl FnOnce(Incoming) -> Result<T, BlobError> + Send + 'static,
    ) -> Result<T, Lost> {
        if self.node.is_some() {
            // Its holes may have to wait before the file can be completed.
            self.write().await?;
        }
        let open = Written::ready(self.state, self.blobs, self.node).await?;
        let piece = self.next.take();
        ended(tokio::task::spawn_blocking(move || {
            let mut incoming = open()?;
            piece.map_or(Ok(()), |piece| incoming.take(piece))?;
            keep(incoming)
        }))
        .await
    }
}

/// Hashes the remaining holes of a piece, in slices that wait for a permit without blocking a thread. If the upload is
/// given up, for example because the client disconnected, this ends after the current slice.
async fn filled(
    blobs: &Blobs,
    node: Option<&str>,
    mut incoming: Incoming,
) -> Result<Incoming, Lost> {
    if !incoming.has_left() {
        return Ok(incoming);
    }
    let _turn = blobs.holes.turn(node.unwrap_or_default()).await;
    while incoming.has_left() {
        let place = blobs.holes.place(incoming.workspace()).await;
        incoming = ended(tokio::task::spawn_blocking(move || {
            let _place = place;
            incoming.go_on()?;
            Ok(incoming)
        }))
        .await?;
    }
    Ok(incoming)
}

async fn ended<T>(writing: JoinHandle<Result<T, BlobError>>) -> Result<T, Lost> {
    match writing.await {
        Ok(written) => Ok(written?),
        Err(_) => Err(Lost::Panicked),
    }
}

async fn next_frame(body: &mut Body) -> Result<Option<Bytes>, Lost> {
    let frame = match body.frame().now_or_never() {
        // The usual case when much data arrives: no timer is needed for data that is already here.
        Some(frame) => frame,
        None => {
            let late = tokio::time::timeout(PIECE_PATIENCE, body.frame()).await;
            late.map_err(|_| Lost::Late)?
        }
    };
    let Some(frame) = frame else { return Ok(None) };
    Ok(Some(frame.map_err(|_| Lost::Short)?.into_data().unwrap_or_default()))
}

/// The response for an error with files.
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
            tracing::error!(error = %ErrorChain(failed), "cannot store or read the files of jobs");
            ArmError::unavailable("the server cannot store or read files; see its log")
        }
    }
}

/// A file with unknown contents: browsers must neither show nor run it.
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

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: WorkspaceId = WorkspaceId(1);
    const THERE: WorkspaceId = WorkspaceId(2);

    /// The frames that a node sends for a file that is a single hole.
    fn hole(bytes: u64) -> Body {
        Body::from((bytes | 1 << 63).to_le_bytes().to_vec())
    }

    fn packed() -> Form {
        Form::Packed { node: "node".to_owned() }
    }

    fn incoming(dir: &tempfile::TempDir) -> usize {
        std::fs::read_dir(dir.path().join("blobs/incoming")).unwrap().count()
    }

    /// Uses a single blocking thread: anything that hashes for long would take it from all others.
    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(test);
        runtime.shutdown_background();
    }

    async fn small(blobs: &Arc<Blobs>) {
        let digest = muster_trees::blob_of(b"small");
        let small = receive(blobs, THERE, digest, Form::Plain, Kind::OfJob, Body::from("small"));
        let small = tokio::time::timeout(Duration::from_secs(20), small).await;
        assert!(
            small.is_ok_and(|kept| kept.is_ok()),
            "it must not wait for the holes of another upload"
        );
    }

    #[test]
    fn hashing_holes_does_not_delay_other_uploads() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Arc::new(Blobs::new(dir.path().join("blobs"), None, None).unwrap());
        run(async {
            let large = |node: usize| {
                let (own, form) = (blobs.clone(), Form::Packed { node: node.to_string() });
                tokio::spawn(async move {
                    receive(&own, HERE, BlobId([0; 32]), form, Kind::OfJob, hole(60 << 30)).await
                })
            };
            // From two nodes, while another workspace has the only permit.
            let place = blobs.holes.place(THERE).await;
            let mut uploads: Vec<_> = (0..6).map(|number| large(number % 2)).collect();
            while incoming(&dir) < uploads.len() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            small(&blobs).await;
            drop(place);
            // One of the uploads has the permit now, slice by slice.
            small(&blobs).await;
            assert!(uploads.iter().all(|upload| !upload.is_finished()));
            // Aborted uploads stop after their slice, and leave nothing.
            uploads.drain(..).for_each(|upload| upload.abort());
            while incoming(&dir) > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            drop(blobs.holes.turn("0").await);
            drop(blobs.holes.place(HERE).await);
            // A file that is hashed in slices has the same digest.
            let mut hasher = muster_trees::Hasher::default();
            hasher.add_hole(300 << 20);
            let digest = hasher.finish();
            receive(&blobs, HERE, digest, packed(), Kind::OfJob, hole(300 << 20)).await.unwrap();
            assert!(blobs.open(HERE, &digest).unwrap().is_some());
        });
    }
}
