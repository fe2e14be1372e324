//! Where MLflow writes what a job logs. There is no tracking service yet, so it is a folder that is saved with the
//! job's outputs.

use std::ffi::OsString;
use std::path::Path;

use muster_core::model::OUTPUTS_FOLDER;

/// The folder below `outputs`, with the name that MLflow itself uses.
const FOLDER: &str = "mlruns";

/// The variables that MLflow reads. A job may set its own values.
pub(crate) fn variables(work_dir: &Path) -> [(String, OsString); 3] {
    let mut address = OsString::from("file://");
    address.push(work_dir.join(OUTPUTS_FOLDER).join(FOLDER));
    [
        ("MLFLOW_TRACKING_URI".to_owned(), address),
        // Without this, MLflow 3 refuses to write to a folder.
        ("MLFLOW_ALLOW_FILE_STORE".to_owned(), "true".into()),
        // On Azure every job has a run. MLflow treats an empty id as none, and programs can still pass it on to others.
        ("MLFLOW_RUN_ID".to_owned(), OsString::new()),
    ]
}

/// Returns a note for the owner of the job, if MLflow's files are among these.
pub(crate) fn note<'a>(mut paths: impl Iterator<Item = &'a str>) -> Option<String> {
    let below = format!("{OUTPUTS_FOLDER}/{FOLDER}/");
    paths.any(|path| path.starts_with(&below)).then(|| {
        format!(
            "what MLflow logged is saved in {below} of the job's outputs, because this server has no tracking service yet; \
             download it with muster job download, and view it with mlflow ui (MLflow 3 needs MLFLOW_ALLOW_FILE_STORE=true)"
        )
    })
}
