//! `muster workspace`: workspaces, with the words of `az ml workspace`.

mod delete;
pub mod put;

use std::collections::BTreeMap;

use clap::Subcommand;
use muster_core::model::WorkspaceKey;
use muster_wire::workspace::WorkspaceResource;
use muster_wire::workspace_usage::WorkspaceUsage;
use muster_wire::{Page, Route};
use serde::Serialize;

use crate::compute::view::own_tags;
use crate::compute::{Anything, resource_group};
use crate::failure::{CliResult, Failure, quoted};
use crate::names::{self, MaybeName};
use crate::output::{self, Print};
use crate::scope::Scope;
use crate::values;

const HEADER: [&str; 4] = ["Name", "Location", "Description", "Resource group"];

/// Make workspaces, look at them, change and delete them
#[derive(Debug, Subcommand)]
pub enum Command {
    Create(put::CreateArgs),
    Update(put::UpdateArgs),
    Show(ShowArgs),
    List(ListArgs),
    ListUsage(ListUsageArgs),
    Delete(delete::Args),
    ListKeys(ListKeysArgs),
    SyncKeys(SyncKeysArgs),
    Diagnose(DiagnoseArgs),
    ProvisionNetwork(ProvisionNetworkArgs),
}

/// Show the keys of a workspace's accounts: refused, for it has none
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: it is always refused, and says what to do instead.")]
pub struct ListKeysArgs {
    #[command(flatten)]
    _any: Anything,
}

/// Read the keys of a workspace's accounts anew: refused, for it has none
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: it is always refused, and says what to do instead.")]
pub struct SyncKeysArgs {
    #[command(flatten)]
    _any: Anything,
}

/// Look for trouble with a workspace's accounts: refused, for it has none
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: it is always refused, and says what to do instead.")]
pub struct DiagnoseArgs {
    #[command(flatten)]
    _any: Anything,
}

/// Make the managed network of a workspace: refused, for nodes are on this machine's network
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: it is always refused, and says what to do instead.")]
pub struct ProvisionNetworkArgs {
    #[command(flatten)]
    _any: Anything,
}

/// Show a workspace
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ShowArgs {
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// List the workspaces of a resource group; of the whole subscription where no group is given or configured
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    /// At most so many
    #[arg(short = 'r', long, value_name = "COUNT", value_parser = values::at_least_one,
          allow_negative_numbers = true)]
    max_results: Option<u32>,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// Show what a workspace has used of its limits: stored bytes by kind, and waiting jobs
///
/// The same bytes count once. Of a sparse file, the total counts what it takes; the row of its kind counts its whole length.
/// To free space, delete jobs with `muster job delete`. What was deleted counts until the server has removed its bytes, which
/// takes some minutes. Blocks that were uploaded and never put together into a blob expire after a week, or when the
/// operator runs `muster storage gc --block-seconds`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListUsageArgs {
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// One limit of a workspace, or a part of what counts for it.
#[derive(Debug, Serialize)]
struct UsageRow {
    name: String,
    display_name: Option<String>,
    unit: String,
    used: u64,
    /// Left out where nothing is limited.
    limit: Option<u64>,
}

impl UsageRow {
    fn of(usage: WorkspaceUsage) -> UsageRow {
        UsageRow {
            name: usage.name.value,
            display_name: usage.name.localized_value,
            unit: usage.unit,
            used: usage.current_value,
            limit: u64::try_from(usage.limit).ok(),
        }
    }

    fn row(&self) -> Vec<String> {
        let limit = self.limit.map(|limit| limit.to_string()).unwrap_or_default();
        let meaning = self.display_name.clone().unwrap_or_default();
        vec![self.name.clone(), self.used.to_string(), limit, meaning]
    }
}

/// The entity that az prints.
#[derive(Debug, Serialize)]
struct Workspace {
    name: String,
    id: String,
    /// Camel case, because az adds it to what it got.
    #[serde(rename = "resourceGroup")]
    resource_group_by_az: Option<String>,
    resource_group: Option<String>,
    location: String,
    display_name: Option<String>,
    description: Option<String>,
    tags: BTreeMap<String, String>,
    discovery_url: String,
    mlflow_tracking_uri: Option<String>,
    hbi_workspace: bool,
    public_network_access: Option<String>,
    /// Ours.
    provisioning_state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl Workspace {
    fn of(workspace: WorkspaceResource) -> Workspace {
        let group = resource_group(&workspace.id);
        let properties = workspace.properties;
        Workspace {
            name: workspace.name,
            id: workspace.id,
            resource_group_by_az: group.clone(),
            resource_group: group,
            location: workspace.location,
            display_name: properties.friendly_name,
            description: properties.description,
            tags: own_tags(workspace.tags),
            discovery_url: properties.discovery_url,
            mlflow_tracking_uri: properties.ml_flow_tracking_uri,
            hbi_workspace: properties.hbi_workspace,
            public_network_access: properties.public_network_access,
            provisioning_state: properties.provisioning_state,
            note: properties.note,
        }
    }

    fn row(&self) -> Vec<String> {
        let or_empty = |text: &Option<String>| text.clone().unwrap_or_default();
        let (description, group) = (or_empty(&self.description), or_empty(&self.resource_group));
        vec![self.name.clone(), self.location.clone(), description, group]
    }
}

/// Which workspace a command is about: az's --name, or --workspace-name as everywhere else.
#[derive(Debug, clap::Args)]
struct Target {
    #[command(flatten)]
    name: MaybeName<names::Workspace>,
    #[command(flatten)]
    scope: Scope,
}

impl Target {
    fn key(&self) -> CliResult<WorkspaceKey> {
        self.key_or(None)
    }

