//! Several deletes in one request. Each part is a request of its own, with its own authorization.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use muster_wire::blob::{
    BATCH_BYTES_MAX, BatchAnswer, BatchPart, StorageError, batch_answer, parse_batch,
};

use super::{Call, answer};
use crate::http::body;
use crate::secrets;

pub async fn deletes(
    call: &Call<'_>,
    outer: &Parts,
    content: Body,
) -> Result<Response, StorageError> {
    let text = body::read(content, BATCH_BYTES_MAX).await;
    let text = text.map_err(|failed| StorageError::new(400, "InvalidInput", failed.to_string()))?;
    let parts = parse_batch(call.asked.get("content-type").unwrap_or_default(), &text)?;
    let mut answers = Vec::with_capacity(parts.len());
    for part in &parts {
        let done = match request_of(part, outer) {
            Ok(parts) => Box::pin(answer(call.app.clone(), &parts, &mut None)).await,
            Err(refused) => Err(refused),
        };
        let id = part.id.map(str::to_owned);
        answers.push(match done {
            Ok(response) => {
                let reason = response.status().canonical_reason().unwrap_or_default().to_owned();
                BatchAnswer { id, status: response.status().as_u16(), reason, code: None }
            }
            Err(refused) => {
                let reason = refused.message.replace(['\r', '\n'], " ");
                BatchAnswer { id, status: refused.status, reason, code: Some(refused.code.into()) }
            }
        });
    }
    let boundary = format!("batchresponse_{:016x}", secrets::random_number());
    let mut response = (StatusCode::ACCEPTED, batch_answer(&boundary, &answers)).into_response();
    let kind = format!("multipart/mixed; boundary={boundary}");
    let kind = HeaderValue::from_str(&kind).map_err(|_| StorageError::internal())?;
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// The request of one part. Credentials in the outer request apply to all parts.
fn request_of(part: &BatchPart<'_>, outer: &Parts) -> Result<Parts, StorageError> {
    if part.method != "DELETE" {
        return Err(StorageError::bad_verb("a batch supports only DELETE"));
    }
    let mut request = Request::builder().method(Method::DELETE).uri(part.target);
    if let Some(token) = outer.headers.get(header::AUTHORIZATION) {
        request = request.header(header::AUTHORIZATION, token);
    }
    for (name, value) in &part.headers {
        let bad = || StorageError::invalid_header(name, "it is not a valid header");
        let name = HeaderName::try_from(*name).map_err(|_| bad())?;
        let value = HeaderValue::from_str(value).map_err(|_| bad())?;
        if let Some(headers) = request.headers_mut() {
            headers.insert(name, value);
        }
    }
    let bad = |_| StorageError::invalid_uri("the address in the batch cannot be parsed; encode it");
    let (parts, ()) = request.body(()).map_err(bad)?.into_parts();
    Ok(parts)
}
