//! The files of a version: at an address, or local and to be uploaded.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::draft::DraftContext;
use crate::failure::{CliResult, quoted};
use crate::upload::{self, Local};

/// Whether a path is not a local one.
pub fn is_address(path: &str) -> bool {
    path.contains("://") || ["azureml:", "runs:/"].iter().any(|scheme| path.starts_with(scheme))
}

/// The files to upload, if the path is local. `what` names it in messages.
pub fn local(what: &str, path: &str, base: &Path) -> CliResult<Option<Local>> {
    match is_address(path) {
        true => Ok(None),
        false => Local::read(what, &base.join(path)).map(Some),
    }
}

/// The address of the files, which are uploaded first unless storage has them already.
pub async fn place(
    context: &DraftContext<'_>,
    path: &str,
    local: Option<&Local>,
    datastore: Option<&str>,
) -> CliResult<String> {
    let Some(local) = local else { return Ok(path.to_owned()) };
    if context.is_dry {
        let datastore = datastore.unwrap_or(muster_core::model::DEFAULT_DATASTORE);
        return Ok(format!("azureml://datastores/{datastore}/paths/{}", upload::path_of(local)?));
    }
    let sent =
        upload::to_datastore(context.client, context.workspace, local, datastore, None).await?;
    Ok(sent.uri())
}

/// Reads a small file of the user. Errors name the file too.
pub fn read_text(path: &PathBuf, bytes_max: u64) -> Result<String, String> {
    let shown = quoted(&path.display().to_string());
    let failed = |why: std::io::Error| format!("cannot read {shown}: {why}");
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(bytes_max + 1).read_to_string(&mut text).map_err(failed)?;
    match text.len() as u64 > bytes_max {
        true => {
            Err(format!("{shown} is larger than the limit of {bytes_max} bytes; make it smaller"))
        }
        false => Ok(text),
    }
}
