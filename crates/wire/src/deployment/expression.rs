//! Parses the expressions of a template into a tree: `[concat('a', parameters('b').c[0])]`.
//!
//! This module knows only the syntax. A tree is at most [`DEPTH_MAX`] levels deep, which bounds the stack of the code
//! that walks it.

use super::DEPTH_MAX;
use crate::json::shorten;

/// The length limit of an expression, which is Azure's own.
const EXPRESSION_BYTES_MAX: usize = 24_576;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expression {
    Text(String),
    Number(i64),
    /// The name in lower case.
    Call {
        name: String,
        arguments: Vec<Expression>,
    },
    Member {
        of: Box<Expression>,
        name: String,
    },
    Item {
        of: Box<Expression>,
        index: Box<Expression>,
    },
}

/// What a string of a template means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning<'t> {
    Literal(&'t str),
    Computed(Expression),
}

/// A string in brackets is an expression. One that begins with two brackets is literal text without the first bracket.
pub(super) fn read(text: &str) -> Result<Meaning<'_>, String> {
    let Some(inner) = text.strip_prefix('[') else { return Ok(Meaning::Literal(text)) };
    if inner.starts_with('[') {
        return Ok(Meaning::Literal(inner));
    }
    let Some(inner) = inner.strip_suffix(']') else { return Ok(Meaning::Literal(text)) };
    if inner.len() > EXPRESSION_BYTES_MAX {
        return Err(format!(
            "the expression has {} bytes; at most {EXPRESSION_BYTES_MAX} are allowed, so split it up into variables",
            inner.len()
        ));
    }
    let mut parser = Parser { text: inner, at: 0, depth: 0 };
    let expression = parser.expression()?;
    parser.space();
    match parser.rest().chars().next() {
        None => Ok(Meaning::Computed(expression)),
        Some(_) => Err(parser.unexpected("the end of the expression")),
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Skips the next character and returns true if it is this one.
    fn take(&mut self, sign: char) -> bool {
        self.space();
        let is_next = self.rest().starts_with(sign);
        if is_next {
            self.at += sign.len_utf8();
        }
        is_next
    }

    fn unexpected(&self, wanted: &str) -> String {
        match self.rest() {
            "" => format!("the expression ends where {wanted} should be"),
            rest => format!(
                "at position {} of the expression, '{}' is found where {wanted} should be",
                self.at + 1,
                shorten(rest)
            ),
        }
    }

    fn expression(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!(
                "the expression is nested deeper than {DEPTH_MAX} levels; split it up into variables"
            ));
        }
        self.space();
        let mut found = match self.rest().chars().next() {
            Some('\'') => Expression::Text(self.text_literal()?),
            Some('-' | '0'..='9') => Expression::Number(self.number()?),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.call()?,
            _ => return Err(self.unexpected("a function, a 'text' or a number")),
        };
        // Each access is a level too, because it wraps the expression before it.
        let mut members = 0;
        loop {
            found = if self.take('.') {
                let name = self.word("the name of a property")?.to_owned();
                Expression::Member { of: Box::new(found), name }
            } else if self.take('[') {
                let index = Box::new(self.expression()?);
                self.expect(']')?;
                Expression::Item { of: Box::new(found), index }
            } else {
                break;
            };
            members += 1;
            if members + self.depth > DEPTH_MAX {
                return Err(format!(
                    "the expression is nested deeper than {DEPTH_MAX} levels; split it up into variables"
                ));
            }
        }
        self.depth -= 1;
        Ok(found)
    }

    fn expect(&mut self, sign: char) -> Result<(), String> {
        if self.take(sign) { Ok(()) } else { Err(self.unexpected(&format!("'{sign}'"))) }
    }

    fn word(&mut self, wanted: &str) -> Result<&'t str, String> {
        self.space();
        let rest = self.rest();
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
        let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        if end == 0 {
            return Err(self.unexpected(wanted));
        }
        self.at += end;
        Ok(&rest[..end])
    }

    /// `name(…)`, optionally prefixed with `az.` or `sys.`.
    fn call(&mut self) -> Result<Expression, String> {
        let mut name = self.word("a function")?.to_ascii_lowercase();
        while self.take('.') {
            let rest = self.word("a function")?.to_ascii_lowercase();
            let is_ours = matches!(name.as_str(), "az" | "sys");
            name = if is_ours { rest } else { format!("{name}.{rest}") };
        }
        if !self.take('(') {
            return Err(self.unexpected(&format!("'(' after '{}'", shorten(&name))));
        }
        let mut arguments = Vec::new();
        if !self.take(')') {
            loop {
                arguments.push(self.expression()?);
                if self.take(')') {
                    break;
                }
                if !self.take(',') {
                    return Err(self.unexpected("',' or ')'"));
                }
            }
        }
        Ok(Expression::Call { name, arguments })
    }

    /// A quote inside the text is written twice.
    fn text_literal(&mut self) -> Result<String, String> {
        let mut text = String::new();
        let start = self.at;
        self.at += 1;
        loop {
            let rest = self.rest();
            let Some(end) = rest.find('\'') else {
                self.at = start;
                return Err(format!(
                    "the text that begins at position {} is not closed",
                    start + 1
                ));
            };
            text.push_str(&rest[..end]);
            self.at += end + 1;
            if !self.rest().starts_with('\'') {
                return Ok(text);
            }
            text.push('\'');
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        let rest = self.rest();
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        let length = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let end = rest.len() - digits.len() + length;
        let number = rest[..end].parse().map_err(|_| self.unexpected("a whole number"))?;
        self.at += end;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(expression: &Expression) -> String {
        match expression {
            Expression::Text(text) => format!("{text:?}"),
            Expression::Number(number) => number.to_string(),
            Expression::Call { name, arguments } => {
                let arguments: Vec<_> = arguments.iter().map(shown).collect();
                format!("{name}({})", arguments.join(" "))
            }
            Expression::Member { of, name } => format!("{}.{name}", shown(of)),
            Expression::Item { of, index } => format!("{}[{}]", shown(of), shown(index)),
        }
    }

    #[test]
    fn expressions_are_read_as_azure_writes_them() {
        let cases = [
            ("[concat('it''s', -1 , az.toLower('X'))]", r#"concat("it's" -1 tolower("X"))"#),
            ("[ parameters('a').b['c'][0].d ]", r#"parameters("a").b["c"][0].d"#),
            ("[resourceGroup().id]", "resourcegroup().id"),
            ("[contoso.unique('x')]", r#"contoso.unique("x")"#),
        ];
        for (text, tree) in cases {
            match read(text) {
                Ok(Meaning::Computed(found)) => assert_eq!(shown(&found), tree),
                other => panic!("{text}: {other:?}"),
            }
        }
        for (text, meant) in [("plain", "plain"), ("[[x]", "[x]"), ("[note] x", "[note] x")] {
            assert_eq!(read(text), Ok(Meaning::Literal(meant)));
        }
    }

    #[test]
    fn what_is_no_expression_is_refused_with_its_place() {
        let cases = [
            ("[]", "the expression ends where a function, a 'text' or a number should be"),
            ("[concat('a']", "the expression ends where ',' or ')' should be"),
            ("[concat('a) ]", "the text that begins at position 8 is not closed"),
            (
                "[a b()]",
                "at position 3 of the expression, 'b()' is found where '(' after 'a' should be",
            ),
            ("['a' 'b']", "at position 5 of the expression, ''b'' is found where the end"),
            ("[add(1, 99999999999999999999)]", "at position 8"),
        ];
        for (text, words) in cases {
            let error = read(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
        for deep in ["a(".repeat(200), format!("a(){}", ".b".repeat(200)), "a()[".repeat(200)] {
            let error = read(&format!("[{deep}]")).expect_err("deep");
            assert!(error.contains("nested deeper than 64 levels"), "{error}");
        }
        assert!(read(&format!("['{}']", "x".repeat(30_000))).is_err());
    }
}
