//! Which version a command acts on.

use muster_core::model::{AssetKind, WorkspaceKey};
use muster_wire::asset::ContainerResource;
use muster_wire::{AssetRoute, Route};

use crate::client::Client;
use crate::failure::{CliResult, Failure, quoted};
use crate::names::{self, Name};
use crate::values;

/// A name, and one of its versions.
#[derive(Debug, clap::Args)]
pub struct Pick {
    #[command(flatten)]
    pub name: Name<names::Asset>,
    /// Version
    #[arg(short, long, value_name = "VERSION", value_parser = values::name, display_order = 1,
          conflicts_with = "label")]
    pub version: Option<String>,
    /// Label, instead of a version: latest, the newest version that is not archived
    #[arg(short, long, value_name = "LABEL", value_parser = label, display_order = 2)]
    pub label: Option<String>,
}

/// A leading `azureml:` is removed, as the server does.
pub fn name(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix("azureml:").filter(|rest| !rest.starts_with("//"));
    values::name(bare.unwrap_or(text))
}

/// Azure has only one label that users can give.
fn label(text: &str) -> Result<String, String> {
    match text.eq_ignore_ascii_case("latest") {
        true => Ok("latest".to_owned()),
        false => Err("the only label is latest; use it, or --version".to_owned()),
    }
}

impl Pick {
    /// The given version, or the latest.
    pub async fn version(
        &self,
        client: &Client,
        workspace: &WorkspaceKey,
        kind: AssetKind,
    ) -> CliResult<Route> {
        let version = match &self.version {
            Some(version) => version.clone(),
            None => latest(client, workspace, kind, &self.name).await?,
        };
        let (workspace, name) = (workspace.clone(), self.name.as_str().into());
        let version = version.into();
        Ok(Route::Assets(AssetRoute::AssetVersion { workspace, kind, name, version }))
    }

    /// The same for commands in which a default could hit the wrong version.
    pub fn check_said(&self) -> CliResult {
        match self.version.is_some() || self.label.is_some() {
            true => Ok(()),
            false => Err(Failure::refused("no version is given")
                .hint("give --version VERSION, or --label latest")),
        }
    }
}

pub fn container_route(workspace: &WorkspaceKey, kind: AssetKind, name: &str) -> Route {
    let (workspace, name) = (workspace.clone(), name.into());
    Route::Assets(AssetRoute::AssetContainer { workspace, kind, name })
}

pub async fn latest(
    client: &Client,
    workspace: &WorkspaceKey,
    kind: AssetKind,
    name: &str,
) -> CliResult<String> {
    let route = container_route(workspace, kind, name);
    let found: ContainerResource = client.get(&route).await?;
    found.properties.latest_version.ok_or_else(|| {
        let words = format!("all versions of {} {} are archived", kind.as_str(), quoted(name));
        Failure::not_found(words).hint("restore one, or select one with --version")
    })
}
