//! One attempt on this node, from its order to its end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_core::ErrorChain;
use muster_core::agent::{Order, Signal};
use muster_core::ids::Epoch;
use muster_core::model::{Carrying, Exit, JobSpec, Spans};
use muster_core::time::Span;
use muster_sandbox::job::{self, Nursery};
use tokio::sync::{mpsc, watch};

use crate::backoff::Backoff;
use crate::bound::{self, Places, bind_all};
use crate::client::{CallError, Client, End};
use crate::files::{KeepError, Keeper};
use crate::gpus::{Gpus, Grant};
use crate::home::{Home, make_private_dir, remove_tree};
use crate::identity::Identity;
use crate::limits::{Memory, Watch};
use crate::process::{Launch, Process};
use crate::running::Running;
use crate::walled::{StartError, Walled};
use crate::{clock, environment, files, kin, log, members, notice, ranks};

/// Where programs are found if whoever started the agent did not say.
pub(crate) const DEFAULT_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const DEFAULT_LANG: &str = "C.UTF-8";
/// Processes and threads of one job behind walls: enough for every worker that cores can feed, too few to choke a machine.
const PROCESSES_MAX: u64 = 4096;

/// What all attempts of a node share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) home: Home,
    pub(crate) node: String,
    /// Makes walls around each job; without it there are none.
    pub(crate) nursery: Option<Nursery>,
    /// What they hide.
    pub(crate) hidden: Vec<PathBuf>,
    /// The most that a job may write to its folder.
    pub(crate) disk_bytes: Option<u64>,
    /// The most of a job's output that is taken.
    pub(crate) log_bytes: u64,
    /// Instead of each having walls of its own.
    pub(crate) jobs_share: bool,
    pub(crate) memory: Option<Memory>,
    /// What whoever reads the log of a job has to know of this node.
    pub(crate) warning: Option<String>,
    /// How jobs behind walls reach the server.
    pub(crate) way: Option<Way>,
    pub(crate) gpus: Gpus,
    /// Where Python environments are that the server has built.
    pub(crate) environments: Option<PathBuf>,
}

/// What a program has to know that calls the server from inside a node.
#[derive(Debug)]
pub(crate) struct Way {
    /// Where the cluster's identity is to be had, without a secret: the server knows by the socket who asks.
    tokens: String,
    ca_bundle: Option<PathBuf>,
}

impl Way {
    pub(crate) fn new(server: &str, ca_bundle: Option<PathBuf>) -> Way {
        Way { tokens: format!("{}/msi/token", server.trim_end_matches('/')), ca_bundle }
    }

    pub(crate) fn ca_bundle(&self) -> Option<&Path> {
        self.ca_bundle.as_deref()
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let trust = ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"];
        let trust = trust.into_iter().filter(|_| self.ca_bundle.is_some());
        let trust = trust.map(|name| (name, job::CA_BUNDLE.to_owned()));
        trust.chain([("MSI_ENDPOINT", self.tokens.clone())]).collect()
    }
}

/// What a running attempt hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// All members are ready.
    Go,
    Signal(Signal),
}

/// What became of an attempt.
#[derive(Debug)]
pub(crate) enum Event {
    /// It waits for the other members.
    Prepared {
        epoch: Epoch,
    },
    Started {
        epoch: Epoch,
        timeout: Option<Span>,
    },
    /// It ran, and is over; what it left is still being kept.
    Ending {
        epoch: Epoch,
    },
    Exited {
        epoch: Epoch,
        exit: Exit,
        spans: Spans,
    },
    /// Follows `Exited` if it ever started: the server has its log, or will not have it.
    LogDone {
        epoch: Epoch,
    },
}

/// Nobody hears the events of an agent that is on its way out; then nothing follows from them.
type Events = mpsc::UnboundedSender<Event>;
type Orders = mpsc::UnboundedReceiver<Told>;

