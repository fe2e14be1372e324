//! Documents that users write: YAML files with the fields of Azure's schemas, and changes of single fields with
//! `--set`, `--add` and `--remove`.
//!
//! Unknown fields are refused, with the most similar known name: a field that is silently ignored would mislead its
//! author.

mod edit;
pub mod kinds;
pub mod reader;

pub use edit::Edits;
use kinds::FileKind;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use muster_wire::yaml::{BadYaml, tree};
use serde_json::{Map, Value};

use crate::failure::{CliResult, Failure, brief, quoted};
use crate::nearest;

/// A cluster with all its tags has a few kilobytes.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// Editors use the address of the schema; the server does not need it.
const SCHEMA_KEY: &str = "$schema";

pub type Fields = Map<String, Value>;

/// What a field may contain.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Text,
    /// A string, or a number that is meant as one, such as a version.
    Word,
    Whole,
    Bool,
    /// A mapping of names to strings, such as tags.
    Texts,
    Object(&'static [Field]),
    /// A list of objects.
    List(&'static [Field]),
    /// A mapping of user-defined names to objects.
    Named(&'static [Field]),
    /// Any value; it is checked elsewhere.
    Any,
    /// A field that is displayed but never sent. It is accepted, so that displayed documents can be sent back.
    Shown,
    /// A field of Azure that Muster does not support: the reason and an alternative.
    Refused(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
}

pub const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind }
}

/// The origin of a document, for messages.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    pub name: &'a str,
    /// The text of the file, for line numbers.
    pub text: &'a str,
}

/// Reads a YAML file and checks it against its fields. `-` is standard input.
pub fn read(path: &Path, kind: FileKind, fields: &'static [Field]) -> CliResult<Fields> {
    read_by(path, kind, |_| Ok(fields))
}

/// The same for a file whose content determines its fields.
pub fn read_by(
    path: &Path,
    kind: FileKind,
    fields: impl FnOnce(&Fields) -> CliResult<&'static [Field]>,
) -> CliResult<Fields> {
    let name = path.display().to_string();
    let text = text_of(path).map_err(|why| {
        Failure::refused(format!("cannot read {}: {why}", quoted(&name)))
            .hint("--file takes the path of a YAML file, or - for standard input")
    })?;
    let origin = Origin { name: &name, text: &text };
    let (document, shown) = parse_by(origin, |document| {
        kind.check(document, path)?;
        fields(document)
    })?;
    if !shown.is_empty() {
        crate::output::say(&format!("note: {} cannot be set and is ignored", shown.join(", ")));
    }
    Ok(document)
}

/// A document, and the names of its fields that were ignored.
pub fn parse(
    origin: Origin<'_>,
    fields: &'static [Field],
) -> CliResult<(Fields, Vec<&'static str>)> {
    parse_by(origin, |_| Ok(fields))
}

fn parse_by(
    origin: Origin<'_>,
    fields: impl FnOnce(&Fields) -> CliResult<&'static [Field]>,
) -> CliResult<(Fields, Vec<&'static str>)> {
    let node = tree::parse(origin.text).map_err(|why| broken(origin.name, &why))?;
    let Ok(Value::Object(mut document)) = serde_json::to_value(&node) else {
        let text =
            format!("{} contains no fields; write them as 'name: value'", quoted(origin.name));
        return Err(Failure::refused(text));
    };
    let fields = fields(&document)?;
    if !fields.iter().any(|field| field.name == SCHEMA_KEY) {
        document.remove(SCHEMA_KEY);
    }
    check(&document, fields, "", Some(origin))?;
    let shown: Vec<&str> = fields
        .iter()
        .filter(|field| matches!(field.kind, Kind::Shown) && document.contains_key(field.name))
        .map(|field| field.name)
        .collect();
    document.retain(|name, _| !shown.contains(&name.as_str()));
    Ok((document, shown))
}

fn text_of(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let mut read: Box<dyn std::io::Read> = match path.as_os_str() == "-" {
        true => Box::new(std::io::stdin()),
        false => Box::new(File::open(path)?),
    };
    read.by_ref().take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let text = format!("it is larger than {FILE_BYTES_MAX} bytes");
        return Err(std::io::Error::other(text));
    }
    Ok(text)
}

