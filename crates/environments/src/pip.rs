//! Reads requirements as pip does, but strictly: names of packages with versions, and little else.
//!
//! Anything that would run a package's code during a build, or read files or URLs of the server's host, is refused by
//! name and with a remedy.

use std::fmt;

use muster_core::model::Recipe;

use crate::brief;
use crate::marker;
use crate::version::{Specifier, joined, specifiers};

pub const TEXT_BYTES_MAX: usize = 256 << 10;
pub const REQUIREMENTS_MAX: usize = 500;
/// The longest line, including its continuation lines. A package with a hash for each of its files takes several
/// kilobytes.
pub const LINE_BYTES_MAX: usize = 16 << 10;
const NAME_BYTES_MAX: usize = 128;
const EXTRAS_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PipError {
    #[error(
        "the requirements have {bytes} bytes, but at most {TEXT_BYTES_MAX} are allowed; list fewer packages, because dependencies are added automatically"
    )]
    TooLong { bytes: usize },
    #[error(
        "there are more than {REQUIREMENTS_MAX} requirements; list fewer, because dependencies are added automatically"
    )]
    TooMany,
    #[error("line {line} has {bytes} bytes, but at most {LINE_BYTES_MAX} are allowed; shorten it")]
    LongLine { line: usize, bytes: usize },
    #[error("line {line}, {text}: {why}")]
    Line { line: usize, text: String, why: Refusal },
}

/// What is wrong with a line, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "it is not a valid requirement ({0}); write NAME, NAME[EXTRA] or NAME>=1.2,<2, and a condition after a semicolon"
    )]
    Shape(&'static str),
    #[error(
        "packages are installed as wheels from an index, not from a URL; list the package and its version, and if only your own \
         index has it, ask the operator to add that index to package-indexes"
    )]
    Address,
    #[error(
        "packages are installed as wheels from an index, not from a repository; publish a wheel of it, or put its code into the \
         job's own code folder"
    )]
    Repository,
    #[error(
        "files of this host are not installed; put the code into the job's own code folder, or publish a wheel of it"
    )]
    Path,
    #[error("other files are not read; write their lines here instead")]
    Include,
    #[error(
        "this index is not allowed; leave the line out, or ask the operator to add the index to the server's setting \
         package-indexes (now: {allowed})"
    )]
    Index { allowed: String },
    #[error("there is one index already, {first}; write the others as --extra-index-url")]
    SecondIndex { first: String },
    #[error("{name} is not supported; {remedy}")]
    Option { name: String, remedy: &'static str },
}

/// Parses a requirements file. `indexes` are the package indexes that it may name.
pub fn parse(text: &str, indexes: &[String]) -> Result<Recipe, PipError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(PipError::TooLong { bytes: text.len() });
    }
    let mut found = Found::default();
    for (number, line) in logical_lines(text) {
        if line.len() > LINE_BYTES_MAX {
            return Err(PipError::LongLine { line: number, bytes: line.len() });
        }
        let refused = |why| PipError::Line { line: number, text: brief(&line), why };
        found.take(&line, indexes).map_err(refused)?;
        if found.requirements.len() > REQUIREMENTS_MAX {
            return Err(PipError::TooMany);
        }
    }
    let mut recipe = Recipe::new(None, found.requirements);
    found.extra_indexes.sort_unstable();
    found.extra_indexes.dedup();
    (recipe.index, recipe.extra_indexes) = (found.index, found.extra_indexes);
    Ok(recipe)
}

/// Parses separate requirements: those under `pip:` of a conda file, and those of tables.
pub fn parse_lines<'a>(
    lines: impl IntoIterator<Item = &'a str>,
    indexes: &[String],
) -> Result<Recipe, PipError> {
    let mut text = String::new();
    for line in lines {
        // A line is one requirement, so a line break in it must not start another.
        text.extend(line.chars().map(|c| if c == '\n' || c == '\r' { ' ' } else { c }));
        text.push('\n');
    }
    parse(&text, indexes)
}

