//! Writes a tree as the text that PyYAML would write, with sorted keys: Azure's clients hash and send it for a conda
//! specification.

use super::tree::{Node, Value, python_float};

/// The width at which lines are folded.
const WIDTH: usize = 80;

pub fn dump(node: &Node) -> String {
    let mut text = String::new();
    match &node.value {
        Value::Map(entries) if !entries.is_empty() => {
            map(entries_sorted(node), 0, false, &mut text)
        }
        Value::List(items) if !items.is_empty() => list(items, 0, false, &mut text),
        _ => {
            text.push_str(&flow(node, 0));
            text.push_str("\n...\n");
        }
    }
    text
}

fn entries_sorted(node: &Node) -> Vec<(&str, &Node)> {
    let Value::Map(entries) = &node.value else { return Vec::new() };
    let mut sorted: Vec<_> = entries.iter().map(|it| (it.key.as_str(), &it.value)).collect();
    sorted.sort_by_key(|(key, _)| *key);
    sorted
}

/// `begun` means that the indentation of the first line has been written already, after a dash.
fn map(entries: Vec<(&str, &Node)>, indent: usize, begun: bool, text: &mut String) {
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 || !begun {
            text.push_str(&" ".repeat(indent));
        }
        let key = if key.contains('\n') { double_quoted(key) } else { scalar(key, indent) };
        text.push_str(&key);
        text.push(':');
        match &value.value {
            Value::Map(inner) if !inner.is_empty() => {
                text.push('\n');
                map(entries_sorted(value), indent + 2, false, text);
            }
            // Dashes are written below their key, without indentation.
            Value::List(items) if !items.is_empty() => {
                text.push('\n');
                list(items, indent, false, text);
            }
            _ => {
                text.push(' ');
                let column = indent + key.chars().count() + 2;
                text.push_str(&folded(value, indent + 2, column));
                text.push('\n');
            }
        }
    }
}

fn list(items: &[Node], indent: usize, begun: bool, text: &mut String) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 || !begun {
            text.push_str(&" ".repeat(indent));
        }
        text.push_str("- ");
        match &item.value {
            Value::Map(inner) if !inner.is_empty() => {
                map(entries_sorted(item), indent + 2, true, text);
            }
            Value::List(inner) if !inner.is_empty() => list(inner, indent + 2, true, text),
            _ => {
                text.push_str(&folded(item, indent + 2, indent + 2));
                text.push('\n');
            }
        }
    }
}

fn flow(node: &Node, indent: usize) -> String {
    folded(node, indent, indent)
}

fn folded(node: &Node, indent: usize, column: usize) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => float(*number),
        Value::Text(text) => fold(&scalar(text, indent), indent, column),
        Value::List(_) => "[]".to_owned(),
        Value::Map(_) => "{}".to_owned(),
    }
}

fn float(number: f64) -> String {
    if number.is_nan() {
        return ".nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { ".inf".to_owned() } else { "-.inf".to_owned() };
    }
    let text = python_float(number);
    // Without a dot, it would be read back as text.
    match text.contains('.') {
        true => text,
        false => text.replacen('e', ".0e", 1),
    }
}

/// Plain if it would be read back as the same text, otherwise in quotes.
fn scalar(text: &str, indent: usize) -> String {
    let is_special = text.chars().any(|c| !matches!(c, '\n' | ' '..='~'));
    let has_odd_spaces = text.contains(" \n") || text.contains("\n ");
    if is_special || has_odd_spaces {
        return double_quoted(text);
    }
    let again = super::tree::parse(&format!("{text}\n"));
    let means_itself = again.is_ok_and(|node| node.as_text() == Some(text));
    match means_itself && is_plain(text) {
        true => text.to_owned(),
        false => single_quoted(text, indent),
    }
}

