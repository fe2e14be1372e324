//! The formats of `--output`, in the form that az prints.

use serde_json::Value;

use super::query::Data;
use super::table_text;
use crate::failure::{CliResult, Failure};

/// Left out of tables: long, and of little use to people. A query can show them under another key.
const NOT_IN_TABLES: [&str; 3] = ["id", "type", "etag"];

pub fn json(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("a value is JSON");
    text.push('\n');
    without_commands(text)
}

/// Some terminals interpret U+0080 to U+009F like escapes. JSON can write them in another way, which programs read as
/// the same.
pub fn without_commands(json: String) -> String {
    let is_command = |c: char| matches!(c, '\u{7f}'..='\u{9f}');
    if !json.contains(is_command) {
        return json;
    }
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match is_command(character) {
            true => text.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => text.push(character),
        }
    }
    text
}

pub fn yaml(value: &Value) -> CliResult<String> {
    // Paths and commands are not wrapped, so that grep finds them.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_with_options(value, options);
    let mut text = text.map_err(|why| Failure::error(format!("cannot print as YAML: {why}")))?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// One line per item of a list, with tabs between the values of an item.
pub fn tsv(data: &Data) -> String {
    let mut text = String::new();
    for item in items(&data.value) {
        let line = match item {
            Value::Object(object) => {
                let cells = data.members(object).into_iter().map(|(_, value)| tsv_cell(value));
                cells.collect::<Vec<_>>().join("\t")
            }
            Value::Array(values) => values.iter().map(tsv_cell).collect::<Vec<_>>().join("\t"),
            Value::Bool(is_true) => is_true.to_string(),
            Value::Null | Value::Number(_) | Value::String(_) => tsv_cell(item),
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The columns are the keys, with a capital first letter.
pub fn table(data: &Data) -> CliResult<String> {
    let mut header: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for item in items(&data.value) {
        let cells = table_cells(data, item);
        for (column, _) in &cells {
            if !header.contains(column) {
                header.push(column.clone());
            }
        }
        rows.push(cells);
    }
    if rows.is_empty() {
        return Ok(String::new());
    }
    if header.is_empty() {
        return Err(Failure::error("the result has no values that a table could show")
            .hint("select columns, such as --query \"[].{Name:name, Id:id}\", or use -o json"));
    }
    let cell = |cells: &[(String, String)], column: &String| {
        let found = cells.iter().find(|(known, _)| known == column);
        found.map(|(_, cell)| cell.clone()).unwrap_or_default()
    };
    let row = |cells: &Vec<_>| header.iter().map(|column| cell(cells, column)).collect();
    let rows = rows.iter().map(row).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    Ok(table_text(&header, rows))
}

fn table_cells(data: &Data, item: &Value) -> Vec<(String, String)> {
    let is_plain = |value: &Value| !matches!(value, Value::Array(_) | Value::Object(_));
    match item {
        Value::Object(object) => {
            let shown = data.members(object).into_iter().filter(|(key, value)| {
                !NOT_IN_TABLES.contains(&key.as_str()) && !value.is_null() && is_plain(value)
            });
            shown.map(|(key, value)| (capitalised(key), plain_cell(value))).collect()
        }
        Value::Array(values) => {
            let numbered = values.iter().enumerate();
            numbered.map(|(at, value)| (format!("Column{}", at + 1), table_cell(value))).collect()
        }
        plain => vec![("Result".to_owned(), table_cell(plain))],
    }
}

/// A missing value is empty, as in a row that does not have the column.
fn table_cell(value: &Value) -> String {
    if value.is_null() { String::new() } else { plain_cell(value) }
}

/// A value that is not a list counts as a list with one item.
fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        one => std::slice::from_ref(one),
    }
}

/// A list is printed as its length and an object as nothing, so that every line has the same number of cells.
fn tsv_cell(value: &Value) -> String {
    match value {
        Value::Array(items) => items.len().to_string(),
        Value::Object(_) => String::new(),
        plain => plain_cell(plain),
    }
}

/// Python's format, because scripts for az compare with that.
fn plain_cell(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        nested @ (Value::Array(_) | Value::Object(_)) => nested.to_string(),
    }
}

fn capitalised(key: &str) -> String {
    let mut chars = key.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::query;

    #[test]
    fn tab_separated_values_are_as_az_writes_them() {
        let check = |value: Value, wanted: &str| assert_eq!(tsv(&Data::whole(value)), wanted);
        check(json!(["a", "b"]), "a\nb\n");
        check(json!("a b"), "a b\n");
        check(json!([]), "");
        check(json!([true, null, 1.5]), "true\nNone\n1.5\n");
        check(
            json!({"b": true, "a": null, "c": [1, 2], "d": {"e": 1}, "f": 7}),
            "None\tTrue\t2\t\t7\n",
        );
        check(json!([["x", ["y"]], ["z", null]]), "x\t1\nz\tNone\n");
    }

    #[test]
    fn a_table_of_anything_has_its_keys_as_columns() {
        let document =
            json!([{"n": "one", "id": 1, "on": true, "deep": [1]}, {"n": "two", "x": 2}]);
        let columns = "N    On    X\n---- ----- --\none  True\ntwo        2\n";
        assert_eq!(table(&Data::whole(document.clone())).expect("a table"), columns);
        let asked = |query: &str| {
            let data = query::parse(query).expect("good").apply(&document).expect("it applies");
            table(&data)
        };
        assert_eq!(asked("[].n").expect("a table"), "Result\n-------\none\ntwo\n");
        let named = asked("[].{number: id, Name: n}").expect("a table");
        assert_eq!(named, "Number  Name\n------- -----\n1       one\n        two\n");
        let lists = asked("[].[n, on]").expect("a table");
        assert_eq!(lists, "Column1  Column2\n-------- --------\none      True\ntwo\n");
        assert_eq!(asked("[?n=='three']").expect("no rows"), "");
        assert!(asked("[0].{id: id}").is_err());
    }

    #[test]
    fn json_holds_nothing_that_a_terminal_obeys() {
        let value =
            json!({"\u{9b}31mkey": ["\u{9b}2J\u{9d}0;title\u{9c}\u{7f}\x1b", "größe\u{a0}✓"]});
        let text = json(&value);
        assert!(text.contains(r#""\u009b2J\u009d0;title\u009c\u007f\u001b""#), "{text}");
        assert!(text.contains("größe\u{a0}✓"), "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
    }

    #[test]
    fn yaml_holds_nothing_that_a_terminal_obeys() {
        let value = json!({"a": "\u{9b}2J\u{9d}0;title\u{9c}\u{7f}\x1b\u{85}x"});
        let text = yaml(&value).expect("YAML");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }

    #[test]
    fn yaml_reads_back_as_what_it_was() {
        let value =
            json!({"a": "yes", "b": [{"c": 1, "d": []}], "e": {}, "f": "x: y\nz", "g": null});
        let wanted = "a: \"yes\"\nb:\n- c: 1\n  d: []\ne: {}\nf: \"x: y\\nz\"\ng: null\n";
        assert_eq!(yaml(&value).expect("YAML"), wanted);
        assert_eq!(yaml(&json!("cpu")).expect("YAML"), "cpu\n");
    }
}
