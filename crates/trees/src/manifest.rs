//! The contents of a folder, as one text.
//!
//! ```text
//! muster-tree 1
//! 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 - 4 outputs/model.bin
//! e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 x 0 run.sh
//! ```
//!
//! The list is sorted by path, contains each path once, and is accepted only if it is exactly what would be written: a
//! tree has one text, and one id. Nothing in it leads out of the folder into which it is written.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use muster_core::model::{BadPath, BlobId, check_path};

/// Enough for a code base or a checkpoint; a hundred thousand small files belong in an archive.
pub const FILES_MAX: usize = 10_000;
/// The largest size of the text.
pub const MANIFEST_BYTES_MAX: usize = 2 << 20;
pub const FILE_BYTES_MAX: u64 = 64 << 30;
/// The largest size of all files together.
pub const TREE_BYTES_MAX: u64 = 256 << 30;
/// How much of a refused path is shown.
const SHOWN_CHARS: usize = 80;

const HEADER: &str = "muster-tree 1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// The path below the folder, with `/` between names.
    pub path: Box<str>,
    pub is_executable: bool,
    pub bytes: u64,
    pub digest: BlobId,
}

/// Files by path. A value of this type always satisfies every rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    files: Vec<File>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTree {
    #[error("{count} files; at most {FILES_MAX} are allowed, so pack small ones into an archive")]
    TooManyFiles { count: usize },
    #[error(
        "the list of files has {bytes} bytes; at most {MANIFEST_BYTES_MAX} are allowed, so use fewer files or shorter paths"
    )]
    TooLong { bytes: usize },
    #[error("{path} has {bytes} bytes; a file may have at most {FILE_BYTES_MAX}")]
    FileTooLarge { path: String, bytes: u64 },
    #[error("the files have {bytes} bytes together; at most {TREE_BYTES_MAX} are allowed")]
    TooLarge { bytes: u64 },
    #[error("the path {path:?} {why}")]
    Path { path: String, why: BadPath },
    #[error("{path:?} is both a file and a folder, or is listed twice")]
    Twice { path: String },
    #[error("line {line} is not valid in a list of files")]
    Line { line: usize },
    #[error("the list is not sorted by path, or not in canonical form")]
    NotCanonical,
}

fn checked(path: &str) -> Result<(), BadTree> {
    check_path(path).map_err(|why| {
        let path = path.chars().take(SHOWN_CHARS).collect();
        BadTree::Path { path, why }
    })
}

impl Tree {
    /// The files may be in any order.
    pub fn new(mut files: Vec<File>) -> Result<Tree, BadTree> {
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        check(&files)?;
        let tree = Tree { files };
        match tree.to_text().len() {
            bytes if bytes > MANIFEST_BYTES_MAX => Err(BadTree::TooLong { bytes }),
            _ => Ok(tree),
        }
    }

    /// Parses what [`Tree::to_text`] wrote, and nothing else.
    pub fn parse(text: &[u8]) -> Result<Tree, BadTree> {
        if text.len() > MANIFEST_BYTES_MAX {
            return Err(BadTree::TooLong { bytes: text.len() });
        }
        let text = std::str::from_utf8(text).map_err(|_| BadTree::NotCanonical)?;
        let mut lines = text.split_terminator('\n').enumerate();
        if lines.next().is_none_or(|(_, line)| line != HEADER) {
            return Err(BadTree::Line { line: 1 });
        }
        let mut files = Vec::new();
        for (index, line) in lines {
            if files.len() >= FILES_MAX {
                return Err(BadTree::TooManyFiles { count: FILES_MAX + 1 });
            }
            files.push(parse_line(line).ok_or(BadTree::Line { line: index + 1 })?);
        }
        check(&files)?;
        let tree = Tree { files };
        // Leading plus signs or zeros, or capitals in a digest, would be other texts of the same tree.
        if tree.to_text() == text { Ok(tree) } else { Err(BadTree::NotCanonical) }
    }

    pub fn to_text(&self) -> String {
        let mut text = format!("{HEADER}\n");
        for File { path, is_executable, bytes, digest } in &self.files {
            let mode = if *is_executable { 'x' } else { '-' };
            writeln!(text, "{digest} {mode} {bytes} {path}").expect("writing to a string succeeds");
        }
        text
    }

    pub fn files(&self) -> &[File] {
        &self.files
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The size of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

fn parse_line(line: &str) -> Option<File> {
    let mut parts = line.splitn(4, ' ');
    let digest = parts.next()?.parse().ok()?;
    let is_executable = match parts.next()? {
        "x" => true,
        "-" => false,
        _ => return None,
    };
    let bytes = parts.next()?.parse().ok()?;
    Some(File { digest, is_executable, bytes, path: parts.next()?.into() })
}

/// Checks the sizes, and returns their sum.
pub(crate) fn check_sizes<'p>(files: impl Iterator<Item = (&'p str, u64)>) -> Result<u64, BadTree> {
    let mut total = 0u64;
    for (path, bytes) in files {
        if bytes > FILE_BYTES_MAX {
            return Err(BadTree::FileTooLarge { path: path.to_owned(), bytes });
        }
        total = total.saturating_add(bytes);
    }
    match total > TREE_BYTES_MAX {
        true => Err(BadTree::TooLarge { bytes: total }),
        false => Ok(total),
    }
}

