//! The parsers for user input, as functions of text, for `fuzz`.
//!
//! Each goes as far as its command could without a server, a clock or the file system, and returns something that can
//! be compared: the request that would be sent, or the input written out again.

use std::ffi::OsString;
use std::path::Path;

use clap::{ArgMatches, Args};
use muster_core::model::WorkspaceKey;
use muster_core::time::{Span, Wall};
use muster_wire::compute::request_json;
use serde_json::Value;

use crate::compute::file;
use crate::config::{self, Config, Flags};
use crate::defaults::Defaults;
use crate::document::{self, Edits, Origin, reader};
use crate::failure::{CliResult, Failure};
use crate::job::{self, ignore::Ignore};
use crate::login::Login;
use crate::output::{query as queries, render, tidy};
use crate::values;
use crate::workspace::put;

/// `compute create --file`, with `--set`, `--add` and `--remove`: returns the body of the request.
pub fn compute_file(text: &str, arguments: &[&str]) -> Result<String, Failure> {
    let workspace = WorkspaceKey::new("subscription", "group", "workspace");
    let edits: Edits = arguments_of(arguments)?;
    let (mut document, _) = document::parse(Origin { name: "f.yml", text }, file::FIELDS)?;
    edits.apply(&mut document, file::FIELDS)?;
    let wanted = file::settled(file::wanted(&document, &workspace)?, None)?;
    Ok(request_json(&wanted.patch, wanted.password.as_deref()))
}

/// `workspace create --file`, with the same flags, and with `--tags` and others: returns the body of the request.
pub fn workspace_file(text: &str, arguments: &[&str]) -> Result<String, Failure> {
    let words: put::Words = arguments_of(arguments)?;
    let (document, _) = document::parse(Origin { name: "f.yml", text }, put::FIELDS)?;
    Ok(words.wanted(document)?.body())
}

/// `job create --file`, with `--set`: returns the part of the request that follows from the text alone.
pub fn job_file(text: &str, sets: &[&str]) -> Result<String, Failure> {
    let source = reader::Source { name: "f.yml".to_owned(), folder: Path::new("/f").to_owned() };
    let mut node = reader::parse_tree(&source, text)?;
    for set in sets {
        reader::set(&mut node, set)?;
    }
    let wanted = job::file::parse(&source, &node)?;
    Ok(Value::Object(wanted.properties).to_string())
}

/// A conda specification, in the form that is hashed and sent.
pub fn conda_text(text: &str) -> Option<String> {
    muster_wire::yaml::tree::parse(text).ok().map(|node| muster_wire::yaml::dump(&node))
}

/// `.amlignore`: which of these paths `--code` leaves out.
pub fn ignore_file(text: &str, paths: &[&str]) -> Result<Vec<bool>, String> {
    let ignore = Ignore::parse(text)?;
    Ok(paths.iter().map(|path| ignore.leaves_out(path, path.ends_with('/'))).collect())
}

/// JSON as YAML, in the form that commands print.
pub fn yaml(json: &str) -> Option<String> {
    let value: Value = serde_json::from_str(json).ok()?;
    render::yaml(&value).ok()
}

/// A server's configuration file with variables: returns the effective configuration, as `--print-config` prints it.
pub fn config(text: &str, variable: impl Fn(&str) -> Option<OsString>) -> Result<String, Failure> {
    let filed = config::parse(text, Path::new("/etc/muster/muster.toml"))?;
    let config = Config::settle(&Flags::default(), variable, filed, "info")?;
    Ok(config::print(&config, Path::new("/var/lib/muster")))
}

/// The result of a query on a JSON document, in the formats of `--output`.
pub struct Printed {
    pub json: String,
    pub yaml: String,
    pub tsv: String,
    /// `None` if the result does not fit into a table.
    pub table: Option<String>,
}

/// `--query`. `None` if the document is not JSON.
pub fn query(text: &str, document: &str) -> Option<Result<Printed, Failure>> {
    let document: Value = serde_json::from_str(document).ok()?;
    let printed = || -> CliResult<Printed> {
        let data = queries::parse(text).map_err(Failure::refused)?.apply(&tidy(document))?;
        Ok(Printed {
            json: render::json(&data.value),
            yaml: render::yaml(&data.value)?,
            tsv: render::tsv(&data),
            table: render::table(&data).ok(),
        })
    };
    Some(printed())
}

/// The file of `muster configure`, written out again.
pub fn defaults(content: &[u8]) -> Result<Vec<u8>, Failure> {
    Ok(Defaults::parse(content, Path::new("/home/ada/.config/muster/defaults.json"))?.text())
}

/// The file of `muster login`, written out again.
pub fn login(content: &[u8]) -> Result<Vec<u8>, Failure> {
    Ok(Login::parse(content, Path::new("/home/ada/.config/muster/login.json"))?.text())
}

/// `1d12h`.
pub fn span(text: &str) -> Result<Span, String> {
    values::span(text)
}

/// A point in time, or a duration before `now`.
pub fn when(text: &str, now: Wall) -> Result<Wall, String> {
    values::when_at(text, now)
}

/// `--tags`: its keys and values.
pub fn tags(arguments: &[&str]) -> Result<Vec<(String, String)>, Failure> {
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    Ok(values::tags(&arguments)?.into_iter().collect())
}

/// clap refuses invalid values with its own message.
fn arguments_of<T: Args>(arguments: &[&str]) -> CliResult<T> {
    let command = T::augment_args(clap::Command::new("muster")).no_binary_name(true);
    let read = |matches: &ArgMatches| T::from_arg_matches(matches);
    let matches = command.try_get_matches_from(arguments);
    matches.and_then(|matches| read(&matches)).map_err(|_| Failure::refused("see --help"))
}
