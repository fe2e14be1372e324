//! Where MLflow writes what a job logs: there is no tracking service yet, so it goes to a folder that is kept with the job's
//! outputs.

use std::ffi::OsString;
use std::path::Path;

use muster_core::model::OUTPUTS_FOLDER;

/// Below `outputs`, by the name that MLflow itself gives it.
const FOLDER: &str = "mlruns";

/// What MLflow reads. A job may have its own values.
pub(crate) fn variables(work_dir: &Path) -> [(String, OsString); 3] {
    let mut address = OsString::from("file://");
    address.push(work_dir.join(OUTPUTS_FOLDER).join(FOLDER));
    [
        ("MLFLOW_TRACKING_URI".to_owned(), address),
        // Without it MLflow 3 refuses to write to a folder.
        ("MLFLOW_ALLOW_FILE_STORE".to_owned(), "true".into()),
        // On Azure every job has a run. MLflow takes an empty id for none, and programs that pass it on to others can do so.
        ("MLFLOW_RUN_ID".to_owned(), OsString::new()),
    ]
}

/// What the owner of a job is told about these files, if MLflow's are among them.
pub(crate) fn note<'a>(mut paths: impl Iterator<Item = &'a str>) -> Option<String> {
    let below = format!("{OUTPUTS_FOLDER}/{FOLDER}/");
    paths.any(|path| path.starts_with(&below)).then(|| {
        format!(
            "what MLflow logged is kept in {below} of the job's outputs, because this server has no tracking service yet; \
             download it with muster job download, and look at it with mlflow ui (MLflow 3 wants MLFLOW_ALLOW_FILE_STORE=true)"
        )
    })
}
