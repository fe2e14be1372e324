//! `job validate`: whether the job in a file could be submitted.

use std::path::PathBuf;

use muster_wire::Route;
use serde::Serialize;

use super::{create, file};
use crate::failure::CliResult;
use crate::output::{self, Print};
use crate::scope::Scope;

/// Check whether the YAML file of a job would be accepted
///
/// Local files and folders are checked, and the server is asked whether it would accept the job. Nothing is uploaded or
/// changed. The check does not include whether the name is available.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct Args {
    /// YAML file that describes the job, or - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Override fields of the file, as path=value; a path has dots between names, such as inputs.epochs
    #[arg(long, value_name = "PATH=VALUE", num_args = 1..)]
    set: Vec<String>,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// A valid name, for a file without one.
const UNNAMED: &str = "unnamed";

/// The result in the form that `az ml` prints.
#[derive(Debug, Serialize)]
struct Verdict {
    result: &'static str,
}

pub async fn run(args: &Args) -> CliResult {
    let wanted = file::read(&args.file, &args.set)?;
    let workspace = args.scope.workspace()?;
    let name = wanted.name.clone().unwrap_or_else(|| UNNAMED.to_owned());
    let client = args.scope.connect().await?;
    let mut settled = file::settle(&client, &workspace, wanted, true).await?;
    for property in settled.unmade {
        settled.properties.remove(property);
    }
    let body = file::body(settled.properties, &name);
    let compute = file::compute_of(&body);
    let route = Route::JobCheck { workspace: workspace.clone(), name: name.as_str().into() };
    if let Err(failure) = client.post_body(&route, body).await {
        return Err(create::hinted(&client, workspace, compute, failure).await);
    }
    let verdict = Verdict { result: "Succeeded" };
    args.print.show(&verdict, || output::bytes(b"Succeeded\n"))
}
