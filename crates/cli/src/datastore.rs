//! `muster datastore`: named storage locations, with the commands and flags of `az ml datastore`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Subcommand;
use muster_core::model::{AccountCredentials, DatastoreSpec, ForeignAccount};
use muster_wire::datastore::{DatastoreResource, Secrets, request_json};
use muster_wire::{Route, StorageRoute};
use reqwest::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use crate::compute::resource_group;
use crate::confirm::confirm;
use crate::document::kinds::FileKind;
use crate::document::{self, Edits, Field, Fields, Kind, field, text, texts};
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, Failure, quoted};
use crate::names::{self, MaybeName, Name};
use crate::output::{self, Print};
use crate::scope::Scope;
use crate::values;

const HEADER: [&str; 4] = ["Name", "Container", "Account", "Default"];

/// Manage datastores: the storage locations of a workspace
#[derive(Debug, Subcommand)]
pub enum Command {
    List(ListArgs),
    Show(ShowArgs),
    Create(CreateArgs),
    Update(UpdateArgs),
    Delete(DeleteArgs),
}

/// List the datastores of a workspace, its two default ones first
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

/// Show a datastore
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ShowArgs {
    #[command(flatten)]
    name: Name<names::Datastore>,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// Create a datastore for a container of this server, or of an external storage account
///
/// A container of this server is created if it does not exist. An external account, with its key or token, is described
/// in a file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: replaces an existing datastore with that name.")]
pub struct CreateArgs {
    #[command(flatten)]
    name: MaybeName<names::NewDatastore>,
    /// YAML file with the fields of Azure's schema azureBlob, or - for standard input; flags override it
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Container: lower-case letters, digits and hyphens; its name is unique on the server
    #[arg(long, value_name = "NAME", value_parser = values::name, required_unless_present = "file")]
    container_name: Option<String>,
    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Tags, as KEY=VALUE
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    tags: Option<Vec<String>>,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    edits: Edits,
    #[command(flatten)]
    scope: Scope,
}

/// Update the description, location or credentials of a datastore
///
/// Values that are not given are kept.
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: everything that uses the datastore uses the new location.")]
pub struct UpdateArgs {
    #[command(flatten)]
    name: MaybeName<names::NewDatastore>,
    /// YAML file with the fields of Azure's schema azureBlob, or - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    edits: Edits,
    #[command(flatten)]
    scope: Scope,
}

/// Delete a datastore; the content of its container is kept
#[derive(Debug, clap::Args)]
#[command(after_help = "Destructive: everything that uses the datastore stops working.")]
pub struct DeleteArgs {
    #[command(flatten)]
    name: Name<names::Datastore>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

const CREDENTIALS: [Field; 2] = [field("account_key", Kind::Text), field("sas_token", Kind::Text)];
const FIELDS: &[Field] = &[
    field("name", Kind::Text),
    field("type", Kind::Text),
    field("description", Kind::Text),
    field("tags", Kind::Texts),
    field("account_name", Kind::Text),
    field("container_name", Kind::Text),
    field("endpoint", Kind::Text),
    field("protocol", Kind::Text),
    field("credentials", Kind::Object(&CREDENTIALS)),
    field("id", Kind::Shown),
    field("is_default", Kind::Shown),
    field("credentials_type", Kind::Shown),
    field("resourceGroup", Kind::Shown),
];

/// The fields that `az ml` prints.
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

pub async fn run(command: Command) -> CliResult {
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
        Command::Update(args) => update(&args).await,
        Command::Delete(args) => delete(&args).await,
    }
}

async fn list(args: &ListArgs) -> CliResult {
    let route = Route::Storage(StorageRoute::Datastores(args.scope.workspace()?));
    let client = args.scope.connect().await?;
    let found: Vec<DatastoreResource> = client.list(&route, args.max_results).await?;
    let found: Vec<Datastore> = found.into_iter().map(Datastore::of).collect();
    args.print.show(&found, || print_table(&found))
}

async fn create(args: &CreateArgs) -> CliResult {
    let mut document = match &args.file {
        Some(path) => document::read(path, FileKind::Datastore, FIELDS)?,
        None => Fields::new(),
    };
    let tags = args.tags.as_ref().map(|tags| values::tags(tags)).transpose()?;
    let flags = [
        ("name", args.name.to_owned().map(Value::String)),
        ("container_name", args.container_name.clone().map(Value::String)),
        ("description", args.description.clone().map(Value::String)),
        ("tags", tags.map(|tags| json!(tags))),
    ];
    let given = flags.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    document.extend(given);
    args.edits.apply(&mut document, FIELDS)?;
    let name = named(&document)?;
    let workspace = args.scope.workspace_to_change()?;
    let route = Route::Storage(StorageRoute::Datastore { workspace, name });
    let body = body_of(&document, None)?;
    let client = args.scope.connect().await?;
    if args.dry.dry_run {
        return Plan::new("PUT", &route, &body).show(&client, &args.print).await;
    }
    show(client.put(&route, body).await?.document()?, &args.print)
}

fn named(document: &Fields) -> CliResult<Box<str>> {
    let name = text(document, "name").ok_or_else(|| {
        Failure::refused("no name is given").hint("use --name, or add name to the file")
    })?;
    let name = values::name(&name).map_err(|why| Failure::refused(format!("name: {why}")))?;
    Ok(name.into())
}

/// The request for a document. `kept` are the current credentials.
fn body_of(document: &Fields, kept: Option<Secrets>) -> CliResult<String> {
    if let Some(kind) = text(document, "type").filter(|kind| kind != "azure_blob") {
        return Err(Failure::refused(format!("type is {}; use azure_blob", quoted(&kind)))
            .hint("other kinds of storage are not supported"));
    }
    let container = text(document, "container_name").ok_or_else(|| {
        Failure::refused("no container is given")
            .hint("use --container-name, or add container_name to the file")
    })?;
    let credentials = document.get("credentials").and_then(Value::as_object);
    let secret = |name: &str| credentials.and_then(|credentials| text(credentials, name));
    let secrets = match (secret("account_key"), secret("sas_token")) {
        (Some(key), None) => Some(Secrets::AccountKey { key }),
        (None, Some(sas_token)) => Some(Secrets::Sas { sas_token }),
        (None, None) => kept,
        (Some(_), Some(_)) => {
            let words = "credentials has an account_key and a sas_token; give one of them";
            return Err(Failure::refused(words));
        }
    };
    let opened_by = match &secrets {
        Some(Secrets::AccountKey { .. }) => AccountCredentials::AccountKey,
        Some(Secrets::Sas { .. }) => AccountCredentials::Sas,
        None => AccountCredentials::None,
    };
    let short = |name: &str| text(document, name).map(String::into_boxed_str);
    let account = short("account_name").map(|name| ForeignAccount {
        name,
        endpoint: short("endpoint"),
        protocol: short("protocol"),
        opened_by,
        secret: None,
    });
    let spec = DatastoreSpec {
        account,
        container: container.into(),
        description: short("description"),
        tags: texts(document, "tags"),
        ..DatastoreSpec::default()
    };
    Ok(request_json(&spec, secrets.as_ref()))
}

async fn update(args: &UpdateArgs) -> CliResult {
    let filed = match &args.file {
        Some(path) => document::read(path, FileKind::Datastore, FIELDS)?,
        None => Fields::new(),
    };
    let name = match args.name.get() {
        Some(name) => name.into(),
        None => named(&filed)?,
    };
    let workspace = args.scope.workspace_to_change()?;
    let client = args.scope.connect().await?;
    let at = StorageRoute::Datastore { workspace: workspace.clone(), name: name.clone() };
    let route = Route::Storage(at);
    let found: DatastoreResource = client.get(&route).await?;
    let is_closed = found.properties.credentials.credentials_type == "None";
    let now = serde_json::to_value(Datastore::of(found)).expect("documents have text keys");
    let Value::Object(mut document) = now else { unreachable!("a struct is an object") };
    document.retain(|name, value| {
        let is_settable = |field: &Field| field.name == name && !matches!(field.kind, Kind::Shown);
        !value.is_null() && FIELDS.iter().any(is_settable)
    });
    document.extend(filed);
    args.edits.apply(&mut document, FIELDS)?;
    // The credentials are not displayed, so they would be lost.
    let kept = match is_closed {
        true => None,
        false => {
            let secrets = Route::Storage(StorageRoute::DatastoreSecrets { workspace, name });
            Some(client.post(&secrets).await?.document::<Secrets>()?)
        }
    };
    let body = body_of(&document, kept)?;
    if args.dry.dry_run {
        return Plan::new("PUT", &route, &body).show(&client, &args.print).await;
    }
    show(client.put(&route, body).await?.document()?, &args.print)
}

async fn delete(args: &DeleteArgs) -> CliResult {
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
        return Err(missing.hint("list the datastores with `muster datastore list`"));
    }
    output::say(&format!("deleted {thing}; the content of its container is kept"));
    Ok(())
}

fn show(found: DatastoreResource, print: &Print) -> CliResult {
    let found = Datastore::of(found);
    print.show(&found, || print_table(std::slice::from_ref(&found)))
}

fn print_table(found: &[Datastore]) -> CliResult {
    output::table(&HEADER, found.iter().map(Datastore::row).collect(), "no datastores")
}
