//! Muster itself: a real server with its helper and nodes, used through its API.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use muster_core::model::{ArrayPlan, JobSpec, ShareRequest};
use muster_wire::job::{JobStatus, property};

use super::{Bulk, Crash, NO_OP, PATIENCE, STAMP, keep};
use crate::nodes::local::parse_stamp;
use crate::raw::unix_ns;
use crate::report::Samples;
use crate::server::Server;

const CLIENTS: usize = 8;
const PAUSE: Duration = Duration::from_millis(50);

fn no_op(cluster: &str) -> JobSpec {
    let share = ShareRequest { vcpus: Some(1), ..ShareRequest::default() };
    JobSpec { share, ..JobSpec::new(cluster, NO_OP) }
}

pub fn no_op_array(cluster: &str, tasks: usize) -> Result<JobSpec> {
    let indices = format!("0-{}", tasks - 1).parse()?;
    let plan = ArrayPlan { indices, concurrency: None, timeout: None };
    Ok(JobSpec { array: Some(Box::new(plan)), ..no_op(cluster) })
}

/// How jobs are isolated.
#[derive(Clone, Copy)]
pub enum Sandboxes {
    /// Each job has a sandbox of its own.
    Own,
    /// All jobs on a node share the node's sandbox.
    Shared,
    None,
}

impl Sandboxes {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Sandboxes::Own => &["--isolation", "sandbox"],
            Sandboxes::Shared => &["--isolation", "sandbox", "--job-sandbox", "shared"],
            Sandboxes::None => &["--isolation", "none"],
        }
    }
}

pub struct Stack {
    muster: PathBuf,
    state_dir: PathBuf,
    sandboxes: Sandboxes,
    server: Server,
}

impl Stack {
    pub async fn start(muster: &Path, folder: &Path, sandboxes: Sandboxes) -> Result<Stack> {
        let flags = sandboxes.flags();
        let state_dir = folder.join(format!("state-{}", flags.len()) + flags[1]);
        let server = Server::start_kept(muster, state_dir.clone(), flags).await;
        let server = server.with_context(|| format!("with {}", flags.join(" ")))?;
        Ok(Stack { muster: muster.to_owned(), state_dir, sandboxes, server })
    }

    /// From sending a submission to the first line that the job prints.
    pub async fn first_line(&self, cluster: &str, nodes: u32, runs: usize) -> Result<Samples> {
        self.server.put_cluster(cluster, nodes, 1, 0).await?;
        self.server.wait_for_nodes(cluster, nodes as usize).await?;
        let mut samples = Samples::default();
        // The first run is not counted, because connections and the page cache are cold.
        for run in 0..=runs {
            let before = unix_ns();
            let job = self.server.submit(&format!("{cluster}-{run}"), cluster, STAMP).await?;
            self.server.wait_until_over(&job).await?;
            let started = parse_stamp(&self.server.log(&job).await?).context(job)?;
            if run > 0 {
                samples.add(Duration::from_nanos(started.saturating_sub(before)));
            }
            self.server.wait_for_nodes(cluster, nodes as usize).await?;
        }
        self.server.delete_cluster(cluster).await?;
        Ok(samples)
    }

    /// This many jobs, each submitted separately, with as many running at once as their node has cores.
    pub async fn bulk(&self, tasks: usize) -> Result<Bulk> {
        self.server.put_cluster("bulk", 1, 1, 0).await?;
        self.server.wait_for_nodes("bulk", 1).await?;
        let pid = self.server.pid().context("the server runs")?;
        let (started, before) = (Instant::now(), keep::cpu(pid));
        self.submit_all("bulk", tasks).await?;
        self.wait_for_all("bulk", tasks).await?;
        let (took, cpu) = (started.elapsed(), keep::cpu(pid).saturating_sub(before));
        let jobs = self.server.jobs("bulk-").await?;
        let done = jobs.iter().filter(|job| job.properties.status == JobStatus::Completed).count();
        ensure!(done == tasks, "{done} of {tasks} jobs were completed");
        self.server.delete_cluster("bulk").await?;
        Ok(Bulk { tasks, took, cpu })
    }

