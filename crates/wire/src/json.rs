//! Reads JSON strictly and reports exactly what is wrong with it.
//!
//! `null` counts as absent everywhere, unknown properties are not errors, and nothing is converted silently: `"4"` is
//! not 4. Secrets are read with [`Field::secret`], which never shows a value. [`Reads`] lists the properties of a
//! document that were not read: they have no effect, and the client must be informed of that.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use muster_core::limits::IGNORED_MAX;
use muster_core::nearest;
use muster_core::time::Span;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::ArmError;

/// How much of a value a message repeats, in characters.
const SHOWN_CHARS_MAX: usize = 80;

/// Any of this crate's documents as JSON.
pub fn to_json<T: Serialize>(document: &T) -> String {
    serde_json::to_string(document).expect("documents have text keys and no failing serialisers")
}

/// Any of this crate's documents from JSON, for the use of clients. It is as lenient as Azure's clients are.
pub fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    serde_json::from_slice(bytes).map_err(|source| Unreadable { source })
}

/// A document that does not have the expected form.
#[derive(Debug, thiserror::Error)]
#[error("the document cannot be read")]
pub struct Unreadable {
    source: serde_json::Error,
}

/// JSON that is passed on unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(Box<str>);

impl JsonText {
    /// `None` if the text is not JSON.
    pub fn new(text: &str) -> Option<JsonText> {
        serde_json::from_str::<&RawValue>(text).ok().map(|raw| JsonText(raw.get().into()))
    }

    pub fn empty_object() -> JsonText {
        JsonText("{}".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonText, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(JsonText(raw.get().into()))
    }
}

/// A body that must be a JSON object of at most `limit_bytes`.
pub(crate) fn parse_object(body: &[u8], limit_bytes: usize) -> Result<Value, ArmError> {
    if body.len() > limit_bytes {
        return Err(ArmError::too_large(limit_bytes));
    }
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(ArmError::invalid_content("the body is empty; send a JSON object"));
    }
    // The message gives only the position and the reason, because the text may contain secrets.
    let value: Value = serde_json::from_slice(body).map_err(|why| {
        ArmError::invalid_content(format!("the body is not valid JSON: {why}; send a JSON object"))
    })?;
    match value {
        Value::Object(_) => Ok(value),
        other => Err(ArmError::invalid_content(format!(
            "the body is {}; send a JSON object",
            kind(&other)
        ))),
    }
}

/// A property of a document: its path and its value. `null` counts as absent.
pub(crate) struct Field<'a> {
    pub(crate) path: String,
    value: Option<&'a Value>,
    reads: Option<&'a Reads>,
}

impl<'a> Field<'a> {
    pub(crate) fn root(value: &'a Value) -> Field<'a> {
        Field { path: String::new(), value: Some(value), reads: None }
    }

    /// The same, but records which properties are read.
    pub(crate) fn noted(value: &'a Value, reads: &'a Reads) -> Field<'a> {
        Field { reads: Some(reads), ..Field::root(value) }
    }

