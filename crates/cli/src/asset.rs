//! `muster environment|data|model|component`: versioned assets, with the commands and flags of `az ml`. All four kinds
//! are listed, shown, updated and archived in the same way. They differ in their fields ([`fields`]), in the requests
//! that are built from these ([`draft`]), and in how they are displayed ([`view`]).

mod component;
mod create;
mod curated;
mod download;
mod draft;
pub mod environment;
pub mod fields;
mod files;
mod pick;
mod update;
mod view;

use clap::Subcommand;
use muster_core::model::AssetKind;
use muster_wire::asset::{AssetResource, ContainerResource};
use muster_wire::{AssetRoute, Route};
use serde_json::Value;

use self::pick::Pick;
pub use self::pick::name as parse_name;
use crate::failure::{CliResult, Failure};
use crate::names::{self, MaybeName};
use crate::output::Print;
use crate::scope::Scope;
use crate::values;

/// Manage environments: the packages and variables that jobs run with
#[derive(Debug, Subcommand)]
pub enum EnvironmentCommand {
    /// Create a version of an environment from a file, an image, a conda file or a build context
    ///
    /// Creating the same content again changes nothing. Without --version, the latest version is used if it has the
    /// same content; otherwise the version is the next number.
    #[command(after_help = "Mutating: creates a version, whose content never changes.")]
    Create(Box<create::EnvironmentArgs>),
    /// List environments, or the versions of one, newest first
    #[command(after_help = "Read-only: changes nothing.")]
    List(curated::EnvironmentListArgs),
    /// Show a version of an environment [default: the latest]
    ///
    /// For an environment of Azure's service, given by its name (AzureML-…) or its registry address
    /// (azureml://registries/…), it shows the substitute environment that Muster uses.
    #[command(after_help = "Read-only: changes nothing.")]
    Show(ShowArgs),
    /// Update the description and tags of a version
    #[command(after_help = "Mutating: the content of the version does not change.")]
    Update(update::Args),
    /// Archive a version, or an asset with all its versions
    #[command(after_help = "Mutating: it is no longer listed, but can still be used.")]
    Archive(update::ArchiveArgs),
    /// Restore an archived version, or an archived asset
    #[command(after_help = "Mutating: it is listed again.")]
    Restore(update::ArchiveArgs),
    /// Show the result and log of building a version for jobs
    #[command(after_help = "Read-only: changes nothing.")]
    ShowBuildLog(curated::BuildLogArgs),
}

/// Manage data assets
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Create a version of a data asset from a YAML file or a path
    ///
    /// Local files are uploaded to a datastore first, unless it has them already. Without --version, it is the next
    /// number.
    #[command(after_help = "Mutating: creates a version, whose content never changes.")]
    Create(Box<create::DataArgs>),
    /// List data assets, or the versions of one, newest first
    #[command(after_help = "Read-only: changes nothing.")]
    List(ListArgs),
    /// Show a version of a data asset [default: the latest]
    #[command(after_help = "Read-only: changes nothing.")]
    Show(ShowArgs),
    /// Update the description and tags of a version
    #[command(after_help = "Mutating: the content of the version does not change.")]
    Update(update::Args),
    /// Archive a version, or an asset with all its versions
    #[command(after_help = "Mutating: it is no longer listed, but can still be used.")]
    Archive(update::ArchiveArgs),
    /// Restore an archived version, or an archived asset
    #[command(after_help = "Mutating: it is listed again.")]
    Restore(update::ArchiveArgs),
}

