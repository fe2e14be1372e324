//! Just enough CSV: lines of fields, with a field in double quotes if it contains commas or quotes. A quoted field does
//! not continue on the next line, because no name or number of a trace does. The csv crate would read an open quote to
//! the end of the file without an error: see docs/adr/0008.

use std::borrow::Cow;

pub(super) type Field<'t> = Cow<'t, str>;

/// The non-empty lines, with their numbers from 1.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let ends = |byte: &u8| *byte == b'\n';
    let lines = bytes.split(ends).map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.enumerate().map(|(place, line)| (place + 1, line)).filter(|(_, line)| !line.is_empty())
}

/// Splits a line into fields. `None` if its quotes do not match.
pub(super) fn split<'t>(line: &'t str, fields: &mut Vec<Field<'t>>) -> Option<()> {
    let mut rest = line;
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => take_quoted(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (Cow::Borrowed(&rest[..end]), &rest[end..])
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Some(()),
            None => return None,
        }
    }
}

/// The text up to the closing quote, and what follows it. Two quotes stand for one.
fn take_quoted(text: &str) -> Option<(Field<'_>, &str)> {
    let mut from = 0;
    loop {
        let quote = from + text[from..].find('"')?;
        let after = &text[quote + 1..];
        if !after.starts_with('"') {
            let inner = &text[..quote];
            let field = if inner.contains('"') {
                Cow::Owned(inner.replace("\"\"", "\""))
            } else {
                Cow::Borrowed(inner)
            };
            return Some((field, after));
        }
        from = quote + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str) -> Option<Vec<String>> {
        let mut fields = Vec::new();
        split(line, &mut fields)?;
        Some(fields.into_iter().map(Cow::into_owned).collect())
    }

    #[test]
    fn fields_are_what_is_between_the_commas() {
        let check = |line: &str, wanted: &[&str]| {
            assert_eq!(
                fields(line).as_deref(),
                Some(&wanted.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>()[..]),
                "{line}"
            );
        };
        check("", &[""]);
        check("a,b", &["a", "b"]);
        check(",", &["", ""]);
        check("\"a,b\",c", &["a,b", "c"]);
        check("\"\"", &[""]);
        check("\"say \"\"x\"\"\",y", &["say \"x\"", "y"]);
        check("a\"b", &["a\"b"]);
        for bad in ["\"", "\"a", "\"a\"b", "\"a\"\"", "x,\""] {
            assert_eq!(fields(bad), None, "{bad}");
        }
    }

    #[test]
    fn empty_lines_count_but_do_not_come() {
        let found: Vec<_> = lines(b"a\r\n\n\nb").collect();
        assert_eq!(found, [(1, &b"a"[..]), (4, &b"b"[..])]);
    }
}
