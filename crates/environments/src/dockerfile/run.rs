//! Translates `RUN`, command by command: installs are used, commands without effect become notes, and the rest is
//! refused.

use super::copies::{COPIES_MAX, Copy, absolute};
use super::lines::Instruction;
use super::stage::{Build, Stage, known};
use super::words::{Token, Word};
use super::{COMMANDS_MAX, Refusal};
use crate::brief;

/// How deep shells may run shells.
pub const DEPTH_MAX: usize = 4;

/// Programs that change nothing for Python here, and why. Without a reason there is no note.
const WITHOUT_EFFECT: [(&[&str], &str); 5] = [
    (
        &[
            "apt-get",
            "apt",
            "apk",
            "yum",
            "dnf",
            "microdnf",
            "zypper",
            "rpm",
            "dpkg",
            "apt-key",
            "add-apt-repository",
            "update-ca-certificates",
            "update-alternatives",
            "ldconfig",
            "locale-gen",
            "dpkg-reconfigure",
            "update-locale",
            "debconf-set-selections",
        ],
        "the host's packages are used",
    ),
    (
        &[
            "rm", "rmdir", "mkdir", "chmod", "chown", "chgrp", "ln", "cp", "mv", "touch", "tee",
            "install",
        ],
        "no image is built",
    ),
    (
        &["useradd", "adduser", "groupadd", "addgroup", "usermod", "groupmod", "passwd", "chsh"],
        "jobs run as the user of their node",
    ),
    (&["source", ".", "virtualenv", "activate"], "jobs use the environment that is built here"),
    (
        &[
            "echo",
            "printf",
            "true",
            ":",
            "set",
            "test",
            "[",
            "exit",
            "sleep",
            "which",
            "whoami",
            "id",
            "pwd",
            "ls",
            "date",
            "uname",
            "umask",
            "ulimit",
            "export",
            "hash",
            "nvidia-smi",
        ],
        "",
    ),
];

/// The context in which a command runs.
#[derive(Clone)]
pub struct Here {
    pub folder: String,
    pub depth: usize,
}

impl<'a> Build<'a> {
    pub fn run(&mut self, stage: &mut Stage<'a>, one: &Instruction) -> Result<(), Refusal> {
        let mut rest = one.rest.as_str();
        while rest.starts_with("--") {
            let (flag, behind) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            if let Some(mount) = flag.strip_prefix("--mount=") {
                self.copied += bind(stage, mount)?;
                if self.copied > COPIES_MAX {
                    return Err(Refusal::Copies);
                }
            }
            rest = behind.trim_start();
        }
        let mut here = Here { folder: stage.folder.clone(), depth: 0 };
        if let Ok(words) = serde_json::from_str::<Vec<String>>(rest) {
            let words = words.into_iter().map(|text| Word { text, unknown: None }).collect();
            return self.command(stage, &mut here, words);
        }
        self.shell(stage, &mut here, rest)
    }

    pub fn shell(
        &mut self,
        stage: &mut Stage<'a>,
        here: &mut Here,
        text: &str,
    ) -> Result<(), Refusal> {
        if here.depth > DEPTH_MAX {
            return Err(Refusal::Depth);
        }
        let mut words = Vec::new();
        let mut is_otherwise = false;
        for token in stage.scope.shell(text)?.into_iter().chain([Token::Next]) {
            let (Token::Next | Token::Or | Token::Pipe | Token::Bracket) = token else {
                if let Token::Word(word) = token {
                    words.push(word);
                }
                continue;
            };
            if token == Token::Bracket {
                return Err(Refusal::Command { command: "a command in brackets".to_owned() });
            }
            let before = (self.installs.len(), self.python.clone());
            self.command(stage, here, std::mem::take(&mut words))?;
            // Which of the two would be installed depends on how the first one ends.
            if is_otherwise && before != (self.installs.len(), self.python.clone()) {
                return Err(Refusal::Command { command: "an install after ||".to_owned() });
            }
            is_otherwise = token == Token::Or;
        }
        Ok(())
    }

