//! Where files of the context would be in an image: what `COPY` and `ADD` say.

use super::Refusal;
use crate::brief;
use crate::table::fits;

/// Files and folders that are copied: whoever installs from a file looks through all of them.
pub const COPIES_MAX: usize = 200;

#[derive(Debug, Clone)]
pub struct Copy {
    /// Below the context; `*` stands for any letters.
    sources: Vec<String>,
    /// In the image, from its root.
    to: String,
    /// As it stands there.
    pub shown: String,
    /// Whether something was installed from it.
    pub is_used: bool,
}

impl Copy {
    /// The last word is where they go to.
    pub fn new(mut words: Vec<String>, folder: &str, shown: String) -> Result<Copy, Refusal> {
        let to = words.pop().filter(|_| !words.is_empty()).ok_or(Refusal::Copy)?;
        let sources = words.iter().map(|source| inside(source)).collect::<Result<_, _>>()?;
        Ok(Copy { sources, to: absolute(folder, &to), shown, is_used: false })
    }

    pub fn sources(&self) -> &[String] {
        &self.sources
    }

    /// What a file of the image may be in the context, if this put it there. Whether a source is a file or a folder, and
    /// whether the target was a folder, is not known: each is tried.
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

/// A path of the context. One that leads out of it is refused, and so is an address.
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

/// A path of the image, from its root. There is nothing above that.
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
