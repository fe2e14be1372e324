//! Errors in the form of Azure Resource Manager: a status, a stable code, and a message with the problem, the limit,
//! the given value and the remedy.
//!
//! Permanent errors are 4xx, because Azure's clients retry 408, 429 and 5xx up to ten times.

use muster_core::{RefusalKind, Refused};
use serde::{Deserialize, Serialize};

use crate::path::PathError;
use crate::path::table::NoEndpoint;
use crate::spelling::{self, MessagePart};
use crate::unserved::Unserved;

/// The codes that clients may rely on.
pub mod code {
    /// The body or the path cannot be read.
    pub const INVALID_REQUEST_CONTENT: &str = "InvalidRequestContent";
    /// A property has a value that is not allowed.
    pub const INVALID_PROPERTY_VALUE: &str = "InvalidPropertyValue";
    /// A property, or a value of one, that a later version will support.
    pub const NOT_SUPPORTED: &str = "NotSupported";
    /// It was deleted, because it is old.
    pub const GONE: &str = "Gone";
    /// A template that cannot be deployed as it is written.
    pub const INVALID_TEMPLATE: &str = "InvalidTemplate";
    pub const AUTHENTICATION_FAILED: &str = "AuthenticationFailed";
    pub const AUTHORIZATION_FAILED: &str = "AuthorizationFailed";
    pub const RESOURCE_NOT_FOUND: &str = "ResourceNotFound";
    /// `az group exists` and similar commands look for this code.
    pub const RESOURCE_GROUP_NOT_FOUND: &str = "ResourceGroupNotFound";
    pub const DEPLOYMENT_NOT_FOUND: &str = "DeploymentNotFound";
    /// No resource has such a path, whatever the names in it.
    pub const PATH_NOT_FOUND: &str = "PathNotFound";
    pub const METHOD_NOT_ALLOWED: &str = "MethodNotAllowed";
    pub const CONFLICT: &str = "Conflict";
    pub const SCOPE_LOCKED: &str = "ScopeLocked";
    pub const REQUEST_TOO_LARGE: &str = "RequestTooLarge";
    pub const STORAGE_FULL: &str = "StorageFull";
    pub const UNSUPPORTED_MEDIA_TYPE: &str = "UnsupportedMediaType";
    pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
    pub const TOO_MANY_REQUESTS: &str = "TooManyRequests";
    pub const INTERNAL_SERVER_ERROR: &str = "InternalServerError";
    pub const SERVICE_UNAVAILABLE: &str = "ServiceUnavailable";
}

/// A limit that is reached now will not be free again within a second.
const TOO_MANY_RETRY_AFTER_S: u32 = 30;
/// A restart takes about this long.
const UNAVAILABLE_RETRY_AFTER_S: u32 = 1;

/// A response that is an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", body.error.message)]
pub struct ArmError {
    pub status: u16,
    pub body: Box<ErrorBody>,
    /// Headers that belong to the error: `WWW-Authenticate` with a 401, `Allow` with a 405, `Retry-After` if a retry
    /// makes sense.
    pub headers: Vec<(&'static str, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<ErrorDetail>,
    /// The message in parts, if it names fields and the client spells them in its own way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<MessagePart>,
}

/// The form in which errors are sent. azureml-core cannot print an error without `details`.
#[derive(Debug, Serialize)]
pub struct Sent<'a> {
    error: SentDetail<'a>,
}

#[derive(Debug, Serialize)]
struct SentDetail<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    details: &'a [ErrorDetail],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    parts: &'a [MessagePart],
}

impl ErrorDetail {
    pub fn new(code: &str, message: impl Into<String>) -> ErrorDetail {
        ErrorDetail { code: code.to_owned(), message: message.into(), ..ErrorDetail::default() }
    }
}

impl ArmError {
    fn new(status: u16, code: &str, message: impl Into<String>) -> ArmError {
        ArmError {
            status,
            body: Box::new(ErrorBody { error: ErrorDetail::new(code, message) }),
            headers: Vec::new(),
        }
    }

    fn with_header(mut self, name: &'static str, value: String) -> ArmError {
        self.headers.push((name, value));
        self
    }

    fn at(mut self, target: &str) -> ArmError {
        self.body.error.target = Some(target.to_owned());
        self
    }

