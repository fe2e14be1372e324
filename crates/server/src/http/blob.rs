//! The entry point of the blob storage: parses the address, checks the permissions of the caller and finds the handler.
//!
//! Addresses are never normalised here, and never logged.

mod access;
mod batch;
mod get;
mod put;

pub use get::whole;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use muster_core::ErrorChain;
use muster_store::StoreError;
use muster_store::storage::{BlobRef, Container, Refusal};
use muster_wire::blob::{
    Address, Asked, BlobQuery, Right, StorageError, VERSION, format_tag, http_date,
};

use self::access::Holder;
use super::body;
use super::request_log::Noted;
use super::respond::with_retry_after;
use super::trees::Lost;
use crate::app::App;
use crate::artifacts::{self, ArtifactError};
use crate::blobs::BlobError;
use crate::storage::Unavailable;

const MS_VERSION: HeaderName = HeaderName::from_static("x-ms-version");
const CLIENT_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");
const ERROR_CODE: HeaderName = HeaderName::from_static("x-ms-error-code");
const XML: HeaderValue = HeaderValue::from_static("application/xml");
/// The maximum length of a header that is echoed; longer values are neither versions nor ids.
const ECHO_BYTES_MAX: usize = 128;

/// A request as the handlers see it.
struct Call<'r> {
    app: Arc<App>,
    container: Container,
    query: BlobQuery,
    asked: Asked<'r>,
    holder: Holder,
}

impl Call<'_> {
    fn at(&self, name: &str) -> BlobRef {
        let Container { id, workspace, .. } = self.container;
        BlobRef { container: id, workspace, name: name.into() }
    }
}

pub async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, content) = request.into_parts();
    let is_head = parts.method == Method::HEAD;
    let mut content = Some(content);
    let answered = answer(app, &parts, &mut content).await;
    let mut response = match answered {
        Ok(response) => response,
        Err(failed) => {
            if let Some(content) = content {
                body::discard_upload(content).await;
            }
            refusal(&failed, is_head)
        }
    };
    let echo = |name: &HeaderName| {
        parts.headers.get(name).filter(|value| value.len() <= ECHO_BYTES_MAX).cloned()
    };
    let version = echo(&MS_VERSION).unwrap_or(HeaderValue::from_static(VERSION));
    response.headers_mut().insert(MS_VERSION, version);
    if let Some(id) = echo(&CLIENT_ID) {
        response.headers_mut().insert(CLIENT_ID, id);
    }
    response
}

async fn answer(
    app: Arc<App>,
    parts: &Parts,
    content: &mut Option<Body>,
) -> Result<Response, StorageError> {
    let address = Address::parse(parts.uri.path())?;
    let query = BlobQuery::parse(parts.uri.query().unwrap_or(""))?;
    // Without this check, a header that is not text would count as missing.
    let counts =
        |name: &str| ["x-ms-", "content-", "if-", "range"].iter().any(|it| name.starts_with(it));
    let is_bad = |(name, value): &(&HeaderName, &HeaderValue)| {
        counts(name.as_str()) && value.to_str().is_err()
    };
    if let Some((name, _)) = parts.headers.iter().find(is_bad) {
        return Err(StorageError::invalid_header(
            name.as_str(),
            "the value is not plain ASCII; encode it",
        ));
    }
    let pairs = parts
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let asked = Asked::new(pairs);
    asked.refuse_unsupported()?;
    let wanted = BlobOperation::of(&parts.method, &address, &query)?;
    let log = parts.extensions.get::<Noted>().cloned().unwrap_or_default();
    log.route(format!("/{{container}}{}", wanted.template()));
    let (container, holder) = access::check(&app, &parts.headers, &address, &query, &wanted)?;
    log.caller(&holder.name);
    // Only permitted requests count. Azure's storage clients wait and retry after a 503, but not after a 429.
    let paced = app.rates.of_files(container.workspace);
    paced.map_err(|fast| StorageError::unavailable(fast.files_words()))?;
    let call = Call { app, container, query, asked, holder };
    let name = address.blob.as_deref().unwrap_or_default();
    let mut take = || content.take().unwrap_or_default();
    match wanted {
        BlobOperation::List => {
            show_logs(&call, call.query.get("prefix").unwrap_or_default()).await?;
            get::list(&call).await
        }
        BlobOperation::Container => Ok(get::container(&call)),
        BlobOperation::Get | BlobOperation::Head => {
            show_logs(&call, name).await?;
            get::blob(&call, name, wanted == BlobOperation::Head).await
        }
        BlobOperation::BlockList => get::blocks(&call, name).await,
        BlobOperation::Put => put::blob(&call, name, take()).await,
        BlobOperation::PutBlock => put::block(&call, name, take()).await,
        BlobOperation::PutBlockList => put::block_list(&call, name, take()).await,
        BlobOperation::PutMetadata => put::metadata(&call, name).await,
        BlobOperation::PutProperties => put::properties(&call, name).await,
        BlobOperation::Delete => put::delete(&call, name).await,
        BlobOperation::Batch => batch::deletes(&call, parts, take()).await,
    }
}