/// Splits the text into numbered lines, without comments and with continuation lines joined.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let (number, mut whole) = open.take().unwrap_or((index + 1, String::new()));
        let uncommented = without_comment(line);
        // A comment ends with its line.
        let (part, goes_on) = match uncommented.strip_suffix('\\') {
            Some(part) if uncommented.len() == line.len() => (part, true),
            _ => (uncommented, false),
        };
        whole.push_str(part);
        match goes_on {
            true => open = Some((number, whole)),
            false => all.push((number, whole)),
        }
    }
    all.extend(open);
    let trimmed = all.into_iter().map(|(number, line)| (number, line.trim().to_owned()));
    trimmed.filter(|(_, line)| !line.is_empty()).collect()
}

fn without_comment(line: &str) -> &str {
    let mut before = ' ';
    for (place, c) in line.char_indices() {
        if c == '#' && before.is_whitespace() {
            return &line[..place];
        }
        before = c;
    }
    line
}

#[derive(Default)]
struct Found {
    requirements: Vec<Box<str>>,
    index: Option<Box<str>>,
    extra_indexes: Vec<Box<str>>,
}

impl Found {
    fn take(&mut self, line: &str, indexes: &[String]) -> Result<(), Refusal> {
        if line.starts_with('-') {
            return self.option(line, indexes);
        }
        self.requirements.push(Requirement::parse(line)?.to_string().into());
        Ok(())
    }

    fn option(&mut self, line: &str, indexes: &[String]) -> Result<(), Refusal> {
        let (name, value) = match line.find(['=', ' ', '\t']) {
            Some(end) => (&line[..end], line[end + 1..].trim().trim_start_matches('=').trim()),
            None => (line, ""),
        };
        match name {
            "-i" | "--index-url" | "--extra-index-url" => {
                let url = allowed(value, indexes)?;
                if name == "--extra-index-url" {
                    self.extra_indexes.push(url);
                } else if let Some(first) = self.index.as_ref().filter(|first| **first != url) {
                    return Err(Refusal::SecondIndex { first: brief(first) });
                } else {
                    self.index = Some(url);
                }
                Ok(())
            }
            // These are always in effect.
            "--only-binary" | "--prefer-binary" => Ok(()),
            "-r" | "--requirement" | "-c" | "--constraint" => Err(Refusal::Include),
            "-e" | "--editable" => Err(match value.contains("://") {
                true => Refusal::Repository,
                false => Refusal::Path,
            }),
            "-f" | "--find-links" => Err(Refusal::Address),
            "--no-binary" => Err(option(name, "only wheels are installed, nothing is built")),
            "--pre" => Err(option(name, "write the version that you need, as in NAME==2.0rc1")),
            "--trusted-host" => Err(option(name, "the operator sets the indexes: package-indexes")),
            "--require-hashes" => {
                Err(option(name, "leave it out: hashes that are given are checked"))
            }
            _ => Err(option(name, "leave it out; a line is a package with its versions")),
        }
    }
}

fn option(name: &str, remedy: &'static str) -> Refusal {
    Refusal::Option { name: brief(name), remedy }
}

fn allowed(url: &str, indexes: &[String]) -> Result<Box<str>, Refusal> {
    let same = |one: &&String| one.trim_end_matches('/') == url.trim_end_matches('/');
    match indexes.iter().find(same) {
        Some(index) => Ok(index.as_str().into()),
        None if indexes.is_empty() => Err(Refusal::Index { allowed: "none".to_owned() }),
        None => Err(Refusal::Index { allowed: indexes.join(", ") }),
    }
}

/// One requested package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    pub name: String,
    pub extras: Vec<String>,
    pub specifiers: Vec<Specifier>,
    pub marker: Option<String>,
    pub hashes: Vec<String>,
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if !self.extras.is_empty() {
            write!(f, "[{}]", self.extras.join(","))?;
        }
        f.write_str(&joined(&self.specifiers))?;
        if let Some(marker) = &self.marker {
            write!(f, " ; {marker}")?;
        }
        self.hashes.iter().try_for_each(|hash| write!(f, " --hash={hash}"))
    }
}

impl Requirement {
    pub fn new(name: &str, specifiers: Vec<Specifier>) -> Requirement {
        let name = normal(name);
        Requirement { name, extras: Vec::new(), specifiers, marker: None, hashes: Vec::new() }
    }

