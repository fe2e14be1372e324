//! The Python environments of jobs: finds the environment that a request refers to, and builds it.
//!
//! Environments are built on this machine, by the server's own user. Nodes on this machine see a folder with the
//! environments that jobs of their cluster have requested, so they need no internet access for this.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use muster_core::ErrorChain;
use muster_core::ids::{ClusterId, JobId};
use muster_core::model::{JobEnvironment, Recipe, RecipeId};
use muster_environments::conda;
use muster_environments::dockerfile::{self, Files, With};
use muster_environments::id_of;
use muster_environments::python::{Interpreters, PythonRequest};
use muster_environments::store::{Builds, Config, State, Store, StoreError, Timing};
pub use muster_environments::store::{find_uv, missing_uv};
use muster_environments::table::{self, BadTable, Listed, Table, curated_name};
use muster_store::StoreError as RowsError;
use muster_wire::ArmError;
use muster_wire::environment::{BuildLog, Substitute};

use crate::live::Live;
use crate::pki::files::{self, FileError};
use crate::readers::Readers;
use crate::writer;

/// The operator's settings for environments.
#[derive(Debug, Clone)]
pub struct Environments {
    /// The path of uv; by default it is searched for.
    pub uv: Option<PathBuf>,
    /// The operator's own table of substitute environments.
    pub table: Option<PathBuf>,
    /// Package indexes that recipes may name.
    pub indexes: Vec<String>,
    pub bytes_max: u64,
    pub build_within: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot read the environments-file")]
    File(#[from] FileError),
    #[error("the environments-file {path} does not exist; check the setting")]
    Missing { path: PathBuf },
    #[error("the environments-file {path} is not UTF-8 text")]
    NotText { path: PathBuf },
    #[error("the environments-file {path} cannot be used")]
    Table { path: PathBuf, source: Box<BadTable> },
}

/// The property of a request that contains the job's environment.
const TARGET: &str = "properties.environmentId";

pub struct Service {
    store: Store,
    table: Table,
    indexes: Vec<String>,
}

impl Service {
    pub fn open(dir: PathBuf, settings: Environments) -> Result<Service, OpenError> {
        let Environments { uv, table, indexes, bytes_max, build_within } = settings;
        let table = match table {
            Some(path) => own_table(&path, &indexes)?,
            None => Table::default(),
        };
        let timing = Timing::default();
        let config = Config { dir, uv, indexes: indexes.clone(), build_within, bytes_max, timing };
        Ok(Service { store: Store::open(config)?, table, indexes })
    }

    /// The environment of a conda file, which may have an image as its base. `id` is the user's name for it.
    pub fn resolve_conda(
        &self,
        id: &str,
        text: &str,
        image: Option<&str>,
    ) -> Result<JobEnvironment, ArmError> {
        let read = conda::parse(text, self.table.conda_names(), &self.indexes);
        let read = read.map_err(|error| refused(&ErrorChain(&error).to_string()))?;
        let conda::Read { recipe, variables, mut notes } = read;
        let brief = |image: &str| image.chars().filter(|c| !c.is_control()).take(200).collect();
        let image: Option<String> = image.filter(|image| !image.is_empty()).map(brief);
        if let Some(image) = &image {
            let note = format!(
                "the image '{image}' is not run here; the packages of its conda file are installed without it"
            );
            notes.insert(0, note.into());
        }
        let image = image.map(String::into_boxed_str);
        Ok(JobEnvironment { id: id.into(), recipe: Some(recipe), image, notes, variables })
    }

    /// The environment of a Dockerfile and the files of its context: the substitute for its base image, and the
    /// packages that it installs.
    pub fn resolve_build(
        &self,
        id: &str,
        text: &str,
        files: &dyn Files,
    ) -> Result<JobEnvironment, ArmError> {
        let with = With { files, names: self.table.conda_names(), indexes: &self.indexes };
        let read = dockerfile::parse(text, with);
        let read = read.map_err(|error| refused(&ErrorChain(&error).to_string()))?;
        let base = self.table.image(id, &read.image);
        Ok(read.on(base))
    }

    /// The environment of an image alone. Every image has a substitute environment.
    pub fn resolve_image(&self, id: &str, image: &str) -> Result<JobEnvironment, ArmError> {
        Ok(self.table.image(id, image))
    }

    /// The environment for a curated one, under any name that a job may use: `azureml:NAME@latest`, a registry's
    /// address, `NAME`.
    pub fn resolve_curated(&self, id: &str) -> Result<JobEnvironment, ArmError> {
        let found = self.table.curated(id, curated_name(id));
        found.map_err(|unknown| refused(&unknown.to_string()))
    }

    /// Whether a curated environment has this name, for callers that look in the workspace first.
    pub fn is_curated(&self, id: &str) -> bool {
        self.table.has_curated(curated_name(id))
    }

    /// The substitute environments, in the order in which they are searched.
    pub fn substitutes(&self) -> impl Iterator<Item = Substitute> {
        self.table.rows().map(shown)
    }