    /// The same for a property, whose path may begin the message.
    fn at_property(mut self, path: &str) -> ArmError {
        let error = &mut self.body.error;
        if let Some(rest) = error.message.strip_prefix(path).filter(|_| !path.is_empty()) {
            let field = MessagePart::Field { field: path.to_owned() };
            error.parts = vec![field, MessagePart::Text(rest.to_owned())];
        }
        self.at(path)
    }

    /// The body that is sent to Azure's clients.
    pub fn sent(&self) -> Sent<'_> {
        let ErrorDetail { code, message, target, details, parts: _ } = &self.body.error;
        Sent { error: SentDetail { code, message, target: target.as_deref(), details, parts: &[] } }
    }

    /// The body that is sent to clients that ask for parts with [`spelling::PARTS_HEADER`].
    pub fn sent_in_parts(&self) -> Sent<'_> {
        let Sent { error } = self.sent();
        Sent { error: SentDetail { parts: &self.body.error.parts, ..error } }
    }

    pub fn to_json(&self) -> String {
        crate::to_json(&self.sent())
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn code(&self) -> &str {
        &self.body.error.code
    }

    pub fn target(&self) -> Option<&str> {
        self.body.error.target.as_deref()
    }

    /// 400: the request as a whole cannot be read.
    pub fn invalid_content(message: impl Into<String>) -> ArmError {
        ArmError::new(400, code::INVALID_REQUEST_CONTENT, message)
    }

    /// 400: the property at the JSON path `target` is wrong.
    pub fn invalid_property(target: &str, message: impl Into<String>) -> ArmError {
        ArmError::new(400, code::INVALID_PROPERTY_VALUE, message).at_property(target)
    }

    /// 400: the property at the JSON path `target` is not supported in this version.
    pub fn not_supported(target: &str, message: impl Into<String>) -> ArmError {
        ArmError::new(400, code::NOT_SUPPORTED, message).at_property(target)
    }

    /// 400: the part of a template at `target` cannot be deployed.
    pub fn invalid_template(target: &str, message: impl Into<String>) -> ArmError {
        ArmError::new(400, code::INVALID_TEMPLATE, message).at(target)
    }

    /// 401. A token can be requested from `base_url`; `reason` says what is wrong with the present one.
    pub fn unauthorized(base_url: &str, reason: &str) -> ArmError {
        let message = format!(
            "{reason}; get a token from {}/msi/token (`muster env` prints the variables that make \
             Azure's clients do so)",
            base_url.trim_end_matches('/')
        );
        let challenge = format!(
            "Bearer authorization_uri=\"{}\", error=\"invalid_token\", error_description=\"{}\"",
            quotable(base_url),
            quotable(reason)
        );
        ArmError::new(401, code::AUTHENTICATION_FAILED, message)
            .with_header("WWW-Authenticate", challenge)
    }

    /// 403: the caller is authenticated, but not permitted to do this.
    pub fn forbidden(message: impl Into<String>) -> ArmError {
        ArmError::new(403, code::AUTHORIZATION_FAILED, message)
    }

    /// 404: the path is valid, but the resource does not exist.
    pub fn not_found(target: &str, message: impl Into<String>) -> ArmError {
        ArmError::new(404, code::RESOURCE_NOT_FOUND, message).at(target)
    }

    /// 404: the path is valid, but its resource group does not exist.
    pub fn group_not_found(message: impl Into<String>) -> ArmError {
        ArmError::new(404, code::RESOURCE_GROUP_NOT_FOUND, message).at("resourceGroup")
    }

    /// 404: the deployment, or the requested part of it, does not exist.
    pub fn deployment_not_found(message: impl Into<String>) -> ArmError {
        ArmError::new(404, code::DEPLOYMENT_NOT_FOUND, message).at("deployment")
    }

    /// 404: no route has this form. It is 400 for routes that Azure has, because a client that first checks whether
    /// something exists must not take the error for a no.
    pub fn no_route(path: &str) -> ArmError {
        if let Some(thing) = Unserved::of_path(path) {
            return ArmError::new(400, code::NOT_SUPPORTED, thing.to_string());
        }
        ArmError::new(
            404,
            code::PATH_NOT_FOUND,
            format!(
                "there is nothing at '{}'; check the path, which this version may not support yet",
                crate::json::shorten(path)
            ),
        )
    }

    /// 405. `allowed` is the `Allow` header, for example `GET, PUT`.
    pub fn method_not_allowed(method: &str, allowed: &str) -> ArmError {
        let message = format!(
            "{} is not allowed here; the allowed methods are: {allowed}; to create a resource, end the path with its name",
            crate::json::shorten(method)
        );
        ArmError::new(405, code::METHOD_NOT_ALLOWED, message)
            .with_header("Allow", allowed.to_owned())
    }

    /// A request that no endpoint answers.
    pub fn no_endpoint(none: &NoEndpoint, method: &str, path: &str) -> ArmError {
        match none {
            NoEndpoint::Route => ArmError::no_route(path),
            NoEndpoint::Method { allow } => ArmError::method_not_allowed(method, allow),
        }
    }

    /// 413.
    pub fn too_large(limit_bytes: usize) -> ArmError {
        ArmError::new(
            413,
            code::REQUEST_TOO_LARGE,
            format!("the body is larger than {limit_bytes} bytes, which is the limit; shorten it"),
        )
    }

    /// 507: there is not enough space to store the data.
    pub fn storage_full(message: impl Into<String>) -> ArmError {
        ArmError::new(507, code::STORAGE_FULL, message)
    }

    /// 409: there is space, but the workspace has used its share. It is not 403, which would tell a node that it is not
    /// wanted.
    pub fn share_used(message: impl Into<String>) -> ArmError {
        ArmError::new(409, code::QUOTA_EXCEEDED, message)
    }

    /// 415.
    pub fn unsupported_media_type(got: &str) -> ArmError {
        ArmError::new(
            415,
            code::UNSUPPORTED_MEDIA_TYPE,
            format!("the content type is '{}'; send application/json", crate::json::shorten(got)),
        )
    }

    /// 415.
    pub fn unsupported_encoding(got: &str) -> ArmError {
        ArmError::new(
            415,
            code::UNSUPPORTED_MEDIA_TYPE,
            format!(
                "the content encoding is '{}'; send the body without compression and without that header",
                crate::json::shorten(got)
            ),
        )
    }

    /// 410: what was requested is no longer kept.
    pub fn gone(target: &str, message: impl Into<String>) -> ArmError {
        ArmError::new(410, code::GONE, message).at(target)
    }

    /// 429: the client should retry in a moment.
    pub fn too_many(message: impl Into<String>) -> ArmError {
        ArmError::new(429, code::TOO_MANY_REQUESTS, message)
            .with_header("Retry-After", "1".to_owned())
    }

    /// 429: the client should retry after this many seconds.
    pub fn too_fast(message: impl Into<String>, retry_after_s: u64) -> ArmError {
        ArmError::new(429, code::TOO_MANY_REQUESTS, message)
            .with_header("Retry-After", retry_after_s.max(1).to_string())
    }

    /// 500: a bug in the server. The details are in the log, under `reference`.
    pub fn internal(reference: &str) -> ArmError {
        ArmError::new(
            500,
            code::INTERNAL_SERVER_ERROR,
            format!(
                "something went wrong inside the server; its log has the details under '{reference}'"
            ),
        )
    }

    /// 500: it is unknown whether the operation was carried out.
    pub fn unconfirmed(message: impl Into<String>) -> ArmError {
        ArmError::new(500, code::INTERNAL_SERVER_ERROR, message)
    }

    /// 503: the operation was not carried out, and the client should retry in a moment.
    pub fn unavailable(message: impl Into<String>) -> ArmError {
        ArmError::new(503, code::SERVICE_UNAVAILABLE, message)
            .with_header("Retry-After", UNAVAILABLE_RETRY_AFTER_S.to_string())
    }
}