    /// The same, but for a check only: properties that are merely checked still count as unread.
    pub(crate) fn only_checked(&self) -> Field<'a> {
        Field { reads: None, path: self.path.clone(), value: self.value }
    }

    /// The whole value, which then counts as read.
    pub(crate) fn value(&self) -> Option<&'a Value> {
        self.note(Reading::Whole);
        self.value
    }

    fn note(&self, reading: Reading) {
        if let Some(reads) = self.reads.filter(|_| self.value.is_some()) {
            reads.note(&self.path, reading);
        }
    }

    pub(crate) fn is_present(&self) -> bool {
        self.value.is_some()
    }

    /// Whether it is present, and neither `{}`, `[]` nor `""`.
    pub(crate) fn is_filled(&self) -> bool {
        match self.value {
            None | Some(Value::Null) => false,
            Some(Value::Object(map)) => !map.is_empty(),
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Bool(_) | Value::Number(_)) => true,
        }
    }

    /// The property `key` of this object; absent if the object is absent.
    pub(crate) fn get(&self, key: &str) -> Result<Field<'a>, ArmError> {
        let path = if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) };
        let value = match self.value {
            None => None,
            Some(Value::Object(map)) => map.get(key).filter(|value| !value.is_null()),
            Some(other) => return Err(self.wrong(other, "a JSON object")),
        };
        let field = Field { path, value, reads: self.reads };
        field.note(Reading::Parts);
        Ok(field)
    }

    /// The property at a path with dots below this object.
    pub(crate) fn below(&self, path: &str) -> Result<Field<'a>, ArmError> {
        let (first, rest) = path.split_once('.').unwrap_or((path, ""));
        let field = self.get(first)?;
        if rest.is_empty() { Ok(field) } else { field.below(rest) }
    }

    pub(crate) fn string(&self) -> Result<Option<&'a str>, ArmError> {
        match self.value {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(other, "a string")),
        }
    }

    pub(crate) fn text(&self) -> Result<Option<Box<str>>, ArmError> {
        Ok(self.string()?.map(Box::from))
    }

    /// A region. `East US` and `eastus` are the same region, as everywhere in Azure.
    pub(crate) fn location(&self) -> Result<Option<Box<str>>, ArmError> {
        Ok(self.string()?.map(crate::path::location_name))
    }

    /// A string that no message may show.
    pub(crate) fn secret(&self) -> Result<Option<&'a str>, ArmError> {
        match self.value {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => {
                Err(self.invalid(format!("{} is {}; give a string", self.path, kind(other))))
            }
        }
    }

    pub(crate) fn boolean(&self) -> Result<Option<bool>, ArmError> {
        match self.value {
            None => Ok(None),
            Some(Value::Bool(yes)) => Ok(Some(*yes)),
            Some(other) => Err(self.wrong(other, "true or false, without quotes")),
        }
    }

    pub(crate) fn count(&self) -> Result<Option<u32>, ArmError> {
        let Some(value) = self.value else { return Ok(None) };
        match value.as_u64().and_then(|count| u32::try_from(count).ok()) {
            Some(count) => Ok(Some(count)),
            None => {
                let wanted = format!("a whole number from 0 to {}, without quotes", u32::MAX);
                Err(self.wrong(value, &wanted))
            }
        }
    }

    pub(crate) fn whole(&self) -> Result<Option<i64>, ArmError> {
        let Some(value) = self.value else { return Ok(None) };
        let whole = value.as_i64();
        whole.map(Some).ok_or_else(|| self.wrong(value, "a whole number, without quotes"))
    }

    /// A value that some clients write as a number and others as text, as text.
    pub(crate) fn number_or_text(&self) -> Result<Option<String>, ArmError> {
        match self.value {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong(other, "a number or a string")),
        }
    }

    /// A text, a number or a boolean, as text.
    pub(crate) fn scalar(&self) -> Result<Option<String>, ArmError> {
        match self.value {
            Some(Value::Bool(truth)) => Ok(Some(truth.to_string())),
            _ => self.number_or_text(),
        }
    }

    /// The items of an array.
    pub(crate) fn items(&self) -> Result<Option<Vec<Field<'a>>>, ArmError> {
        let items = match self.value {
            None => return Ok(None),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.wrong(other, "a JSON array")),
        };
        self.note(Reading::Whole);
        let field = |(index, value): (usize, &'a Value)| {
            let path = format!("{}[{index}]", self.path);
            let value = Some(value).filter(|value| !value.is_null());
            Field { path, value, reads: self.reads }
        };
        Ok(Some(items.iter().enumerate().map(field).collect()))
    }

    pub(crate) fn duration(&self) -> Result<Option<Span>, ArmError> {
        let Some(text) = self.string()? else { return Ok(None) };
        crate::duration::parse(text)
            .map(Some)
            .map_err(|why| self.invalid(format!("{}: {why}", self.path)))
    }

    /// One of the `allowed` words; case, `-` and `_` are ignored.
    pub(crate) fn choice<T: Copy>(&self, allowed: &[(&str, T)]) -> Result<Option<T>, ArmError> {
        let Some(text) = self.string()? else { return Ok(None) };
        let folded = fold(text);
        match allowed.iter().find(|(word, _)| fold(word) == folded) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let words: Vec<&str> = allowed.iter().map(|(word, _)| *word).collect();
                Err(self.unknown(text, &words))
            }
        }
    }

    /// The error for a value that is not allowed, with the allowed values and the most similar one.
    pub(crate) fn unknown(&self, text: &str, allowed: &[&str]) -> ArmError {
        unknown(&self.path, text, allowed)
    }

    /// An object of strings. An entry that is `null` is omitted.
    pub(crate) fn string_map(&self) -> Result<Option<BTreeMap<String, String>>, ArmError> {
        let Some(entries) = self.entries()? else { return Ok(None) };
        let mut map = BTreeMap::new();
        for (key, field) in entries {
            if let Some(text) = field.string()? {
                map.insert(key.to_owned(), text.to_owned());
            }
        }
        Ok(Some(map))
    }

    /// The properties of an object whose keys are data.
    pub(crate) fn entries(&self) -> Result<Option<Vec<(&'a str, Field<'a>)>>, ArmError> {
        let map = match self.value {
            None => return Ok(None),
            Some(Value::Object(map)) => map,
            Some(other) => return Err(self.wrong(other, "a JSON object")),
        };
        let field = |(key, value): (&'a String, &'a Value)| {
            let path = format!("{}.{}", self.path, shorten(key));
            let value = Some(value).filter(|value| !value.is_null());
            let field = Field { path, value, reads: self.reads };
            field.note(Reading::Parts);
            (key.as_str(), field)
        };
        Ok(Some(map.iter().map(field).collect()))
    }

    pub(crate) fn invalid(&self, message: String) -> ArmError {
        ArmError::invalid_property(&self.path, message)
    }

    pub(crate) fn missing(&self, remedy: &str) -> ArmError {
        self.invalid(format!("{} is missing; {remedy}", self.path))
    }

    fn wrong(&self, value: &Value, wanted: &str) -> ArmError {
        let path = if self.path.is_empty() { "the body" } else { &self.path };
        let shown = match value {
            // The content may be secret, and only its type is wrong.
            Value::Object(_) | Value::Array(_) | Value::Null => kind(value).to_owned(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                format!("{} ({})", shorten(&value.to_string()), kind(value))
            }
        };
        self.invalid(format!("{path} is {shown}; give {wanted}"))
    }
}

