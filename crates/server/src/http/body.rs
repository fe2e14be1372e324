//! Reads the body of a request, up to a limit.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use muster_wire::ArmError;

use super::limits::BODY_PATIENCE;
use super::respond::Failed;

/// How many bytes beyond the limit are read and discarded. A client that is still sending when the connection is closed
/// sees a broken connection instead of the response, so it may finish, within reason.
const DISCARDED_MAX: usize = 16 << 20;

/// How much of a refused request is read: enough for anything but an upload, and for a short time, because the caller
/// may not be authenticated.
const REFUSED_BYTES_MAX: usize = 1 << 20;
const REFUSED_PATIENCE: Duration = Duration::from_secs(1);
const UPLOAD_BYTES_MAX: usize = 64 << 20;
const UPLOAD_PATIENCE: Duration = Duration::from_secs(5);

/// Reads and discards the body of a request that is refused regardless of its content. Otherwise the connection would
/// be closed after the response, when the client may already have sent its next request.
pub async fn discard(body: Body) {
    discard_up_to(body, REFUSED_BYTES_MAX, REFUSED_PATIENCE).await;
}

/// The same for an upload, of which more is already in transit: a few blocks of any client.
pub async fn discard_upload(body: Body) {
    discard_up_to(body, UPLOAD_BYTES_MAX, UPLOAD_PATIENCE).await;
}

async fn discard_up_to(mut body: Body, bytes_max: usize, patience: Duration) {
    let all = async {
        let mut left = bytes_max;
        while let Some(Ok(frame)) = body.frame().await {
            let got = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(got) else { break };
            left = rest;
        }
    };
    let _ = tokio::time::timeout(patience, all).await;
}

pub async fn read(body: Body, limit: usize) -> Result<Bytes, ArmError> {
    // A body that is announced as far too large is refused before it ends.
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit.saturating_add(DISCARDED_MAX) {
        return Err(ArmError::too_large(limit));
    }
    let late = || {
        let limit = BODY_PATIENCE.as_secs();
        ArmError::invalid_content(format!(
            "the body did not arrive within {limit} s; send it again"
        ))
    };
    tokio::time::timeout(BODY_PATIENCE, collect(body, limit)).await.map_err(|_| late())?
}

async fn collect(mut body: Body, limit: usize) -> Result<Bytes, ArmError> {
    let mut kept = Vec::new();
    let mut total = 0usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ArmError::invalid_content("the body ended too early"))?;
        let Ok(data) = frame.into_data() else { continue };
        total = total.saturating_add(data.len());
        if total <= limit {
            kept.extend_from_slice(&data);
        } else if total > limit.saturating_add(DISCARDED_MAX) {
            break;
        }
    }
    if total > limit { Err(ArmError::too_large(limit)) } else { Ok(kept.into()) }
}

/// For routes whose extractors read the body as a whole: it has arrived before they start.
pub async fn arrived<const LIMIT: usize>(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match read(body, LIMIT).await {
        Ok(bytes) => next.run(Request::from_parts(parts, bytes.into())).await,
        Err(failed) => Failed(failed).into_response(),
    }
}
