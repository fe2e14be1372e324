//! The environment of a job: a reference to one, or an inline description.

use std::path::PathBuf;

use muster_wire::yaml::tree::{Node, Value};

use super::parts;
use crate::document::reader::{self, Source};
use crate::environment::Described;
use crate::failure::CliResult;

#[derive(Debug, Clone, PartialEq)]
pub enum Environment {
    /// The reference that is sent to the server.
    Id(String),
    Version {
        name: String,
        version: String,
    },
    Label {
        name: String,
        label: String,
    },
    /// In a separate file.
    File {
        path: PathBuf,
        at: (usize, usize),
        file: String,
    },
    Inline(Box<Described>),
}

pub fn parse_environment(source: &Source, path: &str, node: &Node) -> CliResult<Environment> {
    match &node.value {
        Value::Text(text) => reference(source, path, node, text),
        _ => Described::read(source, path, node)
            .map(|described| Environment::Inline(Box::new(described))),
    }
}

fn reference(source: &Source, path: &str, node: &Node, text: &str) -> CliResult<Environment> {
    if let Some(rest) = text.strip_prefix("file:") {
        let (path, file) = (source.folder.join(rest), source.name.clone());
        return Ok(Environment::File { path, at: node.place, file });
    }
    if text.starts_with("azureml://") || text.starts_with("/subscriptions/") {
        return Ok(Environment::Id(text.to_owned()));
    }
    let name = parts::without_prefix(text);
    // The server knows Azure's curated environments by exactly this text.
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
