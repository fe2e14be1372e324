//! Creating versions of assets.

use std::path::{Path, PathBuf};

use muster_core::model::{AssetKind, WorkspaceKey};
use muster_wire::asset::{AssetResource, ContainerResource, request_json};
use muster_wire::{AssetRoute, Route};
use serde_json::{Value, json};

use super::draft::{self, DraftContext};
use super::{fields, missing, pick, print};
use crate::client::Client;
use crate::document::kinds::FileKind;
use crate::document::{self, Edits, Field, Fields};
use crate::dry::{DryRun, Plan};
use crate::failure::CliResult;
use crate::names::{self, MaybeName};
use crate::output::Print;
use crate::scope::Scope;
use crate::values;

/// The flags of every kind of asset.
#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    name: MaybeName<names::NewAsset>,
    /// Version: letters, digits, '-', '_', '.' and ':'; can be in the file instead
    #[arg(short, long, value_name = "VERSION", value_parser = values::name, display_order = 1)]
    version: Option<String>,
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
pub struct EnvironmentArgs {
    /// YAML file with the fields of Azure's schema, or - for standard input; flags override it
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Container image; Muster uses a substitute environment for it
    #[arg(short, long)]
    image: Option<String>,
    /// Conda file with the packages
    #[arg(short, long, value_name = "FILE")]
    conda_file: Option<PathBuf>,
    /// Folder with a Dockerfile, instead of an image
    #[arg(short, long, value_name = "DIR", conflicts_with = "image")]
    build_context: Option<PathBuf>,
    /// Path of the Dockerfile in the build context
    #[arg(short, long, value_name = "PATH", requires = "build_context")]
    dockerfile_path: Option<String>,
    /// Operating system; only linux is supported
    #[arg(long)]
    os_type: Option<String>,
    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Tags, as key=value key=value …
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    tags: Option<Vec<String>>,
    /// Datastore to upload a build context to [default: workspaceblobstore]
    #[arg(long, value_name = "NAME")]
    datastore: Option<String>,
    /// Accepted for compatibility with az: this command does not take long
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub struct DataArgs {
    /// YAML file with the fields of Azure's schema, or - for standard input; flags override it
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Local file or folder, azureml://datastores/NAME/paths/PATH or https://…
    #[arg(short, long)]
    path: Option<String>,
    /// uri_file, uri_folder or mltable [default: uri_folder]
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    data_type: Option<String>,
    /// Description
    #[arg(short, long, value_name = "TEXT")]
    description: Option<String>,
    /// Datastore to upload local files to [default: workspaceblobstore]
    #[arg(long, value_name = "NAME")]
    datastore: Option<String>,
    /// Do not validate the MLTable file of a table
    #[arg(long)]
    skip_validation: bool,
    /// Accepted for compatibility with az: this command does not take long
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub struct ModelArgs {
    /// YAML file with the fields of Azure's schema, or - for standard input; flags override it
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Local file or folder, azureml://… or https://…
    #[arg(short, long)]
    path: Option<String>,
    /// custom_model, mlflow_model or triton_model [default: custom_model]
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    model_type: Option<String>,
    /// Stage of the model, such as Production
    #[arg(short, long)]
    stage: Option<String>,
    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Tags, as key=value key=value …
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    tags: Option<Vec<String>>,
    /// Datastore to upload local files to [default: workspaceblobstore]
    #[arg(long, value_name = "NAME")]
    datastore: Option<String>,
    /// Accepted for compatibility with az: this command does not take long
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub struct ComponentArgs {
    /// YAML file with the fields of Azure's schema, or - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Accepted for compatibility with az: the server validates every component
    #[arg(long)]
    skip_validation: bool,
    #[command(flatten)]
    common: Common,
}

/// The values of flags, by the names of their fields.
#[derive(Default)]
struct Flags(Fields);

impl Flags {
    fn say(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value.into());
        }
    }

    fn tags(&mut self, arguments: Option<&Vec<String>>) -> CliResult {
        let tags = arguments.map(|arguments| values::tags(arguments)).transpose()?;
        self.say("tags", tags.map(|tags| json!(tags)));
        Ok(())
    }
}

/// A path in a flag is relative to the working directory, one in a file is relative to the file.
fn from_here(path: &Path) -> String {
    let whole = std::path::absolute(path);
    whole.map_or_else(|_| path.display().to_string(), |whole| whole.display().to_string())
}

fn place_from_here(path: &String) -> String {
    match super::files::is_address(path) {
        true => path.clone(),
        false => from_here(Path::new(path)),
    }
}

impl EnvironmentArgs {
    pub async fn run(&self) -> CliResult {
        let mut flags = Flags::default();
        flags.say("image", self.image.clone());
        flags.say("conda_file", self.conda_file.as_deref().map(from_here));
        flags.say("os_type", self.os_type.clone());
        flags.say("description", self.description.clone());
        flags.say("datastore", self.datastore.clone());
        flags.tags(self.tags.as_ref())?;
        let build = self.build_context.as_ref().map(|context| match &self.dockerfile_path {
            Some(dockerfile) => {
                json!({"path": from_here(context), "dockerfile_path": dockerfile.trim_start_matches('/')})
            }
            None => json!({"path": from_here(context)}),
        });
        flags.say("build", build);
        let wanted = AssetDraft { kind: AssetKind::Environment, file: self.file.as_deref(), flags };
        self.common.run(wanted, false).await
    }
}

impl DataArgs {
    pub async fn run(&self) -> CliResult {
        let mut flags = Flags::default();
        flags.say("path", self.path.as_ref().map(place_from_here));
        flags.say("type", self.data_type.clone());
        flags.say("description", self.description.clone());
        flags.say("datastore", self.datastore.clone());
        let wanted = AssetDraft { kind: AssetKind::Data, file: self.file.as_deref(), flags };
        self.common.run(wanted, self.skip_validation).await
    }
}

impl ModelArgs {
    pub async fn run(&self) -> CliResult {
        let mut flags = Flags::default();
        flags.say("path", self.path.as_ref().map(place_from_here));
        flags.say("type", self.model_type.clone());
        flags.say("stage", self.stage.clone());
        flags.say("description", self.description.clone());
        flags.say("datastore", self.datastore.clone());
        flags.tags(self.tags.as_ref())?;
        let wanted = AssetDraft { kind: AssetKind::Model, file: self.file.as_deref(), flags };
        self.common.run(wanted, false).await
    }
}

impl ComponentArgs {
    pub async fn run(&self) -> CliResult {
        let (kind, flags) = (AssetKind::Component, Flags::default());
        let wanted = AssetDraft { kind, file: Some(&self.file), flags };
        self.common.run(wanted, self.skip_validation).await
    }
}

struct AssetDraft<'a> {
    kind: AssetKind,
    file: Option<&'a Path>,
    flags: Flags,
}

