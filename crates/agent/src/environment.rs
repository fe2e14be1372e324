//! Provides the Python environment of a job: waits until the server has built it, and puts it ahead of the host's own
//! in the search path.

mod layer;

use std::path::Path;
use std::time::Duration;

use muster_core::ErrorChain;
use muster_core::agent::{Assignment, EnvironmentAnswer};
use muster_core::model::{JobEnvironment, JobSpec};
use tokio::sync::watch;

use crate::attempt::{Context, DEFAULT_PATH, open_log};
use crate::client::CallError;
use crate::files::{Patience, note};
use crate::log;

/// The folder within the environments that contains nothing but `python`.
const PLAIN: &str = "plain/bin";
/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(500);
/// How many lines of uv's output are copied to the log.
const LINES_MAX: usize = 40;
const LINE_CHARS_MAX: usize = 2_000;

#[derive(Debug, thiserror::Error)]
enum BringError {
    #[error(
        "this node has no folder for environments; upgrade muster on its host, or use an image whose substitute is the \
         host's own Python"
    )]
    NotHere,
    #[error("the server does not provide it")]
    Call(#[source] CallError),
    #[error("{0}")]
    Failed(String),
    #[error("{0:?} is not the name of an environment")]
    BadName(String),
    #[error("{0} is not visible on this node")]
    Unseen(String),
    #[error("cannot write to the job's log")]
    Log(#[from] std::io::Error),
    #[error("cannot create the job's layer over it")]
    Layer(#[source] std::io::Error),
}

/// Makes the job's Python available to it. Retries as long as the server cannot be reached. The caller drops this when
/// the job is no longer wanted.
pub(crate) async fn bring(
    context: &Context,
    assignment: &Assignment,
    spec: &mut JobSpec,
) -> Result<(), String> {
    let Some(mut environment) = spec.environment.take() else { return Ok(()) };
    for (name, value) in std::mem::take(&mut environment.variables) {
        spec.environment_variables.entry(name).or_insert(value);
    }
    let brought = match environment.recipe {
        Some(_) => build(context, assignment, &environment, spec).await,
        None => plain(context, assignment, &environment, spec),
    };
    brought.map_err(|error| {
        let (id, error) = (line(&environment.id), ErrorChain(&error).to_string());
        format!("the job's environment {id} is not available: {error}")
    })
}

/// Provides the host's own Python, under both of its names.
fn plain(
    context: &Context,
    assignment: &Assignment,
    environment: &JobEnvironment,
    spec: &mut JobSpec,
) -> Result<(), BringError> {
    say(context, assignment, environment.notes.iter().map(|text| &**text))?;
    let folder = context.environments.as_ref().map(|folder| folder.join(PLAIN));
    if let Some(folder) = folder.as_deref().and_then(Path::to_str) {
        // Last in the search path: a host with its own `python` keeps it.
        let path = path_of(spec);
        // The folder in which pip installs the programs of a user who may not write elsewhere. Many systems prevent
        // that for the sake of other users, but there are none here.
        let own = seen_work(context, &context.home.work(assignment.epoch)).join(".local/bin");
        let variables = &mut spec.environment_variables;
        variables.insert("PATH".to_owned(), format!("{}:{path}:{folder}", own.display()));
        variables.entry("PIP_BREAK_SYSTEM_PACKAGES".to_owned()).or_insert_with(|| "1".to_owned());
    }
    Ok(())
}

async fn build(
    context: &Context,
    assignment: &Assignment,
    environment: &JobEnvironment,
    spec: &mut JobSpec,
) -> Result<(), BringError> {
    say(context, assignment, environment.notes.iter().map(|text| &**text))?;
    let folder = context.environments.as_deref().ok_or(BringError::NotHere)?;
    let (name, notes) = match ask(context, assignment).await? {
        EnvironmentAnswer::Ready { folder, notes } => (folder, notes),
        // The owner of the job sees its log while it waits, and if the build fails.
        other => {
            let (over, is_over) = watch::channel(log::Stage::Running);
            let path = context.home.job_log(assignment.epoch);
            let waited = async {
                let ready = wait(context, assignment, environment, other).await;
                let _ = over.send(log::Stage::Over);
                ready
            };
            // The rest is sent together with the job's own output.
            let bounds = log::Bounds { full_waits: None, ..log::Bounds::of(context) };
            let sent = log::send_all(&context.client, assignment.epoch, &path, bounds, is_over);
            tokio::join!(waited, sent).0?
        }
    };
    // The notes from submission are written to the log when the job starts.
    let said = spec.properties.get(JobSpec::NOTE).map(String::as_str).unwrap_or_default();
    let new = notes.iter().map(String::as_str).filter(|note| !said.contains(note));
    say(context, assignment, new)?;
    // The name becomes a path, so only the characters of our own names are accepted.
    if name.len() != 64 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(BringError::BadName(line(&name)));
    }
    let place = folder.join(&name);
    let unseen = || BringError::Unseen(place.display().to_string());
    if !place.join("bin/python").exists() {
        return Err(unseen());
    }
    let work = context.home.work(assignment.epoch);
    layer::make(&work.join(layer::NAME), &place).map_err(BringError::Layer)?;
    let own = seen_work(context, &work).join(layer::NAME);
    let place = place.to_str().ok_or_else(unseen)?;
    enter(spec, own.to_str().ok_or_else(unseen)?, place);
    if let Some(folder) = layer::libraries(Path::new(place)) {
        // A copied interpreter may look for its library where it was originally installed.
        let variables = &mut spec.environment_variables;
        let before = variables.get("LD_LIBRARY_PATH").map(|path| format!(":{path}"));
        let path = format!("{}{}", folder.display(), before.unwrap_or_default());
        variables.insert("LD_LIBRARY_PATH".to_owned(), path);
    }
    Ok(())
}

/// The path of the job's folder, as the job sees it.
fn seen_work<'a>(context: &Context, work: &'a Path) -> &'a Path {
    match context.spawner {
        Some(_) => Path::new(muster_sandbox::job::FOLDER),
        None => work,
    }
}