/// Asks for its specification if it is not given.
pub(crate) async fn run(
    context: &Context,
    order: Order,
    spec: Option<JobSpec>,
    mut told: Orders,
    events: Events,
) {
    let epoch = order.epoch;
    let mut spans = Spans::default();
    let prepared = tokio::select! {
        biased;
        // There is nothing to signal yet: not going on is enough.
        () = stopped(&mut told) => Err(not_started("stopped before it started")),
        prepared = prepare(context, &order, spec, &mut spans) => prepared,
    };
    let prepared = match prepared {
        Ok(prepared) if !order.go => {
            let _ = events.send(Event::Prepared { epoch });
            match told.recv().await {
                Some(Told::Go) => Ok(prepared),
                Some(Told::Signal(_)) | None => {
                    Err(not_started("stopped before all members were ready"))
                }
            }
        }
        prepared => prepared,
    };
    let started = match prepared {
        Ok((spec, mut keeper)) => {
            let gpus = context.gpus.grant(spec.share);
            // In its log before anything of its own.
            let notes: Vec<String> =
                context.warning.iter().cloned().chain(gpus.shortage()).collect();
            if !notes.is_empty() && open_log(&context.home.job_log(epoch)).is_ok() {
                notes.into_iter().for_each(|text| keeper.say(text));
            }
            match start(context, &order, &spec, &gpus).await {
                Ok(process) => Ok((process, spec.timeout, keeper, gpus)),
                Err(error) => Err(not_started(format!("cannot start it: {}", ErrorChain(&error)))),
            }
        }
        Err(exit) => Err(exit),
    };
    let (process, timeout, mut keeper, gpus) = match started {
        Ok(started) => started,
        Err(exit) => {
            tracing::warn!(%epoch, ?exit, "not started");
            let _ = events.send(Event::Exited { epoch, exit, spans });
            return;
        }
    };
    tracing::info!(%epoch, job = %order.job_name, "started");
    let _ = events.send(Event::Started { epoch, timeout });
    let (ended, has_ended) = watch::channel(false);
    let path = context.home.job_log(epoch);
    let log_bytes = context.log_bytes;
    tokio::join!(log::send_all(&context.client, epoch, &path, log_bytes, has_ended), async {
        let work_dir = context.home.work(epoch);
        let watch = Watch::new(work_dir, context.disk_bytes, context.memory.clone());
        let (exit, was_killed) = tokio::select! {
            ended = follow(process, &mut told, &watch) => ended,
            never = keeper.watch() => match never {},
        };
        // Before anybody hears of its end: then they are given to the next.
        drop(gpus);
        tracing::info!(%epoch, ?exit, "ended");
        let _ = events.send(Event::Ending { epoch });
        let since = clock::now();
        let exit = keep(&mut keeper, &mut told, exit, was_killed).await;
        let spans = Spans { finalise: clock::now() - since, ..spans };
        // A record that stays would only say that a dead process is dead.
        let _ = std::fs::remove_file(context.home.job_pid(epoch));
        let _ = events.send(Event::Exited { epoch, exit, spans });
        let _ = ended.send(true);
    });
    let _ = events.send(Event::LogDone { epoch });
}

/// Sends what the server does not have of the log of an attempt that an earlier agent ran.
pub(crate) async fn finish_log(context: &Context, epoch: Epoch, events: Events) {
    let (_ended, has_ended) = watch::channel(true);
    let path = context.home.job_log(epoch);
    log::send_all(&context.client, epoch, &path, context.log_bytes, has_ended).await;
    let _ = events.send(Event::LogDone { epoch });
}

/// Waits until it is told to stop. What else it is told before it is prepared says nothing.
async fn stopped(told: &mut Orders) {
    while let Some(Told::Go) = told.recv().await {}
}

