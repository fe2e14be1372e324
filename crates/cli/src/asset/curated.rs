//! Substitutes for the curated environments of Azure's service, and the build logs of environments.

use muster_core::model::AssetKind;
use muster_wire::environment::{BuildLog, Substitute};
use muster_wire::{AssetRoute, Route};

use super::ShowArgs;
use super::pick::Pick;
use crate::failure::{CliResult, printable};
use crate::output::{self, Print};
use crate::scope::Scope;

const HEADER: [&str; 5] = ["Name", "Kind", "Substitute", "Python", "Packages"];
/// The width that people can still read.
const PACKAGES_CHARS_MAX: usize = 60;

#[derive(Debug, clap::Args)]
pub struct EnvironmentListArgs {
    /// List the substitute environments for Azure's curated environments and images; * matches any letters, and the
    /// first match is used
    #[arg(long, conflicts_with_all = ["name", "archived_only", "include_archived"])]
    curated: bool,
    #[command(flatten)]
    list: super::ListArgs,
}

#[derive(Debug, clap::Args)]
pub struct BuildLogArgs {
    #[command(flatten)]
    pick: Pick,
    #[command(flatten)]
    print: Print<true>,
    #[command(flatten)]
    scope: Scope,
}

/// The name in `azureml://registries/REGISTRY/environments/NAME/…`.
pub fn in_registry(text: &str) -> Option<String> {
    let rest = text.strip_prefix("azureml://registries/")?;
    let mut parts = rest.split('/').skip_while(|part| !part.eq_ignore_ascii_case("environments"));
    parts.nth(1).filter(|name| !name.is_empty()).map(str::to_owned)
}

pub async fn list(args: &EnvironmentListArgs) -> CliResult {
    if !args.curated {
        return super::list(AssetKind::Environment, &args.list, None).await;
    }
    let route = Route::Assets(AssetRoute::Substitutes(args.list.scope.workspace()?));
    let client = args.list.scope.connect().await?;
    let found: Vec<Substitute> = client.list(&route, args.list.max_results).await?;
    args.list.print.show(&found, || print_table(&found))
}

/// Shows the substitute for an environment of a registry.
pub async fn show(args: &ShowArgs, name: &str) -> CliResult {
    let (workspace, name) = (args.scope.workspace()?, name.into());
    let client = args.scope.connect().await?;
    let found: Substitute =
        client.get(&Route::Assets(AssetRoute::Substitute { workspace, name })).await?;
    args.print.show(&found, || {
        print_table(std::slice::from_ref(&found))?;
        say_notes(&found.notes)
    })
}

fn print_table(found: &[Substitute]) -> CliResult {
    let row = |one: &Substitute| {
        let mut packages = one.packages.join(", ");
        if packages.chars().count() > PACKAGES_CHARS_MAX {
            packages = packages.chars().take(PACKAGES_CHARS_MAX).chain(['…']).collect();
        }
        let substitute = one.recipe.clone().unwrap_or_else(|| "the host's python3".to_owned());
        let python = one.python.clone().unwrap_or_default();
        vec![one.name.clone(), one.of.clone(), substitute, python, packages]
    };
    output::table(&HEADER, found.iter().map(row).collect(), "no substitute environments")
}

fn say_notes(notes: &[String]) -> CliResult {
    let notes = notes.iter().map(|note| format!("{}\n", printable(note)));
    output::bytes(notes.collect::<String>().as_bytes())
}

pub async fn build_log(args: &BuildLogArgs) -> CliResult {
    let workspace = args.scope.workspace()?;
    let client = args.scope.connect().await?;
    let kind = AssetKind::Environment;
    let (name, version) = match in_registry(&args.pick.name) {
        Some(name) => (name.into(), args.pick.version.as_deref().unwrap_or("1").into()),
        None => match args.pick.version(&client, &workspace, kind).await? {
            Route::Assets(AssetRoute::AssetVersion { name, version, .. }) => (name, version),
            _ => unreachable!("a version has its route"),
        },
    };
    let route = Route::Assets(AssetRoute::BuildLog { workspace, name, version });
    let found: BuildLog = client.get(&route).await?;
    args.print.show(&found, || {
        say_notes(&found.notes)?;
        output::say(&format!("state: {}", found.state));
        match &found.log {
            Some(log) => {
                let mut out = output::Raw::default();
                out.write(log.as_bytes()).and_then(|()| out.end())
            }
            None => Ok(()),
        }
    })
}