/// Publishes the logs of jobs as blobs when a client first looks for them.
async fn show_logs(call: &Call<'_>, asked: &str) -> Result<(), StorageError> {
    let shown = artifacts::show_logs(&call.app, &call.container, asked).await;
    shown.or_else(|failed| match failed {
        // Without room for a copy, the log is missing from the blobs; the other blobs can still be read and deleted.
        ArtifactError::Blobs(BlobError::ShareUsed { .. } | BlobError::Full(_))
        | ArtifactError::Storage(Unavailable::Full | Unavailable::OnReserve) => Ok(()),
        ArtifactError::Storage(why) => Err(unavailable(why)),
        ArtifactError::Store(failed) => Err(unreadable(&failed)),
        ArtifactError::Blobs(failed) => Err(storage_failure(&failed)),
        failed => {
            tracing::error!(error = %ErrorChain(&failed), "cannot publish the log of a job as a blob");
            Err(StorageError::internal())
        }
    })
}

/// All operations that the blob storage supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlobOperation {
    List,
    /// The properties of a container.
    Container,
    Get,
    Head,
    BlockList,
    Put,
    PutBlock,
    PutBlockList,
    PutMetadata,
    PutProperties,
    Delete,
    /// Several deletes in one request.
    Batch,
}

impl BlobOperation {
    fn of(
        method: &Method,
        address: &Address,
        query: &BlobQuery,
    ) -> Result<BlobOperation, StorageError> {
        for key in ["snapshot", "versionid"] {
            if query.filled(key).is_some() {
                return Err(StorageError::invalid_query(
                    key,
                    "only the current version of a blob exists",
                ));
            }
        }
        let comp = query.filled("comp");
        let is_container = query.get("restype") == Some("container") || address.blob.is_none();
        match (method.as_str(), is_container, comp) {
            ("GET", true, Some("list")) => Ok(BlobOperation::List),
            ("GET" | "HEAD", true, None | Some("metadata")) => Ok(BlobOperation::Container),
            ("GET", false, None) => Ok(BlobOperation::Get),
            ("HEAD", false, None | Some("metadata")) | ("GET", false, Some("metadata")) => {
                Ok(BlobOperation::Head)
            }
            ("GET", false, Some("blocklist")) => Ok(BlobOperation::BlockList),
            ("PUT", false, None) => Ok(BlobOperation::Put),
            ("PUT", false, Some("block")) => Ok(BlobOperation::PutBlock),
            ("PUT", false, Some("blocklist")) => Ok(BlobOperation::PutBlockList),
            ("PUT", false, Some("metadata")) => Ok(BlobOperation::PutMetadata),
            ("PUT", false, Some("properties")) => Ok(BlobOperation::PutProperties),
            ("DELETE", false, None) => Ok(BlobOperation::Delete),
            ("POST", true, Some("batch")) => Ok(BlobOperation::Batch),
            ("PUT" | "DELETE", true, None) => Err(StorageError::not_permitted(
                "containers are created and deleted with their datastores: muster datastore create",
            )),
            ("GET" | "HEAD" | "PUT" | "DELETE" | "POST", _, Some(_)) => {
                Err(StorageError::invalid_query("comp", "this operation is not supported"))
            }
            _ => Err(StorageError::bad_verb("blobs support GET, HEAD, PUT and DELETE")),
        }
    }

    fn right(self) -> Right {
        match self {
            BlobOperation::List => Right::List,
            BlobOperation::Container
            | BlobOperation::Get
            | BlobOperation::Head
            | BlobOperation::BlockList => Right::Read,
            BlobOperation::Put | BlobOperation::PutBlock | BlobOperation::PutBlockList => {
                Right::Write
            }
            BlobOperation::PutMetadata | BlobOperation::PutProperties => Right::Write,
            BlobOperation::Delete | BlobOperation::Batch => Right::Delete,
        }
    }

