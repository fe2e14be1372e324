//! Reads a Dockerfile, as far as possible without a container engine: the image that it starts from, for which a
//! substitute is used, and the Python packages that it installs.
//!
//! Instructions that make no difference here become notes, for the log of each job that uses it. Everything else that
//! might make a difference is refused, with its line and the remedy.

mod copies;
mod install;
mod lines;
mod run;
mod stage;
mod words;

use std::cell::Cell;
use std::collections::BTreeMap;

use muster_core::model::{JobEnvironment, Recipe};

use self::copies::COPIES_MAX;
use self::stage::Build;
use self::words::BadWords;
use crate::brief;
use crate::conda::{CondaError, Names};
use crate::pip::{self, PipError};
use crate::python::PythonRequest;
use crate::table::package;
use crate::variables::VARIABLES_MAX;

pub const TEXT_BYTES_MAX: usize = 256 << 10;
pub const INSTRUCTIONS_MAX: usize = 1_000;
pub const STAGES_MAX: usize = 50;
/// The most commands of all `RUN`s together.
pub const COMMANDS_MAX: usize = 2_000;
/// The most requirements and conda files of the context that are read.
pub const FILES_MAX: usize = 50;

/// The folder from which a Dockerfile takes files.
pub trait Files {
    /// Returns `None` if there is no such file. The text of an error is for the user.
    fn read(&self, path: &str, bytes_max: usize) -> Result<Option<Vec<u8>>, String>;
    /// Returns true if there is a file or a folder of that name.
    fn has(&self, path: &str) -> Result<bool, String>;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDockerfile {
    #[error(
        "the Dockerfile has {bytes} bytes, but at most {TEXT_BYTES_MAX} are allowed; shorten it"
    )]
    TooLong { bytes: usize },
    #[error("the Dockerfile has more than {INSTRUCTIONS_MAX} instructions; leave some out")]
    TooMany,
    #[error("the Dockerfile has more than {STAGES_MAX} stages; leave some out")]
    TooManyStages,
    #[error("the Dockerfile has no FROM; begin it with FROM and the name of an image")]
    NoFrom,
    #[error("line {line} of the Dockerfile, {text}")]
    Line {
        line: usize,
        text: String,
        #[source]
        why: Box<Refusal>,
    },
}

/// What is wrong with an instruction, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "{command} is not supported here: images are not built, only the Python packages that a Dockerfile installs are; remove \
         it, give a conda file or pip requirements, or choose an image from `muster environment list --curated`"
    )]
    Command { command: String },
    #[error("the option {option} of {program} is not supported here; remove it")]
    Option { program: &'static str, option: String },
    #[error("heredocs (<<) are not supported; write the lines as commands with && between them")]
    Heredoc,
    #[error("{0} is not an instruction of a Dockerfile; correct it")]
    Instruction(String),
    #[error(transparent)]
    Words(#[from] BadWords),
    #[error(
        "{name} has no value here: variables of images and the output of commands are not known; write the value, or set it with ARG or ENV"
    )]
    Unknown { name: String },
    #[error("it needs a name; write FROM IMAGE or FROM IMAGE AS NAME")]
    From,
    #[error("it needs a file of the context and a target; write COPY FILE FOLDER/")]
    Copy,
    #[error("more than {COPIES_MAX} files and folders are copied; copy folders instead of files")]
    Copies,
    #[error("{path} leads out of the context; put the file into the context's folder")]
    Outside { path: String },
    #[error("{text} is a URL, and nothing is fetched here; put the file into the context's folder")]
    Address { text: String },
    #[error(
        "{path} is not in the context; check its name, and that no .amlignore or .gitignore excludes it"
    )]
    NotThere { path: String },
    #[error(
        "no COPY or ADD before it brings {path} from the context; put it there, and copy it first"
    )]
    NotCopied { path: String },
    #[error("it names no file; write -r FILE, or --file FILE for conda")]
    NoFile,
    #[error("the context's file {path} is not valid UTF-8; save it as such")]
    NotText { path: String },
    #[error("it reads more than {FILES_MAX} files; put their lines into one")]
    Files,
    #[error("there are more than {COMMANDS_MAX} commands; leave some out")]
    Commands,
    #[error("commands are nested too deeply; write them out")]
    Depth,
    #[error("there are more than {VARIABLES_MAX} variables; leave some out")]
    Variables,
    #[error("{0}")]
    Context(String),
    #[error("{text}: {why}")]
    Requirement { text: String, why: pip::Refusal },
    #[error(transparent)]
    Pip(PipError),
    #[error("in the context's file {path}")]
    PipFile { path: String, source: PipError },
    #[error(transparent)]
    Conda(CondaError),
    #[error("in the context's file {path}")]
    CondaFile { path: String, source: CondaError },
}

