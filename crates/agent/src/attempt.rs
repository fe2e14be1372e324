//! Runs one attempt on this node, from its assignment to its end.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_core::ErrorChain;
use muster_core::agent::{Assignment, AttemptEnd, CLOUD_NAME, RunFacts, Signal};
use muster_core::ids::Epoch;
use muster_core::model::{Carrying, Exit, JobSpec, Spans};
use muster_core::time::Span;
use muster_sandbox::job::{self, Spawner};
use muster_sandbox::network::JobNetwork;
use rustix::fs::{FallocateFlags, fallocate};
use tokio::sync::{mpsc, watch};

use crate::backoff::Backoff;
use crate::client::{CallError, Client};
use crate::engine::{Engine, Launching};
use crate::files::{FolderSaver, KeepError, Patience};
use crate::gpus::Gpus;
use crate::home::{Home, make_private_dir, remove_tree};
use crate::limits::{JobGroup, JobGroups, Memory, Watch};
use crate::meter::{Counted, Meter, Metered};
use crate::removals::Removals;
use crate::running::Running;
use crate::sandboxed::{AbortOnDrop, StartError};
use crate::services::Services;
use crate::{FullServer, clock, files, log, lookups, relay};

/// The search path for programs, if the agent's environment has none.
pub(crate) const DEFAULT_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// This much disk space on the node is reserved for a job's output before the job starts.
const LOG_BYTES_RESERVED: u64 = 256 * 1024;

/// How long a job waits for space for its folder on its node's disk, and how often it checks.
const SPACE_WITHIN: Duration = Duration::from_secs(15);
const SPACE_LOOK_EVERY: Duration = Duration::from_millis(250);

/// What all attempts of a node share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) home: Home,
    pub(crate) node: String,
    /// Creates a sandbox for each job. Without it, jobs are not sandboxed.
    pub(crate) spawner: Option<Spawner>,
    /// The folders that sandboxes hide.
    pub(crate) hidden: Vec<PathBuf>,
    /// The most that a job may write to its folder.
    pub(crate) disk_bytes: Option<u64>,
    /// The most output of a job that is accepted.
    pub(crate) log_bytes: u64,
    pub(crate) full_server: FullServer,
    /// Jobs share the node's sandbox instead of having one each.
    pub(crate) jobs_share: bool,
    pub(crate) memory: Option<Memory>,
    pub(crate) groups: Arc<JobGroups>,
    pub(crate) meter: Arc<Meter>,
    /// Warnings about this node that every job's log contains.
    pub(crate) warnings: Vec<String>,
    /// The warning about internet access, if there is one.
    pub(crate) why_no_internet: Option<String>,
    /// How sandboxed jobs reach the server.
    pub(crate) access: Option<ServerAccess>,
    pub(crate) gpus: Gpus,
    /// The folder of Python environments that the server has built.
    pub(crate) environments: Option<PathBuf>,
    /// Removals of what ended attempts left.
    pub(crate) removals: Removals,
}

impl Context {
    /// The largest size of a job's file, which the kernel enforces in a sandbox.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        self.disk_bytes.map(|disk| disk.max(2 * self.log_bytes))
    }
}

/// What a program inside a node needs in order to call the server.
#[derive(Debug)]
pub(crate) struct ServerAccess {
    ca_bundle: Option<PathBuf>,
    /// Issues tokens without a secret, because the server knows the node by its socket.
    server: String,
    /// The folder of the socket that leads to the server.
    relay: PathBuf,
}

impl ServerAccess {
    pub(crate) fn new(server: &str, relay: PathBuf, ca_bundle: Option<PathBuf>) -> ServerAccess {
        ServerAccess { ca_bundle, server: server.to_owned(), relay }
    }

    /// Provides the same access in the network of a job, for as long as the result is held.
    pub(crate) fn lay_into(&self, network: &JobNetwork) -> io::Result<AbortOnDrop> {
        relay::start_in(network, &self.server, &self.relay)
    }

