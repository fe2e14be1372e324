//! Which files of a folder are not uploaded: the patterns of `.amlignore`, or else of `.gitignore`, with git's rules.
//!
//! Only the file at the top of the folder is used. Git's own folder is never uploaded. The ignore crate would exclude
//! more than azure-ai-ml does: see docs/adr/0008.

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
    names: Vec<Box<[u8]>>,
    is_anchored: bool,
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
        let names: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
        if names.last() == Some(&GIT.as_bytes()) {
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
        let names: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
        if names.contains(&GIT.as_bytes()) {
            return true;
        }
        let said = self.rules.iter().rev().find(|rule| rule.is_about_or_above(&names));
        said.is_some_and(|rule| !rule.is_back)
    }

    /// Whether everything in this folder is excluded, so that it need not be read.
    pub fn leaves_out_all_in(&self, folder: &str) -> bool {
        let names: Vec<&[u8]> = folder.split('/').map(str::as_bytes).collect();
        let is_git = names.last() == Some(&GIT.as_bytes());
        let is_final = self.rules.iter().all(|rule| !rule.is_back);
        is_git || (is_final && self.rules.iter().any(|rule| rule.is_about_folder(&names)))
    }
}

impl Rule {
    /// Whether the rule matches the file or a folder above it.
    fn is_about_or_above(&self, path: &[&[u8]]) -> bool {
        let above = (1..path.len()).any(|end| self.is_about(&path[..end], true));
        above || self.is_about(path, false)
    }

    fn is_about_folder(&self, path: &[&[u8]]) -> bool {
        (1..=path.len()).any(|end| self.is_about(&path[..end], true))
    }

    fn parse(line: &str) -> Option<Rule> {
        let line = without_trailing_spaces(line.trim_end_matches('\r'));
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
        let names: Vec<Box<[u8]>> = line
            .split('/')
            .filter(|name| !name.is_empty())
            .map(|name| name.as_bytes().into())
            .collect();
        (!names.is_empty()).then_some(Rule { is_back, only_folders, names, is_anchored })
    }

    fn is_about(&self, path: &[&[u8]], is_folder: bool) -> bool {
        if self.only_folders && !is_folder {
            return false;
        }
        let patterns: Vec<&[u8]> = self.names.iter().map(|name| &**name).collect();
        match (self.is_anchored, path.last()) {
            (true, _) => match_names(&patterns, path),
            (false, Some(name)) => match_name(patterns[0], name),
            (false, None) => false,
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

/// `**` matches any number of names. The progress of each pattern is remembered, so that the time is at most the number
/// of patterns times the number of names.
fn match_names(patterns: &[&[u8]], names: &[&[u8]]) -> bool {
    let mut reached = vec![false; names.len() + 1];
    reached[0] = true;
    for pattern in patterns {
        let mut next = vec![false; names.len() + 1];
        for place in 0..=names.len() {
            if *pattern == b"**" {
                next[place] = reached[place] || (place > 0 && next[place - 1]);
            } else if place > 0 {
                next[place] = reached[place - 1] && match_name(pattern, names[place - 1]);
            }
        }
        reached = next;
    }
    // `a/**` matches everything in `a`, but not `a` itself.
    let is_inside = patterns.last() != Some(&&b"**"[..]) || patterns.len() <= names.len();
    reached[names.len()] && is_inside
}

/// Matches one name: `*`, `?`, `[a-z]`, and a backslash before a literal character.
fn match_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // The position of the last `*` and how much it has matched so far: earlier ones never need to be tried again.
    let mut star = None;
    while n < name.len() {
        match one(&pattern[p..], name[n]) {
            Some(length) => {
                // `?` and `[!a]` stand for a whole character, as they do in azure-ai-ml.
                let is_any = matches!(pattern[p], b'?' | b'[');
                let is_rest = |byte: &&u8| is_any && **byte & 0xc0 == 0x80;
                let rest = name[n + 1..].iter().take_while(is_rest).count();
                (p, n) = (p + length, n + 1 + rest);
            }
            None if pattern.get(p) == Some(&b'*') => {
                star = Some((p, n));
                p += 1;
            }
            None => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, n) = (at + 1, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// The length of the pattern's first element, if it matches this byte. `*` is not handled here.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => match class(rest, byte) {
            Some((length, true)) => Some(length + 1),
            Some((_, false)) => None,
            // A bracket that is never closed is an ordinary character.
            None => (byte == b'[').then_some(1),
        },
        [b'*', ..] | [] => None,
        [plain, ..] => (*plain == byte).then_some(1),
    }
}

/// Parses a bracket expression: its length with the closing bracket, and whether it contains the byte.
fn class(rest: &[u8], byte: u8) -> Option<(usize, bool)> {
    let is_not = matches!(rest.first(), Some(b'!' | b'^'));
    let start = usize::from(is_not);
    let (mut at, mut is_in) = (start, false);
    loop {
        match *rest.get(at)? {
            b']' if at > start => return Some((at + 1, is_in != is_not)),
            from => {
                let to = match rest.get(at + 1..at + 3) {
                    Some([b'-', to]) if *to != b']' => Some(*to),
                    _ => None,
                };
                is_in |= (from..=to.unwrap_or(from)).contains(&byte);
                at += if to.is_some() { 3 } else { 1 };
            }
        }
    }
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
            ("a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["b", "a"]),
            ("*\n!keep", &["x", "d/x"], &["keep", "d/keep"]),
            ("!x\nx", &["x"], &["y"]),
            ("a?c", &["abc", "aéc"], &["ac", "abbc", "aéèc"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "-x"]),
            ("[!a]x", &["bx", "éx"], &["ax"]),
            ("[]x]", &["]", "x"], &["["]),
            ("[ab", &["[ab"], &["a"]),
            ("# no\n\n  \n\\#yes", &["#yes"], &["no", "# no"]),
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