    /// As [`Target::key`], with a name from elsewhere where the flag gives none.
    fn key_or(&self, name: Option<&str>) -> CliResult<WorkspaceKey> {
        let mut key = self.scope.workspace()?;
        if let Some(name) = self.name.get().or(name) {
            key.name = name.into();
        }
        Ok(key)
    }
}

pub async fn run(command: Command) -> CliResult {
    match command {
        Command::Create(args) => put::create(args).await,
        Command::Update(args) => put::update(args).await,
        Command::Show(args) => show(&args).await,
        Command::List(args) => list(&args).await,
        Command::ListUsage(args) => list_usage(&args).await,
        Command::Delete(args) => delete::run(&args).await,
        Command::ListKeys(_) => {
            let instead = "keys of users are theirs alone: muster user rotate-key makes a new one";
            refuse("list-keys", "a workspace has no accounts with keys", instead)
        }
        Command::SyncKeys(_) => {
            let instead = "there is nothing to do: logs and results are on the server's own disk";
            refuse("sync-keys", "a workspace has no accounts with keys", instead)
        }
        Command::Diagnose(_) => {
            let instead = "to see why a job waits or a cluster is as it is: muster why";
            refuse("diagnose", "a workspace has no accounts that could be wrong", instead)
        }
        Command::ProvisionNetwork(_) => {
            let instead = "leave it out: nodes use the network of the machine that they are on";
            refuse("provision-network", "there are no managed networks", instead)
        }
    }
}

fn refuse(verb: &str, why: &str, instead: &str) -> CliResult {
    let text = format!("workspace {} is not possible here: {why}", quoted(verb));
    Err(Failure::refused(text).hint(instead))
}

/// Where something is changed, for a forgotten variable or default may lead elsewhere.
fn say_where(key: &WorkspaceKey) {
    output::say(&format!(
        "in resource group {}, subscription {}",
        quoted(&key.resource_group),
        quoted(&key.subscription)
    ));
}

async fn show(args: &ShowArgs) -> CliResult {
    let key = args.target.key()?;
    let (name, group) = (quoted(&key.name), quoted(&key.resource_group));
    let route = Route::Workspace(key);
    let client = args.target.scope.connect().await?;
    // Where the first use of a workspace makes it, a misspelt name would make another.
    match client.find(&route).await? {
        Some(found) => print(&Workspace::of(found), &args.print),
        None => {
            let text = format!("workspace {name} does not exist in resource group {group}");
            let missing =
                Failure::not_found(text).hint("`muster workspace list` shows what there is");
            Err(client.suggest(&route, missing).await)
        }
    }
}

fn print(workspace: &Workspace, print: &Print) -> CliResult {
    if let Some(note) = &workspace.note {
        output::say(&format!("note: {note}"));
    }
    print.show(workspace, || print_table(std::slice::from_ref(workspace)))
}

async fn list(args: &ListArgs) -> CliResult {
    let subscription = args.scope.workspace()?.subscription;
    let route = match args.scope.group()? {
        Some(group) => Route::WorkspacesOfGroup { subscription, resource_group: group.into() },
        None => Route::WorkspacesOfSubscription { subscription },
    };
    let client = args.scope.connect().await?;
    let workspaces: Vec<WorkspaceResource> = client.list(&route, args.max_results).await?;
    let workspaces: Vec<_> = workspaces.into_iter().map(Workspace::of).collect();
    args.print.show(&workspaces, || print_table(&workspaces))
}

async fn list_usage(args: &ListUsageArgs) -> CliResult {
    let route = Route::WorkspaceUsages(args.target.key()?);
    let client = args.target.scope.connect().await?;
    let page: Page<WorkspaceUsage> = client.get(&route).await?;
    let rows: Vec<_> = page.value.into_iter().map(UsageRow::of).collect();
    args.print.show(&rows, || {
        let cells = rows.iter().map(UsageRow::row).collect();
        output::table(&["Name", "Used", "Limit", "What"], cells, "nothing is limited")
    })
}

fn print_table(workspaces: &[Workspace]) -> CliResult {
    let rows = workspaces.iter().map(Workspace::row).collect();
    output::table(&HEADER, rows, "there are no workspaces yet; `muster workspace create` makes one")
}
