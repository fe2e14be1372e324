//! Uploads and downloads of files, piece by piece.

use std::fs::File;
use std::time::Duration;

use muster_wire::Route;
use reqwest::{Method, header};

use super::{ANSWER_WITHIN, ApiResponse, Client, refusal};
use crate::failure::CliResult;

/// The time limit for one uploaded file: if it takes longer, the server hangs.
const BYTES_PER_SECOND_MIN: u64 = 256 << 10;
/// The time limit for one downloaded file. The server's signed addresses expire by then.
const DOWNLOAD_WITHIN: Duration = Duration::from_secs(3_600);

impl Client {
    /// A text that is not JSON.
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

    /// Uploads a file of this many bytes, piece by piece. It is opened again for each try: the stream of an earlier one
    /// may still be reading.
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

    /// Downloads the file at a signed address, piece by piece.
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

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::path::PathBuf;

    use muster_core::model::WorkspaceKey;
    use muster_wire::cloud::TokenReply;
    use muster_wire::to_json;
    use reqwest::header::HeaderValue;

    use super::super::fake::{Fake, answer};
    use super::*;
    use crate::server_location::Server;

    /// Guards against a regression: the stream of an earlier try moved the offset at which the next one read.
    #[tokio::test]
    async fn a_file_that_is_sent_again_is_opened_again_and_comes_whole() {
        let token = answer(200, "", &to_json(&TokenReply::new("token", 1, "resource")));
        let later = answer(503, "retry-after: 0\r\n", "");
        let fake = Fake::start(vec![token, later, answer(200, "", "")]);
        let server = Server {
            dir: None,
            url: fake.url.clone(),
            key: "key".to_owned(),
            ca_pem: Vec::new(),
            ca_file: PathBuf::new(),
            ca_bundle: None,
            key_source: "a test".to_owned(),
        };
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let client = Client { http, server, token: RefCell::new(HeaderValue::from_static("")) };
        let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&path, &content).unwrap();
        let opened = Cell::new(0);
        let open = || {
            opened.set(opened.get() + 1);
            Ok((File::open(&path).unwrap(), content.len() as u64))
        };
        let workspace = WorkspaceKey::new("s", "g", "w");
        let route = Route::Blob { workspace, digest: "ab".into() };
        client.put_file(&route, open).await.unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(fake.bodies()[1..], [content.clone(), content.clone()]);
        assert_eq!(opened.get(), 2);
    }
}
