//! `$filter` of the list of resources: the part of OData that resource manager takes there.
//!
//! `resourceType eq 'a' and (name eq 'b' or substringof('c', name))`, with `tagName eq 'k' and tagValue eq 'v'`
//! for one tag. Whatever else is written is refused: a filter that is half understood lists the wrong things.

use std::collections::BTreeMap;

use crate::error::ArmError;
use crate::json::shorten;

/// As long as a dozen conditions on the longest names.
const FILTER_BYTES_MAX: usize = 4_096;
/// Parentheses in parentheses. Nobody needs more than two.
const DEPTH_MAX: usize = 16;

/// What a filter looks at.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub resource_group: &'a str,
    /// `Microsoft.MachineLearningServices/workspaces/computes`.
    pub resource_type: &'a str,
    /// With its parents' names in front: `workspace/compute`.
    pub name: &'a str,
    pub location: &'a str,
    /// `None`: this kind has none.
    pub tags: Option<&'a BTreeMap<String, String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter(Expr);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Expr {
    Any(Vec<Expr>),
    All(Vec<Expr>),
    Is { field: Property, text: String, negated: bool },
    Contains { field: Property, text: String },
    Tag { name: String, value: Option<String> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Property {
    ResourceGroup,
    ResourceType,
    Name,
    Location,
    TagName,
    TagValue,
}

const PROPERTIES: [(&str, Property); 6] = [
    ("resourceGroup", Property::ResourceGroup),
    ("resourceType", Property::ResourceType),
    ("name", Property::Name),
    ("location", Property::Location),
    ("tagName", Property::TagName),
    ("tagValue", Property::TagValue),
];

impl Filter {
    pub fn parse(text: &str) -> Result<Filter, ArmError> {
        let refuse = |why: String| {
            ArmError::invalid_property(
                "$filter",
                format!(
                    "$filter is \"{}\": {why}; compare resourceGroup, resourceType, name, location or tagName \
                     (and tagValue) with eq and a 'text', or use substringof('text', name), joined by and, or",
                    shorten(text)
                ),
            )
        };
        if text.len() > FILTER_BYTES_MAX {
            let got = text.len();
            return Err(refuse(format!("it has {got} bytes, at most {FILTER_BYTES_MAX} are read")));
        }
        let tokens = tokens(text).map_err(refuse)?;
        let mut parser = Parser { tokens: &tokens, depth: 0 };
        let expr = parser.any().map_err(refuse)?;
        match parser.tokens.first() {
            None => Ok(Filter(expr)),
            Some(token) => Err(refuse(format!("{} is not expected there", token.shown()))),
        }
    }

    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.0.matches(subject)
    }
}

impl Expr {
    fn matches(&self, subject: &Subject<'_>) -> bool {
        match self {
            Expr::Any(exprs) => exprs.iter().any(|expr| expr.matches(subject)),
            Expr::All(exprs) => exprs.iter().all(|expr| expr.matches(subject)),
            Expr::Is { field, text, negated } => field.is(subject, text) != *negated,
            Expr::Contains { field, text } => {
                let text = text.to_lowercase();
                field.of(subject).to_lowercase().contains(&text)
            }
            Expr::Tag { name, value } => {
                let has = |(key, kept): (&String, &String)| {
                    let fits = value.as_ref().is_none_or(|value| value == kept);
                    fits && key.eq_ignore_ascii_case(name)
                };
                subject.tags.is_some_and(|tags| tags.iter().any(has))
            }
        }
    }
}

impl Property {
    fn of<'a>(self, subject: &Subject<'a>) -> &'a str {
        match self {
            Property::ResourceGroup => subject.resource_group,
            Property::ResourceType => subject.resource_type,
            Property::Name => subject.name,
            Property::Location => subject.location,
            Property::TagName | Property::TagValue => unreachable!("tags are looked up by name"),
        }
    }

    fn is(self, subject: &Subject<'_>, text: &str) -> bool {
        let value = self.of(subject);
        match self {
            // Either the whole name, or what the user called it.
            Property::Name => {
                let last = value.rsplit('/').next().unwrap_or(value);
                value.eq_ignore_ascii_case(text) || last.eq_ignore_ascii_case(text)
            }
            // `East US` is `eastus`.
            Property::Location => value.eq_ignore_ascii_case(&text.replace(' ', "")),
            _ => value.eq_ignore_ascii_case(text),
        }
    }
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
                let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '/');
                let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                if end == 0 {
                    return Err(format!("'{first}' is not expected"));
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

struct Parser<'t> {
    tokens: &'t [Token],
    depth: usize,
}

