//! Files to the server and from it, piece by piece.

use std::fs::File;
use std::time::Duration;

use muster_wire::Route;
use reqwest::{Method, header};

use super::{ANSWER_WITHIN, ApiResponse, Client, refusal};
use crate::failure::CliResult;

/// Of a file that is sent: slower is a server that hangs.
const BYTES_PER_SECOND_MIN: u64 = 256 << 10;
/// Of one file. The server's own addresses hold no longer.
const DOWNLOAD_WITHIN: Duration = Duration::from_secs(3_600);

impl Client {
    /// A text that is no JSON.
    pub async fn put_text(&self, route: &Route, text: String) -> CliResult<ApiResponse> {
        let url = self.url(route, &[]);
        let request = || {
            let request = self.http.put(&url).header(header::CONTENT_TYPE, "text/plain");
            let request = request.header(header::AUTHORIZATION, self.token.borrow().clone());
            Ok(request.body(text.clone()))
        };
        let response = self.paced(&Method::PUT, request).await?;
        self.read_answer(response).await
    }

    /// A file of so many bytes, piece by piece. It is opened anew for each try: the stream of an earlier one may still read.
    pub async fn put_file(
        &self,
        route: &Route,
        open: impl Fn() -> CliResult<(File, u64)>,
    ) -> CliResult {
        // A long upload may outlive its token.
        self.renew_token().await?;
        let request = || {
            let (file, bytes) = open()?;
            let pieces = muster_trees::pieces(file, bytes);
            let request = self
                .http
                .put(self.url(route, &[]))
                .timeout(ANSWER_WITHIN + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN))
                .header(header::AUTHORIZATION, self.token.borrow().clone())
                .header(header::CONTENT_TYPE, "application/octet-stream")
                .header(header::CONTENT_LENGTH, bytes);
            Ok(request.body(reqwest::Body::wrap_stream(pieces)))
        };
        let response = self.paced(&Method::PUT, request).await?;
        self.read_answer(response).await.map(|_| ())
    }

    /// What is at an address that is its own authorisation, piece by piece.
    pub async fn download(&self, url: &str, mut each: impl FnMut(&[u8]) -> CliResult) -> CliResult {
        let request = || Ok(self.http.get(url).timeout(DOWNLOAD_WITHIN));
        let mut response = self.paced(&Method::GET, request).await?;
        let status = response.status();
        if !status.is_success() {
            let body = response.bytes().await.map_err(|why| self.unreachable(why))?;
            return Err(refusal(status, &body));
        }
        while let Some(piece) = response.chunk().await.map_err(|why| self.unreachable(why))? {
            each(&piece)?;
        }
        Ok(())
    }
}
