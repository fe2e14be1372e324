//! Resolves the references of a job: its code, its inputs, and the places of its outputs.

use muster_core::model::{
    AssetKind, DataKind, DataLocation, JobEnvironment, Registration, Source, Workspace,
    WorkspaceKey,
};
use muster_wire::ArmError;
use muster_wire::asset::{self, Body, Reference, StorageAddress};
use muster_wire::blob::Address;
use muster_wire::datastore::{is_own, own_container};
use muster_wire::job::{DataUri, Resolve};

use super::asset::resolve;
use super::build_context::BuildContext;
use crate::app::App;
use crate::artifacts;

/// Looks up the assets, datastores and jobs of a workspace.
pub struct Names<'a> {
    pub app: &'a App,
    pub home: &'a Workspace,
}

/// The place in this server's storage that a URL leads to, if there is one and the workspace may use it.
pub fn place_of(app: &App, home: &Workspace, uri: &str) -> Option<DataLocation> {
    let path = uri.strip_prefix(&*app.files_url)?;
    // The query contains credentials, which are not part of the place.
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let Address { container, blob } = Address::parse(path).ok()?;
    let found = app.storage.readers.look_up(|reader| reader.container(&container)).ok()??;
    let path = blob.unwrap_or_default();
    let path = path.trim_end_matches('/').into();
    (found.workspace == home.id).then_some(DataLocation { container, path })
}

fn below(path: &str, rest: &str) -> Box<str> {
    match (path.is_empty(), rest.is_empty()) {
        (true, _) => rest.into(),
        (_, true) => path.into(),
        (false, false) => format!("{path}/{rest}").into(),
    }
}

/// Refused at submission, because the job could only fail on the node.
const NO_EGRESS: &str = "it is outside this server, and its nodes have no internet access (egress = false); put the data into a \
                         datastore of this server, or have the operator set egress = true";
const TRY_AGAIN: &str = "it could not be looked up; try again";

impl Names<'_> {
    fn key(&self) -> &WorkspaceKey {
        &self.home.key
    }

    fn container_of(&self, datastore: &str) -> Result<Box<str>, String> {
        if let Some(is_default) = is_own(datastore) {
            return Ok(own_container(self.home.id, is_default).into());
        }
        let found = self.app.readers.look_up(|reader| reader.datastore(self.home.id, datastore));
        let found = found.map_err(|_| TRY_AGAIN.to_owned())?.ok_or_else(|| {
            "there is no such datastore in this workspace; `muster datastore list` shows all datastores"
                .to_owned()
        })?;
        match found.about.account {
            None => Ok(found.about.container),
            Some(_) => Err(
                "the datastore is an account outside this server, which jobs cannot use; copy the data to a datastore \
                 of this server"
                    .to_owned(),
            ),
        }
    }

    fn output_of(&self, job: &str, output: &str, path: &str) -> Result<DataLocation, String> {
        let found = self.app.readers.look_up(|reader| reader.job(self.key(), job));
        let found = found.map_err(|_| TRY_AGAIN.to_owned())?;
        let view = found.ok_or("there is no such job in this workspace; check its name")?;
        if let Some(named) = view.spec.outputs.get(output) {
            let DataLocation { container, path: at } = &named.to;
            return Ok(DataLocation { container: container.clone(), path: below(at, path) });
        }
        if ["artifacts", "default"].contains(&output) {
            let container = own_container(self.home.id, false).into();
            let folder = artifacts::folder_of(&view.job.name);
            return Ok(DataLocation { container, path: below(&folder, path) });
        }
        let names: Vec<&str> = view.spec.outputs.keys().map(String::as_str).collect();
        Err(format!(
            "that job has no output of this name; it has {}",
            match names.is_empty() {
                true => "artifacts".to_owned(),
                false => format!("{} and artifacts", names.join(", ")),
            }
        ))
    }
}

impl Names<'_> {
    fn asset(&self, reference: &Reference) -> Result<Body, String> {
        let found = resolve(self.app, self.home, reference).map_err(|why| why.0.to_string())?;
        Body::parse_text(found.kind, &found.about.body).map_err(|_| TRY_AGAIN.to_owned())
    }

    fn source_at(&self, place: &asset::AssetLocation, kind: DataKind) -> Result<Source, String> {
        Ok(match place {
            asset::AssetLocation::Datastore { datastore, path } => {
                let container = self.container_of(datastore)?;
                let path = path.trim_end_matches('/').into();
                Source::Blobs(DataLocation { container, path })
            }
            asset::AssetLocation::JobOutput { job, output, path } => {
                Source::Blobs(self.output_of(job, output, path.trim_end_matches('/'))?)
            }
            asset::AssetLocation::Url(url) if url.starts_with(&*self.app.files_url) => {
                let place = place_of(self.app, self.home, url);
                Source::Blobs(place.ok_or("it is not in a container of this workspace")?)
            }
            asset::AssetLocation::Url(url) => match self.own_address(url) {
                Some(own) => {
                    let place = place_of(self.app, self.home, &own);
                    Source::Blobs(place.ok_or("it is not in a container of this workspace")?)
                }
                None => {
                    let source = asset::source_elsewhere(url, kind)?;
                    if self.app.nodes_are_restricted {
                        return Err(NO_EGRESS.to_owned());
                    }
                    source
                }
            },
        })
    }

    /// The URL that corresponds to a `wasbs` or `abfss` address, if that leads to this server's storage.
    fn own_address(&self, url: &str) -> Option<String> {
        let address = StorageAddress::parse(url)?;
        let own = self.app.files_url.split_once("://")?.1;
        if !address.host.eq_ignore_ascii_case(own) {
            return None;
        }
        // In an address of this server, the account is the first part of the path, followed by the container.
        let (first, rest) = address.path.split_once('/').unwrap_or((address.path, ""));
        let path = if first.contains(".blob.") { rest } else { address.path };
        Some(format!("{}/{}/{path}", self.app.files_url, address.container))
    }
}

