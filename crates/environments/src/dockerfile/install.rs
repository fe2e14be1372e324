//! Translates the install commands of pip and conda.

use muster_core::model::Recipe;

use super::copies::absolute;
use super::run::Here;
use super::stage::{Build, Stage, known};
use super::words::Word;
use super::{FILES_MAX, Refusal};
use crate::brief;
use crate::conda::{self, NO_CHANNELS};
use crate::pip::{self, PipError};

/// Flags that change how pip installs, but not what.
const PIP_FLAGS: &[&str] = &[
    "--no-cache-dir",
    "--no-cache",
    "--upgrade",
    "--quiet",
    "--verbose",
    "--user",
    "--system",
    "--no-warn-script-location",
    "--no-warn-conflicts",
    "--disable-pip-version-check",
    "--no-input",
    "--ignore-installed",
    "--force-reinstall",
    "--reinstall",
    "--prefer-binary",
    "--compile",
    "--no-compile",
    "--no-color",
    "--break-system-packages",
    "--no-build-isolation",
    "--use-pep517",
    "--require-hashes",
    "--no-python-version-warning",
    "--compile-bytecode",
    "--no-progress",
    "--isolated",
];
/// The same for options with a value.
const PIP_VALUES: &[&str] = &[
    "--cache-dir",
    "--timeout",
    "--default-timeout",
    "--retries",
    "--progress-bar",
    "--root-user-action",
    "--upgrade-strategy",
    "--use-feature",
    "--use-deprecated",
    "--prefix",
    "--root",
    "--target",
    "-t",
    "--log",
    "--python",
    "-p",
    "--src",
    "--only-binary",
    "--exists-action",
    "--link-mode",
    "--cert",
];
/// Options that a requirements file may contain as well, so they are accepted or refused in the same way.
const PIP_LINES: &[&str] = &[
    "-i",
    "--index-url",
    "--extra-index-url",
    "-f",
    "--find-links",
    "-e",
    "--editable",
    "-c",
    "--constraint",
    "--trusted-host",
    "--no-binary",
];
const CONDA_FLAGS: &[&str] = &[
    "-y",
    "--yes",
    "-q",
    "--quiet",
    "-v",
    "--verbose",
    "--override-channels",
    "--freeze-installed",
    "--no-update-deps",
    "--update-deps",
    "--strict-channel-priority",
    "--force-reinstall",
    "--copy",
    "--all",
    "--prune",
    "--force",
    "-qy",
    "-yq",
    "--no-default-packages",
    "--no-channel-priority",
    "--json",
];
const CONDA_VALUES: &[&str] =
    &["-n", "--name", "-p", "--prefix", "--solver", "--experimental-solver", "-r", "--root-prefix"];

impl<'a> Build<'a> {
    pub fn pip(
        &mut self,
        stage: &mut Stage<'a>,
        here: &Here,
        arguments: &[Word],
        whole: &str,
    ) -> Result<(), Refusal> {
        let is_option = |word: &Word| word.text.starts_with('-');
        let at = arguments.iter().position(|word| !is_option(word));
        let Some(at) = at else { return Ok(()) };
        match arguments[at].text.as_str() {
            "install" => self.pip_install(stage, here, &arguments[at + 1..], whole),
            "cache" | "list" | "freeze" | "check" | "show" | "debug" | "help" => {
                self.not_done(whole, "no image is built");
                Ok(())
            }
            "uninstall" => {
                self.not_done(
                    whole,
                    "only the listed packages and their dependencies are installed",
                );
                Ok(())
            }
            _ => Err(Refusal::Command { command: brief(whole) }),
        }
    }

