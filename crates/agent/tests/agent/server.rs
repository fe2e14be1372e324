//! A server that speaks the agents' protocol, records everything and misbehaves on request.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Path as UrlPath, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bytes::Bytes;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use muster_core::agent::{Assignment, AttemptPhase, Desired, Report};
use muster_core::ids::Epoch;
use muster_core::model::JobSpec;
use muster_core::time::Span;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

pub const NODE: &str = "pool-1";
pub const SECRET: &str = "sesame";

/// What the server wants, what it has seen, and how it misbehaves.
pub struct Book {
    pub lease: Span,
    pub assignments: Vec<Assignment>,
    pub end: bool,
    pub specs: BTreeMap<String, JobSpec>,
    pub acknowledges: bool,
    pub reports: Vec<Report>,
    pub logs: BTreeMap<Epoch, Vec<u8>>,
    /// Answers every `sync` with this status instead.
    pub sync_status: Option<StatusCode>,
    /// Answers every `sync` at once, whether or not there is anything new.
    pub is_restless: bool,
    /// Answers every request for a specification with this status instead.
    pub spec_status: Option<StatusCode>,
    pub log_status: Option<StatusCode>,
    /// There is no room for larger chunks of logs.
    pub log_piece_max: Option<usize>,
    /// Room for larger chunks becomes free byte by byte: the first byte of every second chunk is accepted.
    pub log_room_trickles: bool,
    /// There is room only for the last lines of logs.
    pub log_takes_last: bool,
    /// There is no room for the files of jobs.
    pub is_full_of_files: bool,
    /// Once a log is at least this long, forgets everything beyond this length, one time.
    pub forget_log_beyond: Option<usize>,
    pub specs_asked_for: u32,
    /// Sends specifications along with assignments.
    pub gives_specs: bool,
    /// Takes logs with reports, and how many of them it cannot store.
    pub takes_logs: bool,
    pub logs_to_refuse: u32,
    /// The logs that came with reports.
    pub logs_with_reports: BTreeMap<Epoch, String>,
    /// The number of the last report. A request that waits for a reply to an earlier one is ended.
    newest: u64,
    pub connections: u32,
    pub log_offsets: Vec<u64>,
    /// The states of environments, one after the other; the last one is repeated.
    pub environments: Vec<serde_json::Value>,
    pub environments_asked_for: usize,
}

