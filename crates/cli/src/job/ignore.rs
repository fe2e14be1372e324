//! Which files of a folder are not uploaded: the patterns of `.amlignore`, or else of `.gitignore`, with git's rules.
//!
//! Only the file at the top of the folder is used. Git's own folder is never uploaded. Names are matched by the glob crate.
//! What a line means, and what `**` does between names, is written here: see docs/adr/0008.

use glob::Pattern;

/// The file that is most specific to Azure ML comes first; only one of them is used.
pub const FILES: [&str; 2] = [".amlignore", ".gitignore"];
pub const BYTES_MAX: usize = 256 << 10;
const GIT: &str = ".git";
/// Each pattern is matched with each path.
const RULES_MAX: usize = 2_000;

#[derive(Debug, Default)]
pub struct Ignore {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    /// Includes again what an earlier rule excluded.
    is_back: bool,
    only_folders: bool,
    /// The path's names; a single one matches at every depth.
    names: Vec<Name>,
    is_anchored: bool,
}

#[derive(Debug)]
enum Name {
    /// `**`: any number of names.
    Any,
    One(Pattern),
}

impl Ignore {
    pub fn parse(text: &str) -> Result<Ignore, String> {
        if text.len() > BYTES_MAX {
            return Err(format!("it has {} bytes; the limit is {BYTES_MAX}", text.len()));
        }
        let rules: Vec<Rule> = text.lines().filter_map(Rule::parse).collect();
        match rules.len() {
            count if count > RULES_MAX => {
                Err(format!("it has {count} patterns; the limit is {RULES_MAX}"))
            }
            _ => Ok(Ignore { rules }),
        }
    }

    /// Adds a pattern that takes precedence over all others.
    pub fn and(mut self, pattern: &str) -> Ignore {
        self.rules.extend(Rule::parse(pattern));
        self
    }

    /// Whether this path is excluded, given that its parents are not.
    pub fn leaves_out(&self, path: &str, is_folder: bool) -> bool {
        let names: Vec<&str> = path.split('/').collect();
        if names.last() == Some(&GIT) {
            return true;
        }
        // The last matching rule decides.
        let said = self.rules.iter().rev().find(|rule| rule.is_about(&names, is_folder));
        said.is_some_and(|rule| !rule.is_back)
    }
}

/// The way in which azure-ai-ml applies the same patterns to uploads: to each file by itself, regardless of the folders
/// above it. The hash of the upload depends on it, so the behaviour is exactly the same.
impl Ignore {
    pub fn leaves_out_file(&self, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').collect();
        if names.contains(&GIT) {
            return true;
        }
        let said = self.rules.iter().rev().find(|rule| rule.is_about_or_above(&names));
        said.is_some_and(|rule| !rule.is_back)
    }

    /// Whether everything in this folder is excluded, so that it need not be read.
    pub fn leaves_out_all_in(&self, folder: &str) -> bool {
        let names: Vec<&str> = folder.split('/').collect();
        let is_git = names.last() == Some(&GIT);
        let is_final = self.rules.iter().all(|rule| !rule.is_back);
        is_git || (is_final && self.rules.iter().any(|rule| rule.is_about_folder(&names)))
    }
}

impl Rule {
    /// Whether the rule matches the file or a folder above it.
    fn is_about_or_above(&self, path: &[&str]) -> bool {
        let above = (1..path.len()).any(|end| self.is_about(&path[..end], true));
        above || self.is_about(path, false)
    }

    fn is_about_folder(&self, path: &[&str]) -> bool {
        (1..=path.len()).any(|end| self.is_about(&path[..end], true))
    }

    fn parse(line: &str) -> Option<Rule> {
        let line = without_trailing_spaces(line.trim_end_matches('\r')).trim_start();
        if line.starts_with('#') {
            return None;
        }
        let (is_back, line) = match line.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (only_folders, line) = match line.strip_suffix('/') {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let is_anchored = line.contains('/');
        let names = line.split('/').filter(|name| !name.is_empty()).map(|name| match name {
            "**" => Name::Any,
            name => Name::One(name_pattern(name)),
        });
        let mut names: Vec<Name> = names.collect();
        names.dedup_by(|one, other| matches!((one, other), (Name::Any, Name::Any)));
        (!names.is_empty()).then_some(Rule { is_back, only_folders, names, is_anchored })
    }

    fn is_about(&self, path: &[&str], is_folder: bool) -> bool {
        if self.only_folders && !is_folder {
            return false;
        }
        match (&self.names[..], path) {
            ([Name::One(pattern)], [.., name]) if !self.is_anchored => pattern.matches(name),
            _ => match_names(&self.names, path),
        }
    }
}

/// Trailing spaces are kept only after a backslash.
fn without_trailing_spaces(line: &str) -> &str {
    let trimmed = line.trim_end_matches(' ');
    match trimmed.ends_with('\\') && trimmed.len() < line.len() {
        true => &line[..=trimmed.len()],
        false => trimmed,
    }
}

/// `**` matches any number of names; at the end, as in `a/**`, at least one. The progress of each pattern is remembered, so
/// that the time is at most the number of patterns times the number of names.
fn match_names(patterns: &[Name], names: &[&str]) -> bool {
    let mut reached = vec![false; names.len() + 1];
    reached[0] = true;
    for (at, pattern) in patterns.iter().enumerate() {
        let is_last = at + 1 == patterns.len();
        let mut next = vec![false; names.len() + 1];
        for place in 0..=names.len() {
            next[place] = match pattern {
                Name::Any if place == 0 => reached[0] && !is_last,
                Name::Any => next[place - 1] || reached[if is_last { place - 1 } else { place }],
                Name::One(one) => place > 0 && reached[place - 1] && one.matches(names[place - 1]),
            };
        }
        reached = next;
    }
    reached[names.len()]
}

/// Translates the pattern of one name for glob, which has no backslash and refuses `**` within a name as well as a bracket
/// that is never closed. The latter is an ordinary character for git and azure-ai-ml.
fn name_pattern(name: &str) -> Pattern {
    let mut translated = String::new();
    let mut rest = name;
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        match character {
            '\\' if !rest.is_empty() => {
                let escaped;
                (escaped, rest) = rest.split_at(rest.ceil_char_boundary(1));
                translated.push_str(&Pattern::escape(escaped));
            }
            '*' if translated.ends_with('*') => {}
            '[' => match class_end(rest) {
                Some(end) => {
                    translated.push('[');
                    translated.push_str(&rest[..end]);
                    rest = &rest[end..];
                }
                None => translated.push_str("[[]"),
            },
            other => translated.push(other),
        }
    }
    Pattern::new(&translated).expect("everything that glob refuses was translated")
}