    pub(crate) fn ca_bundle(&self) -> Option<&Path> {
        self.ca_bundle.as_deref()
    }

    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let trust = ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"];
        let trust = trust.into_iter().filter(|_| self.ca_bundle.is_some());
        let trust = trust.map(|name| (name, job::CA_BUNDLE.to_owned()));
        // Programs that use azure-ai-ml find the server that runs them, not Azure.
        let metadata = self.at("/metadata/endpoints?api-version=2019-05-01");
        let cloud = [
            ("MSI_ENDPOINT", self.at("/msi/token")),
            ("ARM_CLOUD_METADATA_URL", metadata),
            ("AZUREML_CURRENT_CLOUD", CLOUD_NAME.to_owned()),
        ];
        trust.chain(cloud).collect()
    }

    /// Where an attempt gets tokens of the user who submitted its job. Azure's client sends no secret of its own.
    pub(crate) fn on_behalf_of(&self, facts: &RunFacts) -> String {
        self.at(&format!("/obo/token?run={}", facts.token))
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.server.trim_end_matches('/'))
    }
}

/// What a running attempt is notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptSignal {
    /// All members are ready.
    Go,
    Signal(Signal),
}

/// The progress of an attempt.
#[derive(Debug)]
pub(crate) enum Event {
    /// The attempt waits for the other members.
    Prepared {
        epoch: Epoch,
    },
    Started {
        epoch: Epoch,
        timeout: Option<Span>,
    },
    /// The command has ended; its outputs are still being saved.
    Ending {
        epoch: Epoch,
    },
    Exited {
        epoch: Epoch,
        exit: Exit,
        spans: Spans,
    },
    /// Follows `Exited` if the attempt ever started: the server has its log, or will never have it.
    LogDone {
        epoch: Epoch,
        /// The whole log, if it is to be sent with the next report.
        short: Option<String>,
    },
}

/// Events of an agent that is shutting down have no receiver, and are ignored.
type Events = mpsc::UnboundedSender<Event>;
type Signals = mpsc::UnboundedReceiver<AttemptSignal>;

/// What is known about an attempt that is to start. It fetches the rest.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) spec: Option<JobSpec>,
    pub(crate) facts: Option<RunFacts>,
    /// Whether the server takes logs with reports.
    pub(crate) takes_logs: bool,
}

