//! `--query`: a JMESPath expression that is applied to the output of a command, as in az.

use jmespath::ast::Ast;
use jmespath::{ErrorReason, JmespathError};
use serde_json::{Map, Value};

use super::bounded;
use crate::failure::{CliResult, Failure, brief};

/// Far more than a person types.
const QUERY_BYTES_MAX: usize = 2_048;
/// The library recurses with the depth of an expression: enough stack for one that consists of brackets only.
const STACK_BYTES: usize = 64 << 20;
const EXAMPLE: &str = r#"such as --query "[].name" or --query "[?status=='Running'].{Name:name}""#;

/// Functions that return a whole number for whole numbers, in the library that az uses.
const WHOLE_IN_AZ: [&str; 4] = ["abs", "ceil", "floor", "sum"];
/// Up to here, floating-point numbers represent all whole numbers exactly.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

/// An expression that has been parsed successfully.
#[derive(Debug, Clone)]
pub struct Query(String);

/// What is printed: the whole document, or the result of a query.
pub struct Data {
    pub value: Value,
    /// The order in which the query names the keys of its objects. The JMESPath library sorts them, but columns should
    /// be in the order in which they were requested.
    orders: Vec<Vec<String>>,
}

/// For clap, so that an invalid expression is refused before any request is sent.
pub fn parse(text: &str) -> Result<Query, String> {
    if text.len() > QUERY_BYTES_MAX {
        let length = text.len();
        return Err(format!(
            "it has {length} bytes; the limit is {QUERY_BYTES_MAX}, so shorten it"
        ));
    }
    let text = with_texts_quoted(text);
    match with_room(|| jmespath::parse(&text).map(drop)) {
        Ok(()) => Ok(Query(text)),
        Err(why) => Err(format!("{}; give a JMESPath expression, {EXAMPLE}", message(&why))),
    }
}

impl Query {
    pub fn apply(&self, document: &Value) -> CliResult<Data> {
        with_room(|| self.search(document)).map_err(|why| {
            Failure::refused(format!("--query: {why}"))
                .hint("to see the available fields, run the same command with -o json and without --query")
        })
    }

    fn search(&self, document: &Value) -> Result<Data, String> {
        let mut ast = jmespath::parse(&self.0).map_err(|why| message(&why))?;
        let mut seen = Seen::default();
        seen.look_at(&mut ast);
        let found = bounded::search(&self.0, ast, document).map_err(|why| message(&why))?;
        let mut value = serde_json::to_value(&*found).expect("the result has text keys");
        if seen.computes {
            make_whole(&mut value);
        }
        Ok(Data { value, orders: seen.orders })
    }
}

impl Data {
    pub fn whole(value: Value) -> Data {
        Data { value, orders: Vec::new() }
    }

    /// The members of an object in the order of the query, else sorted.
    pub fn members<'a>(&self, object: &'a Map<String, Value>) -> Vec<(&'a String, &'a Value)> {
        let is_of = |order: &&Vec<String>| {
            order.len() == object.len() && order.iter().all(|key| object.contains_key(key))
        };
        // The last one is the one that is closest to the result.
        if let Some(order) = self.orders.iter().rev().find(is_of) {
            return order.iter().filter_map(|key| object.get_key_value(key)).collect();
        }
        let mut members: Vec<_> = object.iter().collect();
        members.sort_by_key(|(key, _)| *key);
        members
    }
}

/// Many scripts for az use [?name==`cpu`]: an older rule of JMESPath, which our library does not know, treats a literal
/// that is not JSON as a string. This adds the quotes.
fn with_texts_quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(['\'', '"', '`']) {
        let (before, after) = rest.split_at(start);
        quoted.push_str(before);
        let delimiter = after.chars().next().unwrap_or_default();
        // The parser reports a missing end.
        let Some(end) = closing(after, delimiter) else {
            rest = after;
            break;
        };
        let (whole, behind) = after.split_at(end + 1);
        let inside = &whole[1..end];
        if delimiter == '`' && serde_json::from_str::<Value>(&inside.replace("\\`", "`")).is_err() {
            // With a quote or an escape in it, it is a mistake rather than a string.
            match inside.contains(['"', '\\']) {
                true => quoted.push_str(whole),
                false => quoted.push_str(&format!("`{}`", Value::from(inside.trim_start()))),
            }
        } else {
            quoted.push_str(whole);
        }
        rest = behind;
    }
    quoted + rest
}

