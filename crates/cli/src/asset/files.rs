//! The files that a version is made of: at an address, or here and to be sent.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::draft::DraftContext;
use crate::failure::{CliResult, quoted};
use crate::upload::{self, Local};

/// Whether a path is none of this machine.
pub fn is_address(path: &str) -> bool {
    path.contains("://") || ["azureml:", "runs:/"].iter().any(|scheme| path.starts_with(scheme))
}

/// What is to be sent, if it is here. `what` names it in messages.
pub fn local(what: &str, path: &str, base: &Path) -> CliResult<Option<Local>> {
    match is_address(path) {
        true => Ok(None),
        false => Local::read(what, &base.join(path)).map(Some),
    }
}

/// Where files are, now that they are there: sent, unless the same was sent before.
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

/// A small file that a user named. The error names it too.
pub fn read_text(path: &PathBuf, bytes_max: u64) -> Result<String, String> {
    let shown = quoted(&path.display().to_string());
    let failed = |why: std::io::Error| format!("cannot read {shown}: {why}");
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(bytes_max + 1).read_to_string(&mut text).map_err(failed)?;
    match text.len() as u64 > bytes_max {
        true => Err(format!("{shown} is larger than {bytes_max} bytes; make it smaller")),
        false => Ok(text),
    }
}
