//! Everything that is printed: data on standard output, talk on standard error.

use std::io::{self, Write};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle};
use serde::Serialize;
use serde_json::Value;

use crate::failure::{Failure, Outcome, printable};

/// Columns, and a line under their names: nothing that would be in the way of grep and awk.
const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction(' '))
    .header_separator(LineStyle::none().fill('-').junction(' '))
    .content_lines(ContentLineStyle::none().junction(' '));

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For programs
    Json,
    /// For people
    Table,
}

/// The flag of every command that prints a resource.
#[derive(Debug, clap::Args)]
pub struct Print {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Format::Json)]
    pub output: Format,
}

/// Bytes as they are, at once.
pub fn bytes(bytes: &[u8]) -> Outcome {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(cannot_write)
}

/// As Azure's command line prints: keys sorted, nothing that is null, two spaces deep.
pub fn json<T: Serialize>(document: &T) -> Outcome {
    let value = serde_json::to_value(document).expect("documents have text keys");
    let mut text = serde_json::to_string_pretty(&tidy(value)).expect("a value is JSON");
    text.push('\n');
    bytes(text.as_bytes())
}

/// One row per item. A list without items prints nothing, and says so to people: `nothing`.
pub fn table(header: &[&str], rows: Vec<Vec<String>>, nothing: &str) -> Outcome {
    if rows.is_empty() {
        say(nothing);
        return Ok(());
    }
    bytes(table_text(header, rows).as_bytes())
}

/// A line of talk. That nobody listens is no reason to stop.
pub fn say(line: &str) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

fn cannot_write(why: io::Error) -> Failure {
    match why.kind() {
        io::ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::error(format!("cannot write to standard output: {why}")),
    }
}

/// Sorted by key whatever map `serde_json` was built with, and without nulls.
fn tidy(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> =
                map.into_iter().filter(|(_, value)| !value.is_null()).collect();
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            entries.into_iter().map(|(key, value)| (key, tidy(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(tidy).collect(),
        plain => plain,
    }
}

fn table_text(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        // For the same reason rows are not folded to the terminal's width.
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_sorted_and_has_no_nulls() {
        let value = tidy(json!({"b": null, "c": [{"z": 1, "y": null}], "a": {"d": {}}}));
        assert_eq!(value.to_string(), r#"{"a":{"d":{}},"c":[{"z":1}]}"#);
    }

    #[test]
    fn a_table_is_plain_columns() {
        let rows = vec![
            vec!["cpu".to_owned(), "Succeeded".to_owned()],
            vec!["a-long-name".to_owned(), "x\u{1b}[31m".to_owned()],
        ];
        let wanted = "\
Name         State
------------ ----------
cpu          Succeeded
a-long-name  x\u{fffd}[31m
";
        assert_eq!(table_text(&["Name", "State"], rows), wanted);
    }
}
