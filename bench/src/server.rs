//! A real server, and a client of its API with one connection.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use muster_core::ClusterPatch;
use muster_core::model::{JobSpec, Role, Scope, UserKind, WorkspaceKey};
use muster_core::time::Span;
use muster_wire::access::{self, UserDocument};
use muster_wire::cloud::TokenReply;
use muster_wire::compute::NodeList;
use muster_wire::datastore::{DatastoreResource, Secrets};
use muster_wire::job::{JobResource, JobStatus, RunDetails};
use muster_wire::{AccessRoute, HistoryRoute, Page, Route, StorageRoute, compute, from_json, job};
use reqwest::{Certificate, Client, Method};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::front::Target;
use crate::nodes::keep;

/// The limits of a single user are not what is measured.
const LIMITS: [&str; 10] = [
    "--user-requests-per-second",
    "0",
    "--workspace-requests-per-second",
    "0",
    "--workspace-file-requests-per-second",
    "0",
    "--queued-jobs-per-user",
    "1100000",
    "--queued-jobs-per-workspace",
    "1100000",
];

/// The time limit for anything that should take milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Server {
    process: Option<Process>,
    /// The server's own process, if the one that we started is its reaper.
    kept: Option<u32>,
    state_dir: PathBuf,
    url: String,
    token: String,
    client: Client,
    ready_after: Duration,
}

impl Server {
    pub async fn start(muster: PathBuf, state_dir: PathBuf) -> Result<Server> {
        Server::spawn(Command::new(muster), state_dir, &[]).await
    }

    /// Starts it under a reaper, so that its helper and its nodes are counted, and are ended even if it does not end
    /// them.
    pub async fn start_kept(muster: &Path, state_dir: PathBuf, flags: &[&str]) -> Result<Server> {
        let reaper = keep::words()?;
        let mut command = Command::new(&reaper[0]);
        command.args(&reaper[1..]).arg(muster).process_group(0);
        let mut server = Server::spawn(command, state_dir, flags).await?;
        server.kept = Some(keep::first_child(server.pid().context("the server runs")?)?);
        Ok(server)
    }

    async fn spawn(mut command: Command, state_dir: PathBuf, flags: &[&str]) -> Result<Server> {
        let started = Instant::now();
        let process = command
            // The server sets this variable itself.
            .env_remove("GLIBC_TUNABLES")
            .args(["up", "--listen", "127.0.0.1:0", "--state-dir"])
            .arg(&state_dir)
            .args(LIMITS)
            .args(flags)
            // The allocator's setting is for our own memory measurements; users' servers return memory to the system.
            .env_remove("MIMALLOC_PURGE_DELAY")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut process = Process(process);
        let stdout = process.0.stdout.take().context("standard output is piped")?;
        let mut lines = BufReader::new(stdout).lines();
        let first = tokio::time::timeout(PATIENCE, lines.next_line()).await??;
        let ready_after = started.elapsed();
        let ready = first.as_deref().and_then(|line| line.strip_prefix("ready "));
        let url = ready.context("the server did not become ready")?.to_owned();
        let client = client(&state_dir)?;
        let key = std::fs::read_to_string(state_dir.join("keys/owner.key"))?;
        let token = token(&client, &url, key.trim()).await?;
        Ok(Server {
            process: Some(process),
            kept: None,
            state_dir,
            url,
            token,
            client,
            ready_after,
        })
    }

    /// Another client of the same server, on a connection of its own.
    pub fn connect(&self) -> Result<Server> {
        Ok(Server {
            process: None,
            kept: None,
            state_dir: self.state_dir.clone(),
            url: self.url.clone(),
            token: self.token.clone(),
            client: client(&self.state_dir)?,
            ready_after: self.ready_after,
        })
    }

