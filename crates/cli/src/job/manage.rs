//! Changes to a submitted job: its display name, its tags, and whether lists include it.

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
    field("command", Kind::Refused("the command cannot be changed after submission")),
    field("compute", Kind::Refused("the compute cannot be changed after submission")),
    field("name", Kind::Refused("the name cannot be changed; set display_name")),
    field("experiment_name", Kind::Refused("the experiment cannot be changed after submission")),
];

/// Update a job's display name, description, tags or properties
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: does not affect what the job runs.")]
pub struct UpdateArgs {
    #[command(flatten)]
    edits: Edits,
    /// Open the job's page in a browser, or print its address if there is no browser
    #[arg(short = 'e', long)]
    web: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// Archive a job, so that lists do not include it; nothing is deleted
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: `muster job restore` undoes it.")]
pub struct ArchiveArgs {
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    target: Target,
}

/// Restore an archived job, so that lists include it again
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: undoes `muster job archive`.")]
pub struct RestoreArgs {
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    target: Target,
}

/// Delete a job that has ended: its record, its logs and its outputs/ folder
#[derive(Debug, clap::Args)]
#[command(after_help = "Destructive: named outputs are kept; everything else is lost.")]
pub struct DeleteArgs {
    /// Do not ask for confirmation
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
        return Err(Failure::refused("no changes are given")
            .hint("use --set, such as --set display_name=\"A new name\" or --set tags.team=blue"));
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
    output::say(&format!("deleted {thing}"));
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
