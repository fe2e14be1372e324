//! `job validate`: whether a file is a job that could be submitted.

use std::path::PathBuf;

use muster_core::model::WorkspaceKey;
use muster_wire::Route;
use serde::Serialize;

use super::file;
use crate::client::Client;
use crate::failure::Outcome;
use crate::output::{self, Print};
use crate::scope::Scope;

/// Check a job's YAML file, and whether what it names is there
///
/// Files and folders of this machine are looked through, and the compute and assets that it names are looked up; nothing
/// is sent.
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

/// As `az ml` prints it.
#[derive(Debug, Serialize)]
struct Verdict {
    result: &'static str,
}

pub async fn run(args: &Args) -> Outcome {
    let wanted = file::read(&args.file, &args.set)?;
    let workspace = args.scope.workspace()?;
    let client = args.scope.connect().await?;
    let settled = file::settle(&client, &workspace, wanted, true).await?;
    check_compute(&client, &workspace, &file::body(settled.properties, "")).await?;
    let verdict = Verdict { result: "Succeeded" };
    args.print.show(&verdict, || output::bytes(b"Succeeded\n"))
}

async fn check_compute(client: &Client, workspace: &WorkspaceKey, body: &str) -> Outcome {
    let Some(name) = file::compute_of(body) else { return Ok(()) };
    let route = Route::Compute { workspace: workspace.clone(), name: name.into() };
    let _: serde_json::Value = client.found(&route).await?;
    Ok(())
}
