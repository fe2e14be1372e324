//! Deleting a compute, after confirmation.

use reqwest::StatusCode;

use super::Target;
use crate::confirm::confirm;
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, Failure, quoted};
use crate::operation;
use crate::output::Print;

/// Delete a cluster or compute instance with its nodes and jobs
#[derive(Debug, clap::Args)]
#[command(after_help = "Destructive: ends its jobs and nodes; logs and costs are kept.")]
pub struct Args {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Do not wait until the deletion has finished
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: &Args) -> CliResult {
    let name = &args.target.name;
    let route = args.target.route_to_change()?;
    if args.dry.dry_run {
        let client = args.target.scope.connect().await?;
        return Plan::new("DELETE", &route, "").show(&client, &args.print).await;
    }
    if !args.yes {
        let thing = format!("compute {}", quoted(name));
        confirm(&format!("delete {thing} with its nodes and jobs"), &thing)?;
    }
    let client = args.target.scope.connect().await?;
    let answer = client.delete(&route).await?;
    if answer.status == StatusCode::NO_CONTENT {
        let text = format!("there is no compute {} to delete", quoted(name));
        let missing = Failure::not_found(text).hint("list the computes with `muster compute list`");
        return Err(client.suggest(&route, missing).await);
    }
    if args.no_wait {
        return Ok(());
    }
    operation::follow(&client, &answer, format!("deleting {name}")).await
}