/// The result of reading a Dockerfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The image that its last stage starts from.
    pub image: String,
    /// What it installs. `None` if it installs nothing.
    pub recipe: Option<Recipe>,
    /// The environment variables of its processes.
    pub variables: BTreeMap<String, String>,
    pub notes: Vec<Box<str>>,
}

/// What is needed to read a Dockerfile: the context, the conda packages that PyPI has, and the allowed package indexes.
#[derive(Clone, Copy)]
pub struct With<'a> {
    pub files: &'a dyn Files,
    pub names: &'a Names,
    pub indexes: &'a [String],
}

/// Parses a Dockerfile.
pub fn parse(text: &str, with: With<'_>) -> Result<Read, BadDockerfile> {
    let instructions = lines::instructions(text)?;
    let spent = Cell::new(0);
    let mut build = Build::new(&instructions, with, &spent)?;
    let stage = build.last_stage()?;
    let recipe = merged(build.python, build.installs);
    let notes = build.notes.finish("of the Dockerfile's lines");
    Ok(Read { image: stage.image, recipe, variables: stage.variables, notes })
}

impl Read {
    /// Applies it on top of the substitute for its image.
    pub fn on(self, base: JobEnvironment) -> JobEnvironment {
        let Read { image, recipe, variables, notes } = self;
        let mut said = base.notes;
        let recipe = match (recipe, base.recipe) {
            (None, base) => base,
            (Some(own), None) => {
                let image = brief(&image);
                said = vec![format!(
                    "the image {image} of the Dockerfile is not run here; an environment built here, with what the Dockerfile \
                     installs, is used instead"
                ).into()];
                let python = own.python.or_else(|| wish_of(&image).map(Into::into));
                Some(Recipe { python, ..own })
            }
            (Some(own), Some(base)) => Some(laid_over(own, base)),
        };
        said.extend(notes);
        // The Dockerfile's own variables replace those of the image.
        let variables = base.variables.into_iter().chain(variables).collect();
        JobEnvironment { recipe, notes: said, variables, ..base }
    }
}

/// The Dockerfile's own packages take precedence, because they would replace those of the image.
fn laid_over(own: Recipe, base: Recipe) -> Recipe {
    let names: Vec<&str> = own.requirements.iter().map(|line| package(line)).collect();
    let kept = base.requirements.iter().filter(|line| !names.contains(&package(line)));
    let requirements = own.requirements.iter().chain(kept).cloned().collect();
    let mut recipe = Recipe::new(own.python.or(base.python), requirements);
    recipe.index = own.index.or(base.index);
    recipe.extra_indexes = [own.extra_indexes, base.extra_indexes].concat();
    recipe.extra_indexes.sort_unstable();
    recipe.extra_indexes.dedup();
    recipe
}

/// Returns the Python of an image: `python:3.11-slim` has Python 3.11.
fn wish_of(image: &str) -> Option<String> {
    let image = image.trim_matches('\'');
    let (name, tag) = image.rsplit('/').next()?.split_once(':')?;
    let end = tag.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(tag.len());
    let wish = PythonRequest::parse(&tag[..end]).ok()?;
    (name == "python").then(|| wish.text())
}

/// Merges everything that is installed. An index that only some of it uses becomes an extra index.
fn merged(python: Option<Box<str>>, installs: Vec<Recipe>) -> Option<Recipe> {
    if installs.is_empty() && python.is_none() {
        return None;
    }
    let first = installs.first().and_then(|install| install.index.clone());
    let is_one = installs.iter().all(|install| install.index == first);
    let mut extra_indexes = Vec::new();
    let mut requirements = Vec::new();
    for install in installs {
        requirements.extend(install.requirements);
        extra_indexes.extend(install.extra_indexes);
        extra_indexes.extend(install.index.filter(|_| !is_one));
    }
    extra_indexes.sort_unstable();
    extra_indexes.dedup();
    let mut recipe = Recipe::new(python, requirements);
    (recipe.index, recipe.extra_indexes) = (first.filter(|_| is_one), extra_indexes);
    Some(recipe)
}

#[cfg(test)]
mod tests;