    /// The same server for a new user who may do everything in every workspace.
    pub async fn tenant(&self, name: &str) -> Result<Server> {
        let route = Route::Access(AccessRoute::User { name: name.into() });
        let user = access::user_json(UserKind::Person);
        let user: UserDocument = from_json(&self.call(Method::PUT, &route, Some(user)).await?)?;
        let role = access::role_assignment_json(Role::Contributor, &user.object_id);
        let (scope, name) = (Scope::Everything, user.object_id.as_str().into());
        let route = Route::Access(AccessRoute::RoleAssignment { scope, name });
        self.call(Method::PUT, &route, Some(role)).await?;
        let key = user.key.context("a new user has a key")?;
        let token = token(&self.client, &self.url, &key).await?;
        Ok(Server { token, ..self.connect()? })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn port(&self) -> Result<u16> {
        Ok(self.url.rsplit_once(':').context("a port")?.1.parse()?)
    }

    /// The server's own process, or its reaper's.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().and_then(|process| process.0.id())
    }

    /// From the start of the process until it reports that it is ready.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// The same server for the benchmark's own client.
    pub fn target(&self, tls: Arc<rustls::ClientConfig>) -> Result<Target> {
        let port = self.port()?;
        let header = format!("Authorization: Bearer {}\r\n", self.token);
        Ok(Target { port, tls, header })
    }