    pub fn command(
        &mut self,
        stage: &mut Stage<'a>,
        here: &mut Here,
        words: Vec<Word>,
    ) -> Result<(), Refusal> {
        self.commands += 1;
        if self.commands > COMMANDS_MAX {
            return Err(Refusal::Commands);
        }
        let is_before = |word: &Word| {
            let is_name = |name: &str| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            };
            let is_assignment = word.text.split_once('=').is_some_and(|(name, _)| is_name(name));
            is_assignment || ["sudo", "exec", "command", "time", "env"].contains(&&*word.text)
        };
        let start = words.iter().take_while(|word| is_before(word)).count();
        let Some((program, arguments)) = words[start..].split_first() else { return Ok(()) };
        let text = |words: &[Word]| {
            let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
            texts.join(" ")
        };
        let whole = text(&words[start..]);
        let refused = || Refusal::Command { command: brief(&whole) };
        let program = known(program.clone())?;
        let name = program.rsplit('/').next().unwrap_or(&program);
        let first: Vec<&str> = arguments.iter().take(2).map(|word| word.text.as_str()).collect();
        match (name, &first[..]) {
            ("cd" | "pushd", [folder, ..]) => here.folder = absolute(&here.folder, folder),
            (name, _) if is_version_of(name, "pip") => self.pip(stage, here, arguments, &whole)?,
            (name, ["-m", "pip"]) if is_version_of(name, "python") => {
                self.pip(stage, here, &arguments[2..], &whole)?;
            }
            ("uv", ["pip", ..]) => self.pip(stage, here, &arguments[1..], &whole)?,
            ("uv", ["venv", ..]) => self.not_done(&whole, "one environment is built in any case"),
            (name, ["-m", "venv" | "virtualenv"]) if is_version_of(name, "python") => {
                self.not_done(&whole, "one environment is built in any case");
            }
            (name, ["-V" | "--version"]) if is_version_of(name, "python") => {}
            ("conda" | "mamba" | "micromamba", _) => self.conda(stage, here, arguments, &whole)?,
            ("bash" | "sh" | "dash", _) => {
                let is_flag = |word: &Word| word.text.starts_with('-') && word.text.contains('c');
                let flag = arguments.iter().position(is_flag).ok_or_else(refused)?;
                let script = known(arguments.get(flag + 1).ok_or_else(refused)?.clone())?;
                let mut inner = Here { folder: here.folder.clone(), depth: here.depth + 1 };
                self.shell(stage, &mut inner, &script)?;
            }
            (name, _) => {
                let is_it = |(names, _): &&(&[&str], &str)| names.contains(&name);
                let (_, why) = WITHOUT_EFFECT.iter().find(is_it).ok_or_else(refused)?;
                if !why.is_empty() {
                    self.not_done(&whole, why);
                }
            }
        }
        Ok(())
    }
}

/// Matches a program with or without a version: `pip`, `pip3`, `pip3.11`.
fn is_version_of(name: &str, program: &str) -> bool {
    let version = name.strip_prefix(program);
    version.is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// Handles `type=bind,source=requirements.txt,target=/tmp/requirements.txt` as a copy. Returns how many there were.
fn bind(stage: &mut Stage<'_>, mount: &str) -> Result<usize, Refusal> {
    let value = |names: &[&str]| {
        let pairs = mount.split(',').filter_map(|part| part.split_once('='));
        pairs.into_iter().find(|(name, _)| names.contains(name)).map(|(_, value)| value.to_owned())
    };
    let is_bind = value(&["type"]).is_none_or(|kind| kind == "bind");
    let target = value(&["target", "dst", "destination"]);
    if let (true, None, Some(target)) = (is_bind, value(&["from"]), target) {
        let source = value(&["source", "src"]).unwrap_or_else(|| ".".to_owned());
        let mut copy = Copy::new(vec![source, target], &stage.folder, mount.to_owned())?;
        // It exists for this one command only.
        copy.is_used = true;
        stage.copies.push(copy);
        return Ok(1);
    }
    Ok(0)
}