/// The end of a token that begins with the delimiter.
fn closing(text: &str, delimiter: char) -> Option<usize> {
    let mut is_escaped = false;
    let mut chars = text.char_indices().skip(1);
    chars.find_map(|(at, c)| {
        let is_end = c == delimiter && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end.then_some(at)
    })
}

fn with_room<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
        let thread = builder.spawn_scoped(scope, work).expect("a command can have a second thread");
        thread.join().expect("neither reading nor applying an expression panics")
    })
}

/// The library's message without the terms of its parser.
fn message(why: &JmespathError) -> String {
    let words = match &why.reason {
        ErrorReason::Parse(words) => words.clone(),
        ErrorReason::Runtime(why) => why.to_string(),
    };
    let words = words.replace("nud token", "token").replace("led token", "token");
    let words = words.replace("found Eof", "found the end");
    format!("{} at character {}", brief(&words), why.offset + 1)
}

/// What an expression contains.
#[derive(Default)]
struct Seen {
    /// The keys of every `{Name: …}`.
    orders: Vec<Vec<String>>,
    /// Whether it computes numbers.
    computes: bool,
}

impl Seen {
    fn look_at(&mut self, ast: &mut Ast) {
        bounded::parts_mut(ast).into_iter().for_each(|part| self.look_at(part));
        match ast {
            Ast::MultiHash { elements, .. } => {
                self.orders.push(elements.iter().map(|pair| pair.key.clone()).collect());
            }
            Ast::Function { name, .. } => self.computes |= WHOLE_IN_AZ.contains(&name.as_str()),
            _ => {}
        }
    }
}

