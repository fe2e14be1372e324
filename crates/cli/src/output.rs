//! Everything that is printed: data on standard output, talk on standard error.

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

/// Columns, and a line under their names: nothing that would be in the way of grep and awk.
const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction(' '))
    .header_separator(LineStyle::none().fill('-').junction(' '))
    .content_lines(ContentLineStyle::none().junction(' '));

/// az's formats, by az's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For programs
    Json,
    /// JSON, in colour on a terminal
    Jsonc,
    /// For programs and people
    Yaml,
    /// YAML, in colour on a terminal
    Yamlc,
    /// For people
    Table,
    /// Values with tabs between them, for shells
    Tsv,
    /// Nothing
    None,
}

/// The flags of every command that prints data. What is usual is JSON, as in az, or a table for people.
#[derive(Debug, clap::Args)]
pub struct Print<const FOR_PEOPLE: bool = false> {
    /// How to print it
    #[arg(short, long, value_enum, ignore_case = true, value_name = "FORMAT",
          default_value = usual(FOR_PEOPLE))]
    output: Format,
    /// What to print of it: a JMESPath expression, such as "[].name"
    #[arg(long, value_name = "JMESPATH", value_parser = query::parse, allow_hyphen_values = true)]
    query: Option<Query>,
}

/// For commands whose answer is mostly read by people.
pub type PrintForPeople = Print<true>;

const fn usual(is_for_people: bool) -> &'static str {
    if is_for_people { "table" } else { "json" }
}

impl<const FOR_PEOPLE: bool> Print<FOR_PEOPLE> {
    /// The one way in which data gets to standard output. `table` writes what people see of the whole of it;
    /// of the result of a query the columns are its keys.
    pub fn show<T: Serialize>(&self, document: &T, table: impl FnOnce() -> CliResult) -> CliResult {
        if self.is_for_people() {
            return table();
        }
        let data = self.data(document)?;
        // A query that finds nothing prints nothing, as in az.
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

    /// One line of many, for a command that goes on printing. `text` is the line for people.
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

    /// Whether people read it as it is.
    pub fn is_for_people(&self) -> bool {
        self.output == Format::Table && self.query.is_none()
    }

    fn data<T: Serialize>(&self, document: &T) -> CliResult<Data> {
        let value = serde_json::to_value(document).expect("documents have text keys");
        match &self.query {
            // Nulls go first, so that a query sees what is printed without it.
            Some(query) => query.apply(&tidy(value)),
            None => Ok(Data::whole(tidy(value))),
        }
    }
}

/// Bytes as they are, at once.
pub fn bytes(bytes: &[u8]) -> CliResult {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(cannot_write)
}

/// Bytes that a job or a tool of it wrote: to a file or a program as they are, to a terminal without what it would obey.
#[derive(Default)]
pub struct Raw {
    safe: terminal::Safe,
}

impl Raw {
    pub fn write(&mut self, piece: &[u8]) -> CliResult {
        if io::stdout().is_terminal() { bytes(&self.safe.take(piece)) } else { bytes(piece) }
    }

    /// Nothing more comes: on a terminal, what follows is not in the job's colours.
    pub fn end(&mut self) -> CliResult {
        match self.safe.end() {
            [] => Ok(()),
            reset => bytes(reset),
        }
    }
}

/// A document for programs alone, whose format is no choice.
pub fn json<T: Serialize>(document: &T) -> CliResult {
    let value = serde_json::to_value(document).expect("documents have text keys");
    bytes(render::json(&tidy(value)).as_bytes())
}

/// As `--output yaml` prints it.
pub fn yaml_of<T: Serialize>(document: &T) -> CliResult<String> {
    let value = serde_json::to_value(document).expect("documents have text keys");
    render::yaml(&tidy(value))
}

/// One row per item. A list without items prints nothing, and says so to people: `nothing`.
pub fn table(header: &[&str], rows: Vec<Vec<String>>, nothing: &str) -> CliResult {
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

/// Not when piped, and not where NO_COLOR or TERM=dumb ask for none.
pub fn is_coloured() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// A program gets values as they are; a terminal would obey what somebody hid in them.
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

/// As Azure's command line prints: without nulls, and sorted by key whatever map `serde_json` was
/// built with.
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
        // For the same reason rows are not folded to the terminal's width.
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
        // A column may be called after a tag.
        let text = table_text(&["a\u{1b}\nb"], vec![vec!["1\t2".to_owned()]]);
        assert_eq!(text, "a\u{fffd} b\n-----\n1 2\n");
    }
}