fn file_kind(kind: AssetKind) -> FileKind {
    match kind {
        AssetKind::Environment => FileKind::Environment,
        AssetKind::Data => FileKind::Data,
        AssetKind::Model => FileKind::Model,
        AssetKind::Component | AssetKind::Code => FileKind::Component,
    }
}

/// The fields of a kind; those of a component depend on its type.
fn fields_of(kind: AssetKind, document: &Fields) -> CliResult<&'static [Field]> {
    match kind {
        AssetKind::Environment => Ok(fields::ENVIRONMENT),
        AssetKind::Data => Ok(fields::DATA),
        AssetKind::Model => Ok(fields::MODEL),
        AssetKind::Component | AssetKind::Code => fields::component(document),
    }
}

impl Common {
    /// The complete document: the file, the flags and the changes of single fields.
    fn document(&self, wanted: AssetDraft<'_>) -> CliResult<Fields> {
        let kind = wanted.kind;
        let mut document = match wanted.file {
            Some(path) => {
                document::read_by(path, file_kind(kind), |document| fields_of(kind, document))?
            }
            None => Fields::new(),
        };
        let mut flags = wanted.flags;
        flags.say("name", self.name.to_owned());
        flags.say("version", self.version.clone());
        document.extend(flags.0);
        let fields = fields_of(kind, &document)?;
        self.edits.apply(&mut document, fields)?;
        Ok(document)
    }

    async fn run(&self, wanted: AssetDraft<'_>, skips_validation: bool) -> CliResult {
        let kind = wanted.kind;
        let base = wanted.file.and_then(Path::parent).unwrap_or_else(|| Path::new(""));
        let base = base.to_owned();
        let document = self.document(wanted)?;
        let name = document::text(&document, "name")
            .ok_or_else(|| missing("a name", "give --name, or add name to the file"))?;
        let name = pick::name(&name)
            .map_err(|why| crate::failure::Failure::refused(format!("name: {why}")))?;
        let workspace = &self.scope.workspace_to_change()?;
        let client = &self.scope.connect().await?;
        let is_dry = self.dry.dry_run;
        let context = DraftContext { client, workspace, base, is_dry, skips_validation };
        let properties = draft::properties(&context, kind, &document).await?;
        let version = match document::text(&document, "version") {
            Some(version) => Versions { first: version, next: None },
            None => free_version(client, workspace, kind, &name).await?,
        };
        let route = |version: String| {
            let (workspace, name, version) =
                (workspace.clone(), name.as_str().into(), version.into());
            Route::Assets(AssetRoute::AssetVersion { workspace, kind, name, version })
        };
        let body = request_json(&properties);
        if is_dry {
            let route = route(version.next.unwrap_or(version.first));
            return Plan::new("PUT", &route, &body).show(client, &self.print).await;
        }
        let made = client.put(&route(version.first), body.clone()).await;
        let made = match (made, version.next) {
            // The latest version has other content, so a new version is created.
            (Err(failure), Some(next)) if failure.is_too_late() => {
                client.put(&route(next), body).await?
            }
            (made, _) => made?,
        };
        let made: AssetResource = made.document()?;
        print(kind, &made, &self.print)
    }
}

/// The version to try first, and the one to use if that has other content.
struct Versions {
    first: String,
    next: Option<String>,
}

/// As in azure-ai-ml, an environment with the same content as the latest version is that version; everything else is
/// new.
async fn free_version(
    client: &Client,
    workspace: &WorkspaceKey,
    kind: AssetKind,
    name: &str,
) -> CliResult<Versions> {
    let route = pick::container_route(workspace, kind, name);
    let Some(found) = client.find::<ContainerResource>(&route).await? else {
        return Ok(Versions { first: "1".to_owned(), next: None });
    };
    let next = found.properties.next_version.unwrap_or_else(|| "1".to_owned());
    let latest = found.properties.latest_version.filter(|_| kind == AssetKind::Environment);
    Ok(match latest {
        Some(latest) => Versions { first: latest, next: Some(next) },
        None => Versions { first: next, next: None },
    })
}
