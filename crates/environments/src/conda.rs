//! Reads a conda specification, as far as possible without conda: the Python that it asks for, what is listed under
//! `pip:`, and those of its packages that PyPI has as well.
//!
//! Every change or omission becomes a note, for the log of each job that uses it. Packages that are not available are
//! refused by name.

mod names;
mod spec;

pub use names::{BadNames, Names, NamesFile};

use std::collections::BTreeMap;

use muster_core::model::Recipe;
use muster_wire::yaml::BadYaml;
use muster_wire::yaml::tree::{self, Entry, Node, Value};

use self::spec::{BadSpec, Spec};
use crate::brief;
use crate::notes::Notes;
use crate::pip::{self, PipError, Requirement};
use crate::python::{BadPythonRequest, PythonRequest};
use crate::variables::{self, Unfit, VARIABLES_MAX};

pub const TEXT_BYTES_MAX: usize = 256 << 10;
/// The most conda packages, besides those under `pip:`.
pub const DEPENDENCIES_MAX: usize = 500;

/// The note about channels, in which conda would look for packages.
pub(crate) const NO_CHANNELS: &str =
    "conda's channels are not used; packages come from the index of packages";

/// The note about variables, which conda sets only in an active environment.
pub(crate) const NO_VARIABLES: &str =
    "the conda file's variables are left out; give them as environment_variables of the job";

/// The result of reading a conda file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    pub recipe: Recipe,
    /// The variables that conda sets when the environment is active.
    pub variables: BTreeMap<String, String>,
    pub notes: Vec<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CondaError {
    #[error(
        "the conda file has {bytes} bytes, but at most {TEXT_BYTES_MAX} are allowed; list fewer packages"
    )]
    TooLong { bytes: usize },
    #[error("the conda file, line {}, column {}, is not valid YAML: {words}", place.0, place.1)]
    Yaml { place: (usize, usize), words: String },
    #[error(
        "the conda file has no fields; it must begin with 'dependencies:' and a list of packages"
    )]
    NoFields,
    #[error("{field} of the conda file is not {wanted}; write {wanted}")]
    Kind { field: &'static str, wanted: &'static str },
    #[error(
        "the conda file has {count} dependencies, but at most {DEPENDENCIES_MAX} are allowed; list fewer"
    )]
    TooMany { count: usize },
    #[error("the dependency {text} is not valid: {why}")]
    Dependency { text: String, why: BadSpec },
    #[error("the conda package {name} is not available here: {why}")]
    Refused { name: String, why: Box<str> },
    #[error(
        "the conda package {name} is not known to be the same on PyPI; if it is, list it under 'pip:' instead{also}, or have \
         the operator add it to the server's environments-file",
        also = guess.as_ref().map(|name| format!(" (did you mean {}?)", brief(name))).unwrap_or_default()
    )]
    Unknown { name: String, guess: Option<String> },
    #[error("the requested Python, {text}, is not available: {why}")]
    Python { text: String, why: BadPythonRequest },
    #[error(
        "the conda file has {count} variables, but at most {VARIABLES_MAX} are allowed; leave some out"
    )]
    Variables { count: usize },
    #[error(
        "the conda file's variable {name} cannot be set; its name must consist of letters, digits and _, and its value must be a text"
    )]
    Variable { name: String },
    #[error("under pip")]
    Pip(#[source] PipError),
}

/// Parses a conda file. `indexes` are the package indexes that its `pip:` may name.
pub fn parse(text: &str, names: &Names, indexes: &[String]) -> Result<Read, CondaError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(CondaError::TooLong { bytes: text.len() });
    }
    let root = tree::parse(text)
        .map_err(|BadYaml { place, words }| CondaError::Yaml { place, words: brief(&words) })?;
    let Value::Map(fields) = root.value else { return Err(CondaError::NoFields) };
    let mut reading = Reading::new(names);
    let mut pip_lines: Vec<String> = Vec::new();
    for Entry { key, value, .. } in fields {
        match (key.as_str(), value.value) {
            ("dependencies", Value::Null) => {}
            ("dependencies", Value::List(all)) => reading.dependencies(all, &mut pip_lines)?,
            ("dependencies", _) => {
                return Err(CondaError::Kind { field: "dependencies", wanted: "a list" });
            }
            ("name" | "prefix", _) | ("channels" | "variables", Value::Null) => {}
            ("channels", Value::List(all)) if all.is_empty() => {}
            ("channels", _) => {
                reading.notes.add(NO_CHANNELS);
            }
            ("variables", Value::Map(all)) => reading.variables(all)?,
            ("variables", _) => {
                return Err(CondaError::Kind { field: "variables", wanted: "names with values" });
            }
            (other, _) => {
                reading.notes.add(&format!("the conda file's field {} is left out", brief(other)));
            }
        }
    }
    let piped = pip::parse_lines(pip_lines.iter().map(String::as_str), indexes);
    let piped = piped.map_err(CondaError::Pip)?;
    reading.requirements.extend(piped.requirements);
    let mut read = reading.finish();
    (read.recipe.index, read.recipe.extra_indexes) = (piped.index, piped.extra_indexes);
    Ok(read)
}

