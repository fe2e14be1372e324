//! Waiting until a resource group is as wanted.

use std::time::{Duration, Instant};

use muster_wire::manager::ResourceGroup;

use super::Target;
use crate::failure::{CliResult, Failure, quoted};
use crate::operation::Patience;
use crate::values;

/// Wait until a resource group is there, or gone
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
#[group(id = "until", required = true, multiple = false, args = ["created", "updated", "exists", "deleted"])]
pub struct Args {
    /// Until it is there and ready
    #[arg(long)]
    created: bool,
    /// Until it is there and ready, as --created
    #[arg(long)]
    updated: bool,
    /// Until it is there
    #[arg(long)]
    exists: bool,
    /// Until it is gone
    #[arg(long)]
    deleted: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", value_parser = values::at_least_one, default_value = "30",
          allow_negative_numbers = true)]
    interval: u32,
    /// Give up after so many seconds
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
                "resource group {} is not as wanted after {} seconds",
                quoted(&args.target.name),
                args.timeout
            ))
            .hint("look at it with `muster group show`, or give a larger --timeout"));
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
