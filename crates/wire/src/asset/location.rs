//! The location of the files of an asset or of a job's input.

use muster_core::model::{WorkspaceKey, check_job_name, check_path_name};

use crate::json::shorten;
use crate::path::unescape;

const BYTES_MAX: usize = 4_096;
const NAME_BYTES_MAX: usize = 255;
/// The files that a job leaves besides its named outputs.
const ARTIFACTS: &str = "artifacts";
/// Schemes of locations outside this server.
const FOREIGN: [&str; 7] =
    ["https://", "http://", "abfss://", "abfs://", "wasbs://", "wasb://", "adl://"];

/// A location that a client can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssetLocation {
    /// A path in a datastore of the workspace.
    Datastore { datastore: Box<str>, path: Box<str> },
    /// A path in an output of a job of the workspace.
    JobOutput { job: Box<str>, output: Box<str>, path: Box<str> },
    /// Any URL, which may also be in this server's storage.
    Url(Box<str>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLocation {
    #[error("it has {got} bytes; at most {BYTES_MAX} are allowed")]
    TooLong { got: usize },
    #[error("it contains a control character; remove it")]
    Control,
    #[error(
        "'{text}' is a path on your own machine; give a URL, or let the client upload it: \
         azureml://datastores/NAME/paths/PATH or https://…"
    )]
    Local { text: String },
    #[error("'{text}' contains '.' or '..' as a part of the path; write the path without it")]
    Dots { text: String },
    #[error(
        "'{text}' is not the location of files; give azureml://datastores/NAME/paths/PATH, azureml://jobs/NAME/outputs/NAME \
         or an https, abfss or wasbs URL"
    )]
    Unknown { text: String },
    #[error(
        "'{text}' is in another workspace; name a datastore of this workspace, or give an https URL"
    )]
    Elsewhere { text: String },
}

impl AssetLocation {
    /// `key` is the workspace of the request.
    pub fn parse(text: &str, key: &WorkspaceKey) -> Result<AssetLocation, BadLocation> {
        if text.len() > BYTES_MAX {
            return Err(BadLocation::TooLong { got: text.len() });
        }
        if text.chars().any(char::is_control) {
            return Err(BadLocation::Control);
        }
        let shown = || shorten(text);
        let place = match scheme(text) {
            ("azureml://", rest) => of_azureml(text, rest, key)?,
            // As MLflow writes it.
            ("runs:/", rest) => {
                let (job, path) = rest.split_once('/').unwrap_or((rest, ""));
                job_output(job, ARTIFACTS, path)
                    .ok_or_else(|| BadLocation::Unknown { text: shown() })?
            }
            ("", rest) if is_local(rest) => return Err(BadLocation::Local { text: shown() }),
            ("", _) => return Err(BadLocation::Unknown { text: shown() }),
            (scheme, rest) => match is_url(rest) {
                true => AssetLocation::Url(format!("{scheme}{rest}").into()),
                false => return Err(BadLocation::Unknown { text: shown() }),
            },
        };
        if place.parts().any(is_dots) {
            return Err(BadLocation::Dots { text: shown() });
        }
        Ok(place)
    }

    /// The spelling that is stored and shown; it is the one that Azure responds with.
    pub fn to_uri(&self, key: &WorkspaceKey) -> String {
        match self {
            AssetLocation::Url(url) => url.to_string(),
            AssetLocation::Datastore { datastore, path } => format!(
                "azureml://subscriptions/{}/resourcegroups/{}/workspaces/{}/datastores/{datastore}/paths/{path}",
                key.subscription, key.resource_group, key.name
            ),
            AssetLocation::JobOutput { job, output, path } if path.is_empty() => {
                format!("azureml://jobs/{job}/outputs/{output}")
            }
            AssetLocation::JobOutput { job, output, path } => {
                format!("azureml://jobs/{job}/outputs/{output}/paths/{path}")
            }
        }
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        let path = match self {
            AssetLocation::Datastore { path, .. } | AssetLocation::JobOutput { path, .. } => path,
            // The path ends at a question mark or a hash sign.
            AssetLocation::Url(url) => url.split(['?', '#']).next().unwrap_or(url),
        };
        path.split(['/', '\\'])
    }
}

/// The scheme in lower case, and the rest. The scheme is empty unless it is a known one.
fn scheme(text: &str) -> (&'static str, &str) {
    let known = FOREIGN.into_iter().chain(["azureml://", "runs:/"]);
    let is_it = |scheme: &&str| {
        text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    known.into_iter().find(is_it).map_or(("", text), |scheme| (scheme, &text[scheme.len()..]))
}

/// Whether the part is `..`, either as written or after decoding.
fn is_dots(part: &str) -> bool {
    let decoded = unescape(part);
    [Some(part.as_bytes().to_vec()), decoded].into_iter().flatten().any(|part| {
        part.split(|byte| matches!(byte, b'/' | b'\\')).any(|part| part == b"." || part == b"..")
    })
}

/// Whether the text has neither a scheme nor the form of a reference.
fn is_local(text: &str) -> bool {
    let is_drive = text.as_bytes().get(1) == Some(&b':');
    let is_file = text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("file:"));
    is_drive || is_file || !text.contains(':')
}

/// Whether the text has a host and no password before it.
fn is_url(rest: &str) -> bool {
    let host = rest.split(['/', '?', '#']).next().unwrap_or("");
    let (user, host) = host.rsplit_once('@').unwrap_or(("", host));
    !host.is_empty() && !host.contains(char::is_whitespace) && !user.contains(':')
}

fn of_azureml(text: &str, rest: &str, key: &WorkspaceKey) -> Result<AssetLocation, BadLocation> {
    let unknown = || BadLocation::Unknown { text: shorten(text) };
    let folded = rest.to_ascii_lowercase();
    let words: Vec<&str> = folded.split('/').collect();
    let names: Vec<&str> = rest.split('/').collect();
    let start = match words.as_slice() {
        ["subscriptions", _, "resourcegroups", _, "workspaces", _, ..] => {
            if WorkspaceKey::new(names[1], names[3], names[5]).folded() != key.folded() {
                return Err(BadLocation::Elsewhere { text: shorten(text) });
            }
            6
        }
        _ => 0,
    };
    let path = |from: usize| names.get(from..).map(|names| names.join("/")).unwrap_or_default();
    let place = match &words[start..] {
        ["datastores", _, "paths", ..] => datastore(names[start + 1], &path(start + 3)),
        ["datastores", _] | ["datastores", _, ""] => datastore(names[start + 1], ""),
        ["jobs", _, "outputs", _, "paths", ..] => {
            job_output(names[start + 1], names[start + 3], &path(start + 5))
        }
        ["jobs", _, "outputs", _] | ["jobs", _, "outputs", _, ""] => {
            job_output(names[start + 1], names[start + 3], "")
        }
        _ => None,
    };
    place.ok_or_else(unknown)
}

fn datastore(name: &str, path: &str) -> Option<AssetLocation> {
    check_path_name(name, NAME_BYTES_MAX).ok()?;
    Some(AssetLocation::Datastore { datastore: name.into(), path: path.into() })
}

fn job_output(job: &str, output: &str, path: &str) -> Option<AssetLocation> {
    check_job_name(job).ok()?;
    check_path_name(output, NAME_BYTES_MAX).ok()?;
    Some(AssetLocation::JobOutput { job: job.into(), output: output.into(), path: path.into() })
}
