//! Where the server listens, and the host name under which clients reach it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::TcpListener;

use crate::config::{ServeError, ServerConfig};
use crate::http;
use crate::state_dir::StateDir;

/// How the server is reached.
#[derive(Debug, Clone)]
pub struct Address {
    /// The socket address of the API listener.
    pub listens: SocketAddr,
    /// The port of the second listener, which serves files.
    pub files_port: u16,
    /// The host name that this machine reports for itself.
    pub host_name: String,
    /// The host in the URLs that clients receive.
    pub host: String,
}

impl Address {
    pub fn of(config: &ServerConfig, listeners: &http::Listeners) -> Address {
        let listens = listeners.api.local_addr().unwrap_or(config.listen);
        let files_port =
            listeners.files.local_addr().map_or(config.files_port, |address| address.port());
        let host_name = host_name();
        let host = match &config.public_host {
            Some(host) => in_url(host),
            None => public_host(listens.ip(), &host_name),
        };
        Address { listens, files_port, host_name, host }
    }

    /// The URL that clients receive: `https://HOST:PORT`.
    pub fn base_url(&self) -> String {
        format!("https://{}:{}", self.host, self.listens.port())
    }

    pub fn files_url(&self) -> String {
        format!("https://{}:{}", self.host, self.files_port)
    }

    /// The URL for agents. They run on this machine, so it contains an address and needs no name resolution.
    pub fn agent_url(&self) -> String {
        format!("https://{}:{}", agent_host(self.listens.ip()), self.listens.port())
    }
}

pub async fn open_listeners(
    config: &ServerConfig,
    state_dir: &StateDir,
) -> Result<http::Listeners, ServeError> {
    let last = state_dir.read_connection().ok();
    let api = listen(config.listen, "listen", last.as_ref().map(|last| last.port)).await?;
    let files = SocketAddr::new(config.listen.ip(), config.files_port);
    let files = listen(files, "files-port", last.map(|last| last.files_port)).await?;
    let metrics = match config.metrics_listen {
        Some(address) => Some(listen(address, "metrics-listen", None).await?),
        None => None,
    };
    Ok(http::Listeners { api, files, metrics })
}

/// Port 0 means "any free port". The nodes of the previous run know its port, so that port is reused if it is still
/// free.
async fn listen(
    address: SocketAddr,
    setting: &'static str,
    last: Option<u16>,
) -> Result<TcpListener, ServeError> {
    if let Some(last) = last.filter(|last| address.port() == 0 && *last != 0)
        && let Ok(listener) = TcpListener::bind(SocketAddr::new(address.ip(), last)).await
    {
        return Ok(listener);
    }
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| ServeError::Listen { address, setting, source })
}

/// The host name that clients receive. It comes from the configuration, never from a request.
fn public_host(ip: IpAddr, host_name: &str) -> String {
    match ip {
        ip if ip.is_loopback() => "localhost".to_owned(),
        ip if ip.is_unspecified() => host_name.to_owned(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// Formats a host for a URL; an IPv6 address needs brackets there.
fn in_url(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_ascii_lowercase() }
}

fn agent_host(ip: IpAddr) -> String {
    match ip {
        ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    if name.is_empty() { "localhost".to_owned() } else { name }
}