fn broken(name: &str, why: &BadYaml) -> Failure {
    let (name, (line, column), words) = (quoted(name), why.place, brief(&why.words));
    Failure::refused(format!("{name}, line {line}, column {column} is not valid YAML: {words}"))
}

/// Refuses unknown fields and values of the wrong kind. `path` is the path of the document, with a dot at its end.
pub fn check(
    document: &Fields,
    fields: &'static [Field],
    path: &str,
    origin: Option<Origin<'_>>,
) -> CliResult {
    for (name, value) in document {
        let whole = format!("{path}{name}");
        let Some(known) = fields.iter().find(|field| field.name == name) else {
            return Err(unknown(name, &whole, fields, origin));
        };
        check_value(value, known.kind, &whole, origin)?;
    }
    Ok(())
}

fn check_value(value: &Value, kind: Kind, path: &str, origin: Option<Origin<'_>>) -> CliResult {
    let name = path.rsplit('.').next().unwrap_or(path);
    let wrong = |wanted: &str| {
        let found = match value {
            Value::String(text) => quoted(text),
            other => brief(&other.to_string()),
        };
        Err(Failure::refused(format!("{}{path} is {found}; give {wanted}", place(origin, name))))
    };
    match (kind, value) {
        (Kind::Refused(why), _) => {
            Err(Failure::refused(format!("{}{path} cannot be set: {why}", place(origin, name))))
        }
        // A key without a value counts as not given.
        (_, Value::Null) | (Kind::Shown, _) => Ok(()),
        (Kind::Any, _)
        | (Kind::Text, Value::String(_))
        | (Kind::Word, Value::String(_) | Value::Number(_))
        | (Kind::Bool, Value::Bool(_)) => Ok(()),
        (Kind::Whole, Value::Number(number)) if number.is_u64() => Ok(()),
        (Kind::Texts, Value::Object(texts)) => match texts.values().all(Value::is_string) {
            true => Ok(()),
            false => wrong("strings: put numbers and yes or no in quotes"),
        },
        (Kind::Object(fields), Value::Object(inner)) => {
            check(inner, fields, &format!("{path}."), origin)
        }
        (Kind::List(fields), Value::Array(items)) => {
            items.iter().enumerate().try_for_each(|(index, item)| match item {
                Value::Object(inner) => check(inner, fields, &format!("{path}[{index}]."), origin),
                _ => wrong("a list of fields with values"),
            })
        }
        (Kind::Named(fields), Value::Object(named)) => {
            named.iter().try_for_each(|(name, inner)| match inner {
                Value::Object(inner) => check(inner, fields, &format!("{path}.{name}."), origin),
                _ => wrong("fields with values under each name"),
            })
        }
        (Kind::Text | Kind::Word, _) => wrong("a string; put it in quotes"),
        (Kind::Whole, _) => wrong("a whole number, at least 0"),
        (Kind::Bool, _) => wrong("true or false"),
        (Kind::Texts | Kind::Object(_) | Kind::Named(_), _) => {
            wrong("names with values, as 'name: value'")
        }
        (Kind::List(_), _) => wrong("a list"),
    }
}