/// Manage models
#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Create a version of a model from a YAML file or a path
    ///
    /// Local files are uploaded to a datastore first, unless it has them already. The address of a job's output is
    /// azureml://jobs/NAME/outputs/NAME/paths/PATH. Without --version, it is the next number.
    #[command(after_help = "Mutating: creates a version, whose content never changes.")]
    Create(Box<create::ModelArgs>),
    /// List models, or the versions of one, newest first
    #[command(after_help = "Read-only: changes nothing.")]
    List(ModelListArgs),
    /// Show a version of a model [default: the latest]
    #[command(after_help = "Read-only: changes nothing.")]
    Show(ShowArgs),
    /// Update the description, tags, properties and stage of a version
    #[command(after_help = "Mutating: the content of the version does not change.")]
    Update(update::ModelArgs),
    /// Archive a version, or an asset with all its versions
    #[command(after_help = "Mutating: it is no longer listed, but can still be used.")]
    Archive(update::ArchiveArgs),
    /// Restore an archived version, or an archived asset
    #[command(after_help = "Mutating: it is listed again.")]
    Restore(update::ArchiveArgs),
    /// Download the files of a version
    ///
    /// They are saved in a folder with the model's name in the given folder. Existing files with the same names are
    /// replaced.
    #[command(after_help = "Read-only: changes nothing on the server; writes to the folder.")]
    Download(download::Args),
}

/// Manage components: reusable steps of jobs
#[derive(Debug, Subcommand)]
pub enum ComponentCommand {
    /// Create a version of a component from a YAML file
    ///
    /// Local code is uploaded, and an inline environment is created. Without --version, it is the next number.
    #[command(after_help = "Mutating: creates a version, whose content never changes.")]
    Create(Box<create::ComponentArgs>),
    /// List components, or the versions of one, newest first
    #[command(after_help = "Read-only: changes nothing.")]
    List(ListArgs),
    /// Show a version of a component [default: the latest]
    #[command(after_help = "Read-only: changes nothing.")]
    Show(ShowArgs),
    /// Update the display name, description and tags of a version
    #[command(after_help = "Mutating: the content of the version does not change.")]
    Update(update::Args),
    /// Archive a version, or an asset with all its versions
    #[command(after_help = "Mutating: it is no longer listed, but can still be used.")]
    Archive(update::ArchiveArgs),
    /// Restore an archived version, or an archived asset
    #[command(after_help = "Mutating: it is listed again.")]
    Restore(update::ArchiveArgs),
}

#[derive(Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    name: MaybeName<names::ListedAsset>,
    /// List only archived assets
    #[arg(long, conflicts_with = "include_archived")]
    archived_only: bool,
    /// Include archived assets
    #[arg(long)]
    include_archived: bool,
    /// Maximum number of results
    #[arg(short = 'r', long, value_name = "COUNT", value_parser = values::at_least_one,
          allow_negative_numbers = true)]
    max_results: Option<u32>,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

