//! What a job's programs find: the name of an environment, or one that is described on the spot.

use std::path::PathBuf;

use muster_wire::yaml::tree::{Node, Value};
use serde_json::{Map, Value as Json};

use super::parts;
use crate::document::reader::{self, Reader, Source};
use crate::failure::{Failure, Outcome};

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
    "resourceGroup",
];

#[derive(Debug, Clone, PartialEq)]
pub enum Environment {
    /// As the server is to be told.
    Id(String),
    Version {
        name: String,
        version: String,
    },
    Label {
        name: String,
        label: String,
    },
    /// In a file of its own.
    File {
        path: PathBuf,
        at: (usize, usize),
        file: String,
    },
    Inline(Box<Inline>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Inline {
    pub image: Option<String>,
    pub conda: Option<Conda>,
    pub build: Option<Build>,
    /// The other fields, as they are sent.
    pub more: Map<String, Json>,
    pub inference: Option<Node>,
    pub datastore: Option<String>,
    pub at: (usize, usize),
    pub file: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Conda {
    Inline(Node),
    File { path: PathBuf, at: (usize, usize) },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Build {
    Local { path: PathBuf, dockerfile: Option<String> },
    Url { url: String, dockerfile: Option<String> },
}

pub fn parse_environment(source: &Source, path: &str, node: &Node) -> Outcome<Environment> {
    match &node.value {
        Value::Text(text) => reference(source, path, node, text),
        _ => inline(source, path, node).map(|inline| Environment::Inline(Box::new(inline))),
    }
}

fn reference(source: &Source, path: &str, node: &Node, text: &str) -> Outcome<Environment> {
    if let Some(rest) = text.strip_prefix("file:") {
        let (path, file) = (source.folder.join(rest), source.name.clone());
        return Ok(Environment::File { path, at: node.place, file });
    }
    if text.starts_with("azureml://") || text.starts_with("/subscriptions/") {
        return Ok(Environment::Id(text.to_owned()));
    }
    let name = parts::without_prefix(text);
    // Those that Azure has ready are known to the server by this very text.
    if name.starts_with("AzureML-") {
        return Ok(Environment::Id(format!("azureml:{name}")));
    }
    if name.starts_with('/') {
        return Ok(Environment::Id(name));
    }
    if let Some((name, label)) = name.rsplit_once('@') {
        return Ok(Environment::Label { name: name.to_owned(), label: label.to_owned() });
    }
    match name.split_once(':') {
        Some((name, version)) if !name.is_empty() && !version.is_empty() => {
            Ok(Environment::Version { name: name.to_owned(), version: version.to_owned() })
        }
        _ => Err(reader::wrong(
            source,
            node,
            path,
            "azureml:NAME:VERSION, azureml:NAME@latest, or an image with 'image:'",
        )),
    }
}

pub fn inline(source: &Source, path: &str, node: &Node) -> Outcome<Inline> {
    let said = Reader::of(source, path, node, FIELDS)?;
    let image = said.text("image")?;
    let build = build(&said)?;
    let place = reader::place(source, node.place);
    match (&image, &build) {
        (Some(_), None) | (None, Some(_)) => {}
        (None, None) => {
            return Err(Failure::refused(format!("{place}{path} has neither image nor build"))
                .hint("add 'image: …'; a conda_file is put on top of it"));
        }
        (Some(_), Some(_)) => {
            let text = format!("{place}{path} has an image and a build; keep one of them");
            return Err(Failure::refused(text));
        }
    }
    let conda = said.get("conda_file").map(|node| match &node.value {
        Value::Text(text) => Conda::File { path: parts::local(&said, text), at: node.place },
        _ => Conda::Inline(node.clone()),
    });
    let mut more = Map::new();
    if let Some(system) = said.choice("os_type", &[("linux", "linux"), ("windows", "windows")])? {
        more.insert("osType".to_owned(), system.into());
    }
    if let Some(text) = said.text("description")? {
        more.insert("description".to_owned(), text.into());
    }
    for key in ["tags", "properties"] {
        if let Some(texts) = said.texts(key)?.filter(|texts| !texts.is_empty()) {
            more.insert(key.to_owned(), texts.into());
        }
    }
    Ok(Inline {
        image,
        conda,
        build,
        more,
        inference: said.get("inference_config").cloned(),
        datastore: said.text("datastore")?,
        at: node.place,
        file: source.name.clone(),
    })
}

fn build(said: &Reader<'_>) -> Outcome<Option<Build>> {
    let Some(build) = said.inner("build", &["path", "dockerfile_path"])? else { return Ok(None) };
    let dockerfile = build.text("dockerfile_path")?;
    let Some(path) = build.text("path")? else {
        let node = said.get("build").unwrap_or(said.node);
        return Err(said.wrong("build", node, "its path, the folder with the Dockerfile"));
    };
    Ok(Some(match path.contains("://") {
        true => Build::Url { url: path, dockerfile },
        false => Build::Local { path: parts::local(&build, &path), dockerfile },
    }))
}
