//! Reads a YAML text into a tree that records the position of each part, and that interprets plain words as Azure's own
//! clients do.
//!
//! Those clients read YAML 1.1, as PyYAML does: `yes` is true, `1e-3` is a text, `010` is eight. The inputs of a job
//! are sent as texts, so another interpretation would send other values.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Parser, ScalarStyle, Span};
use serde::{Serialize, Serializer};

use super::BadYaml;

/// Deeper than any meaningful document.
const DEPTH_MAX: usize = 64;
/// How many values aliases may stand for in all; other values take room in the text.
const ALIASED_MAX: usize = 10_000;
const MERGE: &str = "<<";

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Line and column, counted from 1.
    pub place: (usize, usize),
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key: String,
    pub place: (usize, usize),
    pub value: Node,
}

impl Node {
    pub fn text(text: impl Into<String>) -> Node {
        Node { place: (1, 1), value: Value::Text(text.into()) }
    }

    pub fn map() -> Node {
        Node { place: (1, 1), value: Value::Map(Vec::new()) }
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => {
                entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
            }
            _ => None,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// A scalar in the form of Python's `str`, in which Azure's clients send literal inputs.
    pub fn as_python(&self) -> Option<String> {
        match &self.value {
            Value::Text(text) => Some(text.clone()),
            Value::Bool(true) => Some("True".to_owned()),
            Value::Bool(false) => Some("False".to_owned()),
            Value::Int(number) => Some(number.to_string()),
            Value::Float(number) => Some(python_float(*number)),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }
}

/// As JSON has it.
impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Int(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(number), _) => serializer.serialize_i64(number),
                (_, Ok(number)) => serializer.serialize_u64(number),
                _ => serializer.serialize_f64(*number as f64),
            },
            Value::Float(number) => serializer.serialize_f64(*number),
            Value::Text(text) => serializer.serialize_str(text),
            Value::List(items) => serializer.collect_seq(items),
            Value::Map(entries) => {
                serializer.collect_map(entries.iter().map(|entry| (&entry.key, &entry.value)))
            }
        }
    }
}

/// Reads one document; a second one is refused.
pub fn parse(text: &str) -> Result<Node, BadYaml> {
    let mut reader = Reader { anchors: HashMap::new(), aliased: 0 };
    let mut parser = Parser::new_from_str(text);
    let mut found = None;
    loop {
        let (event, span) = next(&mut parser)?;
        match event {
            Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
            Event::StreamEnd => {
                return Ok(found.unwrap_or(Node { place: (1, 1), value: Value::Null }));
            }
            _ if found.is_some() => {
                return Err(bad(place(&span), "there is a second document; give only one"));
            }
            event => found = Some(reader.node(&mut parser, event, &span, 0)?),
        }
    }
}

type Events<'i> = Parser<'i, granit_parser::StrInput<'i>>;

fn next<'i>(parser: &mut Events<'i>) -> Result<(Event<'i>, Span), BadYaml> {
    loop {
        match parser.next_event() {
            Some(Ok((Event::Comment(..) | Event::Anchor(..), _))) => {}
            Some(Ok(found)) => return Ok(found),
            Some(Err(why)) => {
                let at = why.marker();
                return Err(bad((at.line(), at.col() + 1), &why.info()));
            }
            None => return Err(bad((1, 1), "the text ends too early")),
        }
    }
}

fn bad(place: (usize, usize), words: &str) -> BadYaml {
    BadYaml { place, words: words.to_owned() }
}

fn place(span: &Span) -> (usize, usize) {
    (span.start.line(), span.start.col() + 1)
}

struct Reader {
    anchors: HashMap<usize, Node>,
    aliased: usize,
}

impl Reader {
    fn count(&mut self, more: usize, at: (usize, usize)) -> Result<(), BadYaml> {
        self.aliased += more;
        if self.aliased <= ALIASED_MAX {
            return Ok(());
        }
        let words = format!("its aliases stand for more than {ALIASED_MAX} values; use fewer");
        Err(bad(at, &words))
    }