/// How it ended, and whether it had to be killed.
async fn follow(mut process: Running, told: &mut Orders, watch: &Watch) -> (Exit, bool) {
    let mut over = None;
    let mut was_killed = false;
    let exit = loop {
        tokio::select! {
            exit = process.wait() => break exit,
            Some(Told::Signal(signal)) = told.recv() => {
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
            // Dropping it kills it; what it would have said is lost.
            tracing::error!(%error, "cannot wait for a job");
            Exit::Stopped
        }
    };
    (exit, was_killed)
}

/// Keeps what the job left before anybody hears of its end: its next attempt may begin right then. A job that ended well
/// has not, if its results are lost.
async fn keep(keeper: &mut Keeper, told: &mut Orders, exit: Exit, was_killed: bool) -> Exit {
    let end = if exit.is_success() { End::Well } else { End::Badly };
    let kept = tokio::select! {
        kept = keeper.finish(end, was_killed) => kept,
        () = files::killed(told) => Err(KeepError::NoTime),
    };
    let Err(error) = kept else { return exit };
    let message = ErrorChain(&error).to_string();
    keeper.say(format!("what this attempt left is not kept: {message}"));
    match exit.is_success() {
        true => Exit::Data { doing: Carrying::Save, message: message.into() },
        false => exit,
    }
}

fn not_started(message: impl Into<Box<str>>) -> Exit {
    Exit::NotStarted { message: message.into() }
}

/// What to run, and its folder with everything that it brings.
async fn prepare(
    context: &Context,
    order: &Order,
    spec: Option<JobSpec>,
    spans: &mut Spans,
) -> Result<(JobSpec, Keeper), Exit> {
    let mut spec = match spec {
        Some(spec) => spec,
        None => fetch_spec(&context.client, order).await.map_err(not_started)?,
    };
    make_folders(context, order)
        .map_err(|error| not_started(format!("cannot make its folder: {error}")))?;
    environment::bring(context, order, &mut spec).await.map_err(not_started)?;
    let since = clock::now();
    let brought = files::bring(context, order, &spec).await;
    spans.fetch = clock::now() - since;
    match brought {
        Ok(keeper) => Ok((spec, keeper)),
        Err(message) => Err(Exit::Data { doing: Carrying::Fetch, message: message.into() }),
    }
}

fn make_folders(context: &Context, order: &Order) -> io::Result<()> {
    let work_dir = context.home.work(order.epoch);
    remove_tree(&work_dir)?;
    make_private_dir(&work_dir.join("tmp"))?;
    make_private_dir(&context.home.jobs())
}

/// Tries as long as the server cannot be reached; whoever does not want the job any more drops
/// this.
async fn fetch_spec(client: &Client, order: &Order) -> Result<JobSpec, String> {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
    loop {
        let error = match client.spec(&order.spec).await {
            Ok(spec) => return Ok(spec),
            Err(error) => error,
        };
        match error {
            CallError::Unreachable(_) | CallError::NotWanted { .. } | CallError::Status { .. } => {
                let error = ErrorChain(&error).to_string();
                tracing::debug!(epoch = %order.epoch, error, "no specification yet");
                tokio::time::sleep(backoff.grow()).await;
            }
            CallError::NotFound
            | CallError::Refused { .. }
            | CallError::Superseded
            | CallError::BadAnswer(_)
            | CallError::OtherReport { .. } => {
                return Err(format!("cannot fetch its specification: {}", ErrorChain(&error)));
            }
        }
    }
}

async fn start(
    context: &Context,
    order: &Order,
    spec: &JobSpec,
    gpus: &Grant<'_>,
) -> Result<Running, StartError> {
    let work_dir = context.home.work(order.epoch);
    let log = open_log(&context.home.job_log(order.epoch))?;
    if let Some(nursery) = &context.nursery {
        let launch = walled_launch(context, order, spec, gpus, work_dir)?;
        return Ok(Running::Walled(Walled::start(nursery, launch, &log).await?));
    }
    let inputs = context.home.inputs(order.epoch);
    let places = Places { inputs: &inputs, seen_inputs: &inputs, seen_work: &work_dir };
    let bound = bind_all(spec, &places).map_err(io::Error::other)?;
    let (command, more) = ranks::distributed(spec, order, bound.command);
    let mut variables = variables(context, order, spec, bound.variables, &work_dir)?;
    variables.extend(more);
    let process =
        Process::spawn(Launch { command: &command, work_dir: &work_dir, variables, log })?;
    // It may be over already: then there is nothing to record.
    if let Some(identity) = Identity::of(process.pid())? {
        identity.write(&context.home.job_pid(order.epoch))?;
    }
    Ok(Running::Plain(process))
}

fn walled_launch(
    context: &Context,
    order: &Order,
    spec: &JobSpec,
    gpus: &Grant<'_>,
    work_dir: PathBuf,
) -> io::Result<job::Launch> {
    let inputs = context.home.inputs(order.epoch);
    let (seen_inputs, seen_work) = (Path::new(job::INPUTS), Path::new(job::FOLDER));
    let places = Places { inputs: &inputs, seen_inputs, seen_work };
    let bound = bind_all(spec, &places).map_err(io::Error::other)?;
    let (command, more) = ranks::distributed(spec, order, bound.command);
    let mut variables = variables(context, order, spec, bound.variables, seen_work)?;
    variables.extend(more);
    // The folder is not there for it, and whoever looks for a node's processes finds them by their init.
    variables.remove(kin::DIR_VARIABLE);
    // Its user has a number and no name; many programs ask for one.
    for name in ["USER", "LOGNAME"] {
        variables.entry(name.into()).or_insert_with(|| "job".into());
    }
    let way = context.way.iter().flat_map(Way::variables);
    for (name, value) in way.chain(gpus.variables()) {
        variables.entry(name.into()).or_insert_with(|| value.into());
    }
    let text = |(name, value): (String, OsString)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(io::Error::other(format!("variable {name} is not UTF-8"))),
    };
    Ok(job::Launch {
        command,
        variables: variables.into_iter().map(text).collect::<io::Result<_>>()?,
        tmp_dir: work_dir.join("tmp"),
        work_dir,
        hidden: context.hidden.clone(),
        ca_bundle: context.way.as_ref().and_then(|way| way.ca_bundle.clone()),
        inputs: inputs.is_dir().then_some(inputs),
        gpus: gpus.numbers(),
        shares_node: context.jobs_share,
        limits: job::Limits {
            processes: Some(PROCESSES_MAX),
            shared_memory_bytes: spec.shared_memory_mb.map(|mb| mb.saturating_mul(1 << 20)),
            // Its output is a file, too, and may be beyond its end for a moment before it is cut.
            file_bytes: context.disk_bytes.map(|disk| disk.max(2 * context.log_bytes)),
        },
    })
}

