//! Responses: a typed document, or an ARM error.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use muster_store::StoreError;
use muster_wire::error::Sent;
use muster_wire::{ArmError, to_json};
use serde::Serialize;
use tracing::error;

use crate::writer::Unavailable;

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
const ASYNC_OPERATION: HeaderName = HeaderName::from_static("azure-asyncoperation");

/// A document with this status.
pub fn document<T: Serialize>(status: StatusCode, document: &T) -> Response {
    let mut response = to_json(document).into_response();
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// Tells the client where to follow a long-running operation, and to poll again in a second: without that header,
/// Azure's clients wait for thirty seconds.
pub fn with_operation(mut response: Response, url: &str) -> Response {
    let url = HeaderValue::from_str(url).expect("an encoded URL is a header value");
    response.headers_mut().insert(ASYNC_OPERATION, url);
    with_retry_after(response)
}

pub fn with_retry_after(mut response: Response) -> Response {
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// An error response.
pub struct Failed(pub ArmError);

impl From<ArmError> for Failed {
    fn from(error: ArmError) -> Failed {
        Failed(error)
    }
}

impl From<muster_core::Refused> for Failed {
    fn from(refused: muster_core::Refused) -> Failed {
        Failed(refused.into())
    }
}

impl From<Unavailable> for Failed {
    fn from(unavailable: Unavailable) -> Failed {
        let message = unavailable.to_string();
        Failed(match unavailable {
            // A 503 would mean that nothing was done.
            Unavailable::Unconfirmed => ArmError::unconfirmed(message),
            Unavailable::TooMany => ArmError::too_many(message),
            Unavailable::Busy
            | Unavailable::Full
            | Unavailable::OnReserve
            | Unavailable::ReadOnly
            | Unavailable::Unreadable
            | Unavailable::Failing
            | Unavailable::Unchecked
            | Unavailable::Stopping => ArmError::unavailable(message),
        })
    }
}

impl From<StoreError> for Failed {
    fn from(failed: StoreError) -> Failed {
        if let StoreError::BadPage { .. } = failed {
            return Failed(ArmError::invalid_property("$skipToken", failed.to_string()));
        }
        error!(error = %muster_core::ErrorChain(&failed), "cannot read the store");
        Failed(ArmError::unavailable("the server cannot read its store; see its log"))
    }
}

impl Failed {
    /// For a client that spells the fields in a message in its own way.
    pub fn into_response_in_parts(self) -> Response {
        response(&self.0, &self.0.sent_in_parts())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        response(&self.0, &self.0.sent())
    }
}

fn response(failed: &ArmError, body: &Sent<'_>) -> Response {
    let status = StatusCode::from_u16(failed.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = document(status, body);
    for (name, value) in &failed.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(*name), HeaderValue::from_str(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
