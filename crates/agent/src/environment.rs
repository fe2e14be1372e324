//! The Python environment of a job: waits until the server has built it, and puts it before what the machine has.

mod layer;

use std::path::Path;
use std::time::Duration;

use muster_core::ErrorChain;
use muster_core::agent::Assignment;
use muster_core::model::{JobEnvironment, JobSpec};
use tokio::sync::watch;

use crate::attempt::{Context, DEFAULT_PATH, open_log};
use crate::client::{CallError, Environment};
use crate::files::{Patience, note};
use crate::log;

/// Of the folder of environments, which has nothing but `python` in it.
const PLAIN: &str = "plain/bin";
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(500);
/// Of what the server says: enough for uv's own words.
const LINES_MAX: usize = 40;
const LINE_CHARS_MAX: usize = 2_000;

#[derive(Debug, thiserror::Error)]
enum BringError {
    #[error(
        "this node was made where none are built; upgrade muster on its machine, or use an image that the machine's own \
         Python stands in for"
    )]
    NotHere,
    #[error("the server does not give it")]
    Call(#[source] CallError),
    #[error("{0}")]
    Failed(String),
    #[error("{0:?} is not the name of an environment")]
    BadName(String),
    #[error("{0} is not to be seen on this node")]
    Unseen(String),
    #[error("cannot write to the job's log")]
    Log(#[from] std::io::Error),
    #[error("cannot make the job's layer of it")]
    Layer(#[source] std::io::Error),
}

/// Has the job find its Python. Tries as long as the server cannot be reached; whoever does not want the job any more
/// drops this.
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
        format!("its environment {id} cannot be had: {error}")
    })
}

/// The machine's own Python, by both its names.
fn plain(
    context: &Context,
    assignment: &Assignment,
    environment: &JobEnvironment,
    spec: &mut JobSpec,
) -> Result<(), BringError> {
    say(context, assignment, environment.notes.iter().map(|text| &**text))?;
    let folder = context.environments.as_ref().map(|folder| folder.join(PLAIN));
    if let Some(folder) = folder.as_deref().and_then(Path::to_str) {
        // Behind all others: a machine that has a `python` of its own means that.
        let path = path_of(spec);
        // Where pip puts programs of a user who may not write elsewhere. Many systems keep pip from that, for the sake of
        // other users: here is none.
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
        Environment::Ready { folder, notes } => (folder, notes),
        // The job's owner sees its log while it waits, and when it comes to nothing.
        other => {
            let (over, is_over) = watch::channel(log::Stage::Running);
            let path = context.home.job_log(assignment.epoch);
            let waited = async {
                let ready = wait(context, assignment, environment, other).await;
                let _ = over.send(log::Stage::Over);
                ready
            };
            // What is missing is sent with what the job itself says.
            let bounds = log::Bounds { full_waits: None, ..log::Bounds::of(context) };
            let sent = log::send_all(&context.client, assignment.epoch, &path, bounds, is_over);
            tokio::join!(waited, sent).0?
        }
    };
    // What was said at submit is put into the log when the job starts.
    let said = spec.properties.get(JobSpec::NOTE).map(String::as_str).unwrap_or_default();
    let new = notes.iter().map(String::as_str).filter(|note| !said.contains(note));
    say(context, assignment, new)?;
    // It becomes a path: only what our own names are made of.
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
        // An interpreter that was copied may look for its own library where it was installed.
        let variables = &mut spec.environment_variables;
        let before = variables.get("LD_LIBRARY_PATH").map(|path| format!(":{path}"));
        let path = format!("{}{}", folder.display(), before.unwrap_or_default());
        variables.insert("LD_LIBRARY_PATH".to_owned(), path);
    }
    Ok(())
}

/// Where the job sees its folder.
fn seen_work<'a>(context: &Context, work: &'a Path) -> &'a Path {
    match context.spawner {
        Some(_) => Path::new(muster_sandbox::job::FOLDER),
        None => work,
    }
}

/// What programs go by that look for an environment.
fn enter(spec: &mut JobSpec, place: &str, shared: &str) {
    let path = path_of(spec);
    let variables = &mut spec.environment_variables;
    variables.insert("PATH".to_owned(), format!("{place}/bin:{shared}/bin:{path}"));
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"] {
        variables.entry(name.to_owned()).or_insert_with(|| place.to_owned());
    }
}

/// As the user has it, else as the agent has.
pub(crate) fn path_of(spec: &JobSpec) -> String {
    let own = spec.environment_variables.get("PATH").cloned();
    let inherited = || std::env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.to_owned());
    own.unwrap_or_else(inherited)
}

/// Where it is when it is ready, and what is to be said of it.
async fn wait(
    context: &Context,
    assignment: &Assignment,
    environment: &JobEnvironment,
    mut seen: Environment,
) -> Result<(String, Vec<String>), BringError> {
    let mut is_told = false;
    loop {
        match seen {
            Environment::Ready { folder, notes } => return Ok((folder, notes)),
            Environment::Building if is_told => {}
            Environment::Building => {
                let text = format!("building environment {}", line(&environment.id));
                say(context, assignment, [text.as_str()])?;
                is_told = true;
            }
            Environment::Failed { message, said } => {
                let from = said.len().saturating_sub(LINES_MAX);
                let said: Vec<String> =
                    said[from..].iter().map(|one| format!("uv: {one}")).collect();
                say(context, assignment, said.iter().map(String::as_str))?;
                let text = format!("environment {} cannot be built: {message}", environment.id);
                say(context, assignment, [text.as_str()])?;
                return Err(BringError::Failed(message));
            }
        }
        // The server holds the question while it builds; where it does not, it has others to build first.
        tokio::time::sleep(PAUSE).await;
        seen = ask(context, assignment).await?;
    }
}

async fn ask(context: &Context, assignment: &Assignment) -> Result<Environment, BringError> {
    let mut patience = Patience::default();
    loop {
        match context.client.environment(assignment.epoch).await {
            Ok(seen) => return Ok(seen),
            Err(error) => patience.forgive(error).await.map_err(BringError::Call)?,
        }
    }
}

/// Into the job's log, before anything of its own.
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

/// One line, not too long.
fn line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(LINE_CHARS_MAX).map(plain).collect()
}
