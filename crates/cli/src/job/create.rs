//! Submitting a job.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;

use muster_core::model::{
    ArrayPlan, JobSpec, OnEviction, Priority, SERVERLESS, ShareRequest, WorkspaceKey,
};
use muster_core::time::Span;
use muster_wire::Route;
use muster_wire::job::{DEFAULT_EXPERIMENT, JobResource, request_json};

use super::code::Code;
use super::{file, stream, web};
use crate::client::Client;
use crate::complete;
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, Failure, quoted};
use crate::names::{self, MaybeName};
use crate::output::{self, Print};
use crate::scope::Scope;
use crate::values;

const ADJECTIVES: [&str; 32] = [
    "able", "amber", "bold", "brave", "bright", "calm", "clear", "cool", "deep", "eager", "fair",
    "fast", "fine", "fresh", "gentle", "glad", "golden", "good", "happy", "honest", "keen", "kind",
    "lucky", "merry", "neat", "noble", "proud", "quick", "quiet", "steady", "sunny", "warm",
];
const NOUNS: [&str; 32] = [
    "apple", "basin", "beach", "bird", "bridge", "brook", "cloud", "coral", "crane", "dawn",
    "field", "forest", "garden", "harbor", "hill", "island", "lake", "lamp", "leaf", "meadow",
    "moon", "oak", "orchid", "pear", "pine", "plum", "river", "rose", "sail", "star", "stone",
    "wind",
];
const SUFFIX_CHARS: usize = 8;
const DIGITS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// Submit a job from a YAML file, or a command to run on a cluster
///
/// The file has the format of `az ml job create`. Local code and data that it names are uploaded first, unless the
/// server has them already. Paths in the file are relative to its folder.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating, costs money: the cluster grows for the job, up to its maximum.",
    group = clap::ArgGroup::new("what").args(["file", "command"]).required(true)
)]
pub struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Shell command to run
    #[arg(long, allow_hyphen_values = true)]
    command: Option<String>,
    /// Cluster to run the job on [default: none; the server creates nodes for the job]
    #[arg(long, value_name = "NAME", value_parser = values::compute, add = complete::computes())]
    compute: Option<String>,
    #[command(flatten)]
    name: MaybeName<names::NewJob>,
    /// VM size of the nodes, without --compute [default: Standard_DS3_v2]
    #[arg(long, value_name = "SIZE", add = complete::sizes(), conflicts_with = "compute")]
    instance_type: Option<String>,
    /// Folder whose files are in the job's working directory when it starts, except those that .amlignore or .gitignore
    /// exclude
    #[arg(long, value_name = "DIR")]
    code: Option<PathBuf>,
    /// Folder of the job that is saved while it runs, and restored for its next attempt
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<String>,
    /// What to do when the job's low-priority node is evicted: requeue or fail
    #[arg(long, value_name = "WHAT", default_value = "requeue", value_parser = values::on_eviction)]
    on_eviction: OnEviction,
    /// Number of nodes, which all run the job at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = values::count,
          allow_negative_numbers = true)]
    instance_count: u32,
    /// Run the command once for each of these indices, as tasks of one job, such as 0-99, 1,4,7 or 0-99%8 for at most 8
    /// at the same time; each task finds its index in MUSTER_ARRAY_INDEX
    #[arg(long, value_name = "INDICES", value_parser = values::array)]
    array: Option<ArrayPlan>,
    /// Time limit, in seconds, for all tasks of an array together [default: none]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, allow_negative_numbers = true,
          requires = "array")]
    array_timeout: Option<Span>,
    /// Priority in the queue: low, medium or high
    #[arg(long, value_name = "PRIORITY", default_value = "medium", value_parser = values::priority)]
    priority: Priority,
    #[command(flatten)]
    share: Share,
    /// Display name
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
    /// Experiment that the job belongs to
    #[arg(long, value_name = "NAME", default_value = DEFAULT_EXPERIMENT)]
    experiment_name: String,
    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Environment variables, as NAME=value NAME=value …
    #[arg(long, value_name = "NAME=VALUE", num_args = 1..)]
    env: Vec<String>,
    /// Time limit, in seconds, after which the job is stopped [default: none]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, allow_negative_numbers = true)]
    timeout: Option<Span>,
    /// Tags, as key=value key=value …
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    tags: Vec<String>,
    /// Stream the log, like `job stream`, instead of printing the job
    #[arg(short, long)]
    stream: bool,
    /// Open the job's page in a browser, or print its address if there is no browser
    #[arg(short = 'e', long)]
    web: bool,
    /// Also save the job, as it is printed, to this YAML file
    #[arg(short = 'a', long, value_name = "FILE")]
    save_as: Option<PathBuf>,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// A job that is described by a file.
