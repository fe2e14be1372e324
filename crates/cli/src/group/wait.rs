//! Waiting for a resource group.

use std::time::{Duration, Instant};

use muster_wire::manager::ResourceGroup;

use super::Target;
use crate::failure::{CliResult, Failure, quoted};
use crate::operation::Patience;
use crate::values;

/// Wait until a resource group exists, or is deleted
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
#[group(id = "until", required = true, multiple = false, args = ["created", "updated", "exists", "deleted"])]
pub struct Args {
    /// Wait until it exists and is ready
    #[arg(long)]
    created: bool,
    /// Wait until it exists and is ready, like --created
    #[arg(long)]
    updated: bool,
    /// Wait until it exists
    #[arg(long)]
    exists: bool,
    /// Wait until it is deleted
    #[arg(long)]
    deleted: bool,
    /// Seconds between checks
    #[arg(long, value_name = "SECONDS", value_parser = values::at_least_one, default_value = "30",
          allow_negative_numbers = true)]
    interval: u32,
    /// Time limit, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = values::at_least_one, default_value = "3600",
          allow_negative_numbers = true)]
    timeout: u32,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: &Args) -> CliResult {
    let route = args.target.route()?;
    let client = args.target.connect().await?;
    let mut patience = Patience::default();
    let deadline = Instant::now() + Duration::from_secs(u64::from(args.timeout));
    loop {
        match client.find::<ResourceGroup>(&route).await {
            Ok(found) if args.is_met(found.as_ref()) => return Ok(()),
            Ok(_) => patience.calm(),
            Err(failure) => patience.forgive(failure)?,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::error(format!(
                "resource group {} does not meet the condition after {} seconds",
                quoted(&args.target.name),
                args.timeout
            ))
            .hint("look at it with `muster group show`, or increase --timeout"));
        }
        tokio::time::sleep(left.min(Duration::from_secs(u64::from(args.interval)))).await;
    }
}

impl Args {
    fn is_met(&self, found: Option<&ResourceGroup>) -> bool {
        match found {
            None => self.deleted,
            Some(group) => {
                let is_ready = group.properties.provisioning_state == "Succeeded";
                self.exists || (is_ready && (self.created || self.updated))
            }
        }
    }
}
