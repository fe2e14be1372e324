//! Deleting a cluster: asked twice, unless the user says that once is enough.

use std::io::{IsTerminal as _, Write as _, stdin};

use reqwest::StatusCode;

use super::Target;
use crate::failure::{Failure, Outcome, quoted};
use crate::operation;

/// Delete a cluster with its nodes and its jobs
#[derive(Debug, clap::Args)]
#[command(after_help = "Destructive: ends the cluster's jobs and nodes; logs and costs stay.")]
pub struct Args {
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Do not wait until it is gone
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: &Args) -> Outcome {
    let name = &args.target.name;
    let route = args.target.route_to_change()?;
    if !args.yes {
        confirm(name)?;
    }
    let client = args.target.scope.connect().await?;
    let answer = client.delete(&route).await?;
    if answer.status == StatusCode::NO_CONTENT {
        let text = format!("there is no compute {} to delete", quoted(name));
        let missing = Failure::not_found(text).hint("`muster compute list` shows what there is");
        return Err(client.suggest(&route, missing).await);
    }
    if args.no_wait {
        return Ok(());
    }
    operation::follow(&client, &answer, format!("deleting {name}")).await
}

fn confirm(name: &str) -> Outcome {
    if !stdin().is_terminal() {
        return Err(Failure::refused(format!(
            "deleting compute {} ends its jobs, and there is no terminal to ask on; add --yes",
            quoted(name)
        )));
    }
    let mut terminal = anstream::stderr();
    let _ = write!(terminal, "delete compute {} with its nodes and jobs? (y/n): ", quoted(name));
    let _ = terminal.flush();
    let mut answer = String::new();
    let read = stdin().read_line(&mut answer);
    read.map_err(|why| Failure::error(format!("cannot read the answer: {why}")))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::error(format!("compute {} was not deleted", quoted(name)))),
    }
}