/// Which properties of a document were read, by path.
#[derive(Debug, Default)]
pub(crate) struct Reads(RefCell<BTreeMap<String, Reading>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reading {
    /// The value was read; for an object, only those properties that were read in turn.
    Parts,
    Whole,
}

impl Reads {
    fn note(&self, path: &str, reading: Reading) {
        let mut all = self.0.borrow_mut();
        match all.get_mut(path) {
            Some(known) => *known = reading.max(*known),
            None => drop(all.insert(path.to_owned(), reading)),
        }
    }

    /// The paths of the properties in `document` that were not read, except those in `harmless`, which clients send
    /// back as they were shown or which state what is always the case. In a harmless path, `*` matches any one name,
    /// and `=` precedes the only value that is harmless.
    pub(crate) fn unread(&self, document: &Value, harmless: &[&str]) -> BTreeSet<Box<str>> {
        let mut found = BTreeSet::new();
        self.look(document, "", harmless, &mut found);
        found
    }

    fn look(&self, at: &Value, path: &str, harmless: &[&str], found: &mut BTreeSet<Box<str>>) {
        let Value::Object(map) = at else { return };
        for (key, value) in map {
            // The path as `Field::get` and `Field::entries` spell it.
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let short = format!("{path}.{}", shorten(key));
            let reads = self.0.borrow();
            let reading = reads.get(&below).or_else(|| reads.get(&short)).copied();
            drop(reads);
            match reading {
                Some(Reading::Whole) => {}
                Some(Reading::Parts) => self.look(value, &below, harmless, found),
                None if !requests_anything(value) || is_harmless(&below, value, harmless) => {}
                None if found.len() < IGNORED_MAX => {
                    found.insert(shorten(&below).into());
                }
                None => return,
            }
        }
    }
}

/// Whether a value requests anything: an empty value or `false` does not.
fn requests_anything(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) | Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => map.values().any(requests_anything),
    }
}

