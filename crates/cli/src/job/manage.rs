//! What may still be changed of a job that was submitted: its names, its tags, and whether lists show it.

use muster_core::model::WorkspaceKey;
use muster_wire::job::JobResource;
use muster_wire::{HistoryRoute, Route};
use serde_json::{Value, json};

use super::{Target, web};
use crate::client::Client;
use crate::confirm::confirm;
use crate::document::{Edits, Field, Fields, Kind, field};
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, Failure, quoted};
use crate::operation;
use crate::output::{self, Print};

const FIELDS: &[Field] = &[
    field("display_name", Kind::Text),
    field("description", Kind::Text),
    field("tags", Kind::Texts),
    field("properties", Kind::Texts),
    field("command", Kind::Refused("what a job runs is settled when it is submitted")),
    field("compute", Kind::Refused("where a job runs is settled when it is submitted")),
    field("name", Kind::Refused("a job keeps its name; set display_name")),
    field("experiment_name", Kind::Refused("a job stays in its experiment")),
];

/// Change a job's display name, description, tags or properties
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: what the job does stays as it is.")]
pub struct UpdateArgs {
    #[command(flatten)]
    edits: Edits,
    /// Open the job's page in a browser, or print its address where there is none
    #[arg(short = 'e', long)]
    web: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// Leave a job out of lists; nothing of it is deleted
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: `muster job restore` takes it back.")]
pub struct ArchiveArgs {
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    target: Target,
}

/// Show an archived job in lists again
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: takes `muster job archive` back.")]
pub struct RestoreArgs {
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    target: Target,
}

/// Delete a job that has ended: its record, its logs and what it left in outputs/
#[derive(Debug, clap::Args)]
#[command(after_help = "Destructive: named outputs stay; nothing else of it comes back.")]
pub struct DeleteArgs {
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

pub async fn update(args: &UpdateArgs) -> CliResult {
    if args.edits.is_empty() {
        return Err(Failure::refused("nothing is to be changed").hint(
            "give --set, such as --set display_name=\"A new name\" or --set tags.team=blue",
        ));
    }
    let workspace = args.target.scope.workspace_to_change()?;
    let client = args.target.scope.connect().await?;
    let route = args.target.route()?;
    let job: JobResource = client.get(&route).await?;
    let mut document = fields_of(&job);
    args.edits.apply(&mut document, FIELDS)?;
    let value = |key: &str| document.get(key).cloned().unwrap_or(Value::Null);
    let mut body = serde_json::Map::new();
    for (key, name) in [
        ("display_name", "displayName"),
        ("description", "description"),
        ("tags", "tags"),
        ("properties", "properties"),
    ] {
        let value = value(key);
        if !value.is_null() {
            body.insert(name.to_owned(), value);
        }
    }
    let body = Value::Object(body).to_string();
    if args.dry.dry_run {
        output::say(&format!("dry run: PATCH of run {} is not sent", args.target.name.as_str()));
        let document: Value = Value::Object(document);
        return args.print.show(&document, || output::bytes(format!("{body}\n").as_bytes()));
    }
    patch(&client, &workspace, &job, body).await?;
    if args.web {
        web::show(&client.get(&route).await?);
    }
    super::print(&client.get(&route).await?, &args.print)
}

fn fields_of(job: &JobResource) -> Fields {
    let about = &job.properties;
    let document = json!({
        "display_name": about.display_name,
        "description": about.description,
        "tags": about.tags,
        "properties": about.properties,
    });
    match document {
        Value::Object(fields) => fields,
        _ => Fields::new(),
    }
}

pub async fn archive(args: &ArchiveArgs) -> CliResult {
    hide(&args.target, args.dry, true).await
}

pub async fn restore(args: &RestoreArgs) -> CliResult {
    hide(&args.target, args.dry, false).await
}

async fn hide(target: &Target, dry: DryRun, hidden: bool) -> CliResult {
    let workspace = target.scope.workspace_to_change()?;
    let client = target.scope.connect().await?;
    let job: JobResource = client.get(&target.route()?).await?;
    let (what, name) = (if hidden { "archived" } else { "restored" }, &target.name);
    if dry.dry_run {
        output::say(&format!("dry run: job {name} is not {what}"));
        return Ok(());
    }
    patch(&client, &workspace, &job, json!({ "hidden": hidden }).to_string()).await?;
    output::say(&format!("job {name} is {what}"));
    Ok(())
}

pub async fn delete(args: &DeleteArgs) -> CliResult {
    let _ = args.target.scope.workspace_to_change()?;
    let client = args.target.scope.connect().await?;
    let route = args.target.route()?;
    if args.dry.dry_run {
        return Plan::new("DELETE", &route, "").show(&client, &args.print).await;
    }
    let _: JobResource = client.get(&route).await?;
    let thing = format!("job {}", quoted(&args.target.name));
    if !args.yes {
        confirm(&format!("delete {thing}"), &thing)?;
    }
    let answer = client.delete(&route).await?;
    operation::follow(&client, &answer, format!("deleting {thing}")).await?;
    output::say(&format!("{thing} is gone"));
    Ok(())
}

async fn patch(
    client: &Client,
    workspace: &WorkspaceKey,
    job: &JobResource,
    body: String,
) -> CliResult {
    let (workspace, run) = (workspace.clone(), job.name.as_str().into());
    client.patch(&Route::History(HistoryRoute::Run { workspace, run }), body).await.map(|_| ())
}
