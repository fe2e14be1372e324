//! Creating and changing workspaces.
//!
//! The request is compared with the resulting workspace: a value that the server did not accept is reported, not taken
//! for granted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use muster_core::model::WorkspaceKey;
use muster_wire::Route;
use muster_wire::workspace::WorkspaceResource;
use serde_json::{Value, json};

use super::{Target, Workspace};
use crate::client::Client;
use crate::compute::view::own_tags;
use crate::defaults::Setting;
use crate::document::kinds::FileKind;
use crate::document::{self, Edits, Field, Fields, Kind, field};
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, Failure, quoted};
use crate::operation;
use crate::output::Print;
use crate::values;

const NO_ACCOUNTS: &str = "logs and results are on the server's own disk; remove this field";
pub const FIELDS: &[Field] = &[
    field("name", Kind::Text),
    field("location", Kind::Text),
    field("description", Kind::Text),
    field("display_name", Kind::Text),
    field("tags", Kind::Texts),
    field("resource_group", Kind::Text),
    field("storage_account", Kind::Refused(NO_ACCOUNTS)),
    field("key_vault", Kind::Refused(NO_ACCOUNTS)),
    field("application_insights", Kind::Refused(NO_ACCOUNTS)),
    field("container_registry", Kind::Refused(NO_ACCOUNTS)),
    field("customer_managed_key", Kind::Refused(NO_ACCOUNTS)),
    field("image_build_compute", Kind::Refused("no images are built; remove this field")),
    field("managed_network", Kind::Refused("nodes use their host's network; remove this field")),
    field("public_network_access", Kind::Refused("the server's listen setting controls access")),
    field(
        "identity",
        Kind::Refused("clusters have identities, workspaces do not; remove this field"),
    ),
    field("primary_user_assigned_identity", Kind::Refused("workspaces have no identities")),
    field("id", Kind::Shown),
    field("resourceGroup", Kind::Shown),
    field("discovery_url", Kind::Shown),
    field("mlflow_tracking_uri", Kind::Shown),
    field("hbi_workspace", Kind::Shown),
    field("provisioning_state", Kind::Shown),
];

/// Create a workspace, or update an existing one
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: everyone with a role on its group can use it from then on.")]
pub struct CreateArgs {
    /// YAML file with the fields of Azure's schema workspace, or - for standard input; flags override it
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Region [default: as configured, or the server's]
    #[arg(short, long, value_name = "REGION", value_parser = values::name)]
    location: Option<String>,
    #[command(flatten)]
    words: Words,
    #[command(flatten)]
    doing: Doing,
    #[command(flatten)]
    target: Target,
}

/// Update the display name, description or tags of a workspace
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: changes its description, not the permissions of users.")]
pub struct UpdateArgs {
    /// YAML file with the fields of Azure's schema workspace, or - for standard input; flags override it
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    words: Words,
    #[command(flatten)]
    doing: Doing,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Args)]
pub struct Words {
    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Display name
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
    /// Tags, which replace all existing ones, as key=value key=value …; '' removes all
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    tags: Option<Vec<String>>,
    #[command(flatten)]
    edits: Edits,
}

#[derive(Debug, clap::Args)]
struct Doing {
    /// Do not wait until the operation has finished
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
}

/// The requested values of a workspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WorkspaceDraft {
    location: Option<String>,
    /// The region of a new workspace if none is given; an existing one stays in its region.
    location_default: Option<String>,
    description: Option<String>,
    display_name: Option<String>,
    tags: Option<BTreeMap<String, String>>,
}

pub async fn create(args: CreateArgs) -> CliResult {
    let document = read(args.file.as_ref())?;
    let mut wanted = args.words.wanted(document.clone())?;
    if args.location.is_some() && args.words.edits.sets("location") {
        return Err(given_twice("location"));
    }
    wanted.location = args.location.clone().or(wanted.location);
    wanted.location_default = Setting::Location.value(None)?;
    let key = key(&args.target, &document)?;
    let client = args.target.scope.connect().await?;
    args.doing.put(&client, key, &wanted, "creating").await
}

pub async fn update(args: UpdateArgs) -> CliResult {
    let document = read(args.file.as_ref())?;
    let key = key(&args.target, &document)?;
    let client = args.target.scope.connect().await?;
    // A PUT would create a missing workspace.
    let now: WorkspaceResource = client.found(&Route::Workspace(key.clone())).await?;
    let mut base = document;
    if !args.words.edits.is_empty() {
        let shown = WorkspaceDraft::of(&now).fields();
        shown.into_iter().for_each(|(name, value)| {
            base.entry(name).or_insert(value);
        });
    }
    let mut wanted = args.words.wanted(base)?;
    if let Some(location) =
        wanted.location.take().filter(|to| !to.eq_ignore_ascii_case(&now.location))
    {
        return Err(Failure::refused(format!(
            "location is {}, but the workspace is in {}, which cannot be changed; remove it",
            quoted(&location),
            quoted(&now.location)
        )));
    }
    args.doing.put(&client, key, &wanted, "updating").await
}