/// Sets the variables by which programs find an environment.
fn enter(spec: &mut JobSpec, place: &str, shared: &str) {
    let path = path_of(spec);
    let variables = &mut spec.environment_variables;
    variables.insert("PATH".to_owned(), format!("{place}/bin:{shared}/bin:{path}"));
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"] {
        variables.entry(name.to_owned()).or_insert_with(|| place.to_owned());
    }
}

/// The search path of the job, or else that of the agent.
pub(crate) fn path_of(spec: &JobSpec) -> String {
    let own = spec.environment_variables.get("PATH").cloned();
    let inherited = || std::env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.to_owned());
    own.unwrap_or_else(inherited)
}

/// Waits until the environment is ready. Returns its folder, and the notes about it.
async fn wait(
    context: &Context,
    assignment: &Assignment,
    environment: &JobEnvironment,
    mut seen: EnvironmentAnswer,
) -> Result<(String, Vec<String>), BringError> {
    let mut is_reported = false;
    loop {
        match seen {
            EnvironmentAnswer::Ready { folder, notes } => return Ok((folder, notes)),
            EnvironmentAnswer::Building { .. } if is_reported => {}
            EnvironmentAnswer::Building { .. } => {
                let text = format!("building environment {}", line(&environment.id));
                say(context, assignment, [text.as_str()])?;
                is_reported = true;
            }
            EnvironmentAnswer::Failed { message, said } => {
                let from = said.len().saturating_sub(LINES_MAX);
                let said: Vec<String> =
                    said[from..].iter().map(|one| format!("uv: {one}")).collect();
                say(context, assignment, said.iter().map(String::as_str))?;
                let text = format!("environment {} cannot be built: {message}", environment.id);
                say(context, assignment, [text.as_str()])?;
                return Err(BringError::Failed(message));
            }
        }
        // The server holds the request while it builds. If it does not hold it, it builds others first.
        tokio::time::sleep(PAUSE).await;
        seen = ask(context, assignment).await?;
    }
}

async fn ask(context: &Context, assignment: &Assignment) -> Result<EnvironmentAnswer, BringError> {
    let mut patience = Patience::default();
    loop {
        match context.client.environment(assignment.epoch).await {
            Ok(seen) => return Ok(seen),
            Err(error) => patience.forgive(error).await.map_err(BringError::Call)?,
        }
    }
}

/// Writes to the job's log, before the job's own output.
fn say<'a>(
    context: &Context,
    assignment: &Assignment,
    lines: impl IntoIterator<Item = &'a str>,
) -> Result<(), BringError> {
    let path = context.home.job_log(assignment.epoch);
    open_log(&path)?;
    for text in lines {
        note(&path, &line(text));
    }
    Ok(())
}

/// Shortens a text to one line of limited length.
fn line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(LINE_CHARS_MAX).map(plain).collect()
}
