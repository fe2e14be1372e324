//! The description and tags of a version can change; its content cannot.

use muster_core::model::AssetKind;
use muster_wire::asset::{
    AssetProperties, AssetResource, ContainerResource, container_request_json, request_json,
};
use muster_wire::{AssetRoute, JsonText, Route};
use serde_json::{Map, Value, json};

use super::pick::{self, Pick};
use super::print;
use crate::document::{self, Edits, Field, Fields, Kind, field};
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, Failure, quoted};
use crate::output::{self, Print};
use crate::scope::Scope;

const MADE_OF: Kind =
    Kind::Refused("the content of a version never changes; create another version");

const ENVIRONMENT: [Field; 8] = [
    field("description", Kind::Text),
    field("tags", Kind::Texts),
    field("image", MADE_OF),
    field("conda_file", MADE_OF),
    field("build", MADE_OF),
    field("os_type", MADE_OF),
    field("inference_config", MADE_OF),
    field("name", MADE_OF),
];
const DATA: [Field; 5] = [
    field("description", Kind::Text),
    field("tags", Kind::Texts),
    field("path", MADE_OF),
    field("type", MADE_OF),
    field("name", MADE_OF),
];
const MODEL: [Field; 8] = [
    field("description", Kind::Text),
    field("tags", Kind::Texts),
    field("properties", Kind::Texts),
    field("stage", Kind::Text),
    field("path", MADE_OF),
    field("type", MADE_OF),
    field("flavors", MADE_OF),
    field("name", MADE_OF),
];
const COMPONENT: [Field; 10] = [
    field("display_name", Kind::Text),
    field("description", Kind::Text),
    field("tags", Kind::Texts),
    field("command", MADE_OF),
    field("code", MADE_OF),
    field("environment", MADE_OF),
    field("inputs", MADE_OF),
    field("outputs", MADE_OF),
    field("type", MADE_OF),
    field("name", MADE_OF),
];

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pick: Pick,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    edits: Edits,
    #[command(flatten)]
    scope: Scope,
}

#[derive(Debug, clap::Args)]
pub struct ModelArgs {
    /// Stage of the model, such as Production
    #[arg(short, long)]
    stage: Option<String>,
    #[command(flatten)]
    args: Args,
}

#[derive(Debug, clap::Args)]
pub struct ArchiveArgs {
    #[command(flatten)]
    pick: Pick,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

fn fields_of(kind: AssetKind) -> &'static [Field] {
    match kind {
        AssetKind::Environment => &ENVIRONMENT,
        AssetKind::Data | AssetKind::Code => &DATA,
        AssetKind::Model => &MODEL,
        AssetKind::Component => &COMPONENT,
    }
}

pub async fn run(kind: AssetKind, args: &Args) -> CliResult {
    change(kind, args, None).await
}

pub async fn model(args: &ModelArgs) -> CliResult {
    change(AssetKind::Model, &args.args, args.stage.as_deref()).await
}

async fn change(kind: AssetKind, args: &Args, stage: Option<&str>) -> CliResult {
    args.pick.check_said()?;
    if args.edits.is_empty() && stage.is_none() {
        return Err(Failure::refused("no changes are given")
            .hint("use --set, for example --set description='…' tags.team=blue"));
    }
    let workspace = args.scope.workspace_to_change()?;
    let client = args.scope.connect().await?;
    let route = args.pick.version(&client, &workspace, kind).await?;
    let found: AssetResource = client.get(&route).await?;
    let mut document = written(kind, &found.properties);
    args.edits.apply(&mut document, fields_of(kind))?;
    if let Some(stage) = stage {
        document.insert("stage".to_owned(), stage.into());
    }
    let body = request_json(&rewritten(kind, found.properties, &document));
    if args.dry.dry_run {
        return Plan::new("PUT", &route, &body).show(&client, &args.print).await;
    }
    let made: AssetResource = client.put(&route, body).await?.document()?;
    print(kind, &made, &args.print)
}

fn object(text: Option<&JsonText>) -> Map<String, Value> {
    match text.map(|text| serde_json::from_str(text.as_str())) {
        Some(Ok(Value::Object(map))) => map,
        _ => Map::new(),
    }
}

/// The fields that can change, with their current values.
fn written(kind: AssetKind, now: &AssetProperties) -> Fields {
    let mut document = Fields::new();
    document.insert("description".to_owned(), json!(now.description));
    document.insert("tags".to_owned(), json!(now.tags));
    match kind {
        AssetKind::Model => {
            let properties = Value::Object(object(now.properties.as_ref()));
            document.insert("properties".to_owned(), properties);
            document.insert("stage".to_owned(), json!(now.stage));
        }
        AssetKind::Component => {
            let mut spec = object(now.component_spec.as_ref());
            document.extend(spec.remove_entry("display_name"));
        }
        AssetKind::Environment | AssetKind::Data | AssetKind::Code => {}
    }
    document
}

/// The same version with the values of the document.
fn rewritten(kind: AssetKind, now: AssetProperties, document: &Fields) -> AssetProperties {
    let description = document::text(document, "description");
    let tags = document::texts(document, "tags");
    let mut then = AssetProperties { description, tags, ..now };
    match kind {
        AssetKind::Model => {
            let properties = document.get("properties").map(Value::to_string);
            then.properties = properties.and_then(|text| JsonText::new(&text));
            then.stage = document::text(document, "stage");
        }
        AssetKind::Component => {
            let mut spec = object(then.component_spec.as_ref());
            for name in ["display_name", "description", "tags"] {
                match document.get(name).filter(|value| !value.is_null()) {
                    Some(value) => spec.insert(name.to_owned(), value.clone()),
                    None => spec.remove(name),
                };
            }
            then.component_spec = JsonText::new(&Value::Object(spec).to_string());
        }
        AssetKind::Environment | AssetKind::Data | AssetKind::Code => {}
    }
    then
}

/// Without a version, the asset with all its versions is archived or restored.
pub async fn archive(kind: AssetKind, args: &ArchiveArgs, is_archived: bool) -> CliResult {
    let workspace = args.scope.workspace_to_change()?;
    let client = args.scope.connect().await?;
    let (route, body) = match args.pick.version.is_some() || args.pick.label.is_some() {
        true => {
            let route = args.pick.version(&client, &workspace, kind).await?;
            let mut found: AssetResource = client.get(&route).await?;
            found.properties.is_archived = is_archived;
            (route, request_json(&found.properties))
        }
        false => {
            let route = pick::container_route(&workspace, kind, &args.pick.name);
            let mut found: ContainerResource = client.get(&route).await?;
            found.properties.is_archived = is_archived;
            (route, container_request_json(&found.properties))
        }
    };
    if args.dry.dry_run {
        return Plan::new("PUT", &route, &body).show(&client, &args.print).await;
    }
    client.put(&route, body).await?;
    let version = match &route {
        Route::Assets(AssetRoute::AssetVersion { version, .. }) => format!(", version {version},"),
        _ => String::new(),
    };
    let how = if is_archived { "is archived" } else { "is restored" };
    output::say(&format!("{} {}{version} {how}", kind.as_str(), quoted(&args.pick.name)));
    Ok(())
}
