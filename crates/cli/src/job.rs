//! `muster job`: jobs, with the commands and flags of `az ml job`.

mod attempts;
mod cancel;
mod code;
mod create;
mod download;
pub mod file;
pub mod ignore;
mod logs;
mod manage;
mod services;
mod stream;
mod timeline;
mod validate;
mod view;
mod web;

use std::path::Path;

use clap::Subcommand;
use muster_wire::Route;
use muster_wire::job::{JobResource, JobStatus};

use crate::complete;
use crate::failure::{CliResult, Failure, message};
use crate::names::{self, Name};
use crate::output::{self, Print};
use crate::scope::Scope;
use crate::values;

/// Submit, monitor and manage jobs
#[derive(Debug, Subcommand)]
pub enum Command {
    Create(Box<create::Args>),
    Validate(Box<validate::Args>),
    Show(ShowArgs),
    List(ListArgs),
    Stream(StreamArgs),
    Logs(logs::Args),
    Cancel(cancel::Args),
    Update(Box<manage::UpdateArgs>),
    Archive(manage::ArchiveArgs),
    Restore(manage::RestoreArgs),
    Delete(manage::DeleteArgs),
    Timeline(timeline::Args),
    ListAttempts(attempts::Args),
    ShowServices(services::Args),
    Download(download::Args),
}

/// Show a job: what it runs, its status, and why it is waiting or failed
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ShowArgs {
    /// Open the job's page in a browser, or print its address if there is no browser
    #[arg(short = 'e', long)]
    web: bool,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// List the jobs in a workspace, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    /// Maximum number of results
    #[arg(short = 'r', long, value_name = "COUNT", default_value_t = 50, value_parser = values::at_least_one,
          allow_negative_numbers = true)]
    max_results: u32,
    /// List all jobs
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false,
          value_name = "BOOL", conflicts_with = "max_results", action = clap::ArgAction::Set)]
    all_results: bool,
    /// List only archived jobs
    #[arg(long, conflicts_with = "include_archived")]
    archived_only: bool,
    /// Include archived jobs
    #[arg(long)]
    include_archived: bool,
    /// List only jobs with these statuses, such as Running or Failed; several can be given
    #[arg(long, value_name = "STATUS", num_args = 1.., value_parser = view::status)]
    status: Vec<JobStatus>,
    /// List only the children of this job
    #[arg(short = 'p', long, value_name = "NAME", value_parser = values::name, add = complete::jobs())]
    parent_job_name: Option<String>,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// Stream the log of a job until it ends
///
/// Standard output gets the bytes that the job wrote, and nothing else; a terminal gets text and colours, without other
/// control sequences. The exit code is 0 if the job completed, 1 if it failed or was canceled, and 130 if you press
/// Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: Ctrl-C does not affect the job.")]
pub struct StreamArgs {
    /// Print the current log of this attempt (a number from `job list-attempts`) and exit
    #[arg(long, value_name = "NUMBER", value_parser = values::at_least_one, allow_negative_numbers = true)]
    attempt: Option<u32>,
    #[command(flatten)]
    target: Target,
}

/// The job that a command acts on.
#[derive(Debug, clap::Args)]
struct Target {
    #[command(flatten)]
    name: Name<names::Job>,
    #[command(flatten)]
    scope: Scope,
}

impl Target {
    fn route(&self) -> CliResult<Route> {
        let workspace = self.scope.workspace()?;
        Ok(Route::Job { workspace, name: self.name.as_str().into() })
    }
}

pub async fn run(command: Command) -> CliResult {
    match command {
        Command::Create(args) => create::run(*args).await,
        Command::Validate(args) => validate::run(&args).await,
        Command::Show(args) => show(&args).await,
        Command::Update(args) => manage::update(&args).await,
        Command::Archive(args) => manage::archive(&args).await,
        Command::Restore(args) => manage::restore(&args).await,
        Command::Delete(args) => manage::delete(&args).await,
        Command::Timeline(args) => timeline::run(&args).await,
        Command::List(args) => list(&args).await,
        Command::Stream(args) => {
            let workspace = args.target.scope.workspace()?;
            let client = args.target.scope.connect().await?;
            match args.attempt {
                Some(attempt) => {
                    attempts::log(&client, workspace, &args.target.name, attempt).await
                }
                None => stream::run(&client, workspace, &args.target.name).await,
            }
        }
        Command::Logs(args) => logs::run(&args).await,
        Command::ListAttempts(args) => attempts::run(&args).await,
        Command::ShowServices(args) => services::run(&args).await,
        Command::Download(args) => download::run(&args).await,
        Command::Cancel(args) => cancel::run(&args).await,
    }
}