    /// The substitute for a curated environment, or a refusal with the nearest names.
    pub fn substitute(&self, name: &str) -> Result<Substitute, ArmError> {
        let said = self.table.curated(name, name);
        let said = said.map_err(|why| ArmError::not_found("environment", why.to_string()))?;
        let row = self.table.curated_row(name).expect("the same rows were searched");
        let notes = said.notes.iter().map(|note| note.to_string()).collect();
        Ok(Substitute { name: name.to_owned(), notes, ..shown(row) })
    }

    /// How an environment was built, if it was. This does not build it.
    pub fn build_log(&self, environment: &JobEnvironment) -> BuildLog {
        let mut found = BuildLog {
            id: None,
            state: "not needed".to_owned(),
            python: None,
            packages: Vec::new(),
            notes: environment.notes.iter().map(|note| note.to_string()).collect(),
            log: None,
        };
        let Some(recipe) = &environment.recipe else { return found };
        let (state, log) = self.store.seen(recipe);
        found.id = Some(id_of(recipe).to_string());
        found.python = recipe.python.as_deref().map(str::to_owned);
        found.packages = recipe.requirements.iter().map(|line| line.to_string()).collect();
        found.log = log;
        let (word, notes) = match state {
            None => ("not built", Vec::new()),
            Some(State::Ready { notes, .. }) => ("ready", notes),
            Some(State::Building { said }) => ("building", said),
            Some(State::Failed { message, .. }) => ("failed", vec![message]),
        };
        found.state = word.to_owned();
        found.notes.extend(notes);
        found
    }

    /// Returns the state of an environment when it changes or the time is up, and begins to build the environment if
    /// necessary. Once it is ready, the nodes of this cluster see it.
    pub async fn get(&self, cluster: ClusterId, recipe: &Recipe, within: Duration) -> State {
        self.store.get_for(cluster, recipe, within).await
    }

    /// The disk space that environments use, with the cache of packages.
    pub fn bytes(&self) -> std::io::Result<u64> {
        self.store.bytes()
    }

    pub fn builds(&self) -> Builds {
        self.store.builds()
    }

    /// Prepares the folder of a cluster, before its first node is created.
    pub fn open_to(&self, cluster: ClusterId) -> std::io::Result<()> {
        self.store.open_to(cluster)
    }