    fn node<'i>(
        &mut self,
        parser: &mut Events<'i>,
        event: Event<'i>,
        span: &Span,
        depth: usize,
    ) -> Result<Node, BadYaml> {
        let at = place(span);
        if depth > DEPTH_MAX {
            return Err(bad(at, &format!("the text is nested more than {DEPTH_MAX} levels deep")));
        }
        let (anchor, value) = match event {
            Event::Alias(id) => {
                let known = self.anchors.get(&id).cloned();
                let known = known.ok_or_else(|| bad(at, "the alias refers to itself"))?;
                self.count(size(&known), at)?;
                return Ok(Node { place: at, value: known.value });
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = tag.as_ref().is_some_and(|tag| tag.suffix() == "str");
                let value = match style {
                    ScalarStyle::Plain if !is_text => plain(&text),
                    _ => Value::Text(text.into_owned()),
                };
                (anchor, value)
            }
            Event::SequenceStart(_, anchor, _) => {
                let mut items = Vec::new();
                loop {
                    match next(parser)? {
                        (Event::SequenceEnd, _) => break,
                        (event, span) => items.push(self.node(parser, event, &span, depth + 1)?),
                    }
                }
                (anchor, Value::List(items))
            }
            Event::MappingStart(_, anchor, _) => (anchor, self.map(parser, depth)?),
            _ => return Err(bad(at, "a value is missing here")),
        };
        let node = Node { place: at, value };
        if anchor != 0 {
            self.count(size(&node), at)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn map<'i>(&mut self, parser: &mut Events<'i>, depth: usize) -> Result<Value, BadYaml> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut keys = HashSet::new();
        let mut merged: Vec<Entry> = Vec::new();
        loop {
            let (event, span) = next(parser)?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let key = self.node(parser, event, &span, depth + 1)?;
            let at = key.place;
            let (event, span) = next(parser)?;
            let value = self.node(parser, event, &span, depth + 1)?;
            let Some(key) = key.as_python() else {
                return Err(bad(at, "a key must be a single word; put it in quotes"));
            };
            if key == MERGE {
                merged.extend(entries_of(value, at)?);
                continue;
            }
            if !keys.insert(key.clone()) {
                return Err(bad(at, &format!("'{key}' is there twice; keep one of them")));
            }
            entries.push(Entry { key, place: at, value });
        }
        for entry in merged {
            if keys.insert(entry.key.clone()) {
                entries.push(entry);
            }
        }
        Ok(Value::Map(entries))
    }
}

/// The entries that `<<` merges in; if there are several mappings, the first one takes precedence.
fn entries_of(node: Node, at: (usize, usize)) -> Result<Vec<Entry>, BadYaml> {
    match node.value {
        Value::Map(entries) => Ok(entries),
        Value::List(items) => {
            let all = items.into_iter().map(|item| entries_of(item, at));
            Ok(all.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        }
        _ => Err(bad(at, "<< needs a mapping")),
    }
}

fn size(node: &Node) -> usize {
    match &node.value {
        Value::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Map(entries) => 1 + entries.iter().map(|entry| size(&entry.value)).sum::<usize>(),
        _ => 1,
    }
}

/// The value of a word without quotes in YAML 1.1.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Value::Bool(true);
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    match (int(text), float(text)) {
        (Some(number), _) => Value::Int(number),
        (None, Some(number)) => Value::Float(number),
        (None, None) => Value::Text(text.to_owned()),
    }
}

fn int(text: &str) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (if text.starts_with('-') { -1 } else { 1 }, rest),
        None => (1, text),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if digits.contains(':') {
        // A base-60 number, such as minutes and seconds.
        let mut parts = digits.split(':');
        let first = parts.next().filter(|first| !first.starts_with('0'))?;
        let mut total: i128 = number(first, 10)?;
        for part in parts {
            let part = part.parse::<u8>().ok().filter(|part| *part < 60)?;
            total = total.checked_mul(60)?.checked_add(i128::from(part))?;
        }
        return Some(sign * total);
    }
    let value = match digits {
        "0" => 0,
        _ => match (digits.get(..2), digits.starts_with('0')) {
            (Some("0x"), _) => number(&digits[2..], 16)?,
            (Some("0b"), _) => number(&digits[2..], 2)?,
            (_, true) => number(&digits[1..], 8)?,
            (_, false) => number(digits, 10)?,
        },
    };
    Some(sign * value)
}

fn number(digits: &str, base: u32) -> Option<i128> {
    let digits = digits.replace('_', "");
    let is_plain = !digits.is_empty() && digits.chars().all(|c| c.is_digit(base));
    is_plain.then(|| i128::from_str_radix(&digits, base).ok()).flatten()
}