/// 3.0 → 3, where the library computed with whole numbers as floating-point numbers.
fn make_whole(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Object(members) => members.values_mut().for_each(make_whole),
        Value::Number(number) if number.is_f64() => {
            let exact = number.as_f64().filter(|it| it.fract() == 0.0 && it.abs() < EXACT_BELOW);
            if let Some(whole) = exact {
                *value = Value::from(whole as i64);
            }
        }
        Value::Number(_) | Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(query: &str, document: &Value) -> Data {
        parse(query).expect("a good query").apply(document).expect("it applies")
    }

    #[test]
    fn keys_stay_in_the_order_in_which_they_were_asked_for() {
        let document = json!([{"b": 1, "a": 2, "c": {"d": 3}}]);
        let data = asked("[].{z: b, y: a, inner: c.{q: d, p: d}} | [0]", &document);
        let keys = |value: &Value| -> Vec<String> {
            let object = value.as_object().expect("an object");
            data.members(object).into_iter().map(|(key, _)| key.clone()).collect()
        };
        assert_eq!(keys(&data.value), ["z", "y", "inner"]);
        assert_eq!(keys(&data.value["inner"]), ["q", "p"]);
        let whole = asked("[0]", &document);
        let members = whole.members(whole.value.as_object().expect("an object"));
        assert_eq!(members.iter().map(|(key, _)| key.as_str()).collect::<String>(), "abc");
    }

    #[test]
    fn a_bad_query_says_where_and_shows_a_good_one() {
        for (bad, wanted) in [
            ("[", "found the end at character 2"),
            ("name ==", "at character 8"),
            ("[?a=1]", "at character"),
            ("'x", "Unclosed"),
        ] {
            let why = parse(bad).expect_err(bad);
            assert!(why.contains(wanted) && why.contains(EXAMPLE), "{bad}: {why}");
            assert!(!why.contains('\n'), "{why}");
        }
        let long = "a".repeat(QUERY_BYTES_MAX + 1);
        assert!(parse(&long).expect_err("too long").contains("the limit is 2048"), "its limit");
        let failure = parse("length(a)").expect("good").apply(&json!({"a": 1}));
        let why = failure.err().expect("a number has no length").to_string();
        assert!(why.starts_with("--query: ") && why.contains("number"), "{why}");
    }

    #[test]
    fn texts_without_quotes_are_texts_as_in_az() {
        for (typed, read) in [
            ("[?name==`cpu`]", "[?name==`\"cpu\"`]"),
            ("join(`, `, @)", "join(`\", \"`, @)"),
            ("[?a==`1` || b==`true` || c==`[1]`]", "[?a==`1` || b==`true` || c==`[1]`]"),
            ("'a`b`' == \"c`d`\"", "'a`b`' == \"c`d`\""),
            ("`\"x\"`.`{\"a\": \"\\`\"}`", "`\"x\"`.`{\"a\": \"\\`\"}`"),
            ("`{\"a\"`", "`{\"a\"`"),
            ("'a\\'`b`", "'a\\'`b`"),
            ("a == `b", "a == `b"),
            ("`é`", "`\"é\"`"),
            ("``", "`\"\"`"),
        ] {
            assert_eq!(with_texts_quoted(typed), read, "{typed}");
        }
        let found = asked("[?n==`one`].n | [0]", &json!([{"n": "one"}, {"n": "two"}]));
        assert_eq!(found.value, "one");
    }

    #[test]
    fn whole_numbers_stay_whole() {
        let document = json!([{"n": 1, "x": 2.0}, {"n": 2, "x": 0.5}]);
        for (query, wanted) in [
            ("sum([].n)", "3"),
            ("sum([].x)", "2.5"),
            ("{all: [ceil([1].x), floor([0].x)], low: abs(`-4`)}", r#"{"all":[1,2],"low":4}"#),
            ("[0].x", "2.0"),
            ("avg([].x)", "1.25"),
            ("sum([`1e300`])", "1e+300"),
        ] {
            assert_eq!(asked(query, &document).value.to_string(), wanted, "{query}");
        }
    }

    #[test]
    fn odd_queries_end_in_a_value_or_in_words() {
        let document = json!([{"a": 1, "b": [1, 2]}, [1.5, u64::MAX]]);
        for (odd, wanted) in [
            ("", "not read"),
            ("[99999999999999]", "not read"),
            ("[::-2147483648]", "not read"),
            ("\"\\ud800\"", "not read"),
            ("`\"x`", "not read"),
            ("é", "not read"),
            ("[::0]", "refused"),
            ("sum([`1e308`, `1e308`])", "refused"),
            ("avg(`[]`)", "refused"),
            ("sort_by(@, &a)", "refused"),
            ("not_null()", "refused"),
            ("`1e999`", "\"1e999\""),
            ("[2147483647:]", "[]"),
            ("reverse('éa')", "\"aé\""),
            ("[1][1]", "18446744073709551615"),
        ] {
            let ended = match parse(odd).map(|query| query.apply(&document)) {
                Err(_) => "not read".to_owned(),
                Ok(Err(_)) => "refused".to_owned(),
                Ok(Ok(data)) => data.value.to_string(),
            };
            assert_eq!(ended, wanted, "{odd}");
        }
    }

    #[test]
    fn the_deepest_query_does_not_exhaust_the_stack() {
        for part in ["(", "!", "[", "a.{b:", "&", "not_null("] {
            let deep = part.repeat(QUERY_BYTES_MAX / part.len());
            assert!(parse(&deep).is_err(), "{part}");
        }
        let deep = format!("{}a{}", "(".repeat(1_000), ")".repeat(1_000));
        assert_eq!(asked(&deep, &json!({"a": 1})).value, json!(1));
    }
}