    /// Stops every build.
    pub fn stop(&self) {
        self.store.stop();
    }
}

/// A note for the submission of a job, if the server's machine does not have the Python version that its environment
/// requests. The job's environment may be built on another host, which then writes a similar note to the job's log.
pub fn python_note(recipe: &Recipe) -> Option<String> {
    let action = PythonRequest::parse(recipe.python.as_deref()?).ok()?;
    let machine = Interpreters::of_this_machine();
    let (_, note) = machine.choose(Some(&action))?;
    note
}

fn shown(row: Listed<'_>) -> Substitute {
    let of = if row.is_image { "image" } else { "environment" };
    let recipe = row.recipe.map(|(_, recipe)| recipe);
    Substitute {
        name: row.pattern.to_owned(),
        of: of.to_owned(),
        recipe: row.recipe.map(|(name, _)| name.to_owned()),
        python: recipe.and_then(|recipe| recipe.python.as_deref()).map(str::to_owned),
        packages: recipe
            .map(|recipe| recipe.requirements.iter().map(|line| line.to_string()).collect())
            .unwrap_or_default(),
        notes: row.notes.iter().map(|note| note.to_string()).collect(),
    }
}

fn refused(words: &str) -> ArmError {
    ArmError::invalid_property(TARGET, words)
}

fn own_table(path: &Path, indexes: &[String]) -> Result<Table, OpenError> {
    let owned = || path.to_owned();
    let content = files::read(path, table::TEXT_BYTES_MAX as u64)?;
    let content = content.ok_or_else(|| OpenError::Missing { path: owned() })?;
    let text = String::from_utf8(content).map_err(|_| OpenError::NotText { path: owned() })?;
    let read = Table::default().with(&text, indexes);
    read.map_err(|bad| OpenError::Table { path: owned(), source: Box::new(bad) })
}

/// Removes excess environments after each build. Environments that a live attempt uses are kept.
pub async fn run_tidier(
    service: Arc<Service>,
    live: Arc<Live>,
    (readers, writer): (Readers, writer::Handle),
) {
    loop {
        service.store.built().await;
        let Ok(clusters) = writer.clusters().await else { continue };
        let jobs = live.jobs_with_attempts();
        let in_use = readers.read(move |reader| in_use(reader, &jobs)).await;
        let in_use = match in_use {
            Ok(in_use) => in_use,
            Err(error) => {
                // It is better to keep too many than to remove one that is in use.
                tracing::warn!(error = %ErrorChain(&error), "cannot determine which environments are in use");
                continue;
            }
        };
        let store = service.store.clone();
        let tidied = tokio::task::spawn_blocking(move || store.tidy(&in_use, &clusters)).await;
        if let Ok(Err(error)) = tidied {
            tracing::warn!(%error, "cannot remove excess environments");
        }
    }
}

fn in_use(
    reader: &mut dyn muster_store::Reader,
    jobs: &[JobId],
) -> Result<BTreeSet<RecipeId>, RowsError> {
    let mut in_use = BTreeSet::new();
    for job in jobs {
        in_use.extend(recipe_of(reader, *job)?.map(|(_, recipe)| id_of(&recipe)));
    }
    Ok(in_use)
}

/// The recipe of a job's environment, if it has one, and the cluster on which the job runs.
pub fn recipe_of(
    reader: &mut dyn muster_store::Reader,
    job: JobId,
) -> Result<Option<(ClusterId, Recipe)>, RowsError> {
    let Some(job) = reader.job_by_id(job)? else { return Ok(None) };
    let spec = reader.spec_of(&job)?;
    let recipe = spec.and_then(|spec| spec.environment).and_then(|environment| environment.recipe);
    Ok(recipe.map(|recipe| (job.cluster, recipe)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(table: Option<PathBuf>, dir: &Path) -> Result<Service, OpenError> {
        let settings = Environments {
            uv: None,
            table,
            indexes: Vec::new(),
            bytes_max: 1,
            build_within: Duration::from_secs(1),
        };
        Service::open(dir.join("environments"), settings)
    }

    #[test]
    fn requests_become_environments_or_refusals() {
        let dir = tempfile::tempdir().unwrap();
        let service = service(None, dir.path()).unwrap();
        let conda = "dependencies:\n- python=3.10\n- numpy\n- pip:\n  - six\n";
        let found = service.resolve_conda("azureml:mine:1", conda, Some("ubuntu:22.04")).unwrap();
        let recipe = found.recipe.unwrap();
        assert_eq!(recipe.requirements, ["numpy".into(), "six".into()]);
        assert_eq!(&*found.id, "azureml:mine:1");
        assert!(found.notes[0].starts_with("the image 'ubuntu:22.04' is not run here"));
        let old = service.resolve_conda("x", "dependencies: ['python=3.39']", None).unwrap();
        let note = python_note(&old.recipe.unwrap()).expect("no machine that runs tests has it");
        assert!(note.starts_with("python 3.39 is not on this host, which has 3."), "{note}");
        let error = service.resolve_conda("x", "dependencies: [r-base]", None).unwrap_err();
        assert_eq!((error.status, error.target()), (400, Some(TARGET)));
        assert!(error.to_string().contains("'r-base'"), "{error}");
        assert_eq!(service.resolve_image("x", "python:3.11").unwrap().recipe, None);
        let curated = "azureml://registries/azureml/environments/sklearn-1.5/labels/latest";
        assert!(service.is_curated(curated) && !service.is_curated("azureml:mine:1"));
        assert!(service.resolve_curated(curated).unwrap().recipe.is_some());
        let error = service.resolve_curated("azureml:AzureML-sklern-1.5:1").unwrap_err();
        assert!(error.to_string().contains("the nearest are"), "{error}");
    }

    #[test]
    fn substitutes_and_their_builds_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let service = service(None, dir.path()).unwrap();
        assert!(service.substitutes().any(|row| row.of == "image" && row.name == "*"));
        let found = service.substitute("sklearn-1.5").unwrap();
        assert_eq!(found.recipe.as_deref(), Some("sklearn-1.5"));
        assert!(found.notes[0].contains("is used instead"), "{:?}", found.notes);
        assert_eq!(service.substitute("AzureML-sklern-1.5").unwrap_err().status, 404);
        let plain = service.resolve_image("x", "python:3.11").unwrap();
        assert_eq!(service.build_log(&plain).state, "not needed");
        let conda = service.resolve_conda("x", "dependencies: [numpy]", None).unwrap();
        let told = service.build_log(&conda);
        assert_eq!((told.state.as_str(), &told.log), ("not built", &None));
        // The output of uv is kept however the build ends, without the path of the state directory.
        let own = dir.path().join("environments");
        let log = own.join("logs").join(format!("{}.log", told.id.unwrap()));
        std::fs::write(log, format!("wrote {}/x\n", own.display())).unwrap();
        let told = service.build_log(&conda);
        assert_eq!(told.log.as_deref(), Some("wrote environments/x\n"));
        assert_eq!(told.packages, ["numpy"]);
    }

    #[test]
    fn an_operators_file_is_read_or_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own.toml");
        assert!(matches!(service(Some(path.clone()), dir.path()), Err(OpenError::Missing { .. })));
        std::fs::write(&path, "[[images]]\nname = 'x'\nrecipe = 'nowhere'").unwrap();
        let error = service(Some(path.clone()), dir.path()).err().unwrap();
        let said = ErrorChain(&error).to_string();
        assert!(said.contains("own.toml") && said.contains("'nowhere'"), "{said}");
        std::fs::write(&path, "[[images]]\nname = 'x'\nrecipe = 'minimal'").unwrap();
        let service = service(Some(path), dir.path()).unwrap();
        assert!(service.resolve_image("id", "x").unwrap().recipe.is_some());
    }
}