async fn show(args: &ShowArgs) -> CliResult {
    let route = args.target.route()?;
    let client = args.target.scope.connect().await?;
    if args.web {
        web::show(&client.get(&route).await?);
    }
    print(&client.get(&route).await?, &args.print)
}

async fn list(args: &ListArgs) -> CliResult {
    let workspace = args.scope.workspace()?;
    let client = args.scope.connect().await?;
    let wanted = (!args.all_results).then_some(args.max_results);
    // Jobs with other statuses do not count, so all are requested if only some statuses are wanted.
    let max = wanted.filter(|_| args.status.is_empty());
    let mut jobs: Vec<JobResource> = match &args.parent_job_name {
        Some(parent) => {
            // A job that does not exist has no children either, but its name is probably misspelt.
            let route = Route::Job { workspace: workspace.clone(), name: parent.as_str().into() };
            let _: JobResource = client.get(&route).await?;
            let query = [("parentJobName", parent.as_str())];
            client.list_with(&Route::Jobs(workspace), &query, max).await?
        }
        None => {
            let view = match (args.archived_only, args.include_archived) {
                (true, _) => "ArchivedOnly",
                (false, true) => "All",
                (false, false) => "ActiveOnly",
            };
            client.list_with(&Route::Jobs(workspace), &[("listViewType", view)], max).await?
        }
    };
    jobs.retain(|job| args.status.is_empty() || args.status.contains(&job.properties.status));
    jobs.truncate(wanted.map_or(usize::MAX, |count| count as usize));
    let jobs: Vec<_> = jobs.iter().map(view::entity).collect();
    let empty = match &args.parent_job_name {
        Some(_) => "this job has no children",
        None => "no jobs in this workspace",
    };
    args.print.show(&jobs, || print_table(&jobs, empty))
}

/// Writes the job to a file, in the same form as it is printed.
fn save(job: &JobResource, path: &Path) -> CliResult {
    let text = output::yaml_of(&view::entity(job))?;
    std::fs::write(path, text).map_err(|why| {
        Failure::error(format!("cannot write {}: {why}", path.display()))
            .hint("the job was submitted; `muster job show -o yaml` prints the same")
    })
}

fn print(job: &JobResource, print: &Print) -> CliResult {
    let job = view::entity(job);
    print.show(&job, || {
        print_table(std::slice::from_ref(&job), "")?;
        let notes = view::notes(&job);
        let notes = notes.iter().map(|note| format!("{}\n", message(note)));
        output::bytes(notes.collect::<String>().as_bytes())
    })
}

fn print_table(jobs: &[view::Job], empty: &str) -> CliResult {
    let mut header = view::HEADER.to_vec();
    let mut rows: Vec<Vec<String>> = jobs.iter().map(view::row).collect();
    if jobs.iter().any(|job| job.children().is_some()) {
        header.push(view::TASKS);
        for (row, job) in rows.iter_mut().zip(jobs) {
            row.push(job.children().unwrap_or("-").to_owned());
        }
    }
    if jobs.iter().any(|job| view::waits_for(job).is_some()) {
        header.push(view::WAITS);
        for (row, job) in rows.iter_mut().zip(jobs) {
            row.push(view::waits_for(job).unwrap_or_else(|| "-".to_owned()));
        }
    }
    output::table(&header, rows, empty)
}

/// The failure for a job that ended without success.
fn ended_badly(name: &str, how: &str, why: Option<&str>) -> Failure {
    let name = crate::failure::quoted(name);
    match why {
        Some(why) => Failure::error(format!("job {name} {how}: {}", message(why))),
        None => Failure::error(format!("job {name} {how}")),
    }
}