    /// One array of this many tasks, with as many running at once as its node has cores.
    pub async fn array(&self, name: &str, tasks: usize) -> Result<Bulk> {
        self.server.put_cluster("array", 1, 1, 0).await?;
        self.server.wait_for_nodes("array", 1).await?;
        let pid = self.server.pid().context("the server runs")?;
        let (started, before) = (Instant::now(), keep::cpu(pid));
        self.server.submit_spec(name, &no_op_array("array", tasks)?).await?;
        let status = self.server.wait_for_end(name, PATIENCE, PAUSE).await?;
        let (took, cpu) = (started.elapsed(), keep::cpu(pid).saturating_sub(before));
        // An array is completed only if all of its tasks are.
        ensure!(status == JobStatus::Completed, "the array ended as {status:?}");
        self.server.delete_cluster("array").await?;
        Ok(Bulk { tasks, took, cpu })
    }

    /// Kills the server when half of the jobs have ended, and starts it again.
    pub async fn crash(self, tasks: usize) -> Result<Crash> {
        // No job starts before all are accepted, so that half is really half.
        self.server.put_cluster("crash", 0, 0, 0).await?;
        self.submit_all("crash", tasks).await?;
        self.server.put_cluster("crash", 1, 1, 0).await?;
        self.server.wait_for_end(&format!("crash-{}", tasks / 2), PATIENCE, PAUSE).await?;
        let port = self.server.port()?;
        let left = self.server.kill()?;
        let started = Instant::now();
        // The nodes look for the server at its old address, so it must start there again.
        let Stack { muster, state_dir, sandboxes, .. } = self;
        let flags = sandboxes.flags();
        let server = Server::start_kept(&muster, state_dir.clone(), flags).await?;
        ensure!(server.port()? == port, "port {port} was taken by another process in the meantime");
        let again = Stack { muster, state_dir, sandboxes, server };
        again.wait_for_all("crash", tasks).await?;
        let over_after = started.elapsed();
        let jobs = again.server.jobs("crash-").await?;
        let done = jobs.iter().filter(|job| job.properties.status == JobStatus::Completed).count();
        let attempts = jobs.iter().map(|job| job.properties.properties.get(property::ATTEMPTS));
        let twice = attempts.filter(|count| count.is_none_or(|count| count != "1")).count();
        again.server.delete_cluster("crash").await?;
        again.end().await?;
        drop(left);
        Ok(Crash { tasks, lost: tasks - done, again: twice, over_after })
    }

    pub async fn end(self) -> Result<()> {
        self.server.end().await
    }

    async fn submit_all(&self, cluster: &str, tasks: usize) -> Result<()> {
        let spec = no_op(cluster);
        let mut clients = Vec::new();
        for client in 0..CLIENTS {
            let (server, spec, cluster) =
                (self.server.connect()?, spec.clone(), cluster.to_owned());
            clients.push(tokio::spawn(async move {
                for task in (client..tasks).step_by(CLIENTS) {
                    server.submit_spec(&format!("{cluster}-{task}"), &spec).await?;
                }
                anyhow::Ok(())
            }));
        }
        for client in clients {
            client.await??;
        }
        Ok(())
    }

    /// Jobs start nearly in order, so the last ones are checked first, and then all of them.
    async fn wait_for_all(&self, cluster: &str, tasks: usize) -> Result<()> {
        for task in tasks.saturating_sub(CLIENTS)..tasks {
            self.server.wait_for_end(&format!("{cluster}-{task}"), PATIENCE, PAUSE).await?;
        }
        for job in self.server.jobs(&format!("{cluster}-")).await? {
            if !job.properties.status.is_terminal() {
                self.server.wait_for_end(&job.name, PATIENCE, PAUSE).await?;
            }
        }
        Ok(())
    }
}