    fn pip_install(
        &mut self,
        stage: &mut Stage<'a>,
        here: &Here,
        words: &[Word],
        whole: &str,
    ) -> Result<(), Refusal> {
        let mut lines = Vec::new();
        let mut files = Vec::new();
        let mut left = words.iter().cloned().map(known);
        while let Some(word) = left.next().transpose()? {
            let (name, given) = option(&word);
            let mut value = || match given {
                Some(value) => Ok(value.to_owned()),
                None => left.next().transpose().map(Option::unwrap_or_default),
            };
            match name {
                None if pip_itself(&word) => self.not_done(whole, "pip is not needed to build"),
                None => lines.push(word),
                Some("-r" | "--requirement" | "--requirements") => files.push(value()?),
                Some(name) if PIP_VALUES.contains(&name) => drop(value()?),
                Some(name) if PIP_LINES.contains(&name) => {
                    lines.push(format!("{name} {}", value()?))
                }
                Some("--pre") => lines.push(word),
                Some("--no-deps") => self.not_done(whole, "dependencies are always installed"),
                Some(name) if PIP_FLAGS.contains(&name) || is_short(name) => {}
                Some(name) => {
                    return Err(Refusal::Option { program: "pip", option: brief(name) });
                }
            }
        }
        let read = pip::parse_lines(lines.iter().map(String::as_str), self.with.indexes);
        let mut install = read.map_err(|why| match why {
            PipError::Line { text, why, .. } => Refusal::Requirement { text, why },
            other => Refusal::Pip(other),
        })?;
        for file in files {
            let (path, text) = self.file(stage, here, &file, pip::TEXT_BYTES_MAX)?;
            let read = pip::parse(&text, self.with.indexes);
            let read = read.map_err(|source| Refusal::PipFile { path: brief(&path), source })?;
            install.requirements.extend(read.requirements);
            install.index = install.index.or(read.index);
            install.extra_indexes.extend(read.extra_indexes);
        }
        self.install(install)
    }

    fn install(&mut self, install: Recipe) -> Result<(), Refusal> {
        if let Some(python) = &install.python {
            self.python = Some(python.clone());
        }
        if !install.requirements.is_empty() {
            self.installs.push(install);
        }
        let all: usize = self.installs.iter().map(|install| install.requirements.len()).sum();
        match all > pip::REQUIREMENTS_MAX {
            true => Err(Refusal::Pip(PipError::TooMany)),
            false => Ok(()),
        }
    }

    pub fn conda(
        &mut self,
        stage: &mut Stage<'a>,
        here: &mut Here,
        arguments: &[Word],
        whole: &str,
    ) -> Result<(), Refusal> {
        let texts: Vec<&str> = arguments.iter().take(2).map(|word| word.text.as_str()).collect();
        match texts[..] {
            ["env", "create" | "update"] => self.conda_install(stage, here, &arguments[2..], true),
            ["install" | "create" | "update" | "upgrade", ..] => {
                self.conda_install(stage, here, &arguments[1..], false)
            }
            ["run", ..] => {
                if here.depth > super::run::DEPTH_MAX {
                    return Err(Refusal::Depth);
                }
                let mut start = 1;
                while let Some(word) = arguments.get(start).filter(|it| it.text.starts_with('-')) {
                    start += if CONDA_VALUES.contains(&&*word.text) { 2 } else { 1 };
                }
                let mut inner = Here { folder: here.folder.clone(), depth: here.depth + 1 };
                self.command(stage, &mut inner, arguments.get(start..).unwrap_or_default().to_vec())
            }
            [
                "clean" | "init" | "config" | "activate" | "deactivate" | "info" | "list" | "shell"
                | "env",
                ..,
            ]
            | ["--version" | "-V"] => {
                self.not_done(whole, "there is no conda here");
                Ok(())
            }
            _ => Err(Refusal::Command { command: brief(whole) }),
        }
    }

