//! Which Python is requested, and which one on this host comes closest.

use std::fmt;
use std::path::{Path, PathBuf};

use pep440_rs::Operator::*;

use crate::version::{Specifier, specifiers};

/// Folders that sandboxed nodes see as well; the more specific one comes first.
const FOLDERS: [&str; 2] = ["/usr/local/bin", "/usr/bin"];
/// Older versions are not searched for.
const MINORS: std::ops::Range<u32> = 6..40;
/// The oldest interpreter that is copied: uv does not reliably create environments for older ones.
const ELSEWHERE_MIN: u32 = 8;

/// A version of Python 3, without its last number, which matters little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The versions that a user accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonRequest(Vec<Specifier>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPythonRequest {
    #[error("it is not a version of Python; write 3.11, or bounds as in >=3.9,<3.13")]
    Unreadable,
    #[error("Python {0} is not supported; use Python 3 and specify one of its versions")]
    NotThree(u32),
}

impl PythonRequest {
    /// Parses `3.10`, `3.10.4`, `3`, `==3.10.*`, `>=3.8,<3.12`.
    pub fn parse(text: &str) -> Result<PythonRequest, BadPythonRequest> {
        let text = text.trim();
        let all = match text.starts_with(|c: char| c.is_ascii_digit()) {
            true => specifiers(&format!("=={text}")),
            false => specifiers(text),
        };
        let all = all.ok_or(BadPythonRequest::Unreadable)?;
        for one in &all {
            let (major, _) = numbers(one.version()).ok_or(BadPythonRequest::Unreadable)?;
            let is_exact = matches!(one.operator(), Equal | EqualStar | ExactEqual | TildeEqual);
            if is_exact && major != 3 {
                return Err(BadPythonRequest::NotThree(major));
            }
        }
        Ok(PythonRequest(all))
    }

    /// The canonical spelling: `3.10` for one version, otherwise its bounds.
    pub fn text(&self) -> String {
        if let [one] = &self.0[..]
            && let (Equal | EqualStar, Some((major, minor))) =
                (one.operator(), numbers(one.version()))
        {
            return minor.map_or(major.to_string(), |minor| format!("{major}.{minor}"));
        }
        crate::version::joined(&self.0)
    }

    pub fn admits(&self, have: Version) -> bool {
        self.0.iter().all(|one| {
            let Some((major, minor)) = numbers(one.version()) else { return false };
            let wanted = Version { major, minor: minor.unwrap_or(0) };
            let same = have.major == major && minor.is_none_or(|minor| have.minor == minor);
            let is_of_release = one.version().release().len() > 2;
            match one.operator() {
                Equal | EqualStar | ExactEqual => same,
                TildeEqual => have.major == major && have >= wanted,
                // This excludes one release, but no minor version.
                NotEqual | NotEqualStar => !same || is_of_release,
                GreaterThanEqual => have >= wanted,
                LessThanEqual => have <= wanted,
                GreaterThan => have > wanted || (is_of_release && have == wanted),
                // A bound below 3.11.4 still allows 3.11, because only minor versions are compared.
                LessThan => have < wanted || (is_of_release && have == wanted),
            }
        })
    }
}

/// Returns the first two numbers.
fn numbers(version: &pep440_rs::Version) -> Option<(u32, Option<u32>)> {
    let mut numbers = version.release().iter().map(|number| u32::try_from(*number).ok());
    let major = numbers.next()??;
    Some((major, numbers.next().map_or(Some(None), |minor| minor.map(Some))?))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    pub version: Version,
    pub path: PathBuf,
}

/// The interpreters of this host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interpreters {
    /// The interpreter called `python3`.
    pub usual: Option<Interpreter>,
    /// All with a version in their names, newest first.
    pub others: Vec<Interpreter>,
    /// Those that uv and pyenv installed where nodes do not see them, newest first. An environment gets a copy.
    pub elsewhere: Vec<Interpreter>,
}

/// The interpreter that was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen<'a> {
    pub interpreter: &'a Interpreter,
    /// Whether nodes do not see it.
    pub is_elsewhere: bool,
}

