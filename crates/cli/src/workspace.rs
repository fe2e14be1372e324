//! `muster workspace`: workspaces, with the commands and flags of `az ml workspace`.

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

/// Manage workspaces
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

/// Not supported: list the keys of a workspace's accounts (it has none)
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: always refused, with an alternative.")]
pub struct ListKeysArgs {
    #[command(flatten)]
    _any: Anything,
}

/// Not supported: synchronise the keys of a workspace's accounts (it has none)
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: always refused, with an alternative.")]
pub struct SyncKeysArgs {
    #[command(flatten)]
    _any: Anything,
}

/// Not supported: diagnose a workspace's accounts (it has none)
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: always refused, with an alternative.")]
pub struct DiagnoseArgs {
    #[command(flatten)]
    _any: Anything,
}

/// Not supported: provision the managed network of a workspace (nodes use their host's network)
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: always refused, with an alternative.")]
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

/// List the workspaces in a resource group, or in the whole subscription if no group is given or configured
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    /// Maximum number of results
    #[arg(short = 'r', long, value_name = "COUNT", value_parser = values::at_least_one,
          allow_negative_numbers = true)]
    max_results: Option<u32>,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// Show how much of its limits a workspace uses: stored bytes by kind, and queued jobs
///
/// Identical bytes count once. For a sparse file, the total counts the space that it uses; the row of its kind counts
/// its whole length. To free space, delete jobs with `muster job delete`. Deleted bytes count until the server has
/// removed them, which takes a few minutes. Uploaded blocks that are never committed to a blob expire after a week, or
/// when the operator runs `muster storage gc --block-seconds`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListUsageArgs {
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// A limit of a workspace, or a part of what counts towards it.
#[derive(Debug, Serialize)]
struct UsageRow {
    name: String,
    display_name: Option<String>,
    unit: String,
    used: u64,
    /// Left out if there is no limit.
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
    /// In camel case, because az adds it to the entity.
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
    /// Muster's own.
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

/// The workspace that a command acts on: az's --name, or --workspace-name as everywhere else.
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

    /// Like [`Target::key`], with another source for the name if the flag is missing.
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
            let instead = "users have their own keys: create a new one with muster user rotate-key";
            refuse("list-keys", "a workspace has no accounts with keys", instead)
        }
        Command::SyncKeys(_) => {
            let instead = "nothing needs to be done: logs and results are on the server's own disk";
            refuse("sync-keys", "a workspace has no accounts with keys", instead)
        }
        Command::Diagnose(_) => {
            let instead = "to see why a job is waiting or a cluster has its size: muster why";
            refuse("diagnose", "a workspace has no accounts that could have problems", instead)
        }
        Command::ProvisionNetwork(_) => {
            let instead = "remove this step: nodes use the network of their host";
            refuse("provision-network", "there are no managed networks", instead)
        }
    }
}

fn refuse(verb: &str, why: &str, instead: &str) -> CliResult {
    let text = format!("workspace {} is not supported: {why}", quoted(verb));
    Err(Failure::refused(text).hint(instead))
}

/// Prints where something is changed, because a forgotten variable or default may not be the one that the user has in
/// mind.
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
    // Where workspaces are created on first use, a misspelt name would create another one.
    match client.find(&route).await? {
        Some(found) => print(&Workspace::of(found), &args.print),
        None => {
            let text = format!("workspace {name} does not exist in resource group {group}");
            let missing =
                Failure::not_found(text).hint("list the workspaces with `muster workspace list`");
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
        output::table(&["Name", "Used", "Limit", "What"], cells, "no limits")
    })
}

fn print_table(workspaces: &[Workspace]) -> CliResult {
    let rows = workspaces.iter().map(Workspace::row).collect();
    output::table(&HEADER, rows, "no workspaces; create one with `muster workspace create`")
}
