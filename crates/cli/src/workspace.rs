//! `muster workspace`: workspaces, with the words of `az ml workspace`.

use std::collections::BTreeMap;

use clap::Subcommand;
use muster_core::WorkspacePatch;
use muster_wire::Route;
use muster_wire::workspace::{WorkspaceResource, request_json};
use serde::Serialize;

use crate::compute::resource_group;
use crate::defaults::Setting;
use crate::failure::{Outcome, quoted};
use crate::output::{self, Print};
use crate::scope::Scope;
use crate::values;

const HEADER: [&str; 4] = ["Name", "Location", "Description", "Resource group"];

/// Make workspaces and look at them
#[derive(Debug, Subcommand)]
pub enum Command {
    Create(CreateArgs),
    Show(ShowArgs),
    List(ListArgs),
}

/// Make a workspace; one that is there stays as it is
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: whoever has a role on its group can use it from then on.")]
pub struct CreateArgs {
    /// The workspace's name, as --workspace-name
    #[arg(short, long, value_parser = values::name, conflicts_with = "workspace_name")]
    name: Option<String>,
    /// The region [default: as configured, or the server's]
    #[arg(short, long, value_name = "REGION", value_parser = values::name)]
    location: Option<String>,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// Show a workspace
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ShowArgs {
    /// The workspace's name, as --workspace-name
    #[arg(short, long, value_parser = values::name, conflicts_with = "workspace_name")]
    name: Option<String>,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
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
            tags: workspace.tags,
            discovery_url: properties.discovery_url,
            mlflow_tracking_uri: properties.ml_flow_tracking_uri,
            hbi_workspace: properties.hbi_workspace,
            public_network_access: properties.public_network_access,
            provisioning_state: properties.provisioning_state,
        }
    }

    fn row(&self) -> Vec<String> {
        let or_empty = |text: &Option<String>| text.clone().unwrap_or_default();
        let (description, group) = (or_empty(&self.description), or_empty(&self.resource_group));
        vec![self.name.clone(), self.location.clone(), description, group]
    }
}

pub async fn run(command: Command) -> Outcome {
    match command {
        Command::Create(args) => create(&args).await,
        Command::Show(args) => show(&args).await,
        Command::List(args) => list(&args).await,
    }
}

async fn create(args: &CreateArgs) -> Outcome {
    let mut key = args.scope.workspace()?;
    if let Some(name) = &args.name {
        key.name = name.as_str().into();
    }
    output::say(&format!(
        "in resource group {}, subscription {}",
        quoted(&key.resource_group),
        quoted(&key.subscription)
    ));
    let location = Setting::Location.value(args.location.as_deref())?;
    let client = args.scope.connect().await?;
    let wanted = WorkspacePatch { location: location.map(Into::into), ..Default::default() };
    let body = request_json(&wanted);
    let answer = client.put(&Route::Workspace(key), body).await?;
    let workspace = Workspace::of(answer.document()?);
    args.print.show(&workspace, || print_table(std::slice::from_ref(&workspace)))
}

async fn show(args: &ShowArgs) -> Outcome {
    let mut key = args.scope.workspace()?;
    if let Some(name) = &args.name {
        key.name = name.as_str().into();
    }
    let client = args.scope.connect().await?;
    let workspace = Workspace::of(client.get(&Route::Workspace(key)).await?);
    args.print.show(&workspace, || print_table(std::slice::from_ref(&workspace)))
}

async fn list(args: &ListArgs) -> Outcome {
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

fn print_table(workspaces: &[Workspace]) -> Outcome {
    let rows = workspaces.iter().map(Workspace::row).collect();
    output::table(&HEADER, rows, "there are no workspaces yet; `muster workspace create` makes one")
}
