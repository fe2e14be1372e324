//! JSON as templates are written by hand, and as azure-cli passes them on: with comments, line breaks in strings,
//! superfluous commas, and `template` without quotes.

/// The same document as strict JSON. Any other mistake in it is left as it is.
pub(super) fn to_strict(text: &str) -> String {
    let mut made = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        if sign == '"' {
            rest = string(rest, &mut made);
        } else if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if rest.starts_with("/*") {
            rest = rest.find("*/").map_or("", |end| &rest[end + 2..]);
        } else if sign.is_ascii_alphabetic() || matches!(sign, '_' | '$') {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$');
            let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let is_key = after.trim_start().starts_with(':');
            let quote = if is_key { "\"" } else { "" };
            made.extend([quote, word, quote]);
            rest = after;
        } else {
            if matches!(sign, '}' | ']') {
                drop_comma(&mut made);
            }
            made.push(sign);
            rest = &rest[sign.len_utf8()..];
        }
    }
    made
}

/// Copies the string that begins here, and returns the text after it.
fn string<'t>(text: &'t str, made: &mut String) -> &'t str {
    made.push('"');
    let mut is_escaped = false;
    for (at, sign) in text.char_indices().skip(1) {
        match sign {
            '\n' => made.push_str("\\n"),
            '\r' => made.push_str("\\r"),
            '\t' => made.push_str("\\t"),
            other => made.push(other),
        }
        if sign == '"' && !is_escaped {
            return &text[at + 1..];
        }
        is_escaped = sign == '\\' && !is_escaped;
    }
    ""
}

fn drop_comma(made: &mut String) {
    let end = made.trim_end().len();
    if made[..end].ends_with(',') {
        made.truncate(end - 1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::to_strict;

    #[test]
    fn what_people_write_becomes_json() {
        let text = "{\"a\": 1, template:{ // why\r\n  \"b\": [true, null,], /* x\n */ $c: \"u // \\\" v\nw\",\n}}";
        let value: serde_json::Value = serde_json::from_str(&to_strict(text)).expect("JSON");
        let wanted =
            serde_json::json!({"a": 1, "template": {"b": [true, null], "$c": "u // \" v\nw"}});
        assert_eq!(value, wanted);
        for bad in ["{\"a", "{a:}", "/* x", "{\"a\\", "// x", "{,}}", "\\"] {
            assert!(serde_json::from_str::<serde_json::Value>(&to_strict(bad)).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn json_stays_what_it_is(text in "\\PC{0,30}", number in any::<i32>(), noise in "[\\PC\n\"/*,}]{0,30}") {
            let value = serde_json::json!({ text.clone(): [number, text, null, {"x": true}] });
            for written in [value.to_string(), serde_json::to_string_pretty(&value).expect("JSON")] {
                let read: serde_json::Value = serde_json::from_str(&to_strict(&written)).expect("JSON");
                prop_assert_eq!(&read, &value);
            }
            let made = to_strict(&noise);
            prop_assert!(made.len() <= 2 * noise.len() + 2);
        }
    }
}