fn read(file: Option<&PathBuf>) -> CliResult<Fields> {
    file.map_or_else(|| Ok(Fields::new()), |path| document::read(path, FileKind::Workspace, FIELDS))
}

fn key(target: &Target, document: &Fields) -> CliResult<WorkspaceKey> {
    let text = |name: &str| document.get(name).and_then(Value::as_str);
    let mut key = target.key_or(text("name"))?;
    if let (Some(group), None) = (text("resource_group"), target.scope.group_given()) {
        key.resource_group = group.into();
    }
    Ok(key)
}

fn given_twice(name: &str) -> Failure {
    let flag = name.replace('_', "-");
    Failure::refused(format!("{name} is given by --set and by --{flag}; give it once"))
}

impl Words {
    pub fn wanted(&self, mut document: Fields) -> CliResult<WorkspaceDraft> {
        let given = [
            ("description", self.description.is_some()),
            ("display_name", self.display_name.is_some()),
            ("tags", self.tags.is_some()),
        ];
        if let Some((name, _)) = given.iter().find(|(name, given)| *given && self.edits.sets(name))
        {
            return Err(given_twice(name));
        }
        self.edits.apply(&mut document, FIELDS)?;
        let text = |name: &str| document.get(name).and_then(Value::as_str).map(str::to_owned);
        let pair =
            |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        let tags = document.get("tags").and_then(Value::as_object);
        let tags = tags.map(|tags| tags.iter().filter_map(pair).collect());
        let given = self.tags.as_deref().map(values::tags).transpose()?;
        Ok(WorkspaceDraft {
            location: text("location"),
            location_default: None,
            description: self.description.clone().or_else(|| text("description")),
            display_name: self.display_name.clone().or_else(|| text("display_name")),
            tags: given.or(tags),
        })
    }
}

impl Doing {
    async fn put(
        &self,
        client: &Client,
        key: WorkspaceKey,
        wanted: &WorkspaceDraft,
        what: &str,
    ) -> CliResult {
        super::say_where(&key);
        let name = key.name.clone();
        let route = Route::Workspace(key);
        let body = wanted.body();
        if self.dry.dry_run {
            return Plan::new("PUT", &route, &body).show(client, &self.print).await;
        }
        let answer = client.put(&route, body).await?;
        if answer.operation.is_some() && !self.no_wait {
            operation::follow(client, &answer, format!("{what} {name}")).await?;
        }
        let found: WorkspaceResource = client.get(&route).await?;
        let not_kept = wanted.missing_in(&WorkspaceDraft::of(&found));
        super::print(&Workspace::of(found), &self.print)?;
        if not_kept.is_empty() {
            return Ok(());
        }
        Err(Failure::error(format!("the server did not accept {}", not_kept.join(", "))))
    }
}

impl WorkspaceDraft {
    fn of(found: &WorkspaceResource) -> WorkspaceDraft {
        WorkspaceDraft {
            location: Some(found.location.clone()),
            location_default: None,
            description: found.properties.description.clone(),
            display_name: found.properties.friendly_name.clone(),
            tags: Some(own_tags(found.tags.clone())),
        }
    }

    fn fields(self) -> Fields {
        let all = [
            ("description", self.description.map(Value::String)),
            ("display_name", self.display_name.map(Value::String)),
            ("tags", self.tags.map(|tags| json!(tags))),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// Only the given values.
    pub fn body(&self) -> String {
        let mut properties = Fields::new();
        let words = [("friendlyName", &self.display_name), ("description", &self.description)];
        for (name, text) in words {
            properties.extend(text.clone().map(|text| (name.to_owned(), Value::String(text))));
        }
        let mut body = Fields::new();
        let location = self.location.clone().or_else(|| self.location_default.clone());
        let location = location.map(Value::String);
        let tags = self.tags.as_ref().map(|tags| json!(tags));
        for (name, value) in [("location", location), ("tags", tags)] {
            body.extend(value.map(|value| (name.to_owned(), value)));
        }
        body.insert("properties".to_owned(), Value::Object(properties));
        Value::Object(body).to_string()
    }

    /// The requested values that the workspace does not have.
    fn missing_in(&self, found: &WorkspaceDraft) -> Vec<&'static str> {
        let differs = |wanted: &Option<String>, found: &Option<String>| {
            wanted.as_ref().is_some_and(|wanted| {
                !wanted.eq_ignore_ascii_case(found.as_deref().unwrap_or_default())
            })
        };
        let all = [
            ("location", differs(&self.location, &found.location)),
            ("description", differs(&self.description, &found.description)),
            ("display_name", differs(&self.display_name, &found.display_name)),
            ("tags", self.tags.as_ref().is_some_and(|tags| Some(tags) != found.tags.as_ref())),
        ];
        all.into_iter().filter(|(_, is_missing)| *is_missing).map(|(name, _)| name).collect()
    }
}