    /// `is_whole` means a file with a whole environment, and nothing else.
    fn conda_install(
        &mut self,
        stage: &mut Stage<'a>,
        here: &Here,
        words: &[Word],
        is_whole: bool,
    ) -> Result<(), Refusal> {
        let (mut specs, mut files) = (Vec::new(), Vec::new());
        let mut left = words.iter().cloned().map(known);
        while let Some(word) = left.next().transpose()? {
            let (name, given) = option(&word);
            let mut value = || match given {
                Some(value) => Ok(value.to_owned()),
                None => left.next().transpose().map(Option::unwrap_or_default),
            };
            match name {
                // Conda itself is not used here.
                None if ["conda", "mamba"].contains(&word.as_str()) || is_whole => {}
                None => specs.push(word),
                Some("-f" | "--file") => files.push(value()?),
                Some("-c" | "--channel") => {
                    value()?;
                    self.notes.add(NO_CHANNELS);
                }
                Some(name) if CONDA_VALUES.contains(&name) => drop(value()?),
                Some(name) if CONDA_FLAGS.contains(&name) => {}
                Some(name) => {
                    return Err(Refusal::Option { program: "conda", option: brief(name) });
                }
            }
        }
        if is_whole && files.is_empty() {
            files.push("environment.yml".to_owned());
        }
        for file in files {
            let (path, text) = self.file(stage, here, &file, conda::TEXT_BYTES_MAX)?;
            let is_yaml = is_whole || path.ends_with(".yml") || path.ends_with(".yaml");
            let read = match is_yaml {
                true => conda::parse(&text, self.with.names, self.with.indexes),
                false => {
                    let lines = text.lines().map(str::trim);
                    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
                    conda::packages(lines, self.with.names)
                }
            };
            let read = read.map_err(|source| Refusal::CondaFile { path: brief(&path), source })?;
            self.take(read)?;
        }
        let read = conda::packages(specs.iter().map(String::as_str), self.with.names);
        self.take(read.map_err(Refusal::Conda)?)
    }

    fn take(&mut self, read: conda::Read) -> Result<(), Refusal> {
        read.notes.iter().for_each(|note| self.notes.add(note));
        if !read.variables.is_empty() {
            self.notes.add(conda::NO_VARIABLES);
        }
        self.install(read.recipe)
    }

    /// Finds a file of the image that came from the context. Returns its name there, and its text.
    fn file(
        &mut self,
        stage: &mut Stage<'a>,
        here: &Here,
        wanted: &str,
        bytes_max: usize,
    ) -> Result<(String, String), Refusal> {
        if wanted.is_empty() {
            return Err(Refusal::NoFile);
        }
        if wanted.contains("://") {
            return Err(Refusal::Address { text: brief(wanted) });
        }
        self.files += 1;
        if self.files > FILES_MAX {
            return Err(Refusal::Files);
        }
        let place = absolute(&here.folder, wanted);
        // The last copy replaces earlier ones.
        for copy in stage.copies.iter_mut().rev() {
            for path in copy.candidates(&place) {
                let content = self.with.files.read(&path, bytes_max).map_err(Refusal::Context)?;
                let Some(content) = content else { continue };
                copy.is_used = true;
                let not_text = |_| Refusal::NotText { path: brief(&path) };
                let text = String::from_utf8(content).map_err(not_text)?;
                return Ok((path, text));
            }
        }
        Err(Refusal::NotCopied { path: brief(wanted) })
    }
}

/// Splits `--name=value`, `--name`, `-n` or `-rfile` into the name and an attached value.
fn option(word: &str) -> (Option<&str>, Option<&str>) {
    if !word.starts_with('-') {
        return (None, None);
    }
    if let Some((name, value)) = word.split_once('=').filter(|_| word.starts_with("--")) {
        return (Some(name), Some(value));
    }
    match word.strip_prefix("-r").filter(|file| !word.starts_with("--") && !file.is_empty()) {
        Some(file) => (Some("-r"), Some(file)),
        None => (Some(word), None),
    }
}

/// Short flags such as `-qq` and `-Uq`.
fn is_short(name: &str) -> bool {
    let letters = name.strip_prefix('-').unwrap_or_default();
    !letters.is_empty() && letters.chars().all(|c| "qvUI".contains(c))
}

/// `pip` itself, with or without a version: `pip`, `pip==23.1`.
fn pip_itself(word: &str) -> bool {
    word.strip_prefix("pip")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['=', '<', '>', '~', '!']))
}
