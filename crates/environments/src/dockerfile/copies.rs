//! Where files of the context would be in an image, according to `COPY` and `ADD`.

use super::Refusal;
use crate::brief;
use crate::table::fits;

/// The most files and folders that are copied, because every install from a file searches all of them.
pub const COPIES_MAX: usize = 200;

#[derive(Debug, Clone)]
pub struct Copy {
    /// Paths below the context, in which `*` matches any characters.
    sources: Vec<String>,
    /// The absolute path in the image.
    to: String,
    /// The instruction as written.
    pub shown: String,
    /// Whether something was installed from it.
    pub is_used: bool,
}

impl Copy {
    /// The last word is the target.
    pub fn new(mut words: Vec<String>, folder: &str, shown: String) -> Result<Copy, Refusal> {
        let to = words.pop().filter(|_| !words.is_empty()).ok_or(Refusal::Copy)?;
        let sources = words.iter().map(|source| inside(source)).collect::<Result<_, _>>()?;
        Ok(Copy { sources, to: absolute(folder, &to), shown, is_used: false })
    }

    pub fn sources(&self) -> &[String] {
        &self.sources
    }

    /// Returns which files of the context may be at this path of the image because of this copy. It is not known
    /// whether a source is a file or a folder, and whether the target was a folder, so each case is included.
    pub fn candidates(&self, wanted: &str) -> Vec<String> {
        let below = match (wanted.strip_prefix(self.to.as_str()), self.to.as_str()) {
            (Some(rest), "/") => Some(rest),
            (Some(""), _) => Some(""),
            (Some(rest), _) => rest.strip_prefix('/'),
            (None, _) => None,
        };
        let Some(below) = below else { return Vec::new() };
        let mut found = Vec::new();
        for source in &self.sources {
            let (folder, name) = source.rsplit_once('/').unwrap_or(("", source));
            if below.is_empty() {
                found.push(source.clone());
                continue;
            }
            if !name.is_empty() && !below.contains('/') && fits(name, below) {
                found.push(joined(folder, below));
            }
            found.push(joined(source, below));
        }
        found
    }
}

fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Returns a path of the context. A path that leads out of it is refused, and so is a URL.
fn inside(source: &str) -> Result<String, Refusal> {
    if source.contains("://") || source.starts_with("git@") {
        return Err(Refusal::Address { text: brief(source) });
    }
    let mut parts = Vec::new();
    for part in source.split('/') {
        match part {
            "" | "." => {}
            ".." => return Err(Refusal::Outside { path: brief(source) }),
            part if part.contains('\\') || part.contains(char::is_control) => {
                return Err(Refusal::Outside { path: brief(source) });
            }
            part => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}

/// Returns an absolute path in the image. It never leads above the root.
pub fn absolute(folder: &str, path: &str) -> String {
    let start = if path.starts_with('/') { "" } else { folder };
    let mut parts = Vec::new();
    for part in start.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