/// A float needs a dot, and its exponent needs a sign.
fn float(text: &str) -> Option<f64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_negative = text.starts_with('-');
    match digits {
        ".inf" | ".Inf" | ".INF" => {
            return Some(if is_negative { f64::NEG_INFINITY } else { f64::INFINITY });
        }
        ".nan" | ".NaN" | ".NAN" if digits.len() == text.len() => return Some(f64::NAN),
        _ => {}
    }
    let (mantissa, exponent) = match digits.find(['e', 'E']) {
        Some(at) => (&digits[..at], Some(&digits[at + 1..])),
        None => (digits, None),
    };
    let (whole, part) = mantissa.split_once('.')?;
    let are_digits = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '_');
    let begins_well = match whole {
        "" => part.starts_with(|c: char| c.is_ascii_digit()) && digits.len() == text.len(),
        whole => whole.starts_with(|c: char| c.is_ascii_digit()),
    };
    let exponent_is_good = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']);
        digits
            .is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()))
    });
    if !begins_well || !are_digits(whole) || !are_digits(part) || !exponent_is_good {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// `repr` of a float.
pub fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number == 0.0 || (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of PyYAML 6 and Python 3.11.
    #[test]
    fn plain_words_are_those_of_azures_clients() {
        for (text, wanted) in [
            ("1e-3", "1e-3"),
            ("1.0e-3", "0.001"),
            ("1.0e-05", "1e-05"),
            ("1.5e+20", "1.5e+20"),
            ("123456789012345680.0", "1.2345678901234568e+17"),
            ("0.10", "0.1"),
            ("3.", "3.0"),
            ("-0.5", "-0.5"),
            (".5", "0.5"),
            ("100.0", "100.0"),
            ("yes", "True"),
            ("Off", "False"),
            ("true", "True"),
            ("y", "y"),
            ("010", "8"),
            ("0x1F", "31"),
            ("1_000", "1000"),
            ("08", "08"),
            ("1:30", "90"),
            ("1.2.3", "1.2.3"),
            ("-5", "-5"),
            ("+5", "5"),
            ("'5'", "5"),
            ("2020-01-01", "2020-01-01"),
            ("hello world", "hello world"),
            ("python=3.8", "python=3.8"),
            ("azureml:cpu", "azureml:cpu"),
            (".inf", "inf"),
        ] {
            let read = parse(&format!("a: {text}")).unwrap();
            let read = read.get("a").unwrap().as_python();
            assert_eq!(read.as_deref(), Some(wanted), "{text}");
        }
        assert!(parse("a: ~").unwrap().get("a").unwrap().is_null());
        assert!(parse("a:").unwrap().get("a").unwrap().is_null());
    }

    #[test]
    fn places_are_those_of_the_text() {
        let text = "# c\na: 1\nb:\n  - x: {d: 2}\n    e: f\n";
        let tree = parse(text).unwrap();
        assert_eq!(tree.get("a").unwrap().place, (2, 4));
        let Value::List(items) = &tree.get("b").unwrap().value else { panic!("a list") };
        let Value::Map(entries) = &items[0].value else { panic!("a map") };
        assert_eq!(entries[0].place, (4, 5));
        assert_eq!(entries[1].place, (5, 5));
        for (broken, line) in [("a: [", 1), ("a: x\n b: y", 2), ("a: 1\na: 2", 2), ("a: \"x", 1)] {
            let why = parse(broken).unwrap_err();
            let at = why.place;
            assert!(at.0 >= line && at.1 >= 1, "{broken:?}: {why:?}");
        }
        assert!(parse("a: 1\n---\nb: 2").is_err());
    }

    #[test]
    fn aliases_are_followed_and_bounded() {
        let text = "base: &b {x: 1, y: 2}\nmine:\n  <<: *b\n  y: 3\n";
        let mine = parse(text).unwrap().get("mine").unwrap().clone();
        assert_eq!(mine.get("x").unwrap().value, Value::Int(1));
        assert_eq!(mine.get("y").unwrap().value, Value::Int(3));
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let item = format!("*a{}, ", level - 1).repeat(10);
            laughs.push_str(&format!("a{level}: &a{level} [{}]\n", item.trim_end_matches(", ")));
        }
        assert!(parse(&laughs).unwrap_err().words.contains("more than"));
        assert!(parse(&"[".repeat(200)).is_err());
        assert!(parse(&format!("a: {}{}", "[".repeat(80), "]".repeat(80))).is_err());
    }
}
