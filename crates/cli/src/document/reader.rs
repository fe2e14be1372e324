//! Reads the fields of one mapping of a YAML file. Every error names its place in the file.

use std::path::{Path, PathBuf};

use muster_core::nearest::suggestion;
use muster_wire::yaml::tree::{self, Entry, Node, Value};
use serde_json::{Map, Value as Json};

use super::{broken, text_of};
use crate::failure::{CliResult, Failure, brief, quoted};
use crate::nearest;

/// Azure's keys that have no meaning for the request.
const SCHEMA_KEY: &str = "$schema";

/// A file that was read: its name for messages, and the folder that its paths are relative to.
#[derive(Debug, Clone)]
pub struct Source {
    pub name: String,
    pub folder: PathBuf,
}

/// Reads a file of any kind. `-` is standard input.
pub fn read_tree(path: &Path) -> CliResult<(Source, Node)> {
    let name = path.display().to_string();
    let text = text_of(path).map_err(|why| {
        Failure::refused(format!("cannot read {}: {why}", quoted(&name)))
            .hint("--file takes the path of a YAML file, or - for standard input")
    })?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).to_owned();
    let source = Source { name, folder };
    let node = parse_tree(&source, &text)?;
    Ok((source, node))
}

pub fn parse_tree(source: &Source, text: &str) -> CliResult<Node> {
    let node = tree::parse(text).map_err(|why| broken(&source.name, &why))?;
    match node.value {
        Value::Map(_) => Ok(node),
        _ => {
            let name = quoted(&source.name);
            let text = format!("{name} contains no fields; write them as 'name: value'");
            Err(Failure::refused(text))
        }
    }
}

/// One mapping in which every field is known.
pub struct Reader<'r> {
    pub source: &'r Source,
    /// The path of the mapping, with a dot at its end; empty at the top.
    pub path: String,
    pub node: &'r Node,
    entries: &'r [Entry],
}

impl<'r> Reader<'r> {
    pub fn of(
        source: &'r Source,
        path: &str,
        node: &'r Node,
        known: &[&str],
    ) -> CliResult<Reader<'r>> {
        let Value::Map(entries) = &node.value else {
            let wanted = "names with values, as 'name: value'";
            return Err(wrong(source, node, path, wanted));
        };
        let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
        for entry in entries.iter().filter(|entry| entry.key != SCHEMA_KEY) {
            if !known.contains(&entry.key.as_str()) {
                return Err(unknown(source, entry, &format!("{prefix}{}", entry.key), known));
            }
        }
        Ok(Reader { source, path: prefix, node, entries })
    }

    pub fn name_of(&self, key: &str) -> String {
        format!("{}{key}", self.path)
    }

    /// A key without a value counts as not given.
    pub fn get(&self, key: &str) -> Option<&'r Node> {
        let found = self.entries.iter().find(|entry| entry.key == key)?;
        (!found.value.is_null()).then_some(&found.value)
    }

    pub fn wrong(&self, key: &str, node: &Node, wanted: &str) -> Failure {
        wrong(self.source, node, &self.name_of(key), wanted)
    }

    pub fn text(&self, key: &str) -> CliResult<Option<String>> {
        let Some(node) = self.get(key) else { return Ok(None) };
        match node.as_text() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(self.wrong(key, node, "a string; put it in quotes")),
        }
    }

    /// Also accepts a string that contains a number, as Azure's clients do.
    pub fn whole(&self, key: &str) -> CliResult<Option<u64>> {
        let Some(node) = self.get(key) else { return Ok(None) };
        let number = match &node.value {
            Value::Int(number) => u64::try_from(*number).ok(),
            Value::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.map(Some).ok_or_else(|| self.wrong(key, node, "a whole number, at least 0"))
    }

    pub fn boolean(&self, key: &str) -> CliResult<Option<bool>> {
        let Some(node) = self.get(key) else { return Ok(None) };
        match &node.value {
            Value::Bool(value) => Ok(Some(*value)),
            Value::Text(text) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Value::Text(text) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            _ => Err(self.wrong(key, node, "true or false")),
        }
    }

    /// One of these words; case and underscores make no difference.
    pub fn choice<T: Copy>(&self, key: &str, known: &[(&str, T)]) -> CliResult<Option<T>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let folded = |text: &str| text.replace(['_', '-'], "").to_ascii_lowercase();
        let found = known.iter().find(|(word, _)| folded(word) == folded(&text));
        found.map(|(_, value)| Some(*value)).ok_or_else(|| {
            let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
            let node = self.get(key).unwrap_or(self.node);
            let failure = self.wrong(key, node, &words.join(", "));
            match suggestion(&text, words.iter().copied()) {
                Some(suggestion) => failure.hint(suggestion),
                None => failure,
            }
        })
    }

    /// A mapping of names to strings, such as tags.
    pub fn texts(&self, key: &str) -> CliResult<Option<Map<String, Json>>> {
        let Some(node) = self.get(key) else { return Ok(None) };
        let Value::Map(entries) = &node.value else {
            return Err(self.wrong(key, node, "names with strings, as 'name: text'"));
        };
        let mut texts = Map::new();
        for entry in entries {
            let value = match &entry.value.value {
                Value::Text(text) => Json::String(text.clone()),
                Value::Null => continue,
                _ => {
                    let key = format!("{key}.{}", entry.key);
                    return Err(self.wrong(&key, &entry.value, "a string; put it in quotes"));
                }
            };
            texts.insert(entry.key.clone(), value);
        }
        Ok(Some(texts))
    }

    /// A nested mapping.
    pub fn inner(&self, key: &str, known: &[&str]) -> CliResult<Option<Reader<'r>>> {
        match self.get(key) {
            Some(node) => Reader::of(self.source, &self.name_of(key), node, known).map(Some),
            None => Ok(None),
        }
    }

    /// A mapping with user-defined names.
    pub fn named(&self, key: &str) -> CliResult<&'r [Entry]> {
        let Some(node) = self.get(key) else { return Ok(&[]) };
        match &node.value {
            Value::Map(entries) => Ok(entries),
            _ => Err(self.wrong(key, node, "names with values, as 'name: value'")),
        }
    }
}

