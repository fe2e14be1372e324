//! The calls about a job's files.

use std::fs::File;
use std::time::Duration;

use muster_core::agent::{
    AttemptEnd, DataList, DataQuery, FileForm, LeftTree, MissingFiles, TreePurpose,
};
use muster_core::ids::Epoch;
use muster_core::model::{BlobId, TreeId};
use muster_trees::{MANIFEST_BYTES_MAX, Packed};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, Response, StatusCode};

use super::{CALL_TIMEOUT, CallError, Client, accepted, parse};

/// A file may take this long, plus this long for each of its bytes. A slower server is considered hung.
const FILE_TIMEOUT: Duration = Duration::from_secs(60);
const BYTES_PER_SECOND_MIN: u64 = 256 << 10;
/// The longest explanation of a refusal that is read.
const WORDS_MAX: usize = 400;

impl Client {
    /// Lists the files of the code or of an input.
    pub(crate) async fn data(&self, epoch: Epoch, what: &str) -> Result<DataList, CallError> {
        let url = format!("{}/data/{epoch}/{what}", self.base);
        let response = self.http.get(url).timeout(FILE_TIMEOUT).send().await?;
        parse(found(response).await?).await
    }

    /// Opens one of these files, to be read in chunks.
    pub(crate) async fn data_file(
        &self,
        epoch: Epoch,
        what: &str,
        path: &str,
        bytes: u64,
    ) -> Result<Response, CallError> {
        let url = format!("{}/data/{epoch}/{what}/file", self.base);
        let file = DataQuery { path: path.to_owned() };
        let request = self.http.get(url).query(&file).timeout(patience(bytes));
        found(request.send().await?).await
    }

    /// Returns what the same member left last.
    pub(crate) async fn left(&self, epoch: Epoch) -> Result<Option<TreeId>, CallError> {
        let url = format!("{}/trees/{epoch}", self.base);
        let response = self.http.get(url).timeout(CALL_TIMEOUT).send().await?;
        let left: LeftTree = parse(explained(response).await?).await?;
        Ok(left.saved)
    }

    /// Fetches a list of files.
    pub(crate) async fn tree(&self, epoch: Epoch, tree: &TreeId) -> Result<Vec<u8>, CallError> {
        let url = format!("{}/trees/{epoch}/{tree}", self.base);
        let response = self.http.get(url).timeout(FILE_TIMEOUT).send().await?;
        let mut response = explained(response).await?;
        let mut text = Vec::new();
        while let Some(piece) = response.chunk().await? {
            text.extend_from_slice(&piece);
            if text.len() > MANIFEST_BYTES_MAX {
                return Err(CallError::Status { status: StatusCode::PAYLOAD_TOO_LARGE });
            }
        }
        Ok(text)
    }

    /// Opens one file of that list, to be read in chunks.
    pub(crate) async fn file(
        &self,
        epoch: Epoch,
        tree: &TreeId,
        digest: &BlobId,
        bytes: u64,
    ) -> Result<Response, CallError> {
        let url = format!("{}/trees/{epoch}/{tree}/{digest}", self.base);
        explained(self.http.get(url).timeout(patience(bytes)).send().await?).await
    }

    /// Declares what the job leaves from now on, and returns what the server lacks of it. If that is empty, the list is
    /// stored.
    pub(crate) async fn put_tree(
        &self,
        epoch: Epoch,
        tree: &TreeId,
        text: String,
        end: Option<AttemptEnd>,
    ) -> Result<Vec<BlobId>, CallError> {
        let url = format!("{}/trees/{epoch}/{tree}", self.base);
        let request = self.http.put(url).query(&TreePurpose { end }).timeout(FILE_TIMEOUT);
        let request = request.header(CONTENT_TYPE, "text/plain");
        let missing: MissingFiles =
            parse(explained(request.body(text).send().await?).await?).await?;
        Ok(missing.missing)
    }

    /// Sends exactly this many bytes of a file. Its holes are not sent.
    pub(crate) async fn put_file(
        &self,
        epoch: Epoch,
        digest: &BlobId,
        file: Result<Packed, File>,
        bytes: u64,
    ) -> Result<(), CallError> {
        let (packed, sent, body) = match file {
            Ok(packed) => (true, packed.bytes, Body::wrap_stream(packed.pieces())),
            Err(file) => (false, bytes, Body::wrap_stream(muster_trees::pieces(file, bytes))),
        };
        let request = self
            .http
            .put(format!("{}/blobs/{epoch}/{digest}", self.base))
            .query(&FileForm { packed })
            .timeout(patience(bytes))
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, sent)
            .body(body);
        explained(request.send().await?).await.map(|_| ())
    }
}

fn patience(bytes: u64) -> Duration {
    FILE_TIMEOUT + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
}

/// Like [`accepted`], but with the server's own explanation if it would refuse again.
pub(super) async fn explained(response: Response) -> Result<Response, CallError> {
    match response.status() {
        StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::INSUFFICIENT_STORAGE => Err(refusal(response).await),
        _ => accepted(response),
    }
}

/// The same, also for what does not exist.
async fn found(response: Response) -> Result<Response, CallError> {
    match response.status() {
        StatusCode::NOT_FOUND => Err(refusal(response).await),
        _ => explained(response).await,
    }
}

async fn refusal(response: Response) -> CallError {
    let status = response.status();
    let words = response.text().await.unwrap_or_default();
    let words = words.chars().filter(|c| !c.is_control()).take(WORDS_MAX).collect();
    CallError::Refused { status, words }
}