impl Parser<'_> {
    fn any(&mut self) -> Result<Expr, String> {
        let mut exprs = vec![self.all()?];
        while self.takes("or") {
            exprs.push(self.all()?);
        }
        Ok(if exprs.len() == 1 { exprs.remove(0) } else { Expr::Any(exprs) })
    }

    fn all(&mut self) -> Result<Expr, String> {
        let mut exprs = Vec::new();
        loop {
            let expr = self.one()?;
            match (exprs.last_mut(), expr) {
                // The two are about one tag.
                (
                    Some(Expr::Tag { value: value @ None, .. }),
                    Expr::Is { field: Property::TagValue, text, .. },
                ) => *value = Some(text),
                (_, Expr::Is { field: Property::TagValue, .. }) => {
                    return Err("tagValue needs its tagName right before it, joined by and".into());
                }
                (_, expr) => exprs.push(expr),
            }
            if !self.takes("and") {
                return Ok(if exprs.len() == 1 { exprs.remove(0) } else { Expr::All(exprs) });
            }
        }
    }

    fn one(&mut self) -> Result<Expr, String> {
        match self.next()? {
            Token::Open => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err(format!("it has more than {DEPTH_MAX} parentheses in each other"));
                }
                let expr = self.any()?;
                self.depth -= 1;
                self.wants(Token::Close)?;
                Ok(expr)
            }
            token if token.is_word("substringof") => {
                self.wants(Token::Open)?;
                let text = self.text()?;
                self.wants(Token::Comma)?;
                let field = self.property()?;
                self.wants(Token::Close)?;
                match field {
                    Property::TagName | Property::TagValue => {
                        Err("substringof does not look into tags".into())
                    }
                    _ => Ok(Expr::Contains { field, text }),
                }
            }
            Token::Word(word) => self.comparison(property(&word)?),
            token => Err(format!("{} is not expected there", token.shown())),
        }
    }

    fn comparison(&mut self, field: Property) -> Result<Expr, String> {
        let operator = self.next()?;
        let negated = match &operator {
            token if token.is_word("eq") => false,
            token if token.is_word("ne") => true,
            token => return Err(format!("{} is no comparison, only eq and ne are", token.shown())),
        };
        let text = self.text()?;
        match field {
            Property::TagName | Property::TagValue if negated => {
                Err("tags are compared with eq only".into())
            }
            Property::TagName => Ok(Expr::Tag { name: text, value: None }),
            _ => Ok(Expr::Is { field, text, negated }),
        }
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

    fn text(&mut self) -> Result<String, String> {
        match self.next()? {
            Token::Text(text) => Ok(text),
            token => Err(format!("{} stands where a text in '…' should", token.shown())),
        }
    }

    fn property(&mut self) -> Result<Property, String> {
        match self.next()? {
            Token::Word(word) => property(&word),
            token => Err(format!("{} stands where a property should", token.shown())),
        }
    }
}

fn property(word: &str) -> Result<Property, String> {
    let found = PROPERTIES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    found.map(|(_, property)| *property).ok_or_else(|| {
        format!("\"{}\" is no property that resources are filtered by", shorten(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "Microsoft.MachineLearningServices/workspaces/computes";

    fn matches(filter: &str) -> bool {
        let tag = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let tags = [("team", "blue"), ("cost", "it's red")].map(tag).into();
        let subject = Subject {
            resource_group: "Rg-1",
            resource_type: TYPE,
            name: "ws/Pool",
            location: "eastus",
            tags: Some(&tags),
        };
        Filter::parse(filter).unwrap().matches(&subject)
    }

    #[test]
    fn what_clients_send_is_understood() {
        for filter in [
            "resourceGroup eq 'rg-1'",
            "RESOURCEGROUP  EQ 'RG-1'",
            "resourceType eq 'microsoft.machinelearningservices/workspaces/computes'",
            "name eq 'pool'",
            "name eq 'ws/pool'",
            "location eq 'East US'",
            "resourceType ne 'x'",
            "substringof('oo', name)",
            "substringof('RG',resourceGroup)",
            "tagName eq 'Team'",
            "tagName eq 'team' and tagValue eq 'blue'",
            "tagName eq 'cost' and tagValue eq 'it''s red'",
            "name eq 'x' or name eq 'pool' and location eq 'eastus'",
            "(name eq 'x' or name eq 'pool') and location eq 'eastus'",
            "resourceGroup eq 'rg-1' and tagName eq 'team' and tagValue eq 'blue' and name eq 'pool'",
        ] {
            assert!(matches(filter), "{filter}");
        }
        for filter in [
            "resourceGroup eq 'rg'",
            "resourceType eq 'Microsoft.MachineLearningServices/workspaces'",
            "name ne 'pool'",
            "tagName eq 'team' and tagValue eq 'red'",
            "tagName eq 'team' and tagValue eq 'it''s red'",
            "(name eq 'pool' or name eq 'x') and location eq 'westus'",
            "substringof('x', name)",
        ] {
            assert!(!matches(filter), "{filter}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_is_wrong() {
        for (filter, word) in [
            ("", "too early"),
            ("name", "too early"),
            ("name eq", "too early"),
            ("name eq pool", "\"pool\""),
            ("name eq 'pool", "missing"),
            ("name gt 'pool'", "\"gt\""),
            ("plan/name eq 'x'", "plan/name"),
            ("startswith(tagName, 'x')", "startswith"),
            ("name eq 'a' name eq 'b'", "\"name\""),
            ("name eq 'a' and", "too early"),
            ("(name eq 'a'", "too early"),
            ("name eq 'a')", "\")\""),
            ("tagValue eq 'x'", "tagName"),
            ("tagName eq 'a' or tagValue eq 'x'", "tagName"),
            ("tagName eq 'a' and tagValue eq 'x' and tagValue eq 'y'", "tagName"),
            ("tagName ne 'a'", "eq only"),
            ("substringof('a', tagName)", "tags"),
            ("substringof(name, 'a')", "'…'"),
            ("name eq 'a' & 1", "'&'"),
            (&format!("{}name eq 'a'", "(".repeat(17)), "16"),
            (&format!("name eq '{}'", "x".repeat(4_096)), "4096"),
        ] {
            let error = Filter::parse(filter).unwrap_err();
            assert_eq!((error.status, error.target()), (400, Some("$filter")), "{filter}");
            assert!(error.to_string().contains(word), "{filter}: {error}");
        }
    }
}
