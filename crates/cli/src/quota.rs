//! `muster quota`: how many vCPUs clusters may reserve and use in a region.

use clap::Subcommand;
use muster_wire::quota::{Region, UpdatedQuota, Usage, update_json};
use muster_wire::{Page, Route};
use serde::Serialize;

use crate::client::Client;
use crate::complete;
use crate::defaults::Setting;
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, Failure, printable, quoted};
use crate::names::{self, Name};
use crate::nearest;
use crate::output::{self, Print};
use crate::scope::Scope;
use crate::values::{self, Limit};

const HEADER: [&str; 4] = ["Name", "Limit", "Reserved", "Used"];

/// Show and set the quotas of a region, in vCPUs
#[derive(Debug, Subcommand)]
pub enum Command {
    List(ListArgs),
    Show(ShowArgs),
    Update(UpdateArgs),
}

/// List the quotas of a region, with how much clusters have reserved and how much their nodes use
///
/// Reserved is what clusters may grow to; a cluster that does not fit is refused. Used is what their nodes use now; a
/// node that does not fit has to wait.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    #[command(flatten)]
    region: RegionArgs,
    #[command(flatten)]
    print: Print,
}

/// Show a quota of a region
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ShowArgs {
    #[command(flatten)]
    name: Name<names::Quota>,
    #[command(flatten)]
    region: RegionArgs,
    #[command(flatten)]
    print: Print,
}

/// Set a quota of a region, or reset it to the default
///
/// Existing nodes and clusters are kept, even if they exceed the new quota.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating, costs money: jobs that waited for a higher quota get their nodes."
)]
pub struct UpdateArgs {
    #[command(flatten)]
    name: Name<names::Quota>,
    /// Number of vCPUs, or none for the server's default (dedicated-cores, family-cores, low-priority-cores)
    #[arg(long, value_name = "VCPUS", value_parser = values::limit, allow_negative_numbers = true)]
    limit: Limit,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    region: RegionArgs,
    #[command(flatten)]
    print: Print,
}

#[derive(Debug, clap::Args)]
struct RegionArgs {
    /// Region [default: as configured]
    #[arg(short, long, value_name = "REGION", value_parser = values::name, add = complete::locations())]
    location: Option<String>,
    #[command(flatten)]
    scope: Scope,
}

impl RegionArgs {
    fn subscription(&self) -> CliResult<Box<str>> {
        Ok(self.scope.workspace()?.subscription)
    }

    fn location(&self) -> CliResult<String> {
        Setting::Location.value(self.location.as_deref())?.ok_or_else(|| {
            Failure::refused(
                "quotas are per region, and none is given; add --location, such as eastus",
            )
            .hint("to set a default: muster configure --defaults location=eastus")
        })
    }

    async fn usages(&self, client: &Client) -> CliResult<Vec<Usage>> {
        let location = self.location()?.into();
        let route = Route::Usages { subscription: self.subscription()?, location };
        let page: Page<Usage> = client.get(&route).await?;
        Ok(page.value)
    }

    async fn usage(&self, client: &Client, name: &str) -> CliResult<Usage> {
        let usages = self.usages(client).await?;
        let names: Vec<_> = usages.iter().map(|usage| usage.name.value.clone()).collect();
        let mut usages = usages.into_iter();
        let found = usages.find(|usage| usage.name.value.eq_ignore_ascii_case(name));
        let location = self.location()?;
        found.ok_or_else(|| {
            let hint = match nearest::nearest(name, &names) {
                Some(nearest) => format!("did you mean {}?", quoted(nearest)),
                None => {
                    format!(
                        "list the names with `muster quota list --location {location} -o table`"
                    )
                }
            };
            Failure::not_found(format!("there is no quota named {}", quoted(name))).hint(hint)
        })
    }
}

#[derive(Debug, Serialize)]
struct Quota {
    name: String,
    /// Left out if there is no limit.
    limit: Option<u64>,
    reserved: u64,
    used: u64,
}

impl Quota {
    fn of(usage: Usage) -> Quota {
        Quota {
            name: usage.name.value,
            limit: u64::try_from(usage.limit).ok(),
            reserved: usage.current_value,
            used: usage.used_value,
        }
    }

    fn row(&self) -> Vec<String> {
        let limit = self.limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        vec![self.name.clone(), limit, self.reserved.to_string(), self.used.to_string()]
    }
}

pub async fn run(command: Command) -> CliResult {
    match command {
        Command::List(args) => list(&args).await,
        Command::Show(args) => show(&args).await,
        Command::Update(args) => update(&args).await,
    }
}

async fn list(args: &ListArgs) -> CliResult {
    let client = args.region.scope.connect().await?;
    let usages = args.region.usages(&client).await?;
    let quotas: Vec<_> = usages.into_iter().map(Quota::of).collect();
    args.print.show(&quotas, || print_table(&quotas))
}

async fn show(args: &ShowArgs) -> CliResult {
    let client = args.region.scope.connect().await?;
    print(args.region.usage(&client, &args.name).await?, &args.print)
}

async fn update(args: &UpdateArgs) -> CliResult {
    let client = args.region.scope.connect().await?;
    let (subscription, location) = (args.region.subscription()?, args.region.location()?);
    output::say(&format!(
        "in region {}, subscription {}",
        quoted(&location),
        quoted(&subscription)
    ));
    let region = Region { subscription: &subscription, location: &location };
    let body = update_json(region, &args.name, args.limit.0);
    let route =
        Route::UpdateQuotas { subscription: subscription.clone(), location: location.into() };
    if args.dry.dry_run {
        let now = args.region.usage(&client, &args.name).await?;
        let text = |limit: i64| if limit < 0 { "none".to_owned() } else { limit.to_string() };
        let then = args.limit.0.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        output::say(&format!("{}: limit {} -> {then}", now.name.value, text(now.limit)));
        let (subscription, location) = (subscription.clone(), args.region.location()?.into());
        let subject = Route::Quotas { subscription, location };
        let plan = Plan { subject: Some(&subject), ..Plan::new("POST", &route, &body) };
        return plan.show(&client, &args.print).await;
    }
    let answer = client.post_body(&route, body).await?;
    let updated: Page<UpdatedQuota> = answer.document()?;
    for limit in updated.value {
        if let Some(message) = limit.message {
            return Err(Failure::refused(format!("({}) {}", limit.status, printable(&message))));
        }
    }
    print(args.region.usage(&client, &args.name).await?, &args.print)
}

fn print(usage: Usage, print: &Print) -> CliResult {
    let quota = Quota::of(usage);
    print.show(&quota, || print_table(std::slice::from_ref(&quota)))
}

fn print_table(quotas: &[Quota]) -> CliResult {
    output::table(&HEADER, quotas.iter().map(Quota::row).collect(), "no quotas")
}
