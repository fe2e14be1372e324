//! `$filter`: the part of OData that resource manager takes. Each list brings the table of its own fields.
//!
//! `resourceType eq 'a' and (name eq 'b' or substringof('c', name))`. Everything else is refused: a filter that is half
//! understood lists the wrong things.

use std::fmt;

use crate::error::ArmError;
use crate::json::shorten;

/// As long as a dozen conditions on the longest names.
const FILTER_BYTES_MAX: usize = 4_096;
/// Parentheses in parentheses; two are enough in practice.
const DEPTH_MAX: usize = 16;

/// Any of these, where each is all of its terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter<F>(pub Vec<Vec<Term<F>>>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Term<F> {
    Compare { field: F, operator: Operator, value: Value },
    Contains { field: F, text: String },
    Group(Filter<F>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Eq,
    Ne,
    Ge,
    Gt,
    Le,
    Lt,
}

const OPERATORS: [(&str, Operator); 6] = [
    ("eq", Operator::Eq),
    ("ne", Operator::Ne),
    ("ge", Operator::Ge),
    ("gt", Operator::Gt),
    ("le", Operator::Le),
    ("lt", Operator::Lt),
];

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = OPERATORS.iter().find(|(_, operator)| operator == self);
        f.write_str(known.map_or("", |(word, _)| word))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Quoted(String),
    /// az writes times without quotes.
    Bare(String),
}

impl Value {
    pub fn quoted(&self) -> Result<&str, String> {
        match self {
            Value::Quoted(text) => Ok(text),
            Value::Bare(word) => Err(no_text(&Token::Word(word.clone()))),
        }
    }

    pub fn text(&self) -> &str {
        let (Value::Quoted(text) | Value::Bare(text)) = self;
        text
    }
}

impl<F: Copy> Filter<F> {
    pub fn parse(text: &str, fields: &[(&str, F)]) -> Result<Filter<F>, String> {
        if text.len() > FILTER_BYTES_MAX {
            let got = text.len();
            return Err(format!("it has {got} bytes, at most {FILTER_BYTES_MAX} are read"));
        }
        let tokens = tokens(text)?;
        let mut parser = Parser { tokens: &tokens, fields, depth: 0 };
        let filter = parser.any()?;
        match parser.tokens.first() {
            None => Ok(filter),
            Some(token) => Err(format!("{} is not expected there", token.shown())),
        }
    }
}

/// The text of a filter that is nothing but `field eq 'text'`.
pub(crate) fn equal_to(filter: &str, field: &str) -> Option<String> {
    let Filter(mut any) = Filter::parse(filter, &[(field, ())]).ok()?;
    let all = any.pop().filter(|_| any.is_empty())?;
    match <[Term<()>; 1]>::try_from(all).ok()? {
        [Term::Compare { operator: Operator::Eq, value: Value::Quoted(text), .. }] => Some(text),
        _ => None,
    }
}

pub(crate) fn refusal(filter: &str, why: &str, remedy: &str) -> ArmError {
    let message = format!("$filter is \"{}\": {why}; {remedy}", shorten(filter));
    ArmError::invalid_property("$filter", message)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Open,
    Close,
    Comma,
}

impl Token {
    fn shown(&self) -> String {
        match self {
            Token::Word(word) => format!("\"{}\"", shorten(word)),
            Token::Text(text) => format!("'{}'", shorten(text)),
            Token::Open => "\"(\"".into(),
            Token::Close => "\")\"".into(),
            Token::Comma => "\",\"".into(),
        }
    }

    fn is_word(&self, wanted: &str) -> bool {
        matches!(self, Token::Word(word) if word.eq_ignore_ascii_case(wanted))
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '(' => (Token::Open, &rest[1..]),
            ')' => (Token::Close, &rest[1..]),
            ',' => (Token::Comma, &rest[1..]),
            '\'' => quoted(&rest[1..])?,
            _ => {
                let is_part = |c: char| c.is_alphanumeric() || "_./:+-".contains(c);
                let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                if end == 0 {
                    return Err(format!("'{}' is not expected", shorten(&first.to_string())));
                }
                (Token::Word(rest[..end].to_owned()), &rest[end..])
            }
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Ok(tokens)
}

/// A text up to its closing quote; two of them stand for one.
fn quoted(rest: &str) -> Result<(Token, &str), String> {
    let mut text = String::new();
    let mut chars = rest.char_indices().peekable();
    while let Some((index, c)) = chars.next() {
        let is_end = c == '\'' && chars.next_if(|(_, next)| *next == '\'').is_none();
        if is_end {
            return Ok((Token::Text(text), &rest[index + 1..]));
        }
        text.push(c);
    }
    Err("a ' is missing at the end of a text".into())
}

struct Parser<'t, F> {
    tokens: &'t [Token],
    fields: &'t [(&'t str, F)],
    depth: usize,
}

impl<F: Copy> Parser<'_, F> {
    fn any(&mut self) -> Result<Filter<F>, String> {
        let mut any = vec![self.all()?];
        while self.takes("or") {
            any.push(self.all()?);
        }
        Ok(Filter(any))
    }

    fn all(&mut self) -> Result<Vec<Term<F>>, String> {
        let mut all = vec![self.one()?];
        while self.takes("and") {
            all.push(self.one()?);
        }
        Ok(all)
    }

    fn one(&mut self) -> Result<Term<F>, String> {
        match self.next()? {
            Token::Open => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err(format!("it has more than {DEPTH_MAX} parentheses in each other"));
                }
                let filter = self.any()?;
                self.depth -= 1;
                self.wants(Token::Close)?;
                Ok(Term::Group(filter))
            }
            token if token.is_word("substringof") => {
                self.wants(Token::Open)?;
                let text = match self.next()? {
                    Token::Text(text) => text,
                    token => return Err(no_text(&token)),
                };
                self.wants(Token::Comma)?;
                let token = self.next()?;
                let field = self.field(&token)?;
                self.wants(Token::Close)?;
                Ok(Term::Contains { field, text })
            }
            token => {
                let field = self.field(&token)?;
                let operator = self.operator()?;
                let value = match self.next()? {
                    Token::Text(text) => Value::Quoted(text),
                    Token::Word(word) => Value::Bare(word),
                    token => return Err(no_text(&token)),
                };
                Ok(Term::Compare { field, operator, value })
            }
        }
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let token = self.next()?;
        let known = OPERATORS.iter().find(|(word, _)| token.is_word(word));
        known.map(|(_, operator)| *operator).ok_or_else(|| {
            let all = OPERATORS.map(|(word, _)| word).join(", ");
            format!("{} is no comparison; there are {all}", token.shown())
        })
    }

    fn next(&mut self) -> Result<Token, String> {
        let (first, rest) = self.tokens.split_first().ok_or("it ends too early")?;
        self.tokens = rest;
        Ok(first.clone())
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = self.tokens.first().is_some_and(|token| token.is_word(word));
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }

    fn wants(&mut self, wanted: Token) -> Result<(), String> {
        match self.next()? {
            token if token == wanted => Ok(()),
            token => Err(format!("{} stands where {} should", token.shown(), wanted.shown())),
        }
    }

    fn field(&self, token: &Token) -> Result<F, String> {
        let found = self.fields.iter().find(|(name, _)| token.is_word(name));
        found.map(|(_, field)| *field).ok_or_else(|| {
            format!("{} is no property that this list is filtered by", token.shown())
        })
    }
}

fn no_text(token: &Token) -> String {
    format!("{} stands where a text in '…' should", token.shown())
}
