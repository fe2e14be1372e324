//! A client for blob storage. It needs no token, because the addresses are signed.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_wire::blob::VERSION;
use muster_wire::blob::client::{
    Entry, blob_url, block_list_request, list_url, parse_error, parse_page,
};
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};

use super::pacing::{self, Again};
use super::{ANSWER_WITHIN, Client};
use crate::failure::{CliResult, Failure, printable};

/// The time limit for one uploaded blob: if it takes longer, the server hangs.
const BYTES_PER_SECOND_MIN: u64 = 256 << 10;
/// The time limit for one downloaded blob.
const DOWNLOAD_WITHIN: Duration = Duration::from_secs(3_600);
const METADATA: &str = "x-ms-meta-";

/// A container, and its signature.
#[derive(Clone)]
pub struct Container {
    http: reqwest::Client,
    url: String,
    sas: String,
}

impl Client {
    /// `url` is the address of a container, `sas` the query with its signature.
    pub fn container(&self, url: &str, sas: &str) -> Container {
        let sas = sas.trim_start_matches('?').to_owned();
        Container { http: self.http.clone(), url: url.trim_end_matches('/').to_owned(), sas }
    }
}

impl Container {
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The metadata of a blob; `None` if the blob does not exist.
    pub async fn metadata(&self, name: &str) -> CliResult<Option<BTreeMap<String, String>>> {
        let url = blob_url(&self.url, name, &[], &self.sas);
        let answer =
            pacing::send(&Method::HEAD, Again::WhenTold, || Ok(self.http.head(&url)), lost).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let answer = checked(answer).await?;
        let noted = answer.headers().iter().filter_map(|(name, value)| {
            let name = name.as_str().strip_prefix(METADATA)?;
            Some((name.to_owned(), value.to_str().ok()?.to_owned()))
        });
        Ok(Some(noted.collect()))
    }

    pub async fn note(&self, name: &str, metadata: &[(&str, &str)]) -> CliResult {
        let url = blob_url(&self.url, name, &[("comp", "metadata")], &self.sas);
        let request = || {
            let request = self.http.put(&url).header(header::CONTENT_LENGTH, 0);
            let add = |request: RequestBuilder, (name, value): &(&str, &str)| {
                request.header(format!("{METADATA}{name}"), *value)
            };
            Ok(metadata.iter().fold(request, add))
        };
        self.sent(Again::WhenTold, request).await
    }

    /// Uploads a whole blob, or one block of it, of this many bytes. The body is built again for each try.
    pub async fn put(
        &self,
        name: &str,
        block: Option<&str>,
        bytes: u64,
        body: impl Fn() -> CliResult<reqwest::Body>,
    ) -> CliResult {
        let query: Vec<(&str, &str)> = match block {
            Some(id) => vec![("comp", "block"), ("blockid", id)],
            None => Vec::new(),
        };
        let url = blob_url(&self.url, name, &query, &self.sas);
        let request = || {
            let request = self
                .http
                .put(&url)
                .timeout(ANSWER_WITHIN + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN))
                .header("x-ms-blob-type", "BlockBlob")
                .header(header::CONTENT_TYPE, "application/octet-stream")
                .header(header::CONTENT_LENGTH, bytes);
            Ok(request.body(body()?))
        };
        self.sent(Again::WhenLost, request).await
    }

    pub async fn put_together(&self, name: &str, blocks: &[String]) -> CliResult {
        let url = blob_url(&self.url, name, &[("comp", "blocklist")], &self.sas);
        let request = || Ok(self.http.put(&url).body(block_list_request(blocks)));
        self.sent(Again::WhenTold, request).await
    }

    /// Lists all blobs below a prefix.
    pub async fn list(&self, prefix: &str) -> CliResult<Vec<Entry>> {
        let (mut all, mut marker) = (Vec::new(), String::new());
        loop {
            let url = list_url(&self.url, prefix, &marker, &self.sas);
            let request = || Ok(self.http.get(&url).header("x-ms-version", VERSION));
            let answer =
                checked(pacing::send(&Method::GET, Again::WhenTold, request, lost).await?).await?;
            let body = answer.bytes().await.map_err(lost)?;
            let (entries, next) = parse_page(&body)
                .ok_or_else(|| Failure::error("cannot read the storage's list of blobs"))?;
            all.extend(entries);
            match next {
                Some(next) if next != marker => marker = next,
                _ => return Ok(all),
            }
        }
    }

    /// Downloads a blob, piece by piece.
    pub async fn get(&self, name: &str, mut each: impl FnMut(&[u8]) -> CliResult) -> CliResult {
        let url = blob_url(&self.url, name, &[], &self.sas);
        let request =
            || Ok(self.http.get(&url).timeout(DOWNLOAD_WITHIN).header("x-ms-version", VERSION));
        let mut answer =
            checked(pacing::send(&Method::GET, Again::WhenTold, request, lost).await?).await?;
        while let Some(piece) = answer.chunk().await.map_err(lost)? {
            each(&piece)?;
        }
        Ok(())
    }

    /// Sends a PUT, which is built again for each try.
    async fn sent(
        &self,
        again: Again,
        request: impl Fn() -> CliResult<RequestBuilder>,
    ) -> CliResult {
        let request = || Ok(request()?.header("x-ms-version", VERSION));
        checked(pacing::send(&Method::PUT, again, request, lost).await?).await.map(|_| ())
    }
}

fn lost(why: reqwest::Error) -> Failure {
    // The address is signed, and the error would repeat it.
    let why = printable(&muster_core::ErrorChain(&why.without_url()).to_string());
    Failure::error(format!("cannot reach the storage: {why}")).passing()
}

async fn checked(answer: Response) -> CliResult<Response> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let body = answer.bytes().await.unwrap_or_default();
    let words = match parse_error(&body) {
        Some((code, words)) => format!("({}) {}", printable(&code), printable(&words)),
        None => format!("the storage returned {status}"),
    };
    Err(match status {
        StatusCode::NOT_FOUND => Failure::not_found(words),
        status if status.is_server_error() => Failure::error(words).passing(),
        _ => Failure::error(words),
    })
}