/// Parses the entries of `dependencies:` one by one, as `conda install` accepts them.
pub fn packages<'a>(
    specs: impl IntoIterator<Item = &'a str>,
    names: &Names,
) -> Result<Read, CondaError> {
    let mut reading = Reading::new(names);
    for (index, spec) in specs.into_iter().enumerate() {
        if index == DEPENDENCIES_MAX {
            return Err(CondaError::TooMany { count: index + 1 });
        }
        reading.dependency(spec)?;
    }
    Ok(reading.finish())
}

struct Reading<'a> {
    names: &'a Names,
    variables: BTreeMap<String, String>,
    python: Option<Box<str>>,
    requirements: Vec<Box<str>>,
    notes: Notes,
}

impl<'a> Reading<'a> {
    fn new(names: &'a Names) -> Reading<'a> {
        let (variables, notes) = (BTreeMap::new(), Notes::default());
        Reading { names, variables, python: None, requirements: Vec::new(), notes }
    }

    fn finish(self) -> Read {
        let recipe = Recipe::new(self.python, self.requirements);
        let notes = self.notes.finish("of conda's packages");
        Read { recipe, variables: self.variables, notes }
    }

    fn variables(&mut self, all: Vec<Entry>) -> Result<(), CondaError> {
        if all.len() > VARIABLES_MAX {
            return Err(CondaError::Variables { count: all.len() });
        }
        for Entry { key: name, value, .. } in all {
            let bad = || CondaError::Variable { name: brief(&name) };
            let value = match value.is_null() {
                true => String::new(),
                false => value.as_python().ok_or_else(bad)?,
            };
            match variables::check(&name, &value) {
                Ok(()) => drop(self.variables.insert(name, value)),
                Err(Unfit::LeftOut(why)) => {
                    self.notes.add(&format!("the conda file's variable {name} is left out: {why}"));
                }
                Err(Unfit::Malformed) => return Err(bad()),
            }
        }
        Ok(())
    }

    fn dependencies(
        &mut self,
        all: Vec<Node>,
        pip_lines: &mut Vec<String>,
    ) -> Result<(), CondaError> {
        if all.len() > DEPENDENCIES_MAX {
            return Err(CondaError::TooMany { count: all.len() });
        }
        for one in all {
            match one.value {
                Value::Text(text) => self.dependency(&text)?,
                Value::Map(sections) => {
                    for Entry { key: name, value: lines, .. } in sections {
                        if name != "pip" {
                            let why = "only pip has a list of its own; write NAME=VERSION".into();
                            return Err(CondaError::Refused { name: brief(&name), why });
                        }
                        pip_lines.extend(texts(lines)?);
                    }
                }
                Value::Null => {}
                Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::List(_) => {
                    return Err(CondaError::Kind {
                        field: "a dependency",
                        wanted: "a text such as numpy=1.26; put it in quotes",
                    });
                }
            }
        }
        Ok(())
    }

    fn dependency(&mut self, text: &str) -> Result<(), CondaError> {
        let bad = |why| CondaError::Dependency { text: brief(text), why };
        let spec = Spec::parse(text).map_err(bad)?;
        if spec.name == "python" {
            let wish = spec.python_request();
            let Some(wish) = wish else { return Ok(()) };
            let wrong = |why| CondaError::Python { text: brief(&wish), why };
            self.python = Some(PythonRequest::parse(&wish).map_err(wrong)?.text().into());
            return Ok(());
        }
        let name = match self.names.of(&spec.name) {
            names::Known::As(name) => name,
            names::Known::Dropped(why) => {
                // Every file lists it, and nothing is missing without it.
                if spec.name != "pip" {
                    let text = format!("the conda package {} is left out: {why}", spec.name);
                    self.notes.add(&text);
                }
                return Ok(());
            }
            names::Known::Refused(why) => {
                let (name, why) = (brief(&spec.name), why.into());
                return Err(CondaError::Refused { name, why });
            }
            names::Known::No { guess } => {
                let (name, guess) = (brief(&spec.name), guess.map(str::to_owned));
                return Err(CondaError::Unknown { name, guess });
            }
        };
        let requirement = Requirement::new(name, spec.specifiers().map_err(bad)?);
        let line = requirement.to_string();
        let text = format!("the conda package {} is installed from PyPI as {line}", spec.shown());
        self.notes.add(&text);
        self.requirements.push(line.into());
        Ok(())
    }
}

/// Returns the lines under `pip:`.
fn texts(lines: Node) -> Result<Vec<String>, CondaError> {
    let wrong =
        || CondaError::Kind { field: "pip", wanted: "a list of texts such as numpy==1.26.4" };
    match lines.value {
        Value::Null => Ok(Vec::new()),
        Value::List(lines) => lines
            .into_iter()
            .map(|line| match line.value {
                Value::Text(text) => Ok(text),
                Value::Null => Ok(String::new()),
                _ => Err(wrong()),
            })
            .collect(),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests;