fn is_plain(text: &str) -> bool {
    let is_indicator =
        text.starts_with(['-', '?', ':']) && matches!(text.get(1..2), None | Some(" "));
    let begins_badly = text.starts_with(|c: char| "#,[]{}&*!|>'\"%@`".contains(c))
        || text.starts_with("---")
        || text.starts_with("...")
        || is_indicator;
    let has_breaks = text.contains('\n');
    let is_padded = text.starts_with(' ') || text.ends_with(' ');
    let has_indicators = text.contains(": ") || text.ends_with(':') || text.contains(" #");
    let is_special_word = matches!(text, "=" | "<<") || looks_like_a_date(text);
    !(text.is_empty()
        || begins_badly
        || has_breaks
        || is_padded
        || has_indicators
        || is_special_word)
}

/// Whether PyYAML would read the text as a date.
fn looks_like_a_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |from: usize, to: usize| {
        bytes.get(from..to).is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    bytes.len() >= 10
        && digits(0, 4)
        && bytes[4] == b'-'
        && digits(5, 7)
        && bytes[7] == b'-'
        && digits(8, 10)
        && (bytes.len() == 10 || matches!(bytes[10], b'T' | b't' | b' '))
}

fn single_quoted(text: &str, indent: usize) -> String {
    let escaped = text.replace('\'', "''");
    // A line break is written as an empty line.
    let lines = escaped.replace('\n', &format!("\n\n{}", " ".repeat(indent)));
    format!("'{lines}'")
}

fn double_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            '\u{85}' => quoted.push_str("\\N"),
            '\u{a0}' => quoted.push_str("\\_"),
            ' '..='~' => quoted.push(c),
            c if (c as u32) < 0x100 => quoted.push_str(&format!("\\x{:02X}", c as u32)),
            c if (c as u32) < 0x1_0000 => quoted.push_str(&format!("\\u{:04X}", c as u32)),
            c => quoted.push_str(&format!("\\U{:08X}", c as u32)),
        }
    }
    quoted.push('"');
    quoted
}

/// Long texts are folded at single spaces as soon as a line is full.
fn fold(text: &str, indent: usize, mut column: usize) -> String {
    if text.starts_with('"') || text.contains('\n') {
        return text.to_owned();
    }
    let mut folded = String::new();
    let words: Vec<&str> = text.split(' ').collect();
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            let is_single = !words[index - 1].is_empty() && !word.is_empty();
            match column > WIDTH && is_single {
                true => {
                    folded.push('\n');
                    folded.push_str(&" ".repeat(indent));
                    column = indent;
                }
                false => {
                    folded.push(' ');
                    column += 1;
                }
            }
        }
        folded.push_str(word);
        column += word.chars().count();
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::super::tree::parse;
    use super::*;

    /// The right-hand sides are what PyYAML 6 writes.
    #[test]
    fn a_conda_file_is_written_as_pyyaml_writes_it() {
        for (text, wanted) in [
            (
                "name: x\nchannels: [conda-forge]\ndependencies: [python=3.8, pip, {pip: [a, 'b==1', 'c>=1.0']}]",
                "channels:\n- conda-forge\ndependencies:\n- python=3.8\n- pip\n- pip:\n  - a\n  - b==1\n  - c>=1.0\nname: x\n",
            ),
            (
                "a: 'yes'\nb: '3.8'\nc: 3.8\nd: true\ne:\nf: ''",
                "a: 'yes'\nb: '3.8'\nc: 3.8\nd: true\ne: null\nf: ''\n",
            ),
            (
                "a: '# x'\nb: 'it''s: y'\nc: '*'\nd: -e .\n",
                "a: '# x'\nb: 'it''s: y'\nc: '*'\nd: -e .\n",
            ),
            ("a: []\nb: {}\nc: [[1, 2], [x]]\n", "a: []\nb: {}\nc:\n- - 1\n  - 2\n- - x\n"),
            ("a: ü\nb: 'x: y'\n", "a: \"\\xFC\"\nb: 'x: y'\n"),
            ("a: 1e-05\nb: 1.0e-05\nc: '2020-01-01'\n", "a: 1e-05\nb: 1.0e-05\nc: '2020-01-01'\n"),
        ] {
            assert_eq!(dump(&parse(text).unwrap()), wanted, "{text}");
        }
    }
}