/// Checks the rules for sorted files.
fn check(files: &[File]) -> Result<(), BadTree> {
    if files.len() > FILES_MAX {
        return Err(BadTree::TooManyFiles { count: files.len() });
    }
    let mut known = BTreeSet::new();
    for (index, File { path, .. }) in files.iter().enumerate() {
        checked(path)?;
        if index > 0 && files[index - 1].path >= *path {
            return match files[index - 1].path == *path {
                true => Err(BadTree::Twice { path: path.to_string() }),
                false => Err(BadTree::NotCanonical),
            };
        }
        known.insert(&**path);
    }
    check_sizes(files.iter().map(|file| (&*file.path, file.bytes)))?;
    let is_inside_a_file = |file: &&File| {
        file.path.match_indices('/').any(|(end, _)| known.contains(&file.path[..end]))
    };
    match files.iter().find(is_inside_a_file) {
        Some(file) => Err(BadTree::Twice { path: file.path.to_string() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob_of;

    fn file(path: &str) -> File {
        let digest = blob_of(path.as_bytes());
        File { path: path.into(), is_executable: false, bytes: path.len() as u64, digest }
    }

    fn text(paths: &[&str]) -> String {
        let lines: Vec<String> =
            paths.iter().map(|path| format!("{} - 1 {path}\n", blob_of(b"x"))).collect();
        format!("{HEADER}\n{}", lines.concat())
    }

    #[test]
    fn a_tree_reads_back_whatever_order_it_was_made_in() {
        let one = Tree::new(vec![file("b/c"), file("a b"), file("b-c")]).unwrap();
        let other = Tree::new(vec![file("b-c"), file("b/c"), file("a b")]).unwrap();
        assert_eq!(one, other);
        assert_eq!(Tree::parse(one.to_text().as_bytes()), Ok(one.clone()));
        assert_eq!(one.bytes(), 9);
        assert_eq!(Tree::parse(Tree::default().to_text().as_bytes()), Ok(Tree::default()));
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for bad in [
            "/etc/passwd",
            "..",
            "../x",
            "a/../../x",
            "a/..",
            ".",
            "./a",
            "a/./b",
            "a//b",
            "a/",
            "",
            "a\tb",
            "a\u{7f}",
            "a\0b",
            "a\u{85}b",
        ] {
            assert!(checked(bad).is_err(), "{bad:?}");
            assert!(Tree::parse(text(&[bad]).as_bytes()).is_err(), "{bad:?}");
        }
        let long = "n".repeat(256);
        let deep = ["d"; 65].join("/");
        for bad in [long.as_str(), &deep, &["long"; 250].join("/")] {
            assert!(checked(bad).is_err(), "{bad}");
        }
        for good in ["...", "..a", "a..", "-", "a\\b", "é", "a b", ".git/x"] {
            assert_eq!(checked(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn a_tree_has_one_text() {
        let good = text(&["a", "b"]);
        assert!(Tree::parse(good.as_bytes()).is_ok());
        for bad in [
            text(&["b", "a"]),
            text(&["a", "a"]),
            text(&["a", "a-b", "a/b"]),
            good.replace(" 1 a", " 01 a"),
            good.replace(" 1 a", " +1 a"),
            good.replace(" - 1 a", " X 1 a"),
            good.trim_end().to_owned(),
            format!("{good}\n"),
            good.replace(HEADER, "muster-tree 2"),
            good.to_uppercase(),
            String::new(),
        ] {
            assert!(Tree::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn limits_are_limits() {
        let many: Vec<File> = (0..=FILES_MAX).map(|number| file(&number.to_string())).collect();
        let refused = Tree::new(many).unwrap_err();
        assert_eq!(refused, BadTree::TooManyFiles { count: FILES_MAX + 1 });
        let large = |path: &str, bytes| File { bytes, ..file(path) };
        let refused = Tree::new(vec![large("a", FILE_BYTES_MAX + 1)]).unwrap_err();
        assert!(refused.to_string().contains("a has"), "{refused}");
        let all = ["a", "b", "c", "d", "e"].map(|path| large(path, FILE_BYTES_MAX));
        assert!(matches!(Tree::new(all.to_vec()), Err(BadTree::TooLarge { .. })));
        let long = format!("{}/{}", "d".repeat(250), "n".repeat(250));
        let long = (0..5_000).map(|number| file(&format!("{long}{number}"))).collect();
        assert!(matches!(Tree::new(long), Err(BadTree::TooLong { .. })));
    }
}
