//! One dependency of a conda file: a name, its versions, and its build.
//!
//! The same text can mean different things to conda and PyPI: conda's `=1.2` is PyPI's `==1.2.*`.

use crate::brief;
use crate::version::{Specifier, is_version, sorted, specifier};

const SPEC_BYTES_MAX: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSpec {
    #[error("it has more than {SPEC_BYTES_MAX} bytes")]
    TooLong,
    #[error("it does not begin with the name of a package; write NAME or NAME=VERSION")]
    Name,
    #[error("brackets are not supported; write NAME=VERSION")]
    Brackets,
    #[error(
        "'or' ({0}) does not exist on PyPI; choose one of the versions, or bounds as in >=1.2,<2"
    )]
    Or(String),
    #[error("{0} is not a valid version on PyPI; write NAME=1.2 or NAME>=1.2,<2")]
    Version(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// In lower case, as in conda.
    pub name: String,
    /// As written, including the operator.
    version: Option<String>,
    build: Option<String>,
}

impl Spec {
    pub fn parse(text: &str) -> Result<Spec, BadSpec> {
        // A comment may follow, as in a file.
        let text = text.split(" #").next().unwrap_or(text).trim();
        if text.len() > SPEC_BYTES_MAX {
            return Err(BadSpec::TooLong);
        }
        if text.contains(['[', ']']) {
            return Err(BadSpec::Brackets);
        }
        // In `channel::name`, the channel makes no difference here.
        let text = text.rsplit_once("::").map_or(text, |(_, text)| text.trim());
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let end = text.find(|c: char| !is_part(c)).unwrap_or(text.len());
        let (name, rest) = (&text[..end], text[end..].trim());
        if !name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            return Err(BadSpec::Name);
        }
        let (version, build) = parts(rest);
        let owned = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Ok(Spec {
            name: name.to_ascii_lowercase(),
            version: version.as_deref().and_then(owned),
            build: build.as_deref().and_then(owned),
        })
    }

    /// The text for a note.
    pub fn shown(&self) -> String {
        let version = self.version.as_deref().unwrap_or_default();
        let build = self.build.as_ref().map(|build| format!("={build}")).unwrap_or_default();
        let gap = if version.starts_with(|c: char| c.is_ascii_alphanumeric()) { " " } else { "" };
        format!("{}{gap}{version}{build}", self.name)
    }

    pub fn specifiers(&self) -> Result<Vec<Specifier>, BadSpec> {
        let Some(version) = &self.version else { return Ok(Vec::new()) };
        if version.contains('|') {
            return Err(BadSpec::Or(brief(version)));
        }
        let mut all = Vec::new();
        for one in version.split(',') {
            all.extend(self.condition(one.trim())?);
        }
        Ok(sorted(all))
    }

    fn condition(&self, text: &str) -> Result<Option<Specifier>, BadSpec> {
        let bad = || BadSpec::Version(brief(text));
        let operators = ["===", "==", "!=", "<=", ">=", "~=", "<", ">", "="];
        let operator = operators.into_iter().find(|operator| text.starts_with(operator));
        let version = text[operator.map_or(0, str::len)..].trim();
        // `1.2.*`, and `1.2*`, which usually means the same.
        let (stem, is_open) = match version.strip_suffix('*') {
            Some(stem) => (stem.trim_end_matches('.'), true),
            None => (version, false),
        };
        if is_open && stem.is_empty() {
            return Ok(None);
        }
        if !is_version(stem) {
            return Err(bad());
        }
        let wanted = match (operator, is_open) {
            // With a build, it is exactly that version.
            (Some("="), false) if self.build.is_none() => format!("=={stem}.*"),
            (Some("=" | "==" | "===") | None, false) => format!("=={stem}"),
            (Some("=" | "==" | "===" | "~=") | None, true) => format!("=={stem}.*"),
            (Some("!="), true) => format!("!={stem}.*"),
            (Some("~="), false) if !stem.contains('.') => format!(">={stem}"),
            // The bound is the version itself.
            (Some(operator), _) => format!("{operator}{stem}"),
        };
        specifier(&wanted).map(Some).ok_or_else(bad)
    }

    /// The text for [`crate::python::PythonRequest`]. `None` if any version will do.
    pub fn python_request(&self) -> Option<String> {
        let version = self.version.as_deref()?;
        let alone = version.trim_start_matches('=').trim();
        if alone.starts_with(|c: char| c.is_ascii_digit()) && !alone.contains([',', '|']) {
            return Some(alone.trim_end_matches(['*', '.']).to_owned());
        }
        (alone != "*").then(|| version.to_owned())
    }
}