impl Interpreters {
    pub fn of_this_machine() -> Interpreters {
        let there = |name: &str| {
            let paths = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
            paths.into_iter().find(|path| is_seen_by_nodes(path))
        };
        let others: Vec<Interpreter> = MINORS
            .rev()
            .filter_map(|minor| {
                let path = there(&format!("python3.{minor}"))?;
                Some(Interpreter { version: Version { major: 3, minor }, path })
            })
            .collect();
        let usual = there("python3").and_then(|path| {
            // The name of its target contains the version.
            let target = path.canonicalize().ok()?;
            let name = target.file_name()?.to_str()?.strip_prefix("python")?;
            // `3.13t` and `3.11d` are builds of these versions.
            let name = name.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let (major, minor) = numbers(&name.parse().ok()?)?;
            Some(Interpreter { version: Version { major, minor: minor? }, path })
        });
        let folders = folders_elsewhere();
        let mut elsewhere: Vec<Interpreter> =
            folders.iter().flat_map(|folder| installed_below(folder)).collect();
        elsewhere.sort_by_key(|one| std::cmp::Reverse(one.version));
        Interpreters { usual: usual.or_else(|| others.first().cloned()), others, elsewhere }
    }

    /// Returns the interpreter for a request, and a note for the user if it is not what they asked for. `None` if there
    /// is none at all.
    pub fn choose(&self, wish: Option<&PythonRequest>) -> Option<(Chosen<'_>, Option<String>)> {
        let usual = self.usual.as_ref()?;
        let as_usual = Chosen { interpreter: usual, is_elsewhere: false };
        let Some(wish) = wish.filter(|wish| !wish.admits(usual.version)) else {
            return Some((as_usual, None));
        };
        if let Some(interpreter) = self.others.iter().find(|one| wish.admits(one.version)) {
            return Some((Chosen { interpreter, is_elsewhere: false }, None));
        }
        if let Some(interpreter) = self.elsewhere.iter().find(|one| wish.admits(one.version)) {
            return Some((Chosen { interpreter, is_elsewhere: true }, None));
        }
        let (wanted, have) = (wish.text(), usual.version);
        let versions = self.versions();
        Some((
            as_usual,
            Some(format!(
                "python {wanted} is not on this host, which has {versions}; {have} is used. To add another, run \
                 `uv python install` there, as the user that runs muster"
            )),
        ))
    }

