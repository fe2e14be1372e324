//! Canceling a job.

use std::time::Duration;

use muster_wire::Route;
use muster_wire::job::{JobResource, JobStatus};

use super::Target;
use crate::dry::{DryRun, Plan};
use crate::failure::CliResult;
use crate::operation::Patience;
use crate::output::{self, Print};
use crate::progress::Progress;

/// A process that is asked to end has a few seconds before it is killed.
const POLL: Duration = Duration::from_millis(200);

/// Cancel a job
#[derive(Debug, clap::Args)]
#[command(after_help = "Destructive: ends the job's processes; its log and its costs are kept.")]
pub struct Args {
    /// Do not wait until the job has ended
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
    let workspace = args.target.scope.workspace_to_change()?;
    let route = args.target.route()?;
    let client = args.target.scope.connect().await?;
    let cancel = Route::JobCancel { workspace, name: name.as_str().into() };
    if args.dry.dry_run {
        let plan = Plan { subject: Some(&route), ..Plan::new("POST", &cancel, "") };
        return plan.show(&client, &args.print).await;
    }
    client.post(&cancel).await?;
    if args.no_wait {
        return Ok(());
    }
    let mut progress = Progress::new(format!("canceling {name}"));
    let mut patience = Patience::default();
    loop {
        match client.get::<JobResource>(&route).await {
            Ok(job) => {
                patience.calm();
                let status = job.properties.status;
                if status.is_terminal() {
                    progress.done(status.as_str());
                    if status != JobStatus::Canceled {
                        output::say("the job ended before it could be canceled");
                    }
                    return Ok(());
                }
                progress.state(status.as_str());
            }
            Err(failure) => patience.forgive(failure)?,
        }
        tokio::time::sleep(POLL).await;
    }
}