#[derive(Debug, clap::Args)]
pub struct FileArgs {
    /// YAML file that describes the job, or - for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = BY_FLAGS)]
    file: Option<PathBuf>,
    /// Override fields of the file, as path=value; a path has dots between names, such as inputs.epochs
    #[arg(long, value_name = "PATH=VALUE", num_args = 1.., requires = "file")]
    set: Vec<String>,
    /// Accepted for compatibility with az: the server validates every request anyway
    #[arg(long, hide = true)]
    skip_validation: bool,
}

/// Flags that cannot be combined with a file, because the file contains these values.
const BY_FLAGS: [&str; 19] = [
    "command",
    "compute",
    "instance_type",
    "code",
    "checkpoint",
    "on_eviction",
    "instance_count",
    "array",
    "array_timeout",
    "priority",
    "cpus",
    "memory",
    "gpus",
    "display_name",
    "experiment_name",
    "description",
    "env",
    "timeout",
    "tags",
];

/// A share of each node, so that other jobs can run beside this one. Without a share, the job takes whole nodes. The
/// share is enforced on nodes with control groups; on others, the first line of the job's log says that it is not.
#[derive(Debug, clap::Args)]
struct Share {
    /// Number of vCPUs of each node; without --cpus, --memory and --gpus, the job takes whole nodes
    ///
    /// The job cannot use more on nodes with control groups (cgroups). On nodes without them it can use the whole node,
    /// and the first line of its log says so.
    #[arg(long, value_name = "COUNT", value_parser = values::count, allow_negative_numbers = true)]
    cpus: Option<u32>,
    /// Memory of each node, such as 4GB or 512MB [default: in proportion]
    ///
    /// A job that uses more is stopped, with a message, on nodes with control groups (cgroups). On nodes without them
    /// there is no limit, and the first line of the job's log says so.
    #[arg(long, value_name = "SIZE", value_parser = values::memory, allow_negative_numbers = true)]
    memory: Option<u64>,
    /// Number of GPUs of each node [default: none if another share is given]
    #[arg(long, value_name = "COUNT", value_parser = values::count, allow_negative_numbers = true)]
    gpus: Option<u32>,
}

pub async fn run(args: Args) -> CliResult {
    match args.file.file.is_some() {
        true => of_file(args).await,
        false => of_flags(args).await,
    }
}

/// What remains to be done once the request is known.
struct Submit {
    stream: bool,
    web: bool,
    save_as: Option<PathBuf>,
    print: Print,
}

async fn of_file(args: Args) -> CliResult {
    let path = args.file.file.expect("asked for only with one");
    let wanted = file::read(&path, &args.file.set)?;
    if !wanted.notes.is_empty() {
        output::say(&format!("note: {} cannot be set and is ignored", wanted.notes.join(", ")));
    }
    let workspace = args.scope.workspace_to_change()?;
    let name = args.name.to_owned().or_else(|| wanted.name.clone()).unwrap_or_else(made_up_name);
    check_name(&name)?;
    let client = args.scope.connect().await?;
    let settled = file::settle(&client, &workspace, wanted, args.dry.dry_run).await?;
    let body = file::body(settled.properties, &name);
    let route = Route::Job { workspace: workspace.clone(), name: name.as_str().into() };
    if args.dry.dry_run {
        for what in settled.left_out {
            output::say(&format!("dry run: {what} is not uploaded"));
        }
        return Plan::new("PUT", &route, &body).show(&client, &args.print).await;
    }
    let Args { stream, web, save_as, print, .. } = args;
    let compute = file::compute_of(&body);
    submit(&client, route, body, compute, Submit { stream, web, save_as, print }).await
}

