//! `muster datastore`: names of places where blobs are, with the words of `az ml datastore`.

use std::collections::BTreeMap;

use clap::Subcommand;
use muster_core::model::DatastoreSpec;
use muster_wire::datastore::{DatastoreResource, request_json};
use muster_wire::{Route, StorageRoute};
use reqwest::StatusCode;
use serde::Serialize;

use crate::compute::resource_group;
use crate::confirm::confirm;
use crate::dry::{DryRun, Plan};
use crate::failure::{Failure, Outcome, quoted};
use crate::output::{self, Print};
use crate::scope::Scope;
use crate::values;

const HEADER: [&str; 4] = ["Name", "Container", "Account", "Default"];

/// See where blobs are kept, and name other places
#[derive(Debug, Subcommand)]
pub enum Command {
    List(ListArgs),
    Show(ShowArgs),
    Create(CreateArgs),
    Delete(DeleteArgs),
}

/// List the datastores of a workspace, its own two first
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// Show a datastore
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ShowArgs {
    /// The datastore's name
    #[arg(short, long, value_parser = values::name)]
    name: String,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// Name a container of this server, which is made if it is not there
///
/// Accounts elsewhere, with what opens them, are put with azure-ai-ml or REST.
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: a datastore of that name is replaced.")]
pub struct CreateArgs {
    /// The datastore's name
    #[arg(short, long, value_parser = values::name)]
    name: String,
    /// The container: small letters, digits and hyphens; its name is its own on the whole server
    #[arg(long, value_name = "NAME", value_parser = values::name)]
    container_name: String,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Tags, as KEY=VALUE
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    tags: Vec<String>,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// Forget a datastore; what is in its container stays
#[derive(Debug, clap::Args)]
#[command(after_help = "Destructive: whoever uses that name finds nothing there.")]
pub struct DeleteArgs {
    /// The datastore's name
    #[arg(short, long, value_parser = values::name)]
    name: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// As `az ml` prints it.
#[derive(Debug, Serialize)]
struct Datastore {
    account_name: Option<String>,
    container_name: Option<String>,
    credentials_type: String,
    description: Option<String>,
    endpoint: Option<String>,
    id: String,
    is_default: bool,
    name: String,
    protocol: Option<String>,
    #[serde(rename = "resourceGroup")]
    resource_group: Option<String>,
    tags: BTreeMap<String, String>,
    #[serde(rename = "type")]
    kind: &'static str,
}

impl Datastore {
    fn of(document: DatastoreResource) -> Datastore {
        let DatastoreResource { id, name, properties, .. } = document;
        Datastore {
            account_name: properties.account_name,
            container_name: properties.container_name,
            credentials_type: properties.credentials.credentials_type,
            description: properties.description,
            endpoint: properties.endpoint,
            is_default: properties.is_default,
            name,
            protocol: properties.protocol,
            resource_group: resource_group(&id),
            tags: properties.tags,
            kind: "azure_blob",
            id,
        }
    }

    fn row(&self) -> Vec<String> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let default = if self.is_default { "yes" } else { "" };
        let (container, account) = (text(&self.container_name), text(&self.account_name));
        vec![self.name.clone(), container, account, default.to_owned()]
    }
}

pub async fn run(command: Command) -> Outcome {
    match command {
        Command::List(args) => list(&args).await,
        Command::Show(args) => {
            let workspace = args.scope.workspace()?;
            let name = args.name.as_str().into();
            let route = Route::Storage(StorageRoute::Datastore { workspace, name });
            let client = args.scope.connect().await?;
            show(client.get(&route).await?, &args.print)
        }
        Command::Create(args) => create(&args).await,
        Command::Delete(args) => delete(&args).await,
    }
}

async fn list(args: &ListArgs) -> Outcome {
    let route = Route::Storage(StorageRoute::Datastores(args.scope.workspace()?));
    let client = args.scope.connect().await?;
    let found: Vec<DatastoreResource> = client.list(&route, None).await?;
    let found: Vec<Datastore> = found.into_iter().map(Datastore::of).collect();
    args.print.show(&found, || print_table(&found))
}

async fn create(args: &CreateArgs) -> Outcome {
    let workspace = args.scope.workspace_to_change()?;
    let name = args.name.as_str().into();
    let route = Route::Storage(StorageRoute::Datastore { workspace, name });
    let spec = DatastoreSpec {
        container: args.container_name.as_str().into(),
        description: args.description.as_deref().map(Into::into),
        tags: values::tags(&args.tags)?,
        ..DatastoreSpec::default()
    };
    let body = request_json(&spec, None);
    let client = args.scope.connect().await?;
    if args.dry.dry_run {
        return Plan::new("PUT", &route, &body).show(&client, &args.print).await;
    }
    show(client.put(&route, body).await?.document()?, &args.print)
}

async fn delete(args: &DeleteArgs) -> Outcome {
    let workspace = args.scope.workspace_to_change()?;
    let name = args.name.as_str().into();
    let route = Route::Storage(StorageRoute::Datastore { workspace, name });
    let client = args.scope.connect().await?;
    if args.dry.dry_run {
        return Plan::new("DELETE", &route, "").show(&client, &args.print).await;
    }
    let thing = format!("datastore {}", quoted(&args.name));
    if !args.yes {
        confirm(&format!("delete {thing}"), &thing)?;
    }
    if client.delete(&route).await?.status == StatusCode::NO_CONTENT {
        let missing = Failure::not_found(format!("there is no {thing}"));
        return Err(missing.hint("`muster datastore list` shows what there is"));
    }
    output::say(&format!("{thing} is gone; what is in its container stays"));
    Ok(())
}

fn show(found: DatastoreResource, print: &Print) -> Outcome {
    let found = Datastore::of(found);
    print.show(&found, || print_table(std::slice::from_ref(&found)))
}

fn print_table(found: &[Datastore]) -> Outcome {
    output::table(&HEADER, found.iter().map(Datastore::row).collect(), "there are no datastores")
}