impl From<&Refused> for ArmError {
    fn from(refused: &Refused) -> ArmError {
        let (status, code) = match refused.kind {
            RefusalKind::Invalid => (400, code::INVALID_PROPERTY_VALUE),
            RefusalKind::NotFound => (404, code::RESOURCE_NOT_FOUND),
            RefusalKind::Conflict => (409, code::CONFLICT),
            RefusalKind::TooMany => (429, code::TOO_MANY_REQUESTS),
            RefusalKind::QuotaExceeded => (400, code::QUOTA_EXCEEDED),
            RefusalKind::Full => (403, code::QUOTA_EXCEEDED),
            RefusalKind::Locked => (409, code::SCOPE_LOCKED),
        };
        let words = refused.words();
        let mut error = ArmError::new(status, code, spelling::message(&words))
            .at(&spelling::target(&refused.target));
        error.body.error.parts = spelling::parts(&words);
        match refused.kind {
            RefusalKind::TooMany => {
                error.with_header("Retry-After", TOO_MANY_RETRY_AFTER_S.to_string())
            }
            RefusalKind::Invalid
            | RefusalKind::NotFound
            | RefusalKind::Conflict
            | RefusalKind::QuotaExceeded
            | RefusalKind::Full
            | RefusalKind::Locked => error,
        }
    }
}