/// Runs an attempt.
pub(crate) async fn run(
    context: &Context,
    assignment: Assignment,
    known: Known,
    mut signals: Signals,
    events: Events,
) {
    let epoch = assignment.epoch;
    let mut spans = Spans::default();
    let may_return = known.takes_logs;
    let prepared = tokio::select! {
        biased;
        // Nothing is running yet that could be signalled, so it is enough not to continue.
        () = stopped(&mut signals) => Err(not_started("stopped before it started")),
        prepared = prepare(context, &assignment, known, &mut spans) => prepared,
    };
    let prepared = match prepared {
        Ok(prepared) if !assignment.go => {
            let _ = events.send(Event::Prepared { epoch });
            match signals.recv().await {
                Some(AttemptSignal::Go) => Ok(prepared),
                Some(AttemptSignal::Signal(_)) | None => {
                    Err(not_started("stopped before all members were ready"))
                }
            }
        }
        prepared => prepared,
    };
    let started = match prepared {
        Ok(Prepared { engine, spec, facts, mut saver }) => {
            let gpus = context.gpus.grant(spec.share);
            let planned = Services::plan(&assignment, &spec, context.client.server_port());
            let refusals = planned.iter().flat_map(Services::refusals);
            let (group, unlimited) = own_group(context, &assignment);
            // These lines precede the job's own output in its log.
            let asked = spec.properties.get(JobSpec::NOTE).cloned();
            let notes = context.warnings.iter().cloned().chain(asked).chain(gpus.shortage());
            let notes = notes.chain(unlimited).chain(without_user(context, &spec));
            let notes: Vec<String> = notes.chain(refusals).collect();
            if !notes.is_empty() && open_log(&context.home.job_log(epoch)).is_ok() {
                notes.into_iter().for_each(|text| saver.say(text));
            }
            let started = async {
                let services = planned?;
                let (facts, gpus, group) = (facts.as_ref(), &gpus, group.as_ref());
                let (assignment, spec, services_of) = (&assignment, &spec, &services);
                let launching =
                    Launching { assignment, spec, facts, gpus, services: services_of, group };
                Ok::<_, StartError>((engine.start(context, &launching).await?, services))
            };
            match started.await {
                Ok((process, services)) => {
                    Ok((process, services, spec.timeout, saver, (gpus, group)))
                }
                Err(error) => {
                    Err(not_started(format!("cannot start the job: {}", ErrorChain(&error))))
                }
            }
        }
        Err(exit) => Err(exit),
    };
    let (process, services, timeout, mut saver, (gpus, group)) = match started {
        Ok(started) => started,
        Err(exit) => {
            tracing::warn!(%epoch, ?exit, "not started");
            let _ = events.send(Event::Exited { epoch, exit, spans });
            return;
        }
    };
    tracing::info!(%epoch, job = %assignment.job_name, "started");
    let _ = events.send(Event::Started { epoch, timeout });
    let started_at = clock::now();
    let (stage, its_stage) = watch::channel(log::Stage::Running);
    let path = context.home.job_log(epoch);
    let bounds = log::Bounds { may_return, ..log::Bounds::of(context) };
    let (short, ()) =
        tokio::join!(log::send_all(&context.client, epoch, &path, bounds, its_stage), async {
            let own_dir = context.home.own(epoch);
            // A job with its own group is not affected by how much memory its neighbours use.
            let memory = group.as_ref().map(JobGroup::memory).or_else(|| context.memory.clone());
            let file_bytes = context.file_bytes().filter(|_| context.spawner.is_some());
            let watch = Watch::new(own_dir, context.disk_bytes, memory).with_file_bytes(file_bytes);
            let counted = counted(context, &assignment, group.as_ref());
            let metered = Metered { counted, disk_bytes: watch.disk_used(), gpus: gpus.numbers() };
            let following = context.meter.follow(epoch, metered);
            let network = process.network();
            let (exit, was_killed) = tokio::select! {
                ended = follow(process, &mut signals, &watch) => ended,
                never = saver.watch() => match never {},
                never = services.serve(&context.client, epoch, network) => match never {},
            };
            // Released before the end is reported, because then they are assigned to the next job.
            drop(following);
            drop(gpus);
            drop(group);
            tracing::info!(%epoch, ?exit, "ended");
            let _ = stage.send(log::Stage::Ending);
            if !exit.is_success() {
                lookups::explain(&path, context.why_no_internet.as_deref());
            }
            let _ = events.send(Event::Ending { epoch });
            let since = clock::now();
            let exit = keep(&mut saver, &mut signals, exit, was_killed).await;
            let (run, finalise) = (since - started_at, clock::now() - since);
            let spans = Spans { run, finalise, ..spans };
            // A leftover record would only say that a dead process is dead.
            let _ = std::fs::remove_file(context.home.job_pid(epoch));
            let _ = events.send(Event::Exited { epoch, exit, spans });
            let _ = stage.send(log::Stage::Over);
        });
    let _ = events.send(Event::LogDone { epoch, short });
}

/// Sends the part of an earlier agent's attempt log that the server does not have yet.
pub(crate) async fn finish_log(context: &Context, epoch: Epoch, events: Events) {
    let (_stage, is_over) = watch::channel(log::Stage::Over);
    let path = context.home.job_log(epoch);
    let bounds = log::Bounds::of(context);
    let short = log::send_all(&context.client, epoch, &path, bounds, is_over).await;
    let _ = events.send(Event::LogDone { epoch, short });
}