pub struct Server {
    book: Arc<Mutex<Book>>,
    changed: watch::Sender<()>,
    tls: TlsAcceptor,
    address: SocketAddr,
    running: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Shared {
    book: Arc<Mutex<Book>>,
    changed: watch::Sender<()>,
}

impl Server {
    /// Creates a CA, writes its certificate to `ca_file` and takes a port, but does not listen yet.
    pub async fn new(ca_file: &Path) -> Server {
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(ca_file, ca.pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let host = own_loopback_address();
        let params = CertificateParams::new(vec![host.to_string()]).unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let book = Book {
            lease: Span::seconds(60),
            assignments: Vec::new(),
            end: false,
            specs: BTreeMap::new(),
            acknowledges: true,
            reports: Vec::new(),
            logs: BTreeMap::new(),
            sync_status: None,
            is_restless: false,
            spec_status: None,
            log_status: None,
            log_piece_max: None,
            log_room_trickles: false,
            log_takes_last: false,
            is_full_of_files: false,
            forget_log_beyond: None,
            specs_asked_for: 0,
            gives_specs: false,
            takes_logs: false,
            logs_to_refuse: 0,
            logs_with_reports: BTreeMap::new(),
            newest: 0,
            connections: 0,
            log_offsets: Vec::new(),
            environments: Vec::new(),
            environments_asked_for: 0,
        };
        Server {
            book: Arc::new(Mutex::new(book)),
            changed: watch::channel(()).0,
            tls: TlsAcceptor::from(Arc::new(config)),
            address: listener.local_addr().unwrap(),
            running: None,
        }
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub fn look(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    /// Changes what the server wants. Agents that wait for a reply get it.
    pub fn change(&self, change: impl FnOnce(&mut Book)) {
        change(&mut self.look());
        self.changed.send_replace(());
    }

    pub async fn start(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        let shared = Shared { book: self.book.clone(), changed: self.changed.clone() };
        let router = Router::new()
            .route("/agent/v1/sync", post(sync))
            .route("/agent/v1/specs/{hash}", get(spec))
            .route("/agent/v1/environments/{epoch}", get(environment))
            .route("/agent/v1/trees/{epoch}/{tree}", put(tree))
            .route("/agent/v1/logs/{epoch}", post(log))
            .layer(DefaultBodyLimit::max(256 * 1024))
            .with_state(shared);
        let book = self.book.clone();
        self.running = Some(tokio::spawn(serve(listener, self.tls.clone(), router, book)));
    }

    /// Stops the server and closes all its connections.
    pub async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
            let _ = running.await;
        }
    }
}

/// A separate address for every server, so that no other test can be given its port while it is down.
fn own_loopback_address() -> Ipv4Addr {
    static SERVERS: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high, low, SERVERS.fetch_add(1, Ordering::Relaxed))
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, router: Router, book: Arc<Mutex<Book>>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        book.lock().unwrap().connections += 1;
        let (tls, service) = (tls.clone(), TowerToHyperService::new(router.clone()));
        connections.spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let http = hyper::server::conn::http1::Builder::new();
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn is_ours(headers: &HeaderMap) -> bool {
    headers.get("authorization").is_some_and(|value| value == &format!("Bearer {SECRET}"))
        && headers.get("x-muster-node").is_some_and(|value| value == NODE)
}

#[derive(Deserialize)]
struct SyncRequest {
    sequence: u64,
    report: Report,
    wait_ms: u64,
    #[serde(default)]
    logs: BTreeMap<Epoch, String>,
}

async fn sync(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Json(request): Json<SyncRequest>,
) -> Response {
    if !is_ours(&headers) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let mut changed = shared.changed.subscribe();
    let mut refused = Vec::new();
    let (is_news, status) = {
        let mut book = shared.book.lock().unwrap();
        for (epoch, text) in &request.logs {
            if book.logs_to_refuse > 0 {
                book.logs_to_refuse -= 1;
                refused.push(*epoch);
            } else {
                book.logs.insert(*epoch, text.clone().into_bytes());
                book.logs_with_reports.insert(*epoch, text.clone());
            }
        }
        book.reports.push(request.report.clone());
        book.newest = request.sequence;
        (book.is_restless || is_news(&book, &request.report), book.sync_status)
    };
    shared.changed.send_replace(());
    changed.mark_unchanged();
    if status.is_none() && !is_news {
        let wait = Duration::from_millis(request.wait_ms);
        let has_news = async {
            loop {
                changed.changed().await.unwrap();
                let is_replaced = shared.book.lock().unwrap().newest != request.sequence;
                if is_replaced || is_news_now(&shared, &request.report) {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(wait, has_news).await;
    }
    let book = shared.book.lock().unwrap();
    if let Some(status) = book.sync_status {
        return status.into_response();
    }
    if book.newest != request.sequence {
        return StatusCode::CONFLICT.into_response();
    }
    let mut desired = desired(&book, &request.report);
    desired.acknowledged.retain(|epoch| !refused.contains(epoch));
    let specs = if book.gives_specs { book.specs.clone() } else { BTreeMap::new() };
    let answer = json!({
        "sequence": request.sequence,
        "desired": desired,
        "specs": specs,
        "takes_logs": book.takes_logs,
        "refused_logs": refused,
    });
    Json(answer).into_response()
}

fn desired(book: &Book, report: &Report) -> Desired {
    let ended = report.attempts.iter().filter(|a| matches!(a.phase, AttemptPhase::Ended(_)));
    Desired {
        lease: book.lease,
        assignments: book.assignments.clone(),
        floor: Epoch(0),
        as_of: Epoch(u64::MAX),
        acknowledged: ended.filter(|_| book.acknowledges).map(|a| a.epoch).collect(),
        end: book.end,
    }
}

fn is_news_now(shared: &Shared, report: &Report) -> bool {
    let book = shared.book.lock().unwrap();
    book.sync_status.is_some() || is_news(&book, report)
}

/// Returns true if this report does not show yet what we want.
fn is_news(book: &Book, report: &Report) -> bool {
    let is_wanted = |epoch| book.assignments.iter().any(|assignment| assignment.covers(epoch));
    let waits = |epoch| {
        let mut held = report.attempts.iter();
        held.any(|held| held.epoch == epoch && held.phase == AttemptPhase::Ready)
    };
    let is_new = |assignment: &Assignment| {
        assignment.epoch > report.floor || (assignment.go && waits(assignment.epoch))
    };
    let must_hear = |assignment: &Assignment| {
        let mut held = report.attempts.iter();
        assignment.evict.is_some()
            && held
                .any(|held| held.epoch == assignment.epoch && held.phase == AttemptPhase::Running)
    };
    let is_over = |phase: &AttemptPhase| matches!(phase, AttemptPhase::Ended(_));
    book.end
        || book.assignments.iter().any(is_new)
        || book.assignments.iter().any(must_hear)
        || report.attempts.iter().any(|attempt| match is_over(&attempt.phase) {
            true => book.acknowledges,
            false => !is_wanted(attempt.epoch),
        })
}

async fn spec(State(shared): State<Shared>, UrlPath(hash): UrlPath<String>) -> Response {
    let mut book = shared.book.lock().unwrap();
    book.specs_asked_for += 1;
    match (book.spec_status, book.specs.get(&hash)) {
        (Some(status), _) => status.into_response(),
        (None, Some(spec)) => Json(spec).into_response(),
        (None, None) => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn environment(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    assert!(is_ours(&headers));
    let mut book = shared.book.lock().unwrap();
    let place = book.environments_asked_for.min(book.environments.len().saturating_sub(1));
    book.environments_asked_for += 1;
    let answer = book.environments.get(place).cloned();
    shared.changed.send_replace(());
    answer.map_or(StatusCode::NOT_FOUND.into_response(), |answer| Json(answer).into_response())
}

async fn tree(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    assert!(is_ours(&headers));
    match shared.book.lock().unwrap().is_full_of_files {
        true => (StatusCode::INSUFFICIENT_STORAGE, "there is no room").into_response(),
        false => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn log(
    State(shared): State<Shared>,
    UrlPath(epoch): UrlPath<String>,
    Query(query): Query<BTreeMap<String, u64>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    assert!(is_ours(&headers));
    let mut book = shared.book.lock().unwrap();
    book.log_offsets.push(query["offset"]);
    if let Some(status) = book.log_status {
        return status.into_response();
    }
    if book.log_takes_last && query.get("last") != Some(&1) {
        return (StatusCode::INSUFFICIENT_STORAGE, "there is no room").into_response();
    }
    let is_too_large = book.log_piece_max.is_some_and(|most| body.len() > most);
    let takes_a_byte = book.log_room_trickles && book.log_offsets.len().is_multiple_of(2);
    if is_too_large && !takes_a_byte {
        return (StatusCode::INSUFFICIENT_STORAGE, "there is no room").into_response();
    }
    let body = if is_too_large { body.slice(..1) } else { body };
    let offset = usize::try_from(query["offset"]).unwrap();
    let log = book.logs.entry(epoch.parse().unwrap()).or_default();
    // Accepts what follows on what it has, and nothing twice.
    if let Some(known) = log.len().checked_sub(offset) {
        log.extend_from_slice(body.get(known..).unwrap_or_default());
    }
    let mut length = log.len();
    if let Some(beyond) = book.forget_log_beyond.filter(|beyond| *beyond <= length) {
        book.forget_log_beyond = None;
        book.logs.get_mut(&epoch.parse().unwrap()).unwrap().truncate(beyond);
        length = beyond;
    }
    shared.changed.send_replace(());
    Json(json!({ "next": length })).into_response()
}
