//! Errors in the form of the blob storage: a status, a code in a header, and a message in XML.

use quick_xml::escape::escape;

use super::NAME_CHARS_MAX;

const STORAGE_FULL: &str = "StorageFull";
const QUOTA_EXCEEDED: &str = "QuotaExceeded";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StorageError {
    pub status: u16,
    /// The code, which is also sent in the header `x-ms-error-code`.
    pub code: &'static str,
    pub message: String,
}

impl StorageError {
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> StorageError {
        StorageError { status, code, message: message.into() }
    }

    pub fn to_xml(&self) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{}</Code><Message>{}</Message></Error>",
            self.code,
            escape(&self.message)
        )
    }

    pub fn invalid_uri(message: impl Into<String>) -> StorageError {
        StorageError::new(400, "InvalidUri", message)
    }

    pub fn invalid_name(got: usize) -> StorageError {
        let message = format!(
            "the blob's name has {got} characters; 1 to {NAME_CHARS_MAX} are allowed; give it a shorter one"
        );
        StorageError::new(400, "InvalidResourceName", message)
    }

    pub fn invalid_query(key: &str, message: impl std::fmt::Display) -> StorageError {
        StorageError::new(400, "InvalidQueryParameterValue", format!("{key}: {message}"))
    }

    pub fn invalid_header(name: &str, message: impl std::fmt::Display) -> StorageError {
        StorageError::new(400, "InvalidHeaderValue", format!("{name}: {message}"))
    }

    pub fn unsupported_header(name: &str, message: impl std::fmt::Display) -> StorageError {
        StorageError::new(400, "UnsupportedHeader", format!("{name}: {message}"))
    }

    pub fn invalid_xml(message: impl Into<String>) -> StorageError {
        StorageError::new(400, "InvalidXmlDocument", message)
    }

    pub fn no_authentication() -> StorageError {
        let message = "the URL is not signed and the request has no bearer token; get a signed URL from the \
                       datastore (listSecrets), or a token for https://storage.azure.com";
        StorageError::new(401, "NoAuthenticationInformation", message)
    }

    pub fn authentication_failed(message: impl Into<String>) -> StorageError {
        StorageError::new(403, "AuthenticationFailed", message)
    }

    /// The caller is authenticated, but not permitted to do this.
    pub fn not_permitted(message: impl Into<String>) -> StorageError {
        StorageError::new(403, "AuthorizationPermissionMismatch", message)
    }

    pub fn no_container() -> StorageError {
        StorageError::new(404, "ContainerNotFound", "there is no such container")
    }

    pub fn no_blob() -> StorageError {
        StorageError::new(404, "BlobNotFound", "there is no blob with this name")
    }

    pub fn bad_verb(message: impl Into<String>) -> StorageError {
        StorageError::new(405, "UnsupportedHttpVerb", message)
    }

    pub fn condition() -> StorageError {
        let message =
            "the blob does not meet the condition in the request's headers; read it again";
        StorageError::new(412, "ConditionNotMet", message)
    }

    pub fn too_large(limit: u64) -> StorageError {
        let message = format!("the body may have at most {limit} bytes; send the blob in blocks");
        StorageError::new(413, "RequestBodyTooLarge", message)
    }

    pub fn bad_range(bytes: u64) -> StorageError {
        let message =
            format!("the range starts after the end of the blob, which has {bytes} bytes");
        StorageError::new(416, "InvalidRange", message)
    }

    /// 500: it is unknown whether the operation was carried out.
    pub fn unconfirmed(message: impl Into<String>) -> StorageError {
        StorageError::new(500, "OperationTimedOut", message)
    }

    /// 503: the operation was not carried out, and the client should retry in a moment.
    pub fn unavailable(message: impl Into<String>) -> StorageError {
        StorageError::new(503, "ServerBusy", message)
    }

    /// The client should not retry at once: with a 5xx, clients would retry for minutes.
    pub fn full(message: impl Into<String>) -> StorageError {
        StorageError::new(409, STORAGE_FULL, message)
    }

    /// Not 409, which Azure's clients take to mean that the blob already exists.
    pub fn share_used(message: impl Into<String>) -> StorageError {
        StorageError::new(403, QUOTA_EXCEEDED, message)
    }

    /// Whether there was not enough space, which a retry in a moment would not change.
    pub fn is_for_want_of_space(&self) -> bool {
        matches!(self.code, STORAGE_FULL | QUOTA_EXCEEDED)
    }

    pub fn internal() -> StorageError {
        StorageError::new(
            500,
            "InternalError",
            "this is a bug in the server; its log has the details",
        )
    }
}