/// Waits until the attempt is asked to stop. Other signals before it is prepared have no meaning.
async fn stopped(signals: &mut Signals) {
    while let Some(AttemptSignal::Go) = signals.recv().await {}
}

/// Waits for the end of the job. Returns how it ended, and whether it had to be killed.
async fn follow(mut process: Running, signals: &mut Signals, watch: &Watch) -> (Exit, bool) {
    let mut over = None;
    let mut was_killed = false;
    let exit = loop {
        tokio::select! {
            exit = process.wait() => break exit,
            Some(AttemptSignal::Signal(signal)) = signals.recv() => {
                was_killed |= signal == Signal::Kill;
                process.signal(signal);
            }
            reason = watch.disk_is_over(), if over.is_none() => {
                over = Some(reason);
                process.signal(Signal::Kill);
            }
        }
    };
    process.leftovers_gone().await;
    let exit = match exit {
        Ok(exit) => over.unwrap_or_else(|| watch.explained(exit)),
        Err(error) => {
            // Dropping the process kills it; its exit code is lost.
            tracing::error!(%error, "cannot wait for a job");
            Exit::Stopped
        }
    };
    (exit, was_killed)
}

/// Saves what the job left before its end is reported, because its next attempt may start right then. A job whose
/// results are lost has failed, even if its command succeeded.
async fn keep(
    saver: &mut FolderSaver,
    signals: &mut Signals,
    exit: Exit,
    was_killed: bool,
) -> Exit {
    let end = if exit.is_success() { AttemptEnd::Well } else { AttemptEnd::Badly };
    let kept = tokio::select! {
        kept = saver.finish(end, was_killed) => kept,
        () = files::killed(signals) => Err(KeepError::NoTime),
    };
    let Err(error) = kept else { return exit };
    let message = ErrorChain(&error).to_string();
    saver.say(format!("the files of this attempt are not saved: {message}"));
    match exit.is_success() {
        true => Exit::Data { doing: Carrying::Save, message: message.into() },
        false => exit,
    }
}

/// Creates the group of a job that has only a part of its node, or returns the note for its log if that fails.
fn own_group(context: &Context, assignment: &Assignment) -> (Option<JobGroup>, Option<String>) {
    let Some(share) = assignment.share.as_ref().filter(|_| context.spawner.is_some()) else {
        return (None, None);
    };
    match context.groups.take(&assignment.epoch.to_string(), share) {
        Ok(group) => (group, None),
        Err(error) => {
            let text = format!(
                "the cores and memory that this job asked for are not enforced: cannot create its control group: {error}"
            );
            (None, Some(text))
        }
    }
}

/// The note for a job that should act as its user and cannot.
fn without_user(context: &Context, spec: &JobSpec) -> Option<String> {
    let text = "identity UserIdentity has no effect on this node: it is not sandboxed, so the server cannot tell which job asks";
    (spec.acts_as_submitter() && context.access.is_none()).then(|| text.to_owned())
}

/// Chooses where the job's cores and memory are counted. They are not counted if several jobs without groups share a
/// node.
fn counted(context: &Context, assignment: &Assignment, group: Option<&JobGroup>) -> Counted {
    match group {
        Some(group) => group.counted(),
        None if assignment.share.is_none() => context.meter.counted_with_node(),
        None => Counted::Nowhere,
    }
}

fn not_started(message: impl Into<Box<str>>) -> Exit {
    Exit::NotStarted { message: message.into() }
}

/// A job that is ready to start: its specification, its engine, and its folder with all its files.
struct Prepared {
    engine: Engine,
    spec: JobSpec,
    facts: Option<RunFacts>,
    saver: FolderSaver,
}

