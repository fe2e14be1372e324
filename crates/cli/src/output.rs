//! All printing: data on standard output, messages on standard error.

mod bounded;
mod colour;
pub mod query;
pub mod render;
mod terminal;
pub mod width;

use std::io::{self, IsTerminal as _, Write};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle};
use serde::Serialize;
use serde_json::Value;

use self::query::{Data, Query};
pub use self::terminal::is_command;
use crate::failure::{CliResult, Failure, printable};

/// Columns, and a line under their names: nothing that would get in the way of grep and awk.
const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction(' '))
    .header_separator(LineStyle::none().fill('-').junction(' '))
    .content_lines(ContentLineStyle::none().junction(' '));

/// az's formats, with az's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// JSON
    Json,
    /// JSON, coloured on a terminal
    Jsonc,
    /// YAML
    Yaml,
    /// YAML, coloured on a terminal
    Yamlc,
    /// Table for people
    Table,
    /// Tab-separated values, for shell scripts
    Tsv,
    /// No output
    None,
}

/// The flags of every command that prints data. The default is JSON, as in az, or a table for people.
#[derive(Debug, clap::Args)]
pub struct Print<const FOR_PEOPLE: bool = false> {
    /// Output format
    #[arg(short, long, value_enum, ignore_case = true, value_name = "FORMAT",
          default_value = usual(FOR_PEOPLE))]
    output: Format,
    /// JMESPath expression that selects what to print, such as "[].name"
    #[arg(long, value_name = "JMESPATH", value_parser = query::parse, allow_hyphen_values = true)]
    query: Option<Query>,
}

/// For commands whose output is mostly read by people.
pub type PrintForPeople = Print<true>;

const fn usual(is_for_people: bool) -> &'static str {
    if is_for_people { "table" } else { "json" }
}

impl<const FOR_PEOPLE: bool> Print<FOR_PEOPLE> {
    /// The only way in which data is printed to standard output. `table` prints the whole document for people; for the
    /// result of a query, the columns are its keys.
    pub fn show<T: Serialize>(&self, document: &T, table: impl FnOnce() -> CliResult) -> CliResult {
        if self.is_for_people() {
            return table();
        }
        let data = self.data(document)?;
        // An empty query result prints nothing, as in az.
        if data.value.is_null() {
            return Ok(());
        }
        let value = &data.value;
        let text = match self.output {
            Format::Jsonc if is_coloured() => colour::json(value),
            Format::Json | Format::Jsonc => render::json(value),
            Format::Yamlc if is_coloured() => colour::yaml(&render::yaml(value)?),
            Format::Yaml | Format::Yamlc => render::yaml(value)?,
            Format::Table => render::table(&data)?,
            Format::Tsv => for_terminal(render::tsv(&data)),
            Format::None => String::new(),
        };
        bytes(text.as_bytes())
    }

    /// Prints one of many lines, for a command that keeps printing. `text` is the line for people.
    pub fn line<T: Serialize>(&self, document: &T, text: impl FnOnce() -> String) -> CliResult {
        if self.is_for_people() {
            return bytes(text().as_bytes());
        }
        let data = self.data(document)?;
        match self.output {
            _ if data.value.is_null() => Ok(()),
            Format::Json | Format::Jsonc => {
                bytes(render::without_commands(format!("{}\n", data.value)).as_bytes())
            }
            Format::Tsv => bytes(for_terminal(render::tsv(&data)).as_bytes()),
            Format::None => Ok(()),
            Format::Table | Format::Yaml | Format::Yamlc => Err(Failure::refused(
                "this command prints a line whenever something changes; use -o json, -o tsv or, without \
                 --query, -o table",
            )),
        }
    }

    /// Whether the output is for people.
    pub fn is_for_people(&self) -> bool {
        self.output == Format::Table && self.query.is_none()
    }

    fn data<T: Serialize>(&self, document: &T) -> CliResult<Data> {
        let value = serde_json::to_value(document).expect("documents have text keys");
        match &self.query {
            // Nulls are removed first, so that a query sees the same document as would be printed without it.
            Some(query) => query.apply(&tidy(value)),
            None => Ok(Data::whole(tidy(value))),
        }
    }
}

/// Prints bytes unchanged and unbuffered.
pub fn bytes(bytes: &[u8]) -> CliResult {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(cannot_write)
}

/// Prints bytes that a job or one of its tools wrote: unchanged to a file or program, without control sequences to a
/// terminal.
#[derive(Default)]
pub struct Raw {
    safe: terminal::Safe,
}

impl Raw {
    pub fn write(&mut self, piece: &[u8]) -> CliResult {
        if io::stdout().is_terminal() { bytes(&self.safe.take(piece)) } else { bytes(piece) }
    }

    /// Ends the output: on a terminal, what follows does not have the job's colours.
    pub fn end(&mut self) -> CliResult {
        match self.safe.end() {
            [] => Ok(()),
            reset => bytes(reset),
        }
    }
}

/// Prints a document for programs, in the only available format.
pub fn json<T: Serialize>(document: &T) -> CliResult {
    let value = serde_json::to_value(document).expect("documents have text keys");
    bytes(render::json(&tidy(value)).as_bytes())
}

/// The same YAML as `--output yaml`.
pub fn yaml_of<T: Serialize>(document: &T) -> CliResult<String> {
    let value = serde_json::to_value(document).expect("documents have text keys");
    render::yaml(&tidy(value))
}

/// Prints one row per item. An empty list prints nothing except the message `nothing`, to standard error.
pub fn table(header: &[&str], rows: Vec<Vec<String>>, nothing: &str) -> CliResult {
    if rows.is_empty() {
        say(nothing);
        return Ok(());
    }
    bytes(table_text(header, rows).as_bytes())
}

/// Prints a message to standard error. A closed standard error is not a reason to stop.
pub fn say(line: &str) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

fn cannot_write(why: io::Error) -> Failure {
    match why.kind() {
        io::ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::error(format!("cannot write to standard output: {why}")),
    }
}

/// No colours in pipes, or if NO_COLOR or TERM=dumb is set.
pub fn is_coloured() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Programs get values unchanged; a terminal would interpret control sequences in them.
fn for_terminal(text: String) -> String {
    match io::stdout().is_terminal() {
        true => without_commands(&text),
        false => text,
    }
}

fn without_commands(text: &str) -> String {
    let is_obeyed = |c: char| is_command(c) && !matches!(c, '\t' | '\n');
    text.chars().map(|c| if is_obeyed(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The form of Azure's command line: without nulls, and sorted by key, whatever map `serde_json` was built with.
pub fn tidy(value: Value) -> Value {
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

pub fn table_text(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        // For the same reason, rows are not wrapped at the terminal's width.
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.iter().map(|column| printable(column)));
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
    fn a_terminal_is_shown_what_it_would_obey_or_turn_around() {
        let hidden = "a\u{1b}[2J\tb\u{202e}c\u{2066}\n";
        assert_eq!(without_commands(hidden), "a\u{fffd}[2J\tb\u{fffd}c\u{fffd}\n");
    }

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
        // A column may have the name of a tag.
        let text = table_text(&["a\u{1b}\nb"], vec![vec!["1\t2".to_owned()]]);
        assert_eq!(text, "a\u{fffd} b\n-----\n1 2\n");
    }
}