/// `'f.yml', line 3, column 1: PATH is VALUE; give …`
pub fn wrong(source: &Source, node: &Node, path: &str, wanted: &str) -> Failure {
    let found = match &node.value {
        Value::Text(text) => quoted(text),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a mapping".to_owned(),
        _ => node.as_python().map_or_else(|| "nothing".to_owned(), |text| brief(&text)),
    };
    Failure::refused(format!("{}{path} is {found}; give {wanted}", place(source, node.place)))
}

/// `'f.yml', line 3, column 1: `, or nothing if the value is not from a file.
pub fn place(source: &Source, (line, column): (usize, usize)) -> String {
    if source.name.is_empty() {
        return String::new();
    }
    format!("{}, line {line}, column {column}: ", quoted(&source.name))
}

fn unknown(source: &Source, entry: &Entry, path: &str, known: &[&str]) -> Failure {
    let names: Vec<String> = known.iter().map(|name| (*name).to_owned()).collect();
    let at = place(source, entry.place);
    let failure = Failure::refused(format!("{at}unknown field {}", quoted(path)));
    failure.hint(match nearest::nearest(&entry.key, &names) {
        Some(nearest) => format!("did you mean {}?", quoted(nearest)),
        None => format!("the fields are {}", known.join(", ")),
    })
}

/// `--set PATH=VALUE`, as az applies it: a string, or JSON if it begins like an object or a list.
pub fn set(node: &mut Node, text: &str) -> CliResult {
    let Some((path, value)) = text.split_once('=').filter(|(path, _)| !path.is_empty()) else {
        return Err(Failure::refused(format!(
            "--set is {}; write it as PATH=VALUE, such as inputs.epochs=3",
            quoted(text)
        )));
    };
    let value = match value.starts_with(['{', '[']).then(|| tree::parse(value)) {
        Some(Ok(node)) => node,
        _ => Node::text(value),
    };
    let names: Vec<&str> = path.split('.').collect();
    set_at(node, &names, value)
        .map_err(|why| Failure::refused(format!("--set {}: {why}", quoted(path))))
}

const NAMES_MAX: usize = 32;

fn set_at(node: &mut Node, names: &[&str], value: Node) -> Result<(), String> {
    let (first, rest) = match names.split_first() {
        Some(split) if names.len() <= NAMES_MAX => split,
        _ => return Err(format!("a path has at most {NAMES_MAX} names")),
    };
    if node.is_null() {
        *node = Node { place: node.place, ..Node::map() };
    }
    match &mut node.value {
        Value::Map(entries) => {
            if !entries.iter().any(|entry| entry.key == *first) {
                let value = Node { place: node.place, ..Node::map() };
                let entry = Entry { key: (*first).to_owned(), place: node.place, value };
                entries.push(entry);
            }
            let entry = entries.iter_mut().find(|entry| entry.key == *first);
            let entry = entry.expect("it was just put there");
            match rest.is_empty() {
                true => {
                    entry.value = Node { place: entry.place, ..value };
                    Ok(())
                }
                false => set_at(&mut entry.value, rest, value),
            }
        }
        Value::List(items) => {
            let count = items.len();
            let index = first.trim_matches(['[', ']']).parse::<usize>().ok();
            let item = index.and_then(|index| items.get_mut(index));
            let item = item.ok_or_else(|| format!("the list has {count} items, counted from 0"))?;
            match rest.is_empty() {
                true => {
                    *item = Node { place: item.place, ..value };
                    Ok(())
                }
                false => set_at(item, rest, value),
            }
        }
        _ => Err(format!("{} does not contain fields", quoted(first))),
    }
}
