//! A real server, and a client of its API that keeps one connection.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use muster_core::ClusterPatch;
use muster_core::model::{JobSpec, WorkspaceKey};
use muster_core::time::Span;
use muster_wire::cloud::TokenReply;
use muster_wire::compute::NodeList;
use muster_wire::job::JobResource;
use muster_wire::{Route, compute, from_json, job};
use reqwest::{Certificate, Client, Method};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::front::Target;

/// For anything that should take milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Server {
    process: Option<Child>,
    state_dir: PathBuf,
    url: String,
    token: String,
    client: Client,
    ready_after: Duration,
}

impl Server {
    pub async fn start(muster: PathBuf, state_dir: PathBuf) -> Result<Server> {
        let started = Instant::now();
        let mut process = Command::new(muster)
            .args(["up", "--listen", "127.0.0.1:0", "--state-dir"])
            .arg(&state_dir)
            // It is for our own measuring of memory; users' servers give theirs back.
            .env_remove("MIMALLOC_PURGE_DELAY")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = process.stdout.take().context("it was asked for")?;
        let mut lines = BufReader::new(stdout).lines();
        let first = tokio::time::timeout(PATIENCE, lines.next_line()).await??;
        let ready_after = started.elapsed();
        let ready = first.as_deref().and_then(|line| line.strip_prefix("ready "));
        let url = ready.context("the server did not come up")?.to_owned();
        let client = client(&state_dir)?;
        let key = std::fs::read_to_string(state_dir.join("keys/owner.key"))?;
        let resource = format!("{url}/msi/token?api-version=2019-08-01&resource={url}");
        let request = client.get(resource).header("X-IDENTITY-HEADER", key.trim());
        let reply = request.send().await?.bytes().await?;
        let TokenReply { access_token: token, .. } = from_json(&reply)?;
        Ok(Server { process: Some(process), state_dir, url, token, client, ready_after })
    }

    /// Another client of the same server, on a connection of its own.
    pub fn connect(&self) -> Result<Server> {
        Ok(Server {
            process: None,
            state_dir: self.state_dir.clone(),
            url: self.url.clone(),
            token: self.token.clone(),
            client: client(&self.state_dir)?,
            ready_after: self.ready_after,
        })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().and_then(Child::id)
    }

    /// From the start of the process to its word that it can be used.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// The same server for a client of our own.
    pub fn target(&self, tls: Arc<rustls::ClientConfig>) -> Result<Target> {
        let port = self.url.rsplit_once(':').context("a port")?.1.parse()?;
        let header = format!("Authorization: Bearer {}\r\n", self.token);
        Ok(Target { port, tls, header })
    }

    async fn call(&self, method: Method, route: &Route, body: Option<String>) -> Result<Vec<u8>> {
        let url = route.url(&self.url, &[("api-version", "2025-12-01")]).context("no address")?;
        let mut request = self.client.request(method, url).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body);
        }
        let response = request.send().await?;
        let status = response.status();
        let bytes = response.bytes().await?;
        if !status.is_success() {
            bail!("{status}: {}", String::from_utf8_lossy(&bytes));
        }
        Ok(bytes.to_vec())
    }

    pub async fn put_cluster(&self, name: &str, min: u32, max: u32, idle_s: u64) -> Result<()> {
        let wanted = ClusterPatch {
            nodes_min: Some(min),
            nodes_max: Some(max),
            idle_time: Some(Span::seconds(idle_s)),
            ..ClusterPatch::default()
        };
        let route = Route::Compute { workspace: workspace(), name: name.into() };
        self.call(Method::PUT, &route, Some(compute::request_json(&wanted, None))).await?;
        Ok(())
    }

    pub async fn submit(&self, name: &str, cluster: &str, command: &str) -> Result<String> {
        let spec = JobSpec::new(cluster, command);
        let route = Route::Job { workspace: workspace(), name: name.into() };
        self.call(Method::PUT, &route, Some(job::request_json(&spec, &workspace()))).await?;
        Ok(name.to_owned())
    }

    pub async fn wait_until_over(&self, name: &str) -> Result<()> {
        let route = Route::Job { workspace: workspace(), name: name.into() };
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let job: JobResource = from_json(&self.call(Method::GET, &route, None).await?)?;
            if job.properties.status.is_terminal() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        bail!("{name} was not over after {} s", PATIENCE.as_secs())
    }

    pub async fn wait_for_nodes(&self, cluster: &str, count: usize) -> Result<()> {
        let route = Route::ComputeNodes { workspace: workspace(), name: cluster.into() };
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let list: NodeList = from_json(&self.call(Method::POST, &route, None).await?)?;
            let idle = list.nodes.iter().filter(|node| node.node_state.as_str() == "idle").count();
            if list.nodes.len() == count && idle == count {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        bail!("{cluster} did not come to {count} nodes in {} s", PATIENCE.as_secs())
    }

    /// Lets the clusters' nodes go, then the server.
    pub async fn stop(self) -> Result<()> {
        for cluster in ["warm", "cold"] {
            let route = Route::Compute { workspace: workspace(), name: cluster.into() };
            self.wait_for_nodes(cluster, usize::from(cluster == "warm")).await?;
            self.call(Method::DELETE, &route, None).await?;
            let gone = Instant::now();
            while self.call(Method::GET, &route, None).await.is_ok() && gone.elapsed() < PATIENCE {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        self.end().await
    }

    pub async fn end(mut self) -> Result<()> {
        if let Some(process) = &mut self.process
            && let Some(pid) = process.id()
        {
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid)?).context("a pid")?;
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
            process.wait().await?;
        }
        Ok(())
    }
}

fn workspace() -> WorkspaceKey {
    WorkspaceKey::new("bench", "bench", "bench")
}

fn client(state_dir: &std::path::Path) -> Result<Client> {
    let ca = Certificate::from_pem(&std::fs::read(state_dir.join("pki/ca.pem"))?)?;
    Ok(Client::builder().tls_certs_only([ca]).http1_only().tcp_nodelay(true).build()?)
}