impl From<Refused> for ArmError {
    fn from(refused: Refused) -> ArmError {
        ArmError::from(&refused)
    }
}

impl From<PathError> for ArmError {
    fn from(why: PathError) -> ArmError {
        ArmError::invalid_content(why.to_string())
    }
}

/// Replaces characters that could end a quoted string of a header, or the header itself.
fn quotable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '"' | '\\' => '\'',
            ' '..='~' => c,
            _ => '?',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_words_and_gets_a_status() {
        let cases = [
            (Refused::invalid("name", "bad"), 400, "InvalidPropertyValue", None),
            (Refused::not_found("name", "gone"), 404, "ResourceNotFound", None),
            (Refused::conflict("name", "taken"), 409, "Conflict", None),
            (Refused::too_many("name", "full"), 429, "TooManyRequests", Some("30")),
            (Refused::full("name", "full"), 403, "QuotaExceeded", None),
        ];
        for (refused, status, code, retry_after) in cases {
            let error = ArmError::from(&refused);
            assert_eq!(error.status, status);
            assert_eq!(error.code(), code);
            assert_eq!(error.target(), Some("name"));
            assert_eq!(error.body.error.message, refused.to_string());
            assert_eq!(error.header("Retry-After"), retry_after);
        }
    }

    #[test]
    fn the_envelope_is_azures_and_reads_back() {
        let error = ArmError::invalid_property("properties.x", "x is wrong");
        let text = r#"{"error":{"code":"InvalidPropertyValue","message":"x is wrong","target":"properties.x","details":[]}}"#;
        assert_eq!(error.to_json(), text);
        assert_eq!(crate::from_json::<ErrorBody>(text.as_bytes()).unwrap(), *error.body);
        let azure = br#"{"error":{"code":"BadRequest","message":"m","details":[{"code":"c",
            "message":"vmSize","target":"vmSize"}],"innererror":{"x":1}}}"#;
        let read: ErrorBody = crate::from_json(azure).unwrap();
        assert_eq!(read.error.details[0].target.as_deref(), Some("vmSize"));
    }

    #[test]
    fn every_constructor_has_its_status_and_a_remedy() {
        let cases = [
            (ArmError::invalid_content("m"), 400, code::INVALID_REQUEST_CONTENT),
            (ArmError::not_supported("p", "m"), 400, code::NOT_SUPPORTED),
            (ArmError::unauthorized("https://h:1/", "no token"), 401, code::AUTHENTICATION_FAILED),
            (ArmError::forbidden("m"), 403, code::AUTHORIZATION_FAILED),
            (ArmError::not_found("name", "m"), 404, code::RESOURCE_NOT_FOUND),
            (ArmError::no_route("/nope"), 404, code::PATH_NOT_FOUND),
            (ArmError::method_not_allowed("PUT", "GET"), 405, code::METHOD_NOT_ALLOWED),
            (ArmError::gone("since", "m"), 410, code::GONE),
            (ArmError::too_large(10), 413, code::REQUEST_TOO_LARGE),
            (ArmError::storage_full("m"), 507, code::STORAGE_FULL),
            (ArmError::unsupported_media_type("text/xml"), 415, code::UNSUPPORTED_MEDIA_TYPE),
            (ArmError::internal("r1"), 500, code::INTERNAL_SERVER_ERROR),
            (ArmError::unavailable("m"), 503, code::SERVICE_UNAVAILABLE),
        ];
        for (error, status, code) in cases {
            assert_eq!((error.status, error.code()), (status, code));
        }
        assert_eq!(ArmError::method_not_allowed("PUT", "GET").header("allow"), Some("GET"));
        assert_eq!(ArmError::unavailable("m").header("retry-after"), Some("1"));
    }

    #[test]
    fn the_challenge_cannot_be_broken_out_of() {
        let error = ArmError::unauthorized("https://h:1", "bad \"token\"\r\nSet-Cookie: a=b\u{e9}");
        assert_eq!(
            error.header("WWW-Authenticate"),
            Some(
                "Bearer authorization_uri=\"https://h:1\", error=\"invalid_token\", \
                 error_description=\"bad 'token'??Set-Cookie: a=b?\""
            )
        );
    }
}
