//! Colours for JSON and YAML, for terminals only.

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use super::render;

const KEY: Style = AnsiColor::Blue.on_default().bold();
const TEXT: Style = AnsiColor::Green.on_default();
/// Numbers, true, false and null.
const PLAIN: Style = AnsiColor::Cyan.on_default();

/// Without the colours, the text is the same as the plain format.
pub fn json(value: &Value) -> String {
    let mut text = String::new();
    write_json(value, 0, &mut text);
    text.push('\n');
    render::without_commands(text)
}

fn write_json(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let members = members.iter().map(|(key, value)| (Some(key), value));
            write_block(['{', '}'], members, depth, text);
        }
        Value::Array(items) if !items.is_empty() => {
            write_block(['[', ']'], items.iter().map(|item| (None, item)), depth, text);
        }
        Value::String(_) => text.push_str(&painted(TEXT, &value.to_string())),
        Value::Array(_) | Value::Object(_) => text.push_str(&value.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            text.push_str(&painted(PLAIN, &value.to_string()));
        }
    }
}

fn write_block<'a>(
    [open, close]: [char; 2],
    members: impl Iterator<Item = (Option<&'a String>, &'a Value)>,
    depth: usize,
    text: &mut String,
) {
    text.push(open);
    for (index, (key, value)) in members.enumerate() {
        text.push_str(if index == 0 { "\n" } else { ",\n" });
        text.push_str(&"  ".repeat(depth + 1));
        if let Some(key) = key {
            text.push_str(&painted(KEY, &Value::from(key.as_str()).to_string()));
            text.push_str(": ");
        }
        write_json(value, depth + 1, text);
    }
    text.push('\n');
    text.push_str(&"  ".repeat(depth));
    text.push(close);
}

/// Line by line: the text before the first colon is a key, the rest is a value.
pub fn yaml(plain: &str) -> String {
    plain.lines().map(|line| yaml_line(line) + "\n").collect()
}

fn yaml_line(line: &str) -> String {
    let start = line.len() - line.trim_start_matches([' ', '-']).len();
    let (lead, rest) = line.split_at(start);
    let value = |text: &str| {
        let is_text = !matches!(text, "true" | "false" | "null") && text.parse::<f64>().is_err();
        painted(if is_text { TEXT } else { PLAIN }, text)
    };
    // A quoted key may contain a colon; this is rare, so it is not coloured.
    let is_quoted = rest.starts_with(['"', '\'']);
    if let Some((key, rest)) = rest.split_once(": ").filter(|_| !is_quoted) {
        return format!("{lead}{}: {}", painted(KEY, key), value(rest));
    }
    match rest.strip_suffix(':') {
        Some(key) if !is_quoted => format!("{lead}{}:", painted(KEY, key)),
        Some(_) | None => format!("{lead}{}", value(rest)),
    }
}

fn painted(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::render;

    #[test]
    fn colours_change_nothing_but_the_colour() {
        let value = json!({"a": [1, true, null, "x\"y"], "b": {}, "c": [], "d": {"e": "f: g"}});
        let coloured = json(&value);
        assert!(coloured.contains("\u{1b}[36m1\u{1b}[0m"), "{coloured:?}");
        let stripped = |text: &str| anstream::adapter::strip_str(text).to_string();
        assert_eq!(stripped(&coloured), render::json(&value));
        let plain = render::yaml(&value).expect("YAML");
        let coloured = yaml(&plain);
        assert!(coloured.contains("- \u{1b}[36m1\u{1b}[0m\n"), "{coloured:?}");
        assert_eq!(stripped(&coloured), plain);
    }
}