/// A string, or a number that is meant as one.
pub fn text(document: &Fields, name: &str) -> Option<String> {
    match document.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A mapping of names to strings; other values are left out.
pub fn texts(document: &Fields, name: &str) -> std::collections::BTreeMap<String, String> {
    let Some(Value::Object(texts)) = document.get(name) else {
        return std::collections::BTreeMap::new();
    };
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    texts.iter().filter_map(text).collect()
}

fn unknown(name: &str, path: &str, fields: &[Field], origin: Option<Origin<'_>>) -> Failure {
    let names: Vec<String> = fields.iter().map(|field| field.name.to_owned()).collect();
    let failure =
        Failure::refused(format!("{}unknown field {}", place(origin, name), quoted(path)));
    failure.hint(match nearest::nearest(name, &names) {
        Some(nearest) => format!("did you mean {}?", quoted(nearest)),
        None => {
            let settable =
                fields.iter().filter(|field| !matches!(field.kind, Kind::Shown | Kind::Refused(_)));
            let names: Vec<&str> = settable.map(|field| field.name).collect();
            format!("the fields are {}", names.join(", "))
        }
    })
}

/// `'f.yml', line 3, column 1: `, if the name is in a file.
fn place(origin: Option<Origin<'_>>, name: &str) -> String {
    let Some(origin) = origin else { return String::new() };
    let at = origin.text.lines().enumerate().find_map(|(index, line)| {
        let start = line.trim_start_matches([' ', '-']);
        let after = start.trim_start_matches(['"', '\'']).strip_prefix(name)?;
        let after = after.trim_start_matches(['"', '\'']).trim_start();
        after.starts_with(':').then(|| (index + 1, line.len() - start.len() + 1))
    });
    match at {
        Some((line, column)) => {
            format!("{}, line {line}, column {column}: ", quoted(origin.name))
        }
        None => format!("{}: ", quoted(origin.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INNER: [Field; 1] = [field("id", Kind::Text)];
    const FIELDS: [Field; 8] = [
        field("name", Kind::Text),
        field("max_instances", Kind::Whole),
        field("is_open", Kind::Bool),
        field("tags", Kind::Texts),
        field("settings", Kind::Object(&INNER)),
        field("items", Kind::List(&INNER)),
        field("state", Kind::Shown),
        field("disk", Kind::Refused("nodes have none")),
    ];

    fn read_text(text: &str) -> CliResult<Fields> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.yml");
        std::fs::write(&path, text).unwrap();
        read(&path, FileKind::Compute, &FIELDS)
    }

    /// The message about it, without the folder's name.
    fn refusal(text: &str) -> String {
        let failure = read_text(text).expect_err(text);
        let said = failure.to_string();
        said.split_once("f.yml'").map_or(said.clone(), |(_, rest)| rest.to_owned())
    }

    #[test]
    fn a_good_file_is_read() {
        let text = "$schema: https://x/y.json\nname: cpu\nmax_instances: 3\nis_open: true\n\
                    tags: {a: b}\nsettings:\n  id: x\nitems:\n- id: z\nstate: Succeeded\n";
        let document = read_text(text).unwrap();
        assert_eq!(document.len(), 6, "{document:?}");
        assert_eq!(document["max_instances"], 3);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, wanted) in [
            ("name: x\nmax_instance: 3", ", line 2, column 1: unknown field 'max_instance'"),
            ("settings:\n  di: 3", ", line 2, column 3: unknown field 'settings.di'"),
            ("items:\n- di: 3", ", line 2, column 3: unknown field 'items[0].di'"),
            ("max_instances: many", ", line 1, column 1: max_instances is 'many'; give a whole"),
            ("max_instances: -1", ", line 1, column 1: max_instances is -1; give a whole"),
            ("name: 3", ", line 1, column 1: name is 3; give a string"),
            ("is_open: 1", ", line 1, column 1: is_open is 1; give true or false"),
            ("tags: {a: 3}", ", line 1, column 1: tags is {\"a\":3}; give strings"),
            ("disk: 3", ", line 1, column 1: disk cannot be set: nodes have none"),
            ("- a", " contains no fields"),
            ("", " contains no fields"),
        ] {
            let said = refusal(text);
            assert!(said.starts_with(wanted), "{text:?}: {said}");
        }
        for text in ["name: [", "name: x\n bad: y", "name: x\nname: y"] {
            let said = refusal(text);
            assert!(
                said.starts_with(", line ") && said.contains(" is not valid YAML: "),
                "{text:?}: {said}"
            );
        }
        let hinted = read_text("max_instance: 3").expect_err("misspelt");
        assert_eq!(hinted.hinted(), Some("did you mean 'max_instances'?"));
        assert!(read(Path::new("/nowhere/f.yml"), FileKind::Compute, &FIELDS).is_err());
    }
}
