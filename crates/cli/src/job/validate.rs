//! `job validate`: whether a file is a job that could be submitted.

use std::path::PathBuf;

use muster_wire::Route;
use serde::Serialize;

use super::{create, file};
use crate::failure::CliResult;
use crate::output::{self, Print};
use crate::scope::Scope;

/// Check whether a job's YAML file would be accepted
///
/// Files and folders of this machine are looked through, and the server is asked whether it would take the job. Nothing
/// is sent and nothing changes. Whether the name is free is not looked at.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct Args {
    /// The YAML file with the job; - is the standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Change fields of the file, as path=value; a path is names with dots, such as inputs.epochs
    #[arg(long, value_name = "PATH=VALUE", num_args = 1..)]
    set: Vec<String>,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// A name that no rule forbids, for a file without one.
const UNNAMED: &str = "unnamed";

/// As `az ml` prints it.
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
