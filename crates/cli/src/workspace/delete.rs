//! Deleting a workspace: asked twice, unless the user says that once is enough.

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
#[command(after_help = "Destructive: a workspace that is gone does not come back.")]
pub struct Args {
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Do not wait until it is gone
    #[arg(long)]
    no_wait: bool,
    /// With its accounts and vaults, of which there are none here
    #[arg(long)]
    all_resources: bool,
    /// Keep nothing to bring it back from, which nobody does here
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
            .hint("`muster workspace list` shows what there is");
        return Err(client.suggest(&route, missing).await);
    }
    if args.no_wait {
        return Ok(());
    }
    operation::follow(&client, &answer, format!("deleting {name}")).await
}