    async fn call(&self, method: Method, route: &Route, body: Option<String>) -> Result<Vec<u8>> {
        let url = route
            .url(&self.url, &[("api-version", "2025-12-01")])
            .context("the route has no URL")?;
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

    /// A datastore's container: the port of the second listener, its path there, and the query that gives access.
    pub async fn container(&self, datastore: &str) -> Result<(u16, String, String)> {
        let at = |name: &str| StorageRoute::Datastore { workspace: workspace(), name: name.into() };
        let seen = self.call(Method::GET, &Route::Storage(at(datastore)), None).await?;
        let seen: DatastoreResource = from_json(&seen)?;
        let (workspace, name) = (workspace(), datastore.into());
        let route = Route::Storage(StorageRoute::DatastoreSecrets { workspace, name });
        let secrets: Secrets = from_json(&self.call(Method::POST, &route, None).await?)?;
        let Secrets::Sas { sas_token } = secrets else { bail!("the datastore has no SAS token") };
        let container = seen.properties.container_name.context("the datastore has a container")?;
        // `HOST:PORT/muster`.
        let account = seen.properties.account_name.context("the datastore has an account")?;
        let port = account.split('/').next().and_then(|host| host.rsplit_once(':'));
        let port = port.context("the account has a port")?.1.parse()?;
        Ok((port, format!("/{container}"), sas_token))
    }

    pub async fn put_cluster(&self, name: &str, min: u32, max: u32, idle_s: u64) -> Result<()> {
        let wanted = ClusterPatch {
            nodes_min: Some(min),
            nodes_max: Some(max),
            idle_time: Some(Span::seconds(idle_s)),
            ..ClusterPatch::default()
        };
        self.put_cluster_in(&workspace(), name, &wanted).await
    }

    pub async fn put_cluster_in(
        &self,
        workspace: &WorkspaceKey,
        name: &str,
        wanted: &ClusterPatch,
    ) -> Result<()> {
        let route = Route::Compute { workspace: workspace.clone(), name: name.into() };
        self.call(Method::PUT, &route, Some(compute::request_json(wanted, None))).await?;
        Ok(())
    }

    pub async fn submit(&self, name: &str, cluster: &str, command: &str) -> Result<String> {
        self.submit_spec(name, &JobSpec::new(cluster, command)).await?;
        Ok(name.to_owned())
    }

    pub async fn submit_spec(&self, name: &str, spec: &JobSpec) -> Result<()> {
        let route = Route::Job { workspace: workspace(), name: name.into() };
        self.call(Method::PUT, &route, Some(job::request_json(spec, &workspace()))).await?;
        Ok(())
    }

    pub async fn wait_until_over(&self, name: &str) -> Result<()> {
        self.wait_for_end(name, PATIENCE, Duration::from_millis(2)).await?;
        Ok(())
    }

    pub async fn wait_for_end(
        &self,
        name: &str,
        patience: Duration,
        pause: Duration,
    ) -> Result<JobStatus> {
        let route = Route::Job { workspace: workspace(), name: name.into() };
        let started = Instant::now();
        while started.elapsed() < patience {
            let job: JobResource = from_json(&self.call(Method::GET, &route, None).await?)?;
            if job.properties.status.is_terminal() {
                return Ok(job.properties.status);
            }
            tokio::time::sleep(pause).await;
        }
        bail!("{name} was not over after {} s", patience.as_secs())
    }

    /// Everything that the job has printed.
    pub async fn log(&self, name: &str) -> Result<String> {
        let route = HistoryRoute::RunDetails { workspace: workspace(), run: name.into() };
        let route = Route::History(route);
        let details: RunDetails = from_json(&self.call(Method::GET, &route, None).await?)?;
        let url =
            details.log_files.values().next().with_context(|| format!("{name} has no log"))?;
        Ok(self.client.get(url).send().await?.error_for_status()?.text().await?)
    }

    /// The jobs whose names start with this text.
    pub async fn jobs(&self, prefix: &str) -> Result<Vec<JobResource>> {
        let mut found = Vec::new();
        let mut next = Route::Jobs(workspace()).url(&self.url, &[("api-version", "2025-12-01")]);
        while let Some(url) = next {
            let request = self.client.get(url).bearer_auth(&self.token);
            let reply = request.send().await?.error_for_status()?.bytes().await?;
            let page: Page<JobResource> = from_json(&reply)?;
            found.extend(page.value.into_iter().filter(|job| job.name.starts_with(prefix)));
            next = page.next_link;
        }
        Ok(found)
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
        bail!("{cluster} did not reach {count} nodes within {} s", PATIENCE.as_secs())
    }

    /// Scales a cluster down to no nodes, and waits for that.
    pub async fn delete_cluster(&self, name: &str) -> Result<()> {
        let route = Route::Compute { workspace: workspace(), name: name.into() };
        self.call(Method::DELETE, &route, None).await?;
        let started = Instant::now();
        while self.call(Method::GET, &route, None).await.is_ok() {
            anyhow::ensure!(started.elapsed() < PATIENCE, "{name} still exists");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Crashes the server: its nodes are kept, under the reaper.
    pub fn kill(mut self) -> Result<Process> {
        // The next server can use the folder only after this one has released it.
        keep::kill(self.kept.context("the server has no reaper")?)?;
        self.process.take().context("the server runs")
    }

    pub async fn end(mut self) -> Result<()> {
        if let Some(pid) = self.kept.or(self.pid()) {
            keep::signal(pid, Signal::TERM);
        }
        if let Some(process) = &mut self.process {
            tokio::time::timeout(PATIENCE, process.0.wait())
                .await
                .context("the server does not end")??;
        }
        Ok(())
    }
}

/// A server's process, or its reaper's. When it is dropped, everything below it is ended.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(pid) = self.0.id() {
            keep::end(pid);
        }
    }
}

fn workspace() -> WorkspaceKey {
    WorkspaceKey::new("bench", "bench", "bench")
}

async fn token(client: &Client, url: &str, key: &str) -> Result<String> {
    let resource = format!("{url}/msi/token?api-version=2019-08-01&resource={url}");
    let request = client.get(resource).header("X-IDENTITY-HEADER", key);
    let reply = request.send().await?.bytes().await?;
    let TokenReply { access_token, .. } = from_json(&reply)?;
    Ok(access_token)
}

fn client(state_dir: &std::path::Path) -> Result<Client> {
    let ca = Certificate::from_pem(&std::fs::read(state_dir.join("pki/ca.pem"))?)?;
    let client = Client::builder().tls_certs_only([ca]).http1_only().tcp_nodelay(true);
    Ok(client.timeout(PATIENCE).build()?)
}
