//! Inline environments of jobs and components, and environments of their own files. They are parsed and named as
//! azure-ai-ml does it, so that the same environment is created only once, with either client.

use std::path::{Path, PathBuf};

use muster_core::model::{AssetKind, DEFAULT_DATASTORE, WorkspaceKey};
use muster_wire::asset::{self, AssetProperties, AssetResource, Build, request_json};
use muster_wire::yaml::dump;
use muster_wire::yaml::tree::{Node, Value};
use muster_wire::{AssetRoute, JsonText, Route};
use serde_json::{Map, Value as Json, json};

use crate::client::Client;
use crate::document::reader::{self, Reader, Source};
use crate::failure::{CliResult, Failure, quoted};
use crate::upload::{self, Local};

/// azure-ai-ml's name for environments without a name.
pub const NAMELESS: &str = "CliV2AnonymousEnvironment";

const FIELDS: &[&str] = &[
    "name",
    "version",
    "id",
    "type",
    "image",
    "conda_file",
    "build",
    "inference_config",
    "os_type",
    "description",
    "tags",
    "properties",
    "datastore",
    "latest_version",
    "creation_context",
    "intellectual_property",
    "resourceGroup",
];
const ROUTES: [(&str, &str); 3] = [
    ("liveness_route", "livenessRoute"),
    ("readiness_route", "readinessRoute"),
    ("scoring_route", "scoringRoute"),
];

#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    image: Option<String>,
    conda: Option<Conda>,
    build: Option<Context>,
    /// The text in the document, and the text that is sent.
    inference: Option<(Node, Json)>,
    /// The other fields.
    about: AssetProperties,
    datastore: Option<String>,
    at: (usize, usize),
    file: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Conda {
    Inline(Node),
    File { path: PathBuf, at: (usize, usize) },
}

/// A folder with a Dockerfile.
#[derive(Debug, Clone, PartialEq)]
struct Context {
    place: ContextSource,
    dockerfile: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum ContextSource {
    Local(PathBuf),
    Url(String),
}

impl Described {
    /// `path` is the path of the environment in the document; empty if it is the whole document.
    pub fn read(source: &Source, path: &str, node: &Node) -> CliResult<Described> {
        let said = Reader::of(source, path, node, FIELDS)?;
        let (image, build) = (said.text("image")?, context(&said)?);
        if image.is_some() == build.is_some() {
            let place = reader::place(source, node.place);
            let what = if path.is_empty() { "the environment" } else { path };
            let text = match image.is_some() {
                true => format!("{place}{what} has both an image and a build; keep one of them"),
                false => format!("{place}{what} has neither image nor build"),
            };
            return Err(Failure::refused(text).hint(
                "use 'image: …' or 'build: {path: …}'; a conda_file can be added to either",
            ));
        }
        let conda = said.get("conda_file").map(|node| match &node.value {
            Value::Text(text) => Ok(Conda::File { path: local(&said, text), at: node.place }),
            Value::Map(_) => Ok(Conda::Inline(node.clone())),
            _ => Err(said.wrong("conda_file", node, "a file, or fields such as dependencies")),
        });
        let system = said.choice("os_type", &[("linux", "Linux")])?;
        let text =
            |(key, value): (String, Json)| (key, value.as_str().unwrap_or_default().to_owned());
        let tags = said.texts("tags")?.unwrap_or_default().into_iter().map(text).collect();
        let properties = said.texts("properties")?.filter(|texts| !texts.is_empty());
        let about = AssetProperties {
            description: said.text("description")?,
            tags,
            properties: properties.and_then(|it| JsonText::new(&Json::Object(it).to_string())),
            os_type: system.map(str::to_owned),
            ..AssetProperties::default()
        };
        Ok(Described {
            image,
            conda: conda.transpose()?,
            build,
            inference: inference(&said)?,
            about,
            datastore: said.text("datastore")?,
            at: node.place,
            file: source.name.clone(),
        })
    }

    /// Errors name the place in the file, if it is known.
    fn place(&self, at: (usize, usize)) -> String {
        let source = Source { name: self.file.clone(), folder: Path::new(".").to_owned() };
        reader::place(&source, at)
    }

