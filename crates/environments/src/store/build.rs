//! One build: creates an empty environment, installs the packages, compiles their bytecode, and publishes it.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use muster_core::model::{Recipe, RecipeId};

use super::Config;
use super::disk::{self, Disk};
use super::interpreter;
use super::uv::{self, Listener, NoUv, RunError};
use crate::pip::{self, PipError};
use crate::python::{Interpreters, PythonRequest};

/// How many lines of uv's output a message repeats, starting with the first error.
const LINES_MAX: usize = 12;
const MESSAGE_CHARS_MAX: usize = 1_500;
/// uv's messages about a package that would have to be built from source.
const NO_WHEEL: [&str; 3] =
    ["building from source is disabled", "no wheels", "has no usable wheels"];

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    NoUv(#[from] NoUv),
    #[error(
        "there is no python3 in /usr/bin or /usr/local/bin of the server's host; install one (apt install python3)"
    )]
    NoPython,
    #[error("its recipe is no longer valid")]
    Recipe(#[source] PipError),
    #[error("cannot write to the folder of environments; is the disk full?")]
    Disk(#[from] io::Error),
    #[error("{doing} failed")]
    Run { doing: &'static str, source: RunError },
    #[error("uv cannot {doing}: {words}")]
    Uv { doing: &'static str, words: String },
    #[error(
        "uv cannot {doing}: {words}\nonly wheels are installed, and one of these packages has none for Python {python} on this \
         host; choose a version of it that has one, or another package"
    )]
    NoWheel { doing: &'static str, words: String, python: String },
}

pub fn run(
    config: &Config,
    disk: &Disk,
    id: &RecipeId,
    recipe: &Recipe,
    say: &(dyn Fn(&str) + Sync),
    is_stopping: &dyn Fn() -> bool,
) -> Result<(), BuildError> {
    let uv = uv::find(config.uv.as_deref())?;
    check(recipe, &config.indexes)?;
    let wish = recipe.python.as_deref().and_then(|wish| PythonRequest::parse(wish).ok());
    let machine = Interpreters::of_this_machine();
    let (chosen, note) = machine.choose(wish.as_ref()).ok_or(BuildError::NoPython)?;
    let python = chosen.interpreter;
    let log = Mutex::new(disk.new_log(id)?);
    let heard = Mutex::new(Vec::new());
    // The path of the server's state is not shown to users.
    let own = disk.building.parent().unwrap_or(&disk.building).display().to_string();
    let hear = |line: &str| {
        let line = line.replace(&own, "environments");
        say(&line);
        heard.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(line);
    };
    let listener = Listener { log: &log, say: &hear };
    note.iter().for_each(|note| listener.line(note));
    let folder = disk.building.join(id.to_string());
    let _cleared = Cleared(&folder);
    disk::remove(&folder)?;
    let until = Instant::now() + config.build_within;
    let within = config.build_within;
    let step = |doing: &'static str, command| {
        heard.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
        let ended = uv::run(command, &listener, until, within, is_stopping)
            .map_err(|source| BuildError::Run { doing, source })?;
        if ended.success() {
            return Ok(());
        }
        let heard = heard.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (words, is_wheel) = complaint(&heard);
        Err(match is_wheel {
            true => BuildError::NoWheel { doing, words, python: python.version.to_string() },
            false => BuildError::Uv { doing, words },
        })
    };

    let mut command = uv::command(&uv);
    command.args(["venv", "--relocatable", "--no-project", "--no-python-downloads", "--python"]);
    command.arg(&python.path).arg(&folder).env("UV_CACHE_DIR", &disk.cache);
    step("create an empty environment", command)?;

    let list = disk.building.join(format!("{id}.txt"));
    let _cleared_list = Cleared(&list);
    fs::write(&list, requirements(recipe))?;
    let mut command = uv::command(&uv);
    command.args(["pip", "install", "--no-python-downloads", "--only-binary", ":all:"]);
    command.args(["--link-mode", "hardlink", "--no-progress", "--python"]);
    command.arg(folder.join("bin/python")).arg("--requirements").arg(&list);
    command.env("UV_CACHE_DIR", &disk.cache);
    let overrides = disk.building.join(format!("{id}-overrides.txt"));
    let _cleared_overrides = Cleared(&overrides);
    if may_leave_out(recipe) {
        fs::write(&overrides, format!("{LEFT_OUT}; sys_platform == 'never'\n"))?;
        command.arg("--overrides").arg(&overrides);
    }
    if let Some(index) = &recipe.index {
        command.args(["--default-index", index]);
    }
    for index in &recipe.extra_indexes {
        // As pip does: the operator trusts all indexes equally.
        command.args(["--index", index, "--index-strategy", "unsafe-best-match"]);
    }
    step("install its packages", command)?;

    // Jobs cannot write there, and would each compile what they import again. This uses the host's interpreter without
    // `site`, because the environment's own would run code that packages register for its start.
    let mut command = uv::command(&python.path);
    // In one process, because the workers of several would wait forever if the server is killed.
    command.args(["-I", "-S", "-m", "compileall", "-q", "-q"]).arg(folder.join("lib"));
    let compiled = uv::run(command, &listener, until, within, is_stopping);
    // Some packages contain files that are not valid for this Python; whatever can be compiled is.
    compiled.map_err(|source| BuildError::Run { doing: "compile its packages", source })?;

    let mut notes: Vec<String> = note.into_iter().collect();
    if may_leave_out(recipe) && interpreter::has_package(&folder, WANTS_IT)? {
        notes.push(format!("{LEFT_OUT}, which {WANTS_IT} requires, has no wheel and is left out: nothing is mounted here"));
    }
    if chosen.is_elsewhere {
        interpreter::bring(&disk.pythons, &python.path, &folder)?;
    }
    disk.publish(id, &folder, &recipe.text(), &notes)?;
    listener.line("ready");
    Ok(())
}

/// Recipes come from the server's own store, but perhaps from a time when other indexes were allowed.
fn check(recipe: &Recipe, indexes: &[String]) -> Result<(), BuildError> {
    let named = recipe.index.iter().map(|url| format!("--index-url {url}"));
    let named =
        named.chain(recipe.extra_indexes.iter().map(|url| format!("--extra-index-url {url}")));
    let lines: Vec<String> =
        named.chain(recipe.requirements.iter().map(|line| line.to_string())).collect();
    let read = pip::parse_lines(lines.iter().map(String::as_str), indexes);
    read.map(|_| ()).map_err(BuildError::Recipe)
}

/// It mounts file systems, which no job may do, and has no wheel: if it were required, nothing of Azure's older SDK
/// could be installed.
const LEFT_OUT: &str = "fusepy";
const WANTS_IT: &str = "azureml_dataset_runtime";

/// A recipe that lists it explicitly needs it; and if every package has a hash, it must have one too.
fn may_leave_out(recipe: &Recipe) -> bool {
    let all = &recipe.requirements;
    all.iter().any(|line| line.starts_with("azureml-"))
        && !all.iter().any(|line| line.starts_with(LEFT_OUT) || line.contains(" --hash="))
}

/// Every conda environment contains these. Version 82 of setuptools dropped `pkg_resources`, which Azure's older SDK
/// imports.
const ALWAYS: [(&str, &str); 2] = [("pip", "pip"), ("setuptools", "setuptools<82")];

/// Returns the lines of the recipe, and what every environment contains.
fn requirements(recipe: &Recipe) -> String {
    let mut text: String = recipe.requirements.iter().map(|line| format!("{line}\n")).collect();
    let names = |line: &str, package: &str| {
        line.strip_prefix(package).is_some_and(|rest| {
            !rest.starts_with(|c: char| c.is_alphanumeric() || "-_.".contains(c))
        })
    };
    // If every package has a hash, uv refuses packages without one.
    if recipe.requirements.iter().any(|line| line.contains(" --hash=")) {
        return text;
    }
    for (package, line) in ALWAYS {
        if !recipe.requirements.iter().any(|line| names(line, package)) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// Returns uv's error, and whether it is about wheels.
fn complaint(lines: &[String]) -> (String, bool) {
    let starts = |line: &String| {
        let line = line.trim_start();
        line.starts_with("error") || line.starts_with('×') || line.starts_with("Caused")
    };
    let first = lines.iter().position(starts).unwrap_or(lines.len().saturating_sub(LINES_MAX));
    let kept: Vec<&str> = lines[first..].iter().take(LINES_MAX).map(|line| line.trim()).collect();
    let words: String = kept.join(" ").chars().take(MESSAGE_CHARS_MAX).collect();
    let small = words.to_lowercase();
    let is_wheel = NO_WHEEL.iter().any(|one| small.contains(one));
    (words, is_wheel)
}

/// Removes the folder unless it was published.
struct Cleared<'a>(&'a Path);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        if let Err(error) = disk::remove(self.0) {
            // The next start removes it.
            tracing::warn!(%error, "cannot remove what is left of a build");
        }
    }
}
