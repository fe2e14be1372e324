//! Versions of Python packages and what may be asked of them, as PEP 440 has it.

use std::fmt;

/// What compares a version. Longer ones come before those that they begin with.
const OPERATORS: [&str; 8] = ["===", "==", "!=", "<=", ">=", "~=", "<", ">"];
const VERSION_BYTES_MAX: usize = 128;

/// One condition, such as `>=1.2`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Specifier {
    pub operator: &'static str,
    pub version: Box<str>,
}

impl fmt::Display for Specifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.operator, self.version)
    }
}

impl Specifier {
    pub fn new(operator: &'static str, version: impl Into<Box<str>>) -> Specifier {
        Specifier { operator, version: version.into() }
    }

    /// `None` for what is no operator and a version.
    pub fn parse(text: &str) -> Option<Specifier> {
        let text = text.trim();
        let operator = OPERATORS.into_iter().find(|operator| text.starts_with(operator))?;
        let version = text[operator.len()..].trim();
        let is_good = match operator {
            "==" | "!=" => is_version(version.strip_suffix(".*").unwrap_or(version)),
            // Equal as texts: whatever could be the name of a version.
            "===" => is_plain(version),
            "~=" => is_version(version) && version.contains('.'),
            _ => is_version(version),
        };
        is_good.then(|| Specifier::new(operator, version.to_ascii_lowercase()))
    }
}

/// All of a list such as `>=1.2, <2`, sorted, none twice.
pub fn specifiers(text: &str) -> Option<Vec<Specifier>> {
    let mut all: Vec<Specifier> =
        text.split(',').map(Specifier::parse).collect::<Option<Vec<_>>>()?;
    all.sort();
    all.dedup();
    Some(all)
}

pub fn joined(all: &[Specifier]) -> String {
    all.iter().map(Specifier::to_string).collect::<Vec<_>>().join(",")
}

fn is_plain(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b".+!_-".contains(&byte);
    (1..=VERSION_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_good)
}

/// Whether it is a version: `1.2`, `1!2.0rc1`, `1.0.post2.dev3+cpu`, and the same in looser spellings.
pub fn is_version(text: &str) -> bool {
    if !is_plain(text) {
        return false;
    }
    let text = text.to_ascii_lowercase();
    let (public, local) = match text.split_once('+') {
        Some((public, local)) => (public, Some(local)),
        None => (text.as_str(), None),
    };
    let mut rest = Rest(public);
    rest.skip("v");
    let release = rest;
    if !(rest.number() && rest.skip("!")) {
        rest = release;
    }
    if !rest.number() {
        return false;
    }
    loop {
        let before = rest;
        if !(rest.skip(".") && rest.number()) {
            rest = before;
            break;
        }
    }
    rest.part(&["alpha", "beta", "preview", "pre", "rc", "a", "b", "c"]);
    let before = rest;
    if !(rest.skip("-") && rest.number()) {
        rest = before;
        rest.part(&["post", "rev", "r"]);
    }
    rest.part(&["dev"]);
    let is_local = |local: &str| {
        local
            .split(['.', '-', '_'])
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    };
    rest.0.is_empty() && local.is_none_or(is_local)
}

/// What is left to read.
#[derive(Clone, Copy)]
struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn skip(&mut self, text: &str) -> bool {
        match self.0.strip_prefix(text) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn number(&mut self) -> bool {
        let rest = self.0.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_there = rest.len() < self.0.len();
        self.0 = rest;
        is_there
    }

    fn separator(&mut self) {
        let _ = self.skip(".") || self.skip("-") || self.skip("_");
    }

    /// One of these words with what may stand around it, or nothing.
    fn part(&mut self, words: &[&str]) {
        let before = *self;
        self.separator();
        if !words.iter().any(|word| self.skip(word)) {
            *self = before;
            return;
        }
        let after = *self;
        self.separator();
        if !self.number() {
            *self = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_from_other_texts() {
        for good in [
            "1",
            "1.2",
            "2024.1.0",
            "1.0a1",
            "1.0.alpha-1",
            "1.0rc",
            "1.0-1",
            "1.0.post2",
            "1.0-r4",
            "1.0.dev3",
            "1!2.0",
            "v1.0",
            "1.0+cu118",
            "1.0+ubuntu-1.2",
            "1.0RC1",
            "1.0b2.post345.dev456",
        ] {
            assert!(is_version(good), "{good}");
        }
        for bad in [
            "",
            "a",
            "1.",
            ".1",
            "1..2",
            "1.0x",
            "1.0+",
            "1.0+a..b",
            "1.0 ",
            "1 .0",
            "1.*",
            "ä",
            "1.0post post",
            "1!",
            "!1",
            "1,2",
            "2020_06",
            "9e",
            "$(x)",
            &"1".repeat(129),
        ] {
            assert!(!is_version(bad), "{bad}");
        }
    }

    #[test]
    fn conditions_are_sorted_and_checked() {
        for (text, wanted) in [
            ("<2, >=1.2", Some("<2,>=1.2")),
            (">=1.2,<2,<2", Some("<2,>=1.2")),
            ("==1.2.*", Some("==1.2.*")),
            ("== 1.2RC1", Some("==1.2rc1")),
            ("===foo", Some("===foo")),
            ("~=1.4.2", Some("~=1.4.2")),
            ("~=1", None),
            (">=1.2.*", None),
            ("=1.2", None),
            ("1.2", None),
            (">=1.2,", None),
            ("", None),
        ] {
            assert_eq!(specifiers(text).map(|all| joined(&all)).as_deref(), wanted, "{text}");
        }
    }
}