/// Splits what follows a name into the version and the build: `=1.2=py38_0`, `>=1.2,<2`, `1.2 py38_0`, `==1.2`.
fn parts(rest: &str) -> (Option<String>, Option<String>) {
    if rest.is_empty() {
        return (None, None);
    }
    // Conditions may contain spaces after commas and operators; whatever is still separate is a build.
    let mut version = String::new();
    let mut build = None;
    for word in rest.split_whitespace() {
        let goes_on = version.is_empty()
            || version.ends_with([',', '=', '<', '>', '~', '!', '|'])
            || word.starts_with([',', '|']);
        match goes_on {
            true => version.push_str(word),
            false => build = Some(word.to_owned()),
        }
    }
    // `=1.2=build`: an equals sign after a version starts a build.
    let start = version.find(|c: char| !"=<>~!".contains(c)).unwrap_or(version.len());
    if version[..start] == *"="
        && let Some(place) = version[start..].find('=').map(|place| place + start)
        && !version[start..place].contains([',', '<', '>', '~', '!', '|'])
    {
        build = Some(version[place + 1..].to_owned());
        version.truncate(place);
    }
    (Some(version), build)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::joined;

    #[test]
    fn versions_are_translated() {
        for (text, wanted) in [
            ("numpy", ""),
            ("numpy=1.23", "==1.23.*"),
            ("numpy=1.23.4", "==1.23.4.*"),
            ("numpy==1.23", "==1.23"),
            ("numpy =1.23", "==1.23.*"),
            ("numpy=1.23.*", "==1.23.*"),
            ("numpy==1.23.*", "==1.23.*"),
            ("numpy=1.23*", "==1.23.*"),
            ("numpy 1.23", "==1.23"),
            ("numpy 1.23.*", "==1.23.*"),
            ("numpy 1.23 py38_0", "==1.23"),
            ("numpy=1.23=py38h1234_0", "==1.23"),
            ("numpy=1.23=*_cpu", "==1.23"),
            ("numpy=1.23.*=py38_0", "==1.23.*"),
            ("numpy>=1.2,<2", "<2,>=1.2"),
            ("numpy >= 1.2, < 2", "<2,>=1.2"),
            ("numpy>=1.2.*", ">=1.2"),
            ("numpy!=1.2.*", "!=1.2.*"),
            ("numpy~=1.2", "~=1.2"),
            ("numpy~=1", ">=1"),
            ("numpy=*", ""),
            ("numpy *", ""),
            ("conda-forge::numpy=1.23", "==1.23.*"),
            ("NumPy<=2.0 # why", "<=2.0"),
        ] {
            let spec = Spec::parse(text).unwrap();
            assert_eq!(spec.name, "numpy", "{text}");
            assert_eq!(joined(&spec.specifiers().unwrap()), wanted, "{text}");
        }
    }

    #[test]
    fn what_pypi_cannot_express_is_refused() {
        let read = |text: &str| Spec::parse(text).and_then(|spec| spec.specifiers());
        assert_eq!(read("numpy=1.2|1.3"), Err(BadSpec::Or("'=1.2|1.3'".into())));
        assert_eq!(read("numpy[version='>=1']"), Err(BadSpec::Brackets));
        for text in ["", "=1.2", "!numpy", "é"] {
            assert_eq!(read(text), Err(BadSpec::Name), "{text}");
        }
        for text in ["numpy=9e", "numpy>=", "numpy=1.2,", "numpy=2020_06", "numpy=$(id)"] {
            assert!(matches!(read(text), Err(BadSpec::Version(_))), "{text}: {:?}", read(text));
        }
        assert_eq!(read(&"x".repeat(SPEC_BYTES_MAX + 1)), Err(BadSpec::TooLong));
    }

    #[test]
    fn a_request_for_python_is_a_version_or_bounds() {
        for (text, wanted) in [
            ("python", None),
            ("python=3.8", Some("3.8")),
            ("python==3.8.10", Some("3.8.10")),
            ("python=3.8.*", Some("3.8")),
            ("python 3.9", Some("3.9")),
            ("python=3.8=h1234_0", Some("3.8")),
            ("python>=3.8,<3.11", Some(">=3.8,<3.11")),
            ("python=*", None),
        ] {
            assert_eq!(Spec::parse(text).unwrap().python_request().as_deref(), wanted, "{text}");
        }
    }
}
