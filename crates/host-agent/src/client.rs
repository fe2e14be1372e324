//! The calls of a joined host to its server, over HTTPS that trusts only that server's own authority.
//!
//! Each of our authorities signs for one server only, so a peer with a certificate of it is that server, whatever its
//! address is called on this host. That is why we always expect the same name in the certificate.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use muster_core::agent::NODE_HEADER;
use muster_providers::joined::protocol::{
    ANSWER_BYTES_MAX, BadBody, HostReport, JoinReply, JoinRequest, RELAY, SyncAnswer, SyncRequest,
    VERSION, one_line,
};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONNECTION, CONTENT_TYPE, HeaderValue, UPGRADE};
use reqwest::{RequestBuilder, Response, StatusCode, Upgraded};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::HostAgentError;
use crate::relay::Upstream;

/// A name that every certificate of ours contains.
const NAME: &str = "localhost";
/// How long the server may hold a report before it replies.
pub(crate) const SYNC_WAIT: Duration = Duration::from_secs(10);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A certificate takes about 1 KiB.
const CA_BYTES_MAX: usize = 64 * 1024;

/// The address of a server, as this host reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    host: String,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the address of a server; use https://HOST:PORT")]
pub struct BadServer {
    text: String,
}

impl Server {
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for Server {
    type Err = BadServer;

    fn from_str(text: &str) -> Result<Server, BadServer> {
        let bad = || BadServer { text: text.chars().take(200).collect() };
        let url = reqwest::Url::parse(text).map_err(|_| bad())?;
        let is_plain = url.scheme() == "https"
            && matches!(url.path(), "" | "/")
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        let host = url.host_str().filter(|_| is_plain).ok_or_else(bad)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Server { host, port: url.port_or_known_default().ok_or_else(bad)? })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "https://[{}]:{}", self.host, self.port),
            false => write!(f, "https://{}:{}", self.host, self.port),
        }
    }
}

/// Resolves every name to the server.
struct Leads(Server);

impl Resolve for Leads {
    fn resolve(&self, _: Name) -> Resolving {
        let Server { host, .. } = self.0.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("the server does not respond")]
    Unreachable(#[from] reqwest::Error),
    #[error("the server refuses this: {message}")]
    Refused { status: StatusCode, message: String },
    #[error("the server cannot respond now (status {status})")]
    NotNow { status: StatusCode },
    #[error("the server's response is invalid")]
    Nonsense(#[from] BadBody),
    #[error("the server's response is longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("the server replied to report {answered} instead of {asked}")]
    OtherReport { asked: u64, answered: u64 },
}

/// Cheap to clone: all clones share one pool of connections.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    pub fn new(server: &Server, ca_pem: &str) -> Result<Client, HostAgentError> {
        let http = builder(server).tls_backend_preconfigured(tls_config(ca_pem)?);
        let http = http.build().map_err(HostAgentError::Client)?;
        Ok(Client { http, base: base(server) })
    }

    pub async fn join(&self, request: &JoinRequest) -> Result<JoinReply, CallError> {
        let call = self.http.post(format!("{}/join", self.base)).timeout(CALL_TIMEOUT);
        let body = serde_json::to_vec(request).expect("the fields are plain");
        Ok(JoinReply::parse(&answered(json(call, body), ANSWER_BYTES_MAX).await?)?)
    }

    pub async fn sync(
        self,
        card: Card,
        (generation, sequence): (u64, u64),
        report: HostReport,
    ) -> Result<SyncAnswer, CallError> {
        let wait_ms = u64::try_from(SYNC_WAIT.as_millis()).expect("this is a few seconds");
        let request = SyncRequest { version: VERSION, generation, sequence, wait_ms, report };
        let body = serde_json::to_vec(&request).expect("the fields are plain");
        let call = self.http.post(format!("{}/sync", self.base)).timeout(SYNC_WAIT + CALL_TIMEOUT);
        let call = call.header("x-muster-host", &card.name).bearer_auth(&card.key);
        let answer = SyncAnswer::parse(&answered(json(call, body), ANSWER_BYTES_MAX).await?)?;
        if answer.sequence != sequence {
            return Err(CallError::OtherReport { asked: sequence, answered: answer.sequence });
        }
        Ok(answer)
    }
}

