//! Deleting a workspace, after confirmation.

use muster_wire::Route;
use reqwest::StatusCode;

use super::Target;
use crate::confirm::confirm;
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, Failure, quoted};
use crate::operation;
use crate::output::Print;

/// Delete a workspace
#[derive(Debug, clap::Args)]
#[command(after_help = "Destructive: a deleted workspace cannot be recovered.")]
pub struct Args {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Do not wait until the deletion has finished
    #[arg(long)]
    no_wait: bool,
    /// Accepted for compatibility with az: delete its accounts and vaults, of which it has none
    #[arg(long)]
    all_resources: bool,
    /// Accepted for compatibility with az: a deleted workspace can never be recovered
    #[arg(short, long)]
    permanently_delete: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: &Args) -> CliResult {
    let key = args.target.key()?;
    let thing = format!("workspace {}", quoted(&key.name));
    let name = key.name.clone();
    super::say_where(&key);
    let route = Route::Workspace(key);
    if args.dry.dry_run {
        let client = args.target.scope.connect().await?;
        return Plan::new("DELETE", &route, "").show(&client, &args.print).await;
    }
    if !args.yes {
        confirm(&format!("delete {thing}"), &thing)?;
    }
    let client = args.target.scope.connect().await?;
    let answer = client.delete(&route).await?;
    if answer.status == StatusCode::NO_CONTENT {
        let missing = Failure::not_found(format!("there is no {thing} to delete"))
            .hint("list the workspaces with `muster workspace list`");
        return Err(client.suggest(&route, missing).await);
    }
    if args.no_wait {
        return Ok(());
    }
    operation::follow(&client, &answer, format!("deleting {name}")).await
}