#[derive(Debug, clap::Args)]
pub struct ModelListArgs {
    /// List only versions with this stage; requires --name
    #[arg(short, long, requires = "name")]
    stage: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    pick: Pick,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

pub async fn environment(command: EnvironmentCommand) -> CliResult {
    let kind = AssetKind::Environment;
    match command {
        EnvironmentCommand::Create(args) => args.run().await,
        EnvironmentCommand::List(args) => curated::list(&args).await,
        EnvironmentCommand::Show(args) => match curated::in_registry(&args.pick.name) {
            Some(name) => curated::show(&args, &name).await,
            None => show(kind, &args).await,
        },
        EnvironmentCommand::Update(args) => update::run(kind, &args).await,
        EnvironmentCommand::Archive(args) => update::archive(kind, &args, true).await,
        EnvironmentCommand::Restore(args) => update::archive(kind, &args, false).await,
        EnvironmentCommand::ShowBuildLog(args) => curated::build_log(&args).await,
    }
}

pub async fn data(command: DataCommand) -> CliResult {
    let kind = AssetKind::Data;
    match command {
        DataCommand::Create(args) => args.run().await,
        DataCommand::List(args) => list(kind, &args, None).await,
        DataCommand::Show(args) => show(kind, &args).await,
        DataCommand::Update(args) => update::run(kind, &args).await,
        DataCommand::Archive(args) => update::archive(kind, &args, true).await,
        DataCommand::Restore(args) => update::archive(kind, &args, false).await,
    }
}

pub async fn model(command: ModelCommand) -> CliResult {
    let kind = AssetKind::Model;
    match command {
        ModelCommand::Create(args) => args.run().await,
        ModelCommand::List(args) => list(kind, &args.list, args.stage.as_deref()).await,
        ModelCommand::Show(args) => show(kind, &args).await,
        ModelCommand::Update(args) => update::model(&args).await,
        ModelCommand::Archive(args) => update::archive(kind, &args, true).await,
        ModelCommand::Restore(args) => update::archive(kind, &args, false).await,
        ModelCommand::Download(args) => download::run(&args).await,
    }
}

pub async fn component(command: ComponentCommand) -> CliResult {
    let kind = AssetKind::Component;
    match command {
        ComponentCommand::Create(args) => args.run().await,
        ComponentCommand::List(args) => list(kind, &args, None).await,
        ComponentCommand::Show(args) => show(kind, &args).await,
        ComponentCommand::Update(args) => update::run(kind, &args).await,
        ComponentCommand::Archive(args) => update::archive(kind, &args, true).await,
        ComponentCommand::Restore(args) => update::archive(kind, &args, false).await,
    }
}

/// Lists assets, or the versions of one.
async fn list(kind: AssetKind, args: &ListArgs, stage: Option<&str>) -> CliResult {
    let workspace = args.scope.workspace()?;
    let client = args.scope.connect().await?;
    let view = match (args.archived_only, args.include_archived) {
        (true, _) => "ArchivedOnly",
        (false, true) => "All",
        (false, false) => "ActiveOnly",
    };
    let query = [("listViewType", view)];
    let max = args.max_results;
    let found: Vec<view::Entity> = match args.name.get() {
        None => {
            let route = Route::Assets(AssetRoute::AssetContainers { workspace, kind });
            let found: Vec<ContainerResource> = client.list_with(&route, &query, max).await?;
            found.iter().map(|found| view::container(kind, found)).collect()
        }
        Some(name) => {
            // An asset that does not exist has no versions, which is reported as an error.
            let _: ContainerResource =
                client.get(&pick::container_route(&workspace, kind, name)).await?;
            let name = name.into();
            let route = Route::Assets(AssetRoute::AssetVersions { workspace, kind, name });
            // The stage is filtered here, so all versions are needed.
            let wanted = max.filter(|_| stage.is_none());
            let found: Vec<AssetResource> = client.list_with(&route, &query, wanted).await?;
            let found = found.iter().map(|found| view::version(kind, found));
            let is_wanted = |one: &view::Entity| stage.is_none() || one.stage.as_deref() == stage;
            found.filter(is_wanted).take(max.map_or(usize::MAX, |max| max as usize)).collect()
        }
    };
    args.print.show(&found, || view::print_table(kind, &found))
}

async fn show(kind: AssetKind, args: &ShowArgs) -> CliResult {
    let workspace = args.scope.workspace()?;
    let client = args.scope.connect().await?;
    let route = args.pick.version(&client, &workspace, kind).await?;
    print(kind, &client.get(&route).await?, &args.print)
}

fn print(kind: AssetKind, found: &AssetResource, print: &Print) -> CliResult {
    let found = view::version(kind, found);
    print.show(&found, || view::print_table(kind, std::slice::from_ref(&found)))
}

/// The form in which other documents refer to it.
fn id_of(found: &AssetResource) -> String {
    format!("azureml:{}", found.id)
}

/// The same document with renamed keys, at every depth.
fn renamed(value: Value, name: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().map(|(key, value)| (name(&key), renamed(value, name))).collect()
        }
        Value::Array(items) => items.into_iter().map(|item| renamed(item, name)).collect(),
        plain => plain,
    }
}

/// The error for a required value that neither a file nor a flag gives.
fn missing(what: &str, remedy: &str) -> Failure {
    Failure::refused(format!("{what} is not given")).hint(remedy)
}