    /// Lists the versions as text, oldest first.
    fn versions(&self) -> String {
        let all = self.usual.iter().chain(&self.others).chain(&self.elsewhere);
        let all: std::collections::BTreeSet<Version> = all.map(|one| one.version).collect();
        all.iter().map(Version::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// The folders in which uv and pyenv install each interpreter.
fn folders_elsewhere() -> Vec<PathBuf> {
    let variable =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = variable("HOME");
    let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
    let uv = variable("UV_PYTHON_INSTALL_DIR")
        .or_else(|| variable("XDG_DATA_HOME").map(|data| data.join("uv/python")))
        .or_else(|| below_home(".local/share/uv/python"));
    let pyenv = variable("PYENV_ROOT").or_else(|| below_home(".pyenv"));
    uv.into_iter().chain(pyenv.map(|root| root.join("versions"))).collect()
}

/// Returns the interpreters that look complete: a program, and the library beside it.
fn installed_below(folder: &Path) -> Vec<Interpreter> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for top in entries.filter_map(|entry| entry.ok()?.path().canonicalize().ok()) {
        for minor in MINORS.filter(|minor| *minor >= ELSEWHERE_MIN) {
            let path = top.join(format!("bin/python3.{minor}"));
            let has_library = || top.join(format!("lib/python3.{minor}/os.py")).is_file();
            let interpreter = Interpreter { version: Version { major: 3, minor }, path };
            if is_program(&interpreter.path) && has_library() && !found.contains(&interpreter) {
                found.push(interpreter);
            }
        }
    }
    found
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let about = path.metadata();
    about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// Returns true if the file of the program is where nodes see it, wherever links lead.
fn is_seen_by_nodes(path: &Path) -> bool {
    let Ok(target) = path.canonicalize() else { return false };
    is_program(&target) && ["/usr", "/bin", "/opt"].iter().any(|top| target.starts_with(top))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minor: u32) -> Version {
        Version { major: 3, minor }
    }

    #[test]
    fn wishes_are_versions_or_bounds() {
        for (text, spelt, admitted) in [
            ("3.10", "3.10", vec![10]),
            ("3.10.4", "3.10", vec![10]),
            ("==3.10.*", "3.10", vec![10]),
            ("3", "3", vec![8, 9, 10, 11, 12]),
            (">=3.9,<3.11", "<3.11,>=3.9", vec![9, 10]),
            (">3.9", ">3.9", vec![10, 11, 12]),
            ("~=3.10", "~=3.10", vec![10, 11, 12]),
            ("!=3.10", "!=3.10", vec![8, 9, 11, 12]),
            ("!=3.10.2", "!=3.10.2", vec![8, 9, 10, 11, 12]),
            ("<3.10.2", "<3.10.2", vec![8, 9, 10]),
        ] {
            let wish = PythonRequest::parse(text).unwrap();
            assert_eq!(wish.text(), spelt, "{text}");
            let found: Vec<u32> = (8..13).filter(|minor| wish.admits(at(*minor))).collect();
            assert_eq!(found, admitted, "{text}");
            assert_eq!(
                PythonRequest::parse(&wish.text()).unwrap().text(),
                spelt,
                "it can be parsed again"
            );
        }
        assert_eq!(PythonRequest::parse("2.7"), Err(BadPythonRequest::NotThree(2)));
        for bad in ["", "three", "3.x", ">=", "3 .1"] {
            assert_eq!(PythonRequest::parse(bad), Err(BadPythonRequest::Unreadable), "{bad}");
        }
    }

    #[test]
    fn the_closest_available_one_is_used_and_reported() {
        let one = |minor: u32| Interpreter {
            version: at(minor),
            path: format!("/usr/bin/python3.{minor}").into(),
        };
        let machine = Interpreters {
            usual: Some(one(11)),
            others: vec![one(12), one(11), one(9)],
            elsewhere: vec![one(13), one(10), one(9)],
        };
        for (wish, minor, is_elsewhere) in [
            (None, 11, false),
            (Some("3.9"), 9, false),
            (Some(">=3.10"), 11, false),
            (Some(">=3.12"), 12, false),
            (Some("3.10"), 10, true),
            (Some(">=3.13"), 13, true),
        ] {
            let wish = wish.map(|wish| PythonRequest::parse(wish).unwrap());
            let (chosen, said) = machine.choose(wish.as_ref()).unwrap();
            let found = (chosen.interpreter.version.minor, chosen.is_elsewhere);
            assert_eq!((found, said), ((minor, is_elsewhere), None), "{wish:?}");
        }
        let (chosen, said) = machine.choose(Some(&PythonRequest::parse("3.8").unwrap())).unwrap();
        assert_eq!(chosen, Chosen { interpreter: &one(11), is_elsewhere: false });
        let said = said.unwrap();
        let words =
            "python 3.8 is not on this host, which has 3.9, 3.10, 3.11, 3.12, 3.13; 3.11 is used. ";
        assert!(said.starts_with(words) && said.contains("uv python install"), "{said}");
        assert_eq!(Interpreters::default().choose(None), None);
    }

    #[test]
    fn interpreters_of_uv_and_pyenv_are_found_where_they_are_whole() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, minor: u32, has_library: bool| {
            let (bin, lib) = (folder.path().join(name).join("bin"), format!("lib/python3.{minor}"));
            std::fs::create_dir_all(&bin).unwrap();
            let program = bin.join(format!("python3.{minor}"));
            std::fs::write(&program, "").unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            let lib = folder.path().join(name).join(lib);
            std::fs::create_dir_all(&lib).unwrap();
            if has_library {
                std::fs::write(lib.join("os.py"), "").unwrap();
            }
        };
        make("3.10.13", 10, true);
        make("broken", 9, false);
        // uv creates this link beside the folder with the full version.
        std::os::unix::fs::symlink("3.10.13", folder.path().join("3.10")).unwrap();
        let found = installed_below(folder.path());
        assert_eq!(found.iter().map(|one| one.version).collect::<Vec<_>>(), [at(10)]);
        assert!(found[0].path.ends_with("3.10.13/bin/python3.10"));
        assert!(installed_below(Path::new("/no/such/folder")).is_empty());
    }

    #[test]
    fn this_host_has_one() {
        let found = Interpreters::of_this_machine();
        let usual = found.usual.expect("tests run where there is a python3");
        assert_eq!(usual.version.major, 3);
        assert!(found.others.iter().any(|one| one.version == usual.version));
    }
}