impl Names<'_> {
    /// The environment of a Dockerfile and its context in this server's storage.
    fn built(&self, id: &str, build: &asset::Build) -> Result<JobEnvironment, String> {
        let place = asset::AssetLocation::parse(&build.context_uri, self.key());
        let place = place.map_err(|why| why.to_string())?;
        let place = match self.source_at(&place, DataKind::UriFolder)? {
            Source::Blobs(place) => place,
            Source::Url | Source::Web(_) => {
                return Err("its build context is not in the storage of this server; give a folder, which the client \
                            uploads"
                    .to_owned());
            }
        };
        // The files of a context may be many, and in an object store, so reading them blocks.
        tokio::task::block_in_place(|| {
            let context = BuildContext::open(self.app, self.home, &place)?;
            let text = context.dockerfile(&build.dockerfile_path)?;
            let built = self.app.environments.resolve_build(id, &text, &context);
            built.map_err(|why| why.to_string())
        })
    }
}

impl Resolve for Names<'_> {
    fn code(&self, id: &str) -> Result<DataLocation, String> {
        let reference = Reference::parse(AssetKind::Code, id, self.key());
        let Body::Code(code) = self.asset(&reference.map_err(|why| why.to_string())?)? else {
            return Err("it is not code".to_owned());
        };
        place_of(self.app, self.home, &code.code_uri).ok_or_else(|| {
            "its files are not in the storage of this server; upload it again".into()
        })
    }

    /// An environment of the workspace, or the substitute for one of the service or a registry.
    fn environment(&self, id: &str) -> Result<JobEnvironment, String> {
        let words = |why: ArmError| why.to_string();
        let environments = &self.app.environments;
        let reference = match Reference::parse(AssetKind::Environment, id, self.key()) {
            Ok(reference @ Reference::Workspace { .. }) => reference,
            Ok(Reference::Registry { .. } | Reference::Curated { .. }) => {
                return environments.resolve_curated(id).map_err(words);
            }
            Err(why) => return Err(why.to_string()),
        };
        let Body::Environment(body) = self.asset(&reference)? else {
            return Err("it is not an environment".to_owned());
        };
        match (&body.conda_file, &body.image, &body.build) {
            // This searches the folders of the machine for Python.
            (Some(conda), image, _) => tokio::task::block_in_place(|| {
                environments.resolve_conda(id, conda, image.as_deref()).map_err(words)
            }),
            (None, Some(image), _) => environments.resolve_image(id, image).map_err(words),
            (None, None, Some(build)) => self.built(id, build),
            (None, None, None) => Err("it has neither an image nor packages".to_owned()),
        }
    }

    fn source(&self, kind: DataKind, uri: &DataUri) -> Result<Source, String> {
        let reference = match uri {
            DataUri::DataLocation(place) => return self.source_at(place, kind),
            DataUri::Asset(reference) => reference,
        };
        let uri = match self.asset(reference)? {
            Body::Data(body) => body.data_uri,
            Body::Model(body) => body.model_uri,
            Body::Code(_) | Body::Environment(_) | Body::Component(_) => {
                return Err("it is neither data nor a model".to_owned());
            }
        };
        let place = asset::AssetLocation::parse(&uri, self.key());
        self.source_at(&place.map_err(|why| why.to_string())?, kind)
    }

    /// Conflicts with other registrations are found when the output is registered.
    fn registration(&self, kind: DataKind, wanted: &Registration) -> Result<(), String> {
        let Some(version) = wanted.version.as_deref() else { return Ok(()) };
        let (home, kind) = (self.home.id, kind.asset());
        let found =
            self.app.readers.look_up(|reader| reader.asset(home, kind, &wanted.name, version));
        match found.map_err(|_| TRY_AGAIN.to_owned())? {
            None => Ok(()),
            Some(_) => Err(format!(
                "it already has a version '{version}', and versions cannot be changed; choose another version, or \
                 omit it to get the next one"
            )),
        }
    }

    fn output(&self, datastore: Option<&str>, path: &str) -> Result<DataLocation, String> {
        let container = match datastore {
            None => own_container(self.home.id, true).into(),
            Some(name) => self.container_of(name)?,
        };
        Ok(DataLocation { container, path: path.into() })
    }
}