    /// Whether a caller who may only create new blobs may do this.
    fn may_create(self) -> bool {
        matches!(self, BlobOperation::Put | BlobOperation::PutBlock | BlobOperation::PutBlockList)
    }

    /// The template under which the operation is logged and counted.
    fn template(self) -> &'static str {
        match self {
            BlobOperation::List => "?comp=list",
            BlobOperation::Batch => "?comp=batch",
            BlobOperation::Container => "",
            BlobOperation::Get
            | BlobOperation::Head
            | BlobOperation::Put
            | BlobOperation::Delete => "/{blob}",
            BlobOperation::BlockList | BlobOperation::PutBlockList => "/{blob}?comp=blocklist",
            BlobOperation::PutBlock => "/{blob}?comp=block",
            BlobOperation::PutMetadata => "/{blob}?comp=metadata",
            BlobOperation::PutProperties => "/{blob}?comp=properties",
        }
    }
}

fn refusal(failed: &StorageError, is_head: bool) -> Response {
    let status = StatusCode::from_u16(failed.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let has_body = !is_head && status != StatusCode::NOT_MODIFIED;
    let mut response = match has_body {
        true => (status, failed.to_xml()).into_response(),
        false => status.into_response(),
    };
    let headers = response.headers_mut();
    if has_body {
        headers.insert(header::CONTENT_TYPE, XML);
    }
    headers.insert(ERROR_CODE, HeaderValue::from_static(failed.code));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    match status {
        StatusCode::SERVICE_UNAVAILABLE => with_retry_after(response),
        _ => response,
    }
}

fn refused(refusal: Refusal) -> StorageError {
    let message = refusal.to_string();
    match refusal {
        Refusal::NoContainer => StorageError::no_container(),
        Refusal::ContainerTaken => StorageError::not_permitted(message),
        Refusal::NoBlob => StorageError::no_blob(),
        Refusal::Exists => StorageError::new(409, "BlobAlreadyExists", message),
        Refusal::MayOnlyCreate => StorageError::not_permitted(message),
        Refusal::Condition => StorageError::condition(),
        Refusal::NoBlock { .. } => StorageError::new(400, "InvalidBlockList", message),
        Refusal::TooManyStaged => StorageError::new(409, "BlockCountExceedsLimit", message),
    }
}

fn unavailable(why: Unavailable) -> StorageError {
    match why {
        // A 503 would mean that nothing was done.
        Unavailable::Unconfirmed => StorageError::unconfirmed(why.to_string()),
        Unavailable::Busy
        | Unavailable::TooMany
        | Unavailable::Full
        | Unavailable::OnReserve
        | Unavailable::ReadOnly
        | Unavailable::Unreadable
        | Unavailable::Failing
        | Unavailable::Unchecked
        | Unavailable::Stopping => StorageError::unavailable(why.to_string()),
    }
}

fn unreadable(failed: &StoreError) -> StorageError {
    tracing::error!(error = %ErrorChain(failed), "cannot read the blob storage");
    StorageError::unavailable("the server cannot read its store; see its log")
}

fn lost(lost: Lost) -> StorageError {
    match &lost {
        Lost::Refused(BlobError::TooLarge { limit }) => StorageError::too_large(*limit),
        Lost::Refused(full @ BlobError::Full(_)) => StorageError::full(full.to_string()),
        Lost::Refused(BlobError::WrongMd5) => {
            StorageError::new(400, "Md5Mismatch", lost.to_string())
        }
        Lost::Refused(other) => storage_failure(other),
        Lost::Late | Lost::Short => StorageError::new(400, "IncompleteBody", lost.to_string()),
        Lost::Panicked => StorageError::internal(),
    }
}

fn storage_failure(failed: &BlobError) -> StorageError {
    match failed {
        BlobError::Full(_) => StorageError::full(failed.to_string()),
        BlobError::ShareUsed { .. } => StorageError::share_used(failed.to_string()),
        other => {
            tracing::error!(error = %ErrorChain(other), "cannot store or read the bytes of a blob");
            StorageError::unavailable("the server cannot store or read files; see its log")
        }
    }
}

fn stamp(
    response: &mut Response,
    tag: muster_core::storage::Tag,
    changed: muster_core::time::Wall,
) {
    for (name, value) in
        [(header::ETAG, format_tag(tag)), (header::LAST_MODIFIED, http_date(changed))]
    {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
}
