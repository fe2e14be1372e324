//! `muster environment|data|model|component`: what jobs are made of, kept in versions, with the words of `az ml`. All four
//! are listed, shown, changed and put into the archive in one way; what differs is in their fields ([`fields`]), in
//! what is made of these ([`draft`]), and in how it is shown ([`view`]).

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

/// Make and see environments: what jobs run in
#[derive(Debug, Subcommand)]
pub enum EnvironmentCommand {
    /// Make a version of an environment: from a file, or of an image, a conda file or a build context
    ///
    /// The same again changes nothing. Without a version the latest is kept if it is the same, else it is the next number.
    #[command(after_help = "Mutating: makes a version, which is never changed.")]
    Create(Box<create::EnvironmentArgs>),
    /// List environments, or the versions of one, the newest first
    #[command(after_help = "Read-only: changes nothing.")]
    List(curated::EnvironmentListArgs),
    /// Show a version of an environment, without --version the latest
    ///
    /// Of one that comes with Azure's service, by its name (AzureML-…) or a registry's address (azureml://registries/…),
    /// it says what stands in for it here.
    #[command(after_help = "Read-only: changes nothing.")]
    Show(ShowArgs),
    /// Change what is written on a version: its description and its tags
    #[command(after_help = "Mutating: what it is made of stays.")]
    Update(update::Args),
    /// Put a version into the archive, or a name with all its versions
    #[command(after_help = "Mutating: it is not listed any more, and can still be used.")]
    Archive(update::ArchiveArgs),
    /// Take a version out of the archive, or a name
    #[command(after_help = "Mutating: it is listed again.")]
    Restore(update::ArchiveArgs),
    /// Show how a version was built for jobs: what it became, and what was said
    #[command(after_help = "Read-only: changes nothing.")]
    ShowBuildLog(curated::BuildLogArgs),
}

/// Name data under versions
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Make a version of data: from a file with its fields, or from a path
    ///
    /// What is on this machine is sent to a datastore first, unless the same is there. Without a version it is the next
    /// number.
    #[command(after_help = "Mutating: makes a version, which is never changed.")]
    Create(Box<create::DataArgs>),
    /// List data, or the versions of one name, the newest first
    #[command(after_help = "Read-only: changes nothing.")]
    List(ListArgs),
    /// Show a version of data, without --version the latest
    #[command(after_help = "Read-only: changes nothing.")]
    Show(ShowArgs),
    /// Change what is written on a version: its description and its tags
    #[command(after_help = "Mutating: what it is made of stays.")]
    Update(update::Args),
    /// Put a version into the archive, or a name with all its versions
    #[command(after_help = "Mutating: it is not listed any more, and can still be used.")]
    Archive(update::ArchiveArgs),
    /// Take a version out of the archive, or a name
    #[command(after_help = "Mutating: it is listed again.")]
    Restore(update::ArchiveArgs),
}

/// Keep models under versions, and get them back
#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Make a version of a model: from a file with its fields, or from a path
    ///
    /// What is on this machine is sent to a datastore first, unless the same is there. What a job left is named by
    /// azureml://jobs/NAME/outputs/NAME/paths/PATH. Without a version it is the next number.
    #[command(after_help = "Mutating: makes a version, which is never changed.")]
    Create(Box<create::ModelArgs>),
    /// List models, or the versions of one, the newest first
    #[command(after_help = "Read-only: changes nothing.")]
    List(ModelListArgs),
    /// Show a version of a model, without --version the latest
    #[command(after_help = "Read-only: changes nothing.")]
    Show(ShowArgs),
    /// Change what is written on a version: its description, tags, properties and stage
    #[command(after_help = "Mutating: what it is made of stays.")]
    Update(update::ModelArgs),
    /// Put a version into the archive, or a name with all its versions
    #[command(after_help = "Mutating: it is not listed any more, and can still be used.")]
    Archive(update::ArchiveArgs),
    /// Take a version out of the archive, or a name
    #[command(after_help = "Mutating: it is listed again.")]
    Restore(update::ArchiveArgs),
    /// Download the files of a version
    ///
    /// They go to a folder of the model's name below the given one. What is there under the same names is replaced.
    #[command(after_help = "Read-only: changes nothing on the server, and writes to the folder.")]
    Download(download::Args),
}

/// Make and see components: steps that jobs can be made of
#[derive(Debug, Subcommand)]
pub enum ComponentCommand {
    /// Make a version of a component from a file
    ///
    /// Code that it names is sent, an environment that stands in it is made. Without a version it is the next number.
    #[command(after_help = "Mutating: makes a version, which is never changed.")]
    Create(Box<create::ComponentArgs>),
    /// List components, or the versions of one, the newest first
    #[command(after_help = "Read-only: changes nothing.")]
    List(ListArgs),
    /// Show a version of a component, without --version the latest
    #[command(after_help = "Read-only: changes nothing.")]
    Show(ShowArgs),
    /// Change what is written on a version: its display name, its description and its tags
    #[command(after_help = "Mutating: what it does stays.")]
    Update(update::Args),
    /// Put a version into the archive, or a name with all its versions
    #[command(after_help = "Mutating: it is not listed any more, and can still be used.")]
    Archive(update::ArchiveArgs),
    /// Take a version out of the archive, or a name
    #[command(after_help = "Mutating: it is listed again.")]
    Restore(update::ArchiveArgs),
}

#[derive(Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    name: MaybeName<names::ListedAsset>,
    /// Only what is in the archive
    #[arg(long, conflicts_with = "include_archived")]
    archived_only: bool,
    /// Also what is in the archive
    #[arg(long)]
    include_archived: bool,
    /// At most so many
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
    /// Only versions of this stage; needs --name
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

/// Names, or the versions of one.
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
            // A name that is not there has no versions, and that is worth a word.
            let _: ContainerResource =
                client.get(&pick::container_route(&workspace, kind, name)).await?;
            let name = name.into();
            let route = Route::Assets(AssetRoute::AssetVersions { workspace, kind, name });
            // Stages are looked at here, so all are needed.
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

/// As other documents refer to it.
fn id_of(found: &AssetResource) -> String {
    format!("azureml:{}", found.id)
}

/// The same document with other names, at every depth.
fn renamed(value: Value, name: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().map(|(key, value)| (name(&key), renamed(value, name))).collect()
        }
        Value::Array(items) => items.into_iter().map(|item| renamed(item, name)).collect(),
        plain => plain,
    }
}

/// What a file or a flag must say, and nobody did.
fn missing(what: &str, remedy: &str) -> Failure {
    Failure::refused(format!("{what} is not given")).hint(remedy)
}
