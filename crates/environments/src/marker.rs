//! The part of a requirement after the semicolon: for which hosts and interpreters it applies.
//!
//! pep508_rs would keep every marker in memory forever; see docs/adr/0008.

const NAMES: [&str; 12] = [
    "python_version",
    "python_full_version",
    "os_name",
    "sys_platform",
    "platform_release",
    "platform_system",
    "platform_version",
    "platform_machine",
    "platform_python_implementation",
    "implementation_name",
    "implementation_version",
    "extra",
];
const OPERATORS: [&str; 8] = ["===", "==", "!=", "<=", ">=", "~=", "<", ">"];
/// Nothing sensible is deeper, and parsing recurses as deep as the marker is.
const DEPTH_MAX: usize = 16;

/// Returns the canonical spelling, or `None` if the text is not a marker.
pub fn canonical(text: &str) -> Option<String> {
    let mut reading = Reading { rest: text, out: String::new() };
    reading.any(0)?;
    reading.rest.trim().is_empty().then_some(reading.out)
}

struct Reading<'a> {
    rest: &'a str,
    out: String,
}

impl Reading<'_> {
    fn any(&mut self, depth: usize) -> Option<()> {
        self.all(depth)?;
        while self.word("or") {
            self.out.push_str(" or ");
            self.all(depth)?;
        }
        Some(())
    }

    fn all(&mut self, depth: usize) -> Option<()> {
        self.one(depth)?;
        while self.word("and") {
            self.out.push_str(" and ");
            self.one(depth)?;
        }
        Some(())
    }

    fn one(&mut self, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        if self.sign("(") {
            self.out.push('(');
            self.any(depth + 1)?;
            self.out.push(')');
            return self.sign(")").then_some(());
        }
        self.value()?;
        self.operator()?;
        self.value()
    }

    fn operator(&mut self) -> Option<()> {
        let operator = if self.word("in") {
            "in"
        } else if self.word("not") {
            self.word("in").then_some("not in")?
        } else {
            OPERATORS.into_iter().find(|operator| self.sign(operator))?
        };
        self.out.push(' ');
        self.out.push_str(operator);
        self.out.push(' ');
        Some(())
    }

    fn value(&mut self) -> Option<()> {
        if let Some(name) = NAMES.into_iter().find(|name| self.word(name)) {
            self.out.push_str(name);
            return Some(());
        }
        let quote = if self.sign("\"") { '"' } else { self.sign("'").then_some('\'')? };
        let (text, rest) = self.rest.split_once(quote)?;
        // Excludes everything that has a meaning for the next reader of the line.
        let is_good = |c: char| c.is_ascii_alphanumeric() || " .-_+*,#/:~".contains(c);
        if !text.chars().all(is_good) {
            return None;
        }
        self.rest = rest;
        self.out.push('"');
        self.out.push_str(text);
        self.out.push('"');
        Some(())
    }

    fn sign(&mut self, sign: &str) -> bool {
        let Some(rest) = self.rest.trim_start().strip_prefix(sign) else { return false };
        self.rest = rest;
        true
    }

    fn word(&mut self, word: &str) -> bool {
        let Some(rest) = self.rest.trim_start().strip_prefix(word) else { return false };
        if rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            return false;
        }
        self.rest = rest;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_for_each_and_nothing_else_passes() {
        for (text, wanted) in [
            ("python_version<'3.8'", Some("python_version < \"3.8\"")),
            (
                "sys_platform == 'win32' and(extra=='x'or os_name not  in \"nt\")",
                Some("sys_platform == \"win32\" and (extra == \"x\" or os_name not in \"nt\")"),
            ),
            ("'linux' in sys_platform", Some("\"linux\" in sys_platform")),
            ("", None),
            ("python_version", None),
            ("python_versions < '3'", None),
            ("python_version < 3", None),
            ("python_version < '3", None),
            ("python_version < '${HOME}'", None),
            ("(python_version < '3'", None),
            ("python_version < '3')", None),
            ("python_version < '3' or", None),
            ("__import__('os') == ''", None),
        ] {
            assert_eq!(canonical(text).as_deref(), wanted, "{text}");
        }
        let deep = |levels: usize| {
            let (open, close) = ("(".repeat(levels), ")".repeat(levels));
            canonical(&format!("{open}os_name == 'x'{close}"))
        };
        assert!(deep(DEPTH_MAX).is_some() && deep(DEPTH_MAX + 1).is_none());
        assert!(deep(100_000).is_none());
    }
}
