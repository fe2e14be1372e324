//! `muster group`: resource groups, with the commands and flags of `az group`.

mod delete;
mod wait;

use std::collections::BTreeMap;

use clap::Subcommand;
use muster_wire::manager::{ResourceGroup, group_json};
use muster_wire::{Manager, Route};
use serde_json::{Value, json};

use crate::client::Client;
use crate::complete;
use crate::defaults::Setting;
use crate::document::{Edits, Field, Fields, Kind, field};
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, Failure, quoted};
use crate::names::{self, Name};
use crate::output::{self, Print};
use crate::scope::SubscriptionScope;
use crate::values;

const HEADER: [&str; 3] = ["Name", "Location", "Status"];
const FIELDS: &[Field] = &[field("tags", Kind::Texts)];

/// Manage resource groups
#[derive(Debug, Subcommand)]
pub enum Command {
    Create(CreateArgs),
    List(ListArgs),
    Show(ShowArgs),
    Exists(ExistsArgs),
    Update(UpdateArgs),
    Wait(wait::Args),
    Delete(delete::Args),
}

/// Create a resource group, or set the tags of an existing one
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: workspaces can then be created in it.")]
pub struct CreateArgs {
    /// Region; its workspaces can be in other regions [default: as configured]
    #[arg(short, long, value_name = "REGION", value_parser = values::name, add = complete::locations())]
    location: Option<String>,
    /// Tags, which replace all existing ones, as key=value key=value … [default: none]
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    tags: Option<Vec<String>>,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// List the resource groups of a subscription
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    /// List only groups with this tag, as KEY or KEY=VALUE
    #[arg(long, value_name = "KEY[=VALUE]")]
    tag: Option<String>,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: SubscriptionScope,
}

/// Show a resource group
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ShowArgs {
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// Check whether a resource group exists: prints true or false
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ExistsArgs {
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// Update the tags of a resource group
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: changes the tags of the group, not its content.")]
pub struct UpdateArgs {
    /// Tags, which replace all existing ones, as key=value key=value …; '' removes all
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    tags: Option<Vec<String>>,
    #[command(flatten)]
    edits: Edits,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// The resource group that a command acts on.
#[derive(Debug, clap::Args)]
struct Target {
    #[command(flatten)]
    name: Name<names::Group>,
    #[command(flatten)]
    scope: SubscriptionScope,
}

impl Target {
    fn route(&self) -> CliResult<Route> {
        let (subscription, name) = (self.scope.id()?.into(), self.name.as_str().into());
        Ok(Route::Manager(Manager::ResourceGroup { subscription, name }))
    }

    /// For a command that changes the group; it also prints the subscription, which may come from a forgotten default.
    fn route_to_change(&self) -> CliResult<Route> {
        output::say(&format!("in subscription {}", quoted(&self.scope.id()?)));
        self.route()
    }

    async fn connect(&self) -> CliResult<Client> {
        self.scope.connect().await
    }
}

pub async fn run(command: Command) -> CliResult {
    match command {
        Command::Create(args) => create(&args).await,
        Command::List(args) => list(&args).await,
        Command::Show(args) => show(&args).await,
        Command::Exists(args) => exists(&args).await,
        Command::Update(args) => update(&args).await,
        Command::Wait(args) => wait::run(&args).await,
        Command::Delete(args) => delete::run(&args).await,
    }
}

async fn create(args: &CreateArgs) -> CliResult {
    let location = Setting::Location.value(args.location.as_deref())?.ok_or_else(|| {
        Failure::refused("a resource group needs a region, and none is given or configured")
            .hint("add --location, for example --location eastus")
    })?;
    let tags = args.tags.as_deref().map(values::tags).transpose()?.unwrap_or_default();
    let route = args.target.route_to_change()?;
    let body = group_json(Some(&location), Some(&tags));
    let client = args.target.connect().await?;
    if args.dry.dry_run {
        return Plan::new("PUT", &route, &body).show(&client, &args.print).await;
    }
    print(&client.put(&route, body).await?.document()?, &args.print)
}

async fn list(args: &ListArgs) -> CliResult {
    let subscription = args.scope.id()?.into();
    let client = args.scope.connect().await?;
    let route = Route::Manager(Manager::ResourceGroups { subscription });
    let mut groups: Vec<ResourceGroup> = client.list(&route, None).await?;
    if let Some(tag) = &args.tag {
        groups.retain(|group| has_tag(&group.tags, tag));
    }
    args.print.show(&groups, || print_table(&groups))
}

fn has_tag(tags: &BTreeMap<String, String>, wanted: &str) -> bool {
    match wanted.split_once('=') {
        Some((key, value)) => tags.get(key).is_some_and(|found| found == value),
        None => tags.contains_key(wanted),
    }
}

async fn show(args: &ShowArgs) -> CliResult {
    let route = args.target.route()?;
    print(&args.target.connect().await?.get(&route).await?, &args.print)
}

async fn exists(args: &ExistsArgs) -> CliResult {
    let route = args.target.route()?;
    let found: Option<ResourceGroup> = args.target.connect().await?.find(&route).await?;
    let is_there = found.is_some();
    args.print.show(&is_there, || output::bytes(format!("{is_there}\n").as_bytes()))
}

async fn update(args: &UpdateArgs) -> CliResult {
    if args.tags.is_some() && args.edits.sets("tags") {
        return Err(Failure::refused("tags are given by both --set and --tags; give them once"));
    }
    let given = args.tags.as_deref().map(values::tags).transpose()?;
    let route = args.target.route_to_change()?;
    let client = args.target.connect().await?;
    let now: ResourceGroup = client.get(&route).await?;
    let mut document = Fields::new();
    document.insert("tags".to_owned(), json!(given.unwrap_or(now.tags)));
    args.edits.apply(&mut document, FIELDS)?;
    let tags = document.get("tags").and_then(Value::as_object);
    let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    let tags = tags.map(|tags| tags.iter().filter_map(pair).collect()).unwrap_or_default();
    let body = group_json(None, Some(&tags));
    if args.dry.dry_run {
        return Plan::new("PATCH", &route, &body).show(&client, &args.print).await;
    }
    print(&client.patch(&route, body).await?.document()?, &args.print)
}

fn print(group: &ResourceGroup, print: &Print) -> CliResult {
    print.show(group, || print_table(std::slice::from_ref(group)))
}

fn print_table(groups: &[ResourceGroup]) -> CliResult {
    let row = |group: &ResourceGroup| {
        let state = group.properties.provisioning_state.clone();
        vec![group.name.clone(), group.location.clone(), state]
    };
    let nothing = "no resource groups; create one with `muster group create`";
    output::table(&HEADER, groups.iter().map(row).collect(), nothing)
}