    pub fn parse(line: &str) -> Result<Requirement, Refusal> {
        let shape = Refusal::Shape;
        let (line, hashes) = match line.find(" --") {
            Some(end) => (line[..end].trim(), hashes(&line[end..])?),
            None => (line, Vec::new()),
        };
        refuse_places(line)?;
        let (line, condition) = match line.split_once(';') {
            Some((line, condition)) => (line.trim(), Some(condition)),
            None => (line, None),
        };
        let end = line.find(|c: char| !is_name_char(c)).unwrap_or(line.len());
        let (name, rest) = (&line[..end], line[end..].trim());
        if !is_name(name) {
            return Err(shape("it does not begin with the name of a package"));
        }
        let (extras, rest) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (extras, rest) =
                    rest.split_once(']').ok_or(shape("a bracket is not closed"))?;
                (extra_names(extras)?, rest.trim())
            }
            None => (Vec::new(), rest),
        };
        let rest = match rest.strip_prefix('(') {
            Some(inner) => inner.strip_suffix(')').ok_or(shape("a parenthesis is not closed"))?,
            None => rest,
        };
        let specifiers = match rest {
            "" => Vec::new(),
            rest => specifiers(rest).ok_or(shape("its versions are not valid"))?,
        };
        let marker = condition
            .map(|text| marker::canonical(text).ok_or(shape("its condition is not valid")));
        let marker = marker.transpose()?;
        Ok(Requirement { name: normal(name), extras, specifiers, marker, hashes })
    }
}

/// Refuses a line that names a location instead of a package.
fn refuse_places(line: &str) -> Result<(), Refusal> {
    const REPOSITORIES: [&str; 4] = ["git+", "hg+", "svn+", "bzr+"];
    // A slash in the condition does not matter.
    let line = line.split(';').next().unwrap_or(line).trim();
    let is_repository = |text: &str| REPOSITORIES.iter().any(|one| text.starts_with(one));
    if let Some((_, place)) = line.split_once('@') {
        let place = place.trim();
        return Err(if is_repository(place) { Refusal::Repository } else { Refusal::Address });
    }
    if is_repository(line) {
        return Err(Refusal::Repository);
    }
    if line.contains("://") {
        return Err(Refusal::Address);
    }
    let is_file = [".whl", ".zip", ".tar.gz", ".txt", ".py"].iter().any(|end| line.ends_with(end));
    let is_path = line.starts_with(['.', '/', '~']) || line.contains(['/', '\\']);
    if is_file || is_path { Err(Refusal::Path) } else { Ok(()) }
}

fn extra_names(text: &str) -> Result<Vec<String>, Refusal> {
    let mut extras = Vec::new();
    for extra in text.split(',').map(str::trim).filter(|extra| !extra.is_empty()) {
        if !is_name(extra) || extras.len() == EXTRAS_MAX {
            return Err(Refusal::Shape("its extras are not valid"));
        }
        extras.push(normal(extra));
    }
    extras.sort();
    extras.dedup();
    Ok(extras)
}

fn hashes(text: &str) -> Result<Vec<String>, Refusal> {
    let mut hashes = Vec::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let value = match word.split_once('=') {
            Some(("--hash", value)) => value,
            None if word == "--hash" => words.next().unwrap_or_default(),
            _ => {
                let name = word.split('=').next().unwrap_or(word);
                return Err(option(name, "the only option of a single package is --hash"));
            }
        };
        let (kind, digits) = value.split_once(':').unwrap_or_default();
        let length = match kind {
            "sha256" => 64,
            "sha384" => 96,
            "sha512" => 128,
            _ => {
                return Err(Refusal::Shape("a hash is sha256:, sha384: or sha512: and hex digits"));
            }
        };
        if digits.len() != length || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Refusal::Shape("a hash has too few or too many hex digits"));
        }
        hashes.push(value.to_ascii_lowercase());
    }
    hashes.sort();
    hashes.dedup();
    Ok(hashes)
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

pub fn is_name(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.chars().all(is_name_char)
        && text.starts_with(ends)
        && text.ends_with(ends)
}

/// The canonical spelling of a package's name: lower case, with a dash for every separator.
pub fn normal(name: &str) -> String {
    let mut normal = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if normal.ends_with('-') => {}
            '-' | '_' | '.' => normal.push('-'),
            c => normal.push(c.to_ascii_lowercase()),
        }
    }
    normal
}

#[cfg(test)]
mod tests;
