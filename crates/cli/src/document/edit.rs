//! Changes of single fields, with the flags of az's generic update.

use serde_json::{Map, Value};

use super::{Field, Fields, Kind, check};
use crate::failure::{CliResult, Failure, quoted};

/// The most names in a path; far more than any field needs.
const NAMES_MAX: usize = 32;

#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Single fields")]
pub struct Edits {
    /// Set fields, as path=value; a path has dots between names, such as tags.team
    #[arg(long, value_name = "PATH=VALUE", num_args = 1..)]
    set: Vec<String>,
    /// Add an item to a list: the path of the list, then the item's fields as key=value or as a JSON object
    #[arg(long, value_names = ["PATH", "KEY=VALUE"], num_args = 1.., action = clap::ArgAction::Append)]
    add: Vec<String>,
    /// Remove a field, or an item of a list by its index, from 0
    #[arg(long, value_names = ["PATH", "INDEX"], num_args = 1..=2)]
    remove: Vec<String>,
    /// Treat the values of --set as strings, even if they look like numbers
    #[arg(long, requires = "set")]
    force_string: bool,
}

impl Edits {
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }

    /// Whether --set changes this field or a part of it.
    pub fn sets(&self, field: &str) -> bool {
        let root = |text: &String| {
            let path = text.split('=').next().unwrap_or_default();
            path.split('.').next() == Some(field)
        };
        self.set.iter().any(root)
    }

    pub fn apply(&self, document: &mut Fields, fields: &'static [Field]) -> CliResult {
        for text in &self.set {
            let Some((path, value)) = text.split_once('=').filter(|(path, _)| !path.is_empty())
            else {
                return Err(malformed("--set", text, "PATH=VALUE, such as tags.team=blue"));
            };
            let is_text =
                self.force_string || matches!(kind_at(fields, path), Some(Kind::Text | Kind::Word));
            set(document, path, read(value, is_text))?;
        }
        if let Some((first, rest)) = self.add.split_first() {
            match (first.split_once('='), rest) {
                (Some((path, value)), []) => add(document, path, read(value, false))?,
                (None, rest) if !rest.is_empty() => add(document, first, item(rest)?)?,
                _ => {
                    let example = "PATH KEY=VALUE …, such as identity.user_assigned_identities \
                                   resource_id=/subscriptions/…";
                    return Err(malformed("--add", &self.add.join(" "), example));
                }
            }
        }
        if let Some((path, index)) = self.remove.split_first() {
            remove(document, path, index.first().map(String::as_str))?;
        }
        check(document, fields, "", None)
    }
}

fn malformed(flag: &str, text: &str, wanted: &str) -> Failure {
    Failure::refused(format!("{flag} is {}; write it as {wanted}", quoted(text)))
}

/// The kind of field that a path leads to, by the schema; in tags and the like, it is a string.
fn kind_at(fields: &'static [Field], path: &str) -> Option<Kind> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let found = fields.iter().find(|field| field.name == first)?.kind;
    match found {
        _ if rest.is_empty() => Some(found),
        Kind::Object(inner) => kind_at(inner, rest),
        Kind::Texts => Some(Kind::Text),
        _ => None,
    }
}

/// Numbers, booleans and JSON documents are parsed; anything else is a string.
fn read(value: &str, is_text: bool) -> Value {
    let text = || Value::String(value.to_owned());
    if is_text {
        return text();
    }
    let lower = value.to_ascii_lowercase();
    if lower == "true" || lower == "false" {
        return Value::Bool(lower == "true");
    }
    serde_json::from_str(value).unwrap_or_else(|_| text())
}

fn item(parts: &[String]) -> CliResult<Value> {
    if let [only] = parts
        && let Ok(value @ Value::Object(_)) = serde_json::from_str(only)
    {
        return Ok(value);
    }
    let pair = |part: &String| match part.split_once('=').filter(|(key, _)| !key.is_empty()) {
        Some((key, value)) => Ok((key.to_owned(), Value::String(value.to_owned()))),
        None => Err(malformed("--add", part, "KEY=VALUE, or one JSON object")),
    };
    parts.iter().map(pair).collect::<CliResult<Map<_, _>>>().map(Value::Object)
}

/// The object that contains the last name of the path; missing objects on the way are created.
fn holder<'a, 'p>(document: &'a mut Fields, path: &'p str) -> CliResult<(&'a mut Fields, &'p str)> {
    // Nested objects are also dropped recursively, so the depth is limited.
    let names = path.split('.').count();
    if names > NAMES_MAX {
        return Err(Failure::refused(format!(
            "{} has {names} names; the limit is {NAMES_MAX}, so shorten it",
            quoted(path)
        )));
    }
    descend(document, path)
}