fn check_name(name: &str) -> CliResult {
    values::name(name)
        .map(|_| ())
        .map_err(|why| Failure::refused(format!("the job's name is {}: {why}", quoted(name))))
}

async fn of_flags(args: Args) -> CliResult {
    let Share { cpus: vcpus, memory: memory_mb, gpus } = args.share;
    let workspace = args.scope.workspace_to_change()?;
    let code = args.code.as_deref().map(Code::read).transpose()?;
    let compute = args.compute.clone();
    let spec = JobSpec {
        nodes: args.instance_count,
        display_name: args.display_name.map(String::into),
        experiment_name: args.experiment_name.into(),
        description: args.description.map(String::into),
        tags: values::tags(&args.tags)?,
        environment_variables: values::pairs("--env", "EPOCHS=3", &args.env)?,
        timeout: args.timeout,
        priority: args.priority,
        share: ShareRequest { vcpus, memory_mb, gpus },
        on_eviction: args.on_eviction,
        code: code.as_ref().map(Code::id),
        checkpoint: args.checkpoint.map(String::into),
        instance_type: args.instance_type.map(String::into),
        array: args.array.map(|plan| Box::new(ArrayPlan { timeout: args.array_timeout, ..plan })),
        ..JobSpec::new(compute.as_deref().unwrap_or(SERVERLESS), args.command.unwrap_or_default())
    };
    let name = args.name.to_owned().unwrap_or_else(made_up_name);
    let client = args.scope.connect().await?;
    let route = Route::Job { workspace: workspace.clone(), name: name.as_str().into() };
    let body = request_json(&spec, &workspace);
    if args.dry.dry_run {
        return Plan::new("PUT", &route, &body).show(&client, &args.print).await;
    }
    if let Some(code) = code {
        code.send(&client, &workspace).await?;
    }
    let Args { stream, web, save_as, print, .. } = args;
    submit(&client, route, body, compute, Submit { stream, web, save_as, print }).await
}

async fn submit(
    client: &Client,
    route: Route,
    body: String,
    compute: Option<String>,
    then: Submit,
) -> CliResult {
    let answer = client.put(&route, body).await;
    let Route::Job { workspace, name } = route else { unreachable!("jobs are put as jobs") };
    let answer = match answer {
        Ok(answer) => answer,
        Err(failure) => return Err(hinted(client, workspace, compute, failure).await),
    };
    let job: JobResource = answer.document()?;
    if let Some(note) = job.properties.properties.get(muster_wire::job::property::NOTE) {
        output::say(&format!("note: {note}"));
    }
    if let Some(path) = &then.save_as {
        super::save(&job, path)?;
    }
    if then.web {
        web::show(&answer.document()?);
    }
    if then.stream {
        output::say(&format!("submitted {name}"));
        return stream::run(client, workspace, &name).await;
    }
    super::print(&job, &then.print)
}

/// Adds the most similar name if the compute does not exist.
pub async fn hinted(
    client: &Client,
    workspace: WorkspaceKey,
    compute: Option<String>,
    failure: Failure,
) -> Failure {
    match compute.filter(|_| failure.is_about("computeId")) {
        Some(name) => {
            client.suggest(&Route::Compute { workspace, name: name.into() }, failure).await
        }
        None => failure,
    }
}

/// Generates a name that is easy to distinguish and to pronounce: `quiet_river_k3v9x2pq`.
fn made_up_name() -> String {
    // The hasher's keys come from the operating system's random numbers, which is random enough here.
    let random = RandomState::new();
    let pick = |words: &[&'static str], salt: &str| {
        let index = usize::try_from(random.hash_one(salt) % words.len() as u64);
        words[index.unwrap_or_default()]
    };
    let mut bits = random.hash_one("suffix");
    let mut name = format!("{}_{}_", pick(&ADJECTIVES, "adjective"), pick(&NOUNS, "noun"));
    for _ in 0..SUFFIX_CHARS {
        name.push(char::from(DIGITS[(bits % 32) as usize]));
        bits /= 32;
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn made_up_names_are_good_names_and_differ() {
        let names: BTreeSet<String> = (0..200).map(|_| made_up_name()).collect();
        assert_eq!(names.len(), 200);
        for name in names {
            assert!(muster_core::model::check_job_name(&name).is_ok(), "{name}");
        }
    }
}
