//! The state of the repository that a job is submitted from, in the properties that azure-ai-ml uses.

use std::process::{Command, Stdio};

use serde_json::{Map, Value as Json};

const URL: &str = "mlflow.source.git.repoURL";
const BRANCH: &str = "mlflow.source.git.branch";
const COMMIT: &str = "mlflow.source.git.commit";
const DIRTY: &str = "azureml.git.dirty";
/// The longest output of git that is read.
const BYTES_MAX: usize = 1_024;

/// Nothing is recorded if one of these properties is set already, or if the repository's address contains a secret.
pub fn note(notes: &mut Map<String, Json>) {
    if [URL, BRANCH, COMMIT, DIRTY].iter().any(|key| notes.contains_key(*key)) {
        return;
    }
    if git(&["rev-parse", "--is-inside-work-tree"]).as_deref() != Some("true") {
        return;
    }
    let url = git(&["ls-remote", "--get-url"]);
    if url.as_deref().is_some_and(has_secret) {
        return;
    }
    let is_dirty = git(&["status", "--porcelain", "."]).is_some();
    let said = [
        (URL, url),
        (BRANCH, git(&["symbolic-ref", "--short", "HEAD"])),
        (COMMIT, git(&["rev-parse", "HEAD"])),
        (DIRTY, Some(if is_dirty { "True" } else { "False" }.to_owned())),
    ];
    for (key, value) in said {
        if let Some(value) = value {
            notes.insert(key.to_owned(), value.into());
        }
    }
}

/// `https://TOKEN@host/…`
fn has_secret(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("https://") else { return false };
    rest.split('/').take(2).any(|part| part.contains('@'))
}

/// The output of git, trimmed; `None` if it is empty.
fn git(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    let done = command.output().ok().filter(|done| done.status.success())?;
    let text = String::from_utf8(done.stdout).ok()?;
    let text = text.trim();
    let cut = text.char_indices().map(|(at, _)| at).find(|at| *at >= BYTES_MAX);
    let text = &text[..cut.unwrap_or(text.len())];
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_a_secret_is_known() {
        for (url, is_secret) in [
            ("https://abc@dev.azure.com/x", true),
            ("https://dev.azure.com/abc@x/y", true),
            ("https://github.com/a/b.git", false),
            ("git@github.com:a/b.git", false),
        ] {
            assert_eq!(has_secret(url), is_secret, "{url}");
        }
    }
}