/// The identity of this host, and the proof of it.
#[derive(Clone)]
pub(crate) struct Card {
    pub name: String,
    pub key: String,
}

/// Connects the calls of this host's nodes to the server.
#[derive(Clone)]
pub(crate) struct Tunnels {
    pub client: Client,
    pub card: Card,
}

impl Tunnels {
    async fn tunnel(&self, node: &str) -> Result<Upgraded, CallError> {
        let Tunnels { client, card } = self;
        let call = client.http.get(format!("{}/relay", client.base));
        let call = call.header("x-muster-host", &card.name).bearer_auth(&card.key);
        let call = call.header(NODE_HEADER, node);
        let call = call.header(CONNECTION, "upgrade").header(UPGRADE, RELAY);
        let mut response = call.send().await?;
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => Ok(response.upgrade().await?),
            status if status.is_client_error() => {
                Err(refused(&mut response, ANSWER_BYTES_MAX).await)
            }
            status => Err(CallError::NotNow { status }),
        }
    }
}

impl Upstream for Tunnels {
    type Stream = Upgraded;

    async fn open(&self, node: &Arc<str>) -> io::Result<Upgraded> {
        self.tunnel(node).await.map_err(io::Error::other)
    }
}

/// Fetches the certificate of the server's authority from the peer at this address. It has to be checked before it is
/// trusted.
pub(crate) async fn offered_ca(server: &Server) -> Result<String, CallError> {
    let http = builder(server).tls_danger_accept_invalid_certs(true).build()?;
    let call = http.get(format!("{}/ca", base(server))).timeout(CALL_TIMEOUT);
    Ok(String::from_utf8_lossy(&answered(call, CA_BYTES_MAX).await?).into_owned())
}

fn base(server: &Server) -> String {
    format!("https://{NAME}:{}/host/v1", server.port)
}

fn builder(server: &Server) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .dns_resolver(Arc::new(Leads(server.clone())))
        .https_only(true)
        .http1_only()
        .no_proxy()
        // A redirect would send the key elsewhere.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
}

fn json(call: RequestBuilder, body: Vec<u8>) -> RequestBuilder {
    call.header(CONTENT_TYPE, HeaderValue::from_static("application/json")).body(body)
}

async fn answered(call: RequestBuilder, limit: usize) -> Result<Vec<u8>, CallError> {
    let mut response = call.send().await?;
    match response.status() {
        StatusCode::OK => read(&mut response, limit).await,
        status @ (StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT) => {
            Err(CallError::NotNow { status })
        }
        status if status.is_client_error() => Err(refused(&mut response, limit).await),
        status => Err(CallError::NotNow { status }),
    }
}

async fn refused(response: &mut Response, limit: usize) -> CallError {
    let message = read(response, limit).await.unwrap_or_default();
    let message = one_line(String::from_utf8_lossy(&message).trim());
    CallError::Refused { status: response.status(), message }
}

async fn read(response: &mut Response, limit: usize) -> Result<Vec<u8>, CallError> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if bytes.len() + piece.len() > limit {
            return Err(CallError::TooLong { limit });
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

fn tls_config(ca_pem: &str) -> Result<rustls::ClientConfig, HostAgentError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()).flatten() {
        roots.add(certificate).map_err(HostAgentError::Tls)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(HostAgentError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port_and_nothing_else() {
        let read = |text: &str| text.parse::<Server>().map(|server| server.to_string());
        assert_eq!(read("https://lab:8443/").unwrap(), "https://lab:8443");
        assert_eq!(read("https://lab").unwrap(), "https://lab:443");
        assert_eq!(read("https://[fd00::1]:8443").unwrap(), "https://[fd00::1]:8443");
        for bad in [
            "",
            "lab:8443",
            "http://lab:8443",
            "https://",
            "https://lab/x",
            "https://a@lab",
            "https://lab?x",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
