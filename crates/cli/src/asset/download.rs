//! Downloads the files of a model to a local folder.

use std::path::PathBuf;

use muster_core::model::AssetKind;
use muster_wire::asset::{AssetLocation, AssetResource};

use super::pick::Pick;
use super::view;
use crate::failure::{CliResult, Failure, quoted};
use crate::output;
use crate::scope::Scope;
use crate::upload;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pick: Pick,
    /// Folder to save to; it is created if necessary
    #[arg(short = 'p', long, value_name = "DIR", default_value = ".")]
    download_path: PathBuf,
    #[command(flatten)]
    scope: Scope,
}

pub async fn run(args: &Args) -> CliResult {
    let workspace = args.scope.workspace()?;
    let client = args.scope.connect().await?;
    let route = args.pick.version(&client, &workspace, AssetKind::Model).await?;
    let found: AssetResource = client.get(&route).await?;
    let uri = found.properties.model_uri.clone().unwrap_or_default();
    let (name, _) = view::name_of(&found);
    let elsewhere = |hint: String| {
        Failure::refused(format!("the files of model {} are at {}", quoted(&name), quoted(&uri)))
            .hint(hint)
    };
    let (datastore, path) = match AssetLocation::parse(&uri, &workspace) {
        Ok(AssetLocation::Datastore { datastore, path }) => (datastore, path),
        Ok(AssetLocation::JobOutput { job, .. }) => {
            return Err(elsewhere(format!(
                "download the job's outputs with muster job download -n {job}"
            )));
        }
        _ => return Err(elsewhere("download them with a tool for that address".to_owned())),
    };
    let (_, container) = upload::open(&client, &workspace, Some(&datastore)).await?;
    let target = args.download_path.join(&name);
    let files = upload::download(&container, &path, &target).await?;
    if files == 0 {
        return Err(Failure::not_found(format!("there are no files at {}", quoted(&uri)))
            .hint("were they deleted? create the model again"));
    }
    output::say(&format!("downloaded {files} files to {}", target.display()));
    Ok(())
}