/// The end of a bracket expression, given what follows its opening bracket. Its first character can be a `]`.
fn class_end(rest: &str) -> Option<usize> {
    let start = rest.len() - rest.strip_prefix('!').unwrap_or(rest).len();
    let first = rest[start..].chars().next()?;
    let from = start + first.len_utf8();
    Some(from + rest[from..].find(']')? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_git_means_by_them() {
        for (rules, left_out, kept) in [
            ("*.pyc", &["a.pyc", "d/a.pyc"][..], &["a.py", "a.pyc.txt"][..]),
            ("data", &["data", "x/data"], &["data2", "mydata"]),
            ("/data", &["data"], &["x/data"]),
            ("a/b", &["a/b"], &["x/a/b", "a/b2"]),
            ("**/b", &["b", "a/b", "x/a/b"], &["b2"]),
            ("a/**", &["a/b", "a/b/c"], &["a", "b/a"]),
            ("**/a/**", &["a/b", "x/a/b", "a/b/c"], &["a", "x/a", "b/c"]),
            ("**/**", &["a", "a/b"], &[]),
            ("a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["b", "a"]),
            ("*\n!keep", &["x", "d/x"], &["keep", "d/keep"]),
            ("!x\nx", &["x"], &["y"]),
            ("a?c", &["abc", "aéc"], &["ac", "abbc", "aéèc"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "-x"]),
            ("[!a]x", &["bx", "éx"], &["ax"]),
            ("[^a]x", &["ax", "^x"], &["bx"]),
            ("[é-ü]", &["ö"], &["a", "Ã"]),
            ("{a,b}", &["{a,b}"], &["a", "b"]),
            ("a**b***", &["ab", "axxbx"], &["a", "xab"]),
            ("\\*\\é\\[a]", &["*é[a]"], &["xé[a]", "*éa"]),
            ("a\\", &["a\\"], &["a"]),
            ("[]x]", &["]", "x"], &["["]),
            ("[ab", &["[ab"], &["a"]),
            ("[a*", &["[ab"], &["[", "ab"]),
            ("[!]", &["[!]"], &["a"]),
            ("# no\n  # no\n\n  \n \\#yes", &["#yes"], &["no", "# no"]),
            ("a\\ ", &["a "], &["a"]),
            ("*a*b*c", &["xaxbxc", "abc"], &["acb"]),
            ("", &[".git", "x/.git"], &[".gitignore", "git"]),
        ] {
            let ignore = Ignore::parse(rules).unwrap();
            for path in left_out {
                assert!(ignore.leaves_out(path, false), "{rules:?} leaves out {path}");
            }
            for path in kept {
                assert!(!ignore.leaves_out(path, false), "{rules:?} keeps {path}");
            }
        }
    }

    #[test]
    fn a_slash_at_the_end_means_folders() {
        let ignore = Ignore::parse("build/\nout/x/\r\n").unwrap();
        assert!(ignore.leaves_out("build", true) && ignore.leaves_out("a/build", true));
        assert!(!ignore.leaves_out("build", false));
        assert!(ignore.leaves_out("out/x", true) && !ignore.leaves_out("a/out/x", true));
    }

    #[test]
    fn hostile_patterns_take_no_time() {
        let stars = "*a".repeat(200);
        let name = "a".repeat(250);
        assert!(!Ignore::parse(&format!("{stars}b")).unwrap().leaves_out(&name, false));
        let deep = ["a"; 60].join("/");
        let rules = "**/a/".repeat(100) + "b";
        assert!(!Ignore::parse(&rules).unwrap().leaves_out(&deep, false));
        assert!(Ignore::parse(&"x\n".repeat(RULES_MAX + 1)).is_err());
    }
}