    fn conda_text(&self) -> CliResult<Option<String>> {
        Ok(match &self.conda {
            None => None,
            Some(Conda::Inline(node)) => Some(dump(node)),
            Some(Conda::File { path, at }) => {
                let (_, node) = reader::read_tree(path).map_err(|failure| {
                    let place = self.place(*at);
                    Failure::refused(format!("{place}environment.conda_file: {failure}"))
                })?;
                Some(dump(&node))
            }
        })
    }
}

fn local(said: &Reader<'_>, text: &str) -> PathBuf {
    said.source.folder.join(text.strip_prefix("file:").unwrap_or(text))
}

fn context(said: &Reader<'_>) -> CliResult<Option<Context>> {
    let Some(build) = said.inner("build", &["path", "dockerfile_path"])? else { return Ok(None) };
    let dockerfile = build.text("dockerfile_path")?.filter(|path| !path.is_empty());
    let Some(path) = build.text("path")? else {
        let node = said.get("build").unwrap_or(said.node);
        return Err(said.wrong("build", node, "its path, the folder with the Dockerfile"));
    };
    let place = match path.contains("://") {
        true => ContextSource::Url(path),
        false => ContextSource::Local(local(&build, &path)),
    };
    Ok(Some(Context { place, dockerfile }))
}

fn inference(said: &Reader<'_>) -> CliResult<Option<(Node, Json)>> {
    let Some(node) = said.get("inference_config") else { return Ok(None) };
    let names = ROUTES.map(|(name, _)| name);
    let Some(config) = said.inner("inference_config", &names)? else { return Ok(None) };
    let mut sent = Map::new();
    for (name, key) in ROUTES {
        if let Some(route) = config.inner(name, &["port", "path"])? {
            let route = json!({ "port": route.whole("port")?, "path": route.text("path")? });
            sent.insert(key.to_owned(), route);
        }
    }
    Ok(Some((node.clone(), Json::Object(sent))))
}

/// An environment in the form that is sent.
pub struct Settled {
    pub properties: AssetProperties,
    /// azure-ai-ml's hash, which is the version of an environment without a name.
    pub version: String,
}

/// With `is_dry`, a local build context is not uploaded.
pub async fn settle(
    client: &Client,
    workspace: &WorkspaceKey,
    described: &Described,
    is_dry: bool,
) -> CliResult<Settled> {
    let conda_file = described.conda_text()?;
    let mut known = String::new();
    if let Some(image) = &described.image {
        known = upload::of_text(image);
        if let Some((node, _)) = &described.inference {
            known = woven(&known, &dump(node));
        }
        known = conda_file.iter().fold(known, |known, text| woven(&known, text));
    }
    let mut build = None;
    if let Some(Context { place, dockerfile }) = &described.build {
        let context_uri = match place {
            ContextSource::Url(url) => url.clone(),
            ContextSource::Local(path) => {
                let what = format!("{}environment.build.path", described.place(described.at));
                let local = Local::read(&what, path)?;
                known = upload::of_text(&local.object_hash()?);
                known = dockerfile.iter().fold(known, |known, path| woven(&known, path));
                let noted = upload::of_text(&known);
                sent(client, workspace, described, &local, &noted, is_dry).await?
            }
        };
        let dockerfile_path = dockerfile.clone().unwrap_or_else(|| "Dockerfile".to_owned());
        build = Some(Build { context_uri, dockerfile_path });
    }
    let inference = described.inference.as_ref();
    let properties = AssetProperties {
        image: described.image.clone(),
        conda_file,
        build,
        inference_config: inference.and_then(|(_, sent)| JsonText::new(&sent.to_string())),
        ..described.about.clone()
    };
    Ok(Settled { properties, version: upload::of_text(&known) })
}

/// The address of a build context, once it is uploaded.
async fn sent(
    client: &Client,
    workspace: &WorkspaceKey,
    described: &Described,
    local: &Local,
    version: &str,
    is_dry: bool,
) -> CliResult<String> {
    let datastore = described.datastore.as_deref();
    if is_dry {
        let (name, path) = (datastore.unwrap_or(DEFAULT_DATASTORE), upload::path_of(local)?);
        return Ok(format!("azureml://datastores/{name}/paths/{path}/"));
    }
    let noted = Some((NAMELESS, version));
    let sent = upload::to_datastore(client, workspace, local, datastore, noted).await?;
    Ok(format!("{}/", sent.url()))
}

/// `one` between all letters of the other's hash: this reproduces a bug of azure-ai-ml.
fn woven(one: &str, other: &str) -> String {
    let other = upload::of_text(other);
    other.chars().map(String::from).collect::<Vec<_>>().join(one)
}

/// The id and version of an environment without a name. It is created, unless this is a dry run.
pub async fn nameless(
    client: &Client,
    workspace: &WorkspaceKey,
    described: &Described,
    is_dry: bool,
) -> CliResult<(String, String)> {
    let Settled { mut properties, version } = settle(client, workspace, described, is_dry).await?;
    properties.is_anonymous = true;
    let kind = AssetKind::Environment;
    if is_dry {
        return Ok((asset::id(workspace, kind, NAMELESS, &version), version));
    }
    let (workspace, name) = (workspace.clone(), NAMELESS.into());
    let place =
        AssetRoute::AssetVersion { workspace, kind, name, version: version.as_str().into() };
    let made = client.put(&Route::Assets(place), request_json(&properties)).await?;
    let made: AssetResource = made.document()?;
    Ok((made.id, version))
}

/// Parses a JSON document as if it came from a file; places in it are not known.
pub fn of_fields(fields: &Map<String, Json>, folder: &Path, path: &str) -> CliResult<Described> {
    let source = Source { name: String::new(), folder: folder.to_owned() };
    let text = Json::Object(fields.clone()).to_string();
    let node = muster_wire::yaml::tree::parse(&text).map_err(|why| {
        Failure::refused(format!("the environment cannot be read: {}", quoted(&why.words)))
    })?;
    Described::read(&source, path, &node)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that azure-ai-ml 1.35.2 gives to the same environments.
    #[test]
    fn an_environment_without_a_name_is_called_as_azure_ai_ml_calls_it() {
        let of = |image: &str, conda: &str| upload::of_text(&woven(&upload::of_text(image), conda));
        let conda = "channels:\n- conda-forge\ndependencies:\n- python=3.8\n- pip\n- pip:\n  - a\n  \
                     - b==1\n  - numpy>=1.0\nname: x\n";
        assert_eq!(
            of("mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04", conda),
            "4feee9bdb80b7bc50a40f54b26a373d84d8eaa587a2b6113ff9e69f5b2e17e5e"
        );
        assert_eq!(
            of("ubuntu:22.04", "dependencies:\n- pip\n"),
            "7a56a0e7d700dedbe11e2f3d2d6d5801982394f44c4522e3eb58629e6aa94e9c"
        );
        assert_eq!(
            upload::of_text(&upload::of_text("ubuntu:22.04")),
            "8572c0d1256327d102a551a9efb331be20eb33dbb64beae87d71128fc5d457ff"
        );
    }

    #[test]
    fn a_document_is_read_as_a_file_is() {
        let read = |fields: Json| {
            let Json::Object(fields) = fields else { unreachable!("fields") };
            of_fields(&fields, Path::new("/f"), "")
        };
        let conda = json!({"name": "x", "channels": ["conda-forge"],
            "dependencies": ["python=3.10", {"pip": ["--pre", "torch[cpu]==2.1; python_version<'3.12'"]}],
            "variables": {"A": "1", "B": "yes"}, "empty": {}, "none": []});
        let config = json!({"liveness_route": {"port": 80, "path": "/"}});
        let found = read(
            json!({"image": "i", "conda_file": conda, "inference_config": config, "os_type": "Linux"}),
        );
        let found = found.unwrap();
        // Generated with azure-ai-ml's dump_yaml(sort_keys=True).
        let wanted = "channels:\n- conda-forge\ndependencies:\n- python=3.10\n- pip:\n  - --pre\n  \
                      - torch[cpu]==2.1; python_version<'3.12'\nempty: {}\nname: x\nnone: []\nvariables:\n  \
                      A: '1'\n  B: 'yes'\n";
        assert_eq!(found.conda_text().unwrap().as_deref(), Some(wanted));
        assert_eq!(found.inference.unwrap().1, json!({"livenessRoute": {"port": 80, "path": "/"}}));
        for (fields, wanted) in [
            (json!({}), "the environment has neither image nor build"),
            (
                json!({"image": "i", "build": {"path": "."}}),
                "the environment has both an image and a build",
            ),
            (json!({"image": "i", "os_type": "windows"}), "os_type is 'windows'; give linux"),
            (json!({"image": "i", "conda_file": ["x"]}), "conda_file is a list; give a file"),
            (json!({"build": {}}), "build is a mapping; give its path"),
        ] {
            let said = read(fields).err().unwrap().to_string();
            assert!(said.starts_with(wanted), "{said}");
        }
    }
}
