//! The agent's calls to the server, over HTTPS that trusts only our own CA.

mod environments;
mod runs;
mod services;
mod trees;

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::agent::{
    AGENT_PATH, LogPart, LogReceived, NODE_HEADER, NodeUsage, Report, SyncAnswer, SyncRequest,
};
use muster_core::ids::Epoch;
use muster_core::model::{JobSpec, SpecHash};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::{AgentConfig, AgentError};

/// How long the server may hold a `sync` before it replies.
pub(crate) const SYNC_WAIT: Duration = Duration::from_secs(10);
/// How long a call may take beyond the time that the server holds it on purpose.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// A hanging log request must not use up all the time that is left for an ended job's log.
const LOG_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("the server did not respond")]
    Unreachable(#[from] reqwest::Error),
    #[error("the server does not know this node (status {status})")]
    NotWanted { status: StatusCode },
    #[error("the server has moved on from this epoch")]
    Superseded,
    #[error("the server does not have it")]
    NotFound,
    #[error("{words} (status {status})")]
    Refused { status: StatusCode, words: String },
    #[error("the server responded with status {status}")]
    Status { status: StatusCode },
    #[error("the server's response is invalid")]
    BadAnswer(#[source] serde_json::Error),
    #[error("the server replied to report {answered} instead of {asked}")]
    OtherReport { asked: u64, answered: u64 },
}

/// The specifications of assignments, by their hashes.
pub(crate) type Specs = BTreeMap<String, JobSpec>;

/// Cheap to clone: all clones share one pool of connections.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    pub(crate) fn new(config: &AgentConfig, secret: &str) -> Result<Client, AgentError> {
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls_config(config)?)
            .default_headers(headers(config, secret)?)
            .https_only(true)
            .http1_only()
            .no_proxy()
            // A redirect would send the secret elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(AgentError::Client)?;
        let base = format!("{}{AGENT_PATH}", config.server.trim_end_matches('/'));
        Ok(Client { http, base })
    }

    pub(crate) async fn sync(
        self,
        sequence: u64,
        report: Report,
        usage: Option<NodeUsage>,
        logs: BTreeMap<Epoch, String>,
    ) -> Result<SyncAnswer, CallError> {
        let wait_ms = u64::try_from(SYNC_WAIT.as_millis()).expect("this is a few seconds");
        let request = SyncRequest { sequence, report, wait_ms, usage, logs };
        let response = self
            .http
            .post(format!("{}/sync", self.base))
            .timeout(SYNC_WAIT + CALL_TIMEOUT)
            .json(&request)
            .send()
            .await?;
        let answer: SyncAnswer = parse(accepted(response)?).await?;
        if answer.sequence != sequence {
            return Err(CallError::OtherReport { asked: sequence, answered: answer.sequence });
        }
        Ok(answer)
    }

    pub(crate) async fn spec(&self, hash: &SpecHash) -> Result<JobSpec, CallError> {
        let url = format!("{}/specs/{}", self.base, hash);
        let response = self.http.get(url).timeout(CALL_TIMEOUT).send().await?;
        parse(accepted(response)?).await
    }

    /// Sends a chunk of a log, and returns how much of the log the server has now.
    pub(crate) async fn send_log(
        &self,
        epoch: Epoch,
        offset: u64,
        piece: Vec<u8>,
        is_last: IsLast,
    ) -> Result<u64, CallError> {
        let last = match is_last {
            IsLast::Yes => 1,
            IsLast::No => 0,
        };
        let response = self
            .http
            .post(format!("{}/logs/{epoch}", self.base))
            .query(&LogPart { offset, last })
            .timeout(LOG_TIMEOUT)
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(piece)
            .send()
            .await?;
        let answer: LogReceived = parse(trees::explained(response).await?).await?;
        Ok(answer.next)
    }
}

/// Whether a chunk of a log is the last one that is sent, although the server has no room for the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IsLast {
    Yes,
    No,
}

fn accepted(response: Response) -> Result<Response, CallError> {
    match response.status() {
        StatusCode::OK => Ok(response),
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            Err(CallError::NotWanted { status })
        }
        StatusCode::CONFLICT | StatusCode::GONE => Err(CallError::Superseded),
        StatusCode::NOT_FOUND => Err(CallError::NotFound),
        status => Err(CallError::Status { status }),
    }
}

async fn parse<T: serde::de::DeserializeOwned>(response: Response) -> Result<T, CallError> {
    serde_json::from_slice(&response.bytes().await?).map_err(CallError::BadAnswer)
}

fn headers(config: &AgentConfig, secret: &str) -> Result<HeaderMap, AgentError> {
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| AgentError::NotAHeader);
    let mut authorization = value(&format!("Bearer {secret}"))?;
    authorization.set_sensitive(true);
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, authorization);
    headers.insert(NODE_HEADER, value(&config.node)?);
    Ok(headers)
}

fn tls_config(config: &AgentConfig) -> Result<rustls::ClientConfig, AgentError> {
    let failed = |source| AgentError::Ca { path: config.ca_file.clone(), source };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&config.ca_file).map_err(failed)? {
        roots
            .add(certificate.map_err(failed)?)
            .map_err(|source| AgentError::BadCa { path: config.ca_file.clone(), source })?;
    }
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(AgentError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