/// A plain file: output that nobody has sent yet survives the agent, and a job never waits for a
/// reader.
pub(crate) fn open_log(path: &Path) -> io::Result<File> {
    path.parent().map_or(Ok(()), make_private_dir)?;
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Everything that the job finds in its environment. Later entries win: users may replace the first
/// few, nobody the ones that say who it is.
fn variables(
    context: &Context,
    order: &Order,
    spec: &JobSpec,
    own: BTreeMap<String, String>,
    work_dir: &Path,
) -> io::Result<BTreeMap<String, OsString>> {
    let inherited =
        |name: &str, default: &str| std::env::var_os(name).unwrap_or_else(|| default.into());
    let mut all: BTreeMap<String, OsString> = BTreeMap::from([
        ("PATH".into(), inherited("PATH", DEFAULT_PATH)),
        ("LANG".into(), inherited("LANG", DEFAULT_LANG)),
        ("HOME".into(), work_dir.into()),
        ("TMPDIR".into(), work_dir.join("tmp").into()),
    ]);
    for (name, value) in own {
        if name.is_empty() || name.contains(['=', '\0']) {
            let message = format!("{name:?} cannot be the name of an environment variable");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        all.insert(name, value.into());
    }
    let about = bound::about(spec, &order.job_name);
    all.extend(about.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    all.extend(members::variables(order));
    let ours: [(&str, OsString); 9] = [
        ("MUSTER_JOB_NAME", (*order.job_name).into()),
        ("MUSTER_ATTEMPT", order.attempt.to_string().into()),
        ("MUSTER_EPOCH", order.epoch.to_string().into()),
        (kin::NODE_VARIABLE, context.node.as_str().into()),
        (kin::DIR_VARIABLE, context.home.dir().into()),
        (notice::VARIABLE, notice::path(work_dir).into()),
        ("AZUREML_RUN_ID", (*order.job_name).into()),
        ("AZUREML_NODE_COUNT", order.nodes.to_string().into()),
        ("NODE_RANK", order.rank.to_string().into()),
    ];
    all.extend(ours.map(|(name, value)| (name.to_owned(), value)));
    if let Some(folder) = &spec.checkpoint {
        all.insert(files::CHECKPOINT_VARIABLE.to_owned(), work_dir.join(&**folder).into());
    }
    Ok(all)
}