async fn prepare(
    context: &Context,
    assignment: &Assignment,
    known: Known,
    spans: &mut Spans,
) -> Result<Prepared, Exit> {
    let mut spec = match known.spec {
        Some(spec) => spec,
        None => fetch_spec(&context.client, assignment).await.map_err(not_started)?,
    };
    if let Some(task) = &assignment.task {
        spec = spec.for_task(task.index);
    }
    make_folders_when_there_is_space(context, assignment)
        .await
        .map_err(|error| not_started(format!("cannot create the job's folder: {error}")))?;
    let engine = Engine::choose(&spec);
    engine.prepare(context, assignment, &mut spec).await.map_err(not_started)?;
    let since = clock::now();
    let (brought, facts) = tokio::join!(
        files::bring(context, assignment, &spec),
        run_facts(&context.client, assignment, known.facts)
    );
    spans.fetch = clock::now() - since;
    match brought {
        Ok(saver) => Ok(Prepared { engine, spec, facts, saver }),
        Err(message) => Err(Exit::Data { doing: Carrying::Fetch, message: message.into() }),
    }
}

/// Fetches what the job may know about itself. An old server, or one that has given up this attempt, returns nothing;
/// the job can do without.
async fn run_facts(
    client: &Client,
    assignment: &Assignment,
    known: Option<RunFacts>,
) -> Option<RunFacts> {
    if known.is_some() {
        return known;
    }
    let mut patience = Patience::default();
    loop {
        match client.run_facts(assignment.epoch).await {
            Ok(facts) => return Some(facts),
            Err(error) => patience.forgive(error).await.ok()?,
        }
    }
}

/// Waits until everything that ended attempts left on this node has been removed. On a full disk it retries: another
/// job of this node may have filled it, and is being ended for that.
async fn make_folders_when_there_is_space(
    context: &Context,
    assignment: &Assignment,
) -> io::Result<()> {
    let deadline = Instant::now() + SPACE_WITHIN;
    loop {
        context.removals.done().await;
        let (home, epoch) = (context.home.clone(), assignment.epoch);
        let made = tokio::task::spawn_blocking(move || make_folders(&home, epoch)).await;
        match made.unwrap_or_else(|stopped| Err(io::Error::other(stopped))) {
            Err(error) if is_full(&error) && Instant::now() < deadline => {
                tracing::warn!(epoch = %assignment.epoch, %error, "no space for a job's folder yet");
                tokio::time::sleep(SPACE_LOOK_EVERY).await;
            }
            made => return made,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn make_folders(home: &Home, epoch: Epoch) -> io::Result<()> {
    remove_tree(&home.own(epoch))?;
    make_private_dir(&home.work(epoch))?;
    make_private_dir(&home.tmp(epoch))?;
    make_private_dir(&home.jobs())
}

/// Retries as long as the server cannot be reached. The caller drops this when the job is no longer wanted.
async fn fetch_spec(client: &Client, assignment: &Assignment) -> Result<JobSpec, String> {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
    loop {
        let error = match client.spec(&assignment.spec).await {
            Ok(spec) => return Ok(spec),
            Err(error) => error,
        };
        match error {
            CallError::Unreachable(_) | CallError::NotWanted { .. } | CallError::Status { .. } => {
                let error = ErrorChain(&error).to_string();
                tracing::debug!(epoch = %assignment.epoch, error, "no specification yet");
                tokio::time::sleep(backoff.grow()).await;
            }
            CallError::NotFound
            | CallError::Refused { .. }
            | CallError::Superseded
            | CallError::BadAnswer(_)
            | CallError::OtherReport { .. } => {
                return Err(format!(
                    "cannot fetch the job's specification: {}",
                    ErrorChain(&error)
                ));
            }
        }
    }
}

/// Opens the log, a plain file: output that has not been sent yet survives the agent, and a job never waits for a
/// reader.
pub(crate) fn open_log(path: &Path) -> io::Result<File> {
    path.parent().map_or(Ok(()), make_private_dir)?;
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    // Lets a job that fills its disk still report that. The log works without it too.
    let _ = fallocate(&log, FallocateFlags::KEEP_SIZE, 0, LOG_BYTES_RESERVED);
    Ok(log)
}
