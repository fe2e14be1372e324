//! A Dockerfile, as far as it can be had without an engine for containers: the image that it starts from, by what stands
//! in for it, and the Python packages that it installs.
//!
//! What makes no difference here is a note, for the log of each job that uses it. Whatever else might make one is refused,
//! with its line and what to do instead.

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
/// Of all `RUN`s together.
pub const COMMANDS_MAX: usize = 2_000;
/// Requirements and conda files of the context that are read.
pub const FILES_MAX: usize = 50;

/// The folder that a Dockerfile takes files from.
pub trait Files {
    /// `None` if there is no such file. The words of an error are for the user.
    fn read(&self, path: &str, bytes_max: usize) -> Result<Option<Vec<u8>>, String>;
    /// Whether there is a file or a folder of that name.
    fn has(&self, path: &str) -> Result<bool, String>;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDockerfile {
    #[error("the Dockerfile has {bytes} bytes, at most {TEXT_BYTES_MAX} are taken; shorten it")]
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

/// What is wrong with an instruction, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "{command} cannot be done here: images are not built, only the Python packages that a Dockerfile installs are; leave it \
         out, give a conda file or pip's requirements, or name an image that `muster environment list --curated` has"
    )]
    Command { command: String },
    #[error("the option {option} of {program} is not read here; leave it out")]
    Option { program: &'static str, option: String },
    #[error("heredocs (<<) are not read; write its lines as commands with && between them")]
    Heredoc,
    #[error("{0} is no instruction of a Dockerfile; correct it")]
    Instruction(String),
    #[error(transparent)]
    Words(#[from] BadWords),
    #[error(
        "{name} has no value here: variables of images and what commands say are not known; write the value, or give it with ARG or ENV"
    )]
    Unknown { name: String },
    #[error("it needs a name; write FROM IMAGE or FROM IMAGE AS NAME")]
    From,
    #[error("it needs a file of the context and where it goes to; write COPY FILE FOLDER/")]
    Copy,
    #[error("more than {COPIES_MAX} files and folders are copied; copy folders instead of files")]
    Copies,
    #[error("{path} leads out of the context; put the file into the context's folder")]
    Outside { path: String },
    #[error(
        "{text} is an address, and nothing is fetched here; put the file into the context's folder"
    )]
    Address { text: String },
    #[error(
        "{path} is not in the context; check its name, and that no .amlignore or .gitignore leaves it out"
    )]
    NotThere { path: String },
    #[error(
        "no COPY or ADD before it brings {path} from the context; put it there, and copy it first"
    )]
    NotCopied { path: String },
    #[error("it names no file; write -r FILE, or --file FILE for conda")]
    NoFile,
    #[error("the context's file {path} is not UTF-8 text; save it as such")]
    NotText { path: String },
    #[error("more than {FILES_MAX} files are to be read; put their lines into one")]
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

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// What its last stage starts from.
    pub image: String,
    /// What it installs; `None` if that is nothing.
    pub recipe: Option<Recipe>,
    /// What its processes would find in their environment.
    pub variables: BTreeMap<String, String>,
    pub notes: Vec<Box<str>>,
}

/// What is read with: the context, which conda packages PyPI has, and the indexes that may be named.
#[derive(Clone, Copy)]
pub struct With<'a> {
    pub files: &'a dyn Files,
    pub names: &'a Names,
    pub indexes: &'a [String],
}

/// Reads a Dockerfile.
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
    /// On top of what stands in for its image.
    pub fn on(self, base: JobEnvironment) -> JobEnvironment {
        let Read { image, recipe, variables, notes } = self;
        let mut said = base.notes;
        let recipe = match (recipe, base.recipe) {
            (None, base) => base,
            (Some(own), None) => {
                let image = brief(&image);
                said = vec![format!(
                    "the image {image} of the Dockerfile is not run here; an environment made here, with what the Dockerfile \
                     installs, stands in for it"
                ).into()];
                let python = own.python.or_else(|| wish_of(&image).map(Into::into));
                Some(Recipe { python, ..own })
            }
            (Some(own), Some(base)) => Some(laid_over(own, base)),
        };
        said.extend(notes);
        // Its own replace those of the image.
        let variables = base.variables.into_iter().chain(variables).collect();
        JobEnvironment { recipe, notes: said, variables, ..base }
    }
}

/// What the Dockerfile says of a package goes first: it would replace what the image has.
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

/// `python:3.11-slim` is Python 3.11.
fn wish_of(image: &str) -> Option<String> {
    let image = image.trim_matches('\'');
    let (name, tag) = image.rsplit('/').next()?.split_once(':')?;
    let end = tag.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(tag.len());
    let wish = PythonRequest::parse(&tag[..end]).ok()?;
    (name == "python").then(|| wish.text())
}

/// All that is installed. An index that not all of it comes from is one beside the usual.
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