fn descend<'a, 'p>(
    document: &'a mut Fields,
    path: &'p str,
) -> CliResult<(&'a mut Fields, &'p str)> {
    let Some((first, rest)) = path.split_once('.') else { return Ok((document, path)) };
    let inner = document.entry(first).or_insert(Value::Null);
    if inner.is_null() {
        *inner = Value::Object(Map::new());
    }
    match inner {
        Value::Object(inner) => descend(inner, rest),
        _ => Err(Failure::refused(format!("{} does not contain fields", quoted(first)))),
    }
}

fn set(document: &mut Fields, path: &str, value: Value) -> CliResult {
    let (holder, name) = holder(document, path)?;
    holder.insert(name.to_owned(), value);
    Ok(())
}

fn add(document: &mut Fields, path: &str, value: Value) -> CliResult {
    let (holder, name) = holder(document, path)?;
    let list = holder.entry(name).or_insert(Value::Null);
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    match list {
        Value::Array(items) => {
            items.push(value);
            Ok(())
        }
        _ => Err(Failure::refused(format!("--add: {} is not a list; use --set", quoted(path)))),
    }
}

fn remove(document: &mut Fields, path: &str, index: Option<&str>) -> CliResult {
    let missing = || Failure::refused(format!("--remove: {} does not exist", quoted(path)));
    let (holder, name) = holder(document, path)?;
    let Some(index) = index else {
        return holder.remove(name).map(|_| ()).ok_or_else(missing);
    };
    let Some(Value::Array(items)) = holder.get_mut(name) else { return Err(missing()) };
    match index.parse::<usize>().ok().filter(|index| *index < items.len()) {
        Some(index) => {
            items.remove(index);
            Ok(())
        }
        None => Err(Failure::refused(format!(
            "--remove: {} has {} items; give the index of one, from 0",
            quoted(path),
            items.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::document::field;

    const ITEM: [Field; 1] = [field("id", Kind::Text)];
    const INNER: [Field; 2] = [field("kind", Kind::Text), field("list", Kind::List(&ITEM))];
    const FIELDS: [Field; 4] = [
        field("count", Kind::Whole),
        field("open", Kind::Bool),
        field("tags", Kind::Texts),
        field("inner", Kind::Object(&INNER)),
    ];

    fn edited(set: &[&str], add: &[&str], remove: &[&str]) -> CliResult<Value> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let edits =
            Edits { set: owned(set), add: owned(add), remove: owned(remove), force_string: false };
        let Value::Object(mut document) =
            json!({"count": 1, "tags": {"a": "1"}, "inner": {"list": [{"id": "x"}]}})
        else {
            unreachable!("an object")
        };
        edits.apply(&mut document, &FIELDS)?;
        Ok(Value::Object(document))
    }

    #[test]
    fn fields_are_set_added_and_removed() {
        let set = edited(&["count=3", "open=True", "tags.b=7", "inner.kind=5"], &[], &[]).unwrap();
        assert_eq!(
            set,
            json!({"count": 3, "open": true, "tags": {"a": "1", "b": "7"},
                   "inner": {"kind": "5", "list": [{"id": "x"}]}})
        );
        for add in [&["inner.list", "id=y"][..], &["inner.list", r#"{"id":"y"}"#]] {
            let added = edited(&[], add, &[]).unwrap();
            assert_eq!(added["inner"]["list"], json!([{"id": "x"}, {"id": "y"}]));
        }
        let added = edited(&[], &[r#"inner.list={"id":"y"}"#], &[]).unwrap();
        assert_eq!(added["inner"]["list"][1]["id"], "y");
        assert_eq!(edited(&[], &[], &["tags.a"]).unwrap()["tags"], json!({}));
        assert_eq!(edited(&[], &[], &["inner.list", "0"]).unwrap()["inner"]["list"], json!([]));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (set, add, remove) in [
            (&["count"][..], &[][..], &[][..]),
            (&["=3"], &[], &[]),
            (&["count=many"], &[], &[]),
            (&["conut=3"], &[], &[]),
            (&["count.x=3"], &[], &[]),
            (&[&format!("{}b=1", "inner.".repeat(50_000))], &[], &[]),
            (&[], &["inner.list"], &[]),
            (&[], &["count", "id=y"], &[]),
            (&[], &["inner.list", "y"], &[]),
            (&[], &["inner.list", "di=y"], &[]),
            (&[], &[], &["tags.c"]),
            (&[], &[], &["inner.list", "1"]),
            (&[], &[], &["count", "0"]),
        ] {
            assert!(edited(set, add, remove).is_err(), "{set:?} {add:?} {remove:?}");
        }
    }
}