fn is_harmless(path: &str, value: &Value, harmless: &[&str]) -> bool {
    harmless.iter().any(|pattern| {
        let (pattern, only) = match pattern.split_once('=') {
            Some((pattern, only)) => (pattern, Some(only)),
            None => (*pattern, None),
        };
        let is_that = |only| value.as_str().is_some_and(|text| text.eq_ignore_ascii_case(only));
        if !only.is_none_or(is_that) {
            return false;
        }
        let (parts, wanted) = (path.split('.'), pattern.split('.'));
        parts.clone().count() == wanted.clone().count()
            && parts.zip(wanted).all(|(part, wanted)| wanted == "*" || part == wanted)
    })
}

pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn fold(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// The error for a value at `path` that is not allowed.
pub(crate) fn unknown(path: &str, text: &str, allowed: &[&str]) -> ArmError {
    let near = nearest::suggestion(text, allowed.iter().copied());
    let near = near.map(|near| format!("{near} Otherwise ")).unwrap_or_default();
    let words: Vec<_> = allowed.iter().map(|word| format!("'{word}'")).collect();
    let words = match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    };
    let message = format!("{path} is '{}'; {near}give {words}", shorten(text));
    ArmError::invalid_property(path, message)
}

/// A value as a message shows it: one short line. The end of an id is the part that matters.
pub(crate) fn shorten(text: &str) -> String {
    let count = text.chars().count();
    if count > SHOWN_CHARS_MAX && text.starts_with("/subscriptions/") {
        let end: String = text.chars().skip(count - SHOWN_CHARS_MAX).collect();
        return format!("…{}", shorten(&end));
    }
    let mut shown: String = text
        .chars()
        .take(SHOWN_CHARS_MAX)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: &str, read: impl Fn(&Field<'_>) -> Result<(), ArmError>) -> String {
        let value = parse_object(body.as_bytes(), 1_000).unwrap();
        let field = Field::root(&value).get("a").unwrap().get("b").unwrap();
        let error = read(&field).unwrap_err();
        assert_eq!(error.target(), Some("a.b"));
        error.body.error.message
    }

    #[test]
    fn what_matters_is_not_cut_off() {
        let id = format!("/subscriptions/{}/providers/P/schedules/nightly", "s".repeat(100));
        assert!(shorten(&id).ends_with("/schedules/nightly"), "{}", shorten(&id));
        assert!(shorten(&id).starts_with('…'));
        assert!(shorten(&"x".repeat(200)).ends_with('…'));
    }

    #[test]
    fn a_wrong_type_is_named_with_its_path_and_value() {
        let count = |field: &Field<'_>| field.count().map(drop);
        let rest = "give a whole number from 0 to 4294967295, without quotes";
        let cases = [
            (r#"{"a":{"b":"4"}}"#, "\"4\" (a string)"),
            (r#"{"a":{"b":1.5}}"#, "1.5 (a number)"),
            (r#"{"a":{"b":-1}}"#, "-1 (a number)"),
            (r#"{"a":{"b":4294967296}}"#, "4294967296 (a number)"),
            (r#"{"a":{"b":true}}"#, "true (a boolean)"),
            (r#"{"a":{"b":[1]}}"#, "an array"),
        ];
        for (body, shown) in cases {
            assert_eq!(refusal(body, count), format!("a.b is {shown}; {rest}"));
        }
        let message = refusal(r#"{"a":{"b":"yes"}}"#, |field| field.boolean().map(drop));
        assert_eq!(message, "a.b is \"yes\" (a string); give true or false, without quotes");
        let message = refusal(r#"{"a":{"b":7}}"#, |field| field.string().map(drop));
        assert_eq!(message, "a.b is 7 (a number); give a string");
    }

    #[test]
    fn unread_properties_are_listed() {
        let value = serde_json::json!({
            "id": "i", "tags": { "a": "b" }, "other": 3,
            "properties": { "known": "x", "off": false, "none": null, "empty": {},
                            "deep": { "one": 1, "two": { "three": [""] } }, "list": [{ "x": 1 }] },
        });
        let reads = Reads::default();
        let root = Field::noted(&value, &reads);
        root.get("tags").unwrap().string_map().unwrap();
        let properties = root.get("properties").unwrap();
        properties.get("known").unwrap().string().unwrap();
        properties.get("deep").unwrap().get("one").unwrap().count().unwrap();
        properties.get("list").unwrap().items().unwrap();
        let unread = reads.unread(&value, &["id", "properties.absent"]);
        assert_eq!(
            Vec::from_iter(unread.iter().map(|path| &**path)),
            ["other", "properties.deep.two"]
        );
        let unread = reads.unread(&value, &["id=I", "other", "properties.*.two"]);
        assert!(unread.is_empty(), "{unread:?}");
        assert_eq!(reads.unread(&value, &["id=x", "other", "properties.*.two"]).len(), 1);
    }

    #[test]
    fn null_and_missing_are_the_same() {
        let value = parse_object(br#"{"a":null,"b":{"c":null}}"#, 1_000).unwrap();
        let root = Field::root(&value);
        assert_eq!(root.get("a").unwrap().get("x").unwrap().count().unwrap(), None);
        assert_eq!(root.get("b").unwrap().get("c").unwrap().string().unwrap(), None);
        assert_eq!(root.get("d").unwrap().string_map().unwrap(), None);
        let map = root.get("b").unwrap().string_map().unwrap();
        assert_eq!(map, Some(BTreeMap::new()));
    }

    #[test]
    fn a_secret_is_never_shown() {
        let message = refusal(r#"{"a":{"b":12345}}"#, |field| field.secret().map(drop));
        assert_eq!(message, "a.b is a number; give a string");
        let inside = refusal(r#"{"a":{"b":{"adminUserPassword":"hunter2"}}}"#, |field| {
            field.string().map(drop)
        });
        assert!(!inside.contains("hunter2"), "{inside}");
        let error = parse_object(br#"{"adminUserPassword":"hunter2" x}"#, 1_000).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn only_an_object_within_its_limit_is_a_body() {
        for body in ["", "  ", "nope", "[]", "3", "\"text\"", "null", "{", "{} {}"] {
            let error = parse_object(body.as_bytes(), 1_000).unwrap_err();
            assert_eq!((error.status, error.code()), (400, "InvalidRequestContent"), "{body}");
        }
        assert_eq!(parse_object(b"\xff{}", 1_000).unwrap_err().status, 400);
        assert_eq!(parse_object(b"{      }", 4).unwrap_err().status, 413);
        let deep = "[".repeat(500);
        assert_eq!(parse_object(deep.as_bytes(), 1_000).unwrap_err().status, 400);
    }

    #[test]
    fn words_are_compared_without_case_dash_and_underscore() {
        let value = parse_object(br#"{"a":"Low-priority","b":"spot"}"#, 1_000).unwrap();
        let words = [("Dedicated", 1), ("LowPriority", 2)];
        let root = Field::root(&value);
        assert_eq!(root.get("a").unwrap().choice(&words).unwrap(), Some(2));
        let error = root.get("b").unwrap().choice(&words).unwrap_err();
        assert_eq!(error.to_string(), "b is 'spot'; give 'Dedicated' or 'LowPriority'");
        let value = parse_object(br#"{"a":"dedicatd"}"#, 1_000).unwrap();
        let error = Field::root(&value).get("a").unwrap().choice(&words).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a is 'dedicatd'; did you mean 'Dedicated'? Otherwise give 'Dedicated' or 'LowPriority'"
        );
    }

    #[test]
    fn json_text_is_passed_on_as_it_came() {
        let text = r#"{ "b": 1.50, "a": 123456789012345678901234567890 }"#;
        let json = JsonText::new(text).unwrap();
        assert_eq!(to_json(&json), text);
        assert_eq!(from_json::<JsonText>(text.as_bytes()).unwrap(), json);
        assert_eq!(JsonText::new("{"), None);
    }

    #[test]
    fn a_shown_value_is_short_and_on_one_line() {
        assert_eq!(shorten("a\nb"), "a\u{fffd}b");
        assert_eq!(shorten(&"é".repeat(200)).chars().count(), SHOWN_CHARS_MAX + 1);
    }
}
