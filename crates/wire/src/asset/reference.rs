//! How a job, a component or a client names an asset, in every form that they write.

use muster_core::model::{AssetKind, WorkspaceKey};

use crate::error::ArmError;
use crate::json::shorten;
use crate::path::{asset_kind_of, asset_word, parse_id, strip_prefix};

const BYTES_MAX: usize = 4_096;
const LATEST: &str = "latest";
const DEFAULT_VERSION: &str = "azureml_default";
/// Names that belong to environments that come with the service.
const CURATED_PREFIX: &str = "AzureML-";

/// An asset that is meant. Whether it is there is for others to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// One of the workspace.
    Workspace { kind: AssetKind, name: Box<str>, which: Which },
    /// One that is shared between workspaces.
    Registry { registry: Box<str>, kind: AssetKind, name: Box<str>, which: Which },
    /// An environment that comes with the service.
    Curated { name: Box<str>, which: Which },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    Version(Box<str>),
    /// The newest that is not in the archive.
    Latest,
}

impl Which {
    /// `azureml_default` is how clients ask for a component without saying which.
    pub fn of_version(kind: AssetKind, version: &str) -> Which {
        match is_default_version(kind, version) {
            true => Which::Latest,
            false => Which::Version(version.into()),
        }
    }
}

/// Whether a version is a word for another one, and so nobody's own.
pub fn is_default_version(kind: AssetKind, version: &str) -> bool {
    kind == AssetKind::Component && version.eq_ignore_ascii_case(DEFAULT_VERSION)
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadReference {
    #[error("the reference has {got} bytes; at most {BYTES_MAX} are allowed")]
    TooLong { got: usize },
    #[error("the reference is empty or has a control character in it; give azureml:NAME:VERSION")]
    Empty,
    #[error("'{name}' names no version; write {name}:VERSION or {name}@latest")]
    NoVersion { name: String },
    #[error("'{text}' has the label '{label}'; only 'latest' is one")]
    Label { text: String, label: String },
    #[error("'{text}' is in another workspace; assets are used in the workspace that they are in")]
    Elsewhere { text: String },
    #[error("'{text}' names {found}; {wanted} is wanted here")]
    OtherKind { text: String, found: &'static str, wanted: &'static str },
    #[error(
        "'{text}' is no reference; give azureml:NAME:VERSION, azureml:NAME@latest or the id of a version"
    )]
    Unknown { text: String },
}

impl BadReference {
    /// As the refusal of a property.
    pub fn at(&self, target: &str) -> ArmError {
        ArmError::invalid_property(target, format!("{target}: {self}"))
    }
}

/// Whether a name is kept for environments that come with the service.
pub fn is_curated(kind: AssetKind, name: &str) -> bool {
    let start = name.get(..CURATED_PREFIX.len());
    kind == AssetKind::Environment
        && start.is_some_and(|start| start.eq_ignore_ascii_case(CURATED_PREFIX))
}

impl Reference {
    /// `kind` is what is wanted, `workspace` where somebody says it.
    pub fn parse(
        kind: AssetKind,
        text: &str,
        workspace: &WorkspaceKey,
    ) -> Result<Reference, BadReference> {
        if text.len() > BYTES_MAX {
            return Err(BadReference::TooLong { got: text.len() });
        }
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(BadReference::Empty);
        }
        const SCHEME: &str = "azureml://";
        let is_long =
            text.get(..SCHEME.len()).is_some_and(|start| start.eq_ignore_ascii_case(SCHEME));
        if is_long {
            return of_address(kind, text, &text[SCHEME.len()..], workspace);
        }
        let bare = strip_prefix(text);
        if bare.starts_with('/') {
            let Some((key, rest)) = parse_id(bare) else {
                return Err(BadReference::Unknown { text: shorten(text) });
            };
            return of_parts(kind, text, (&key, &rest), workspace);
        }
        let (name, which) = short(kind, text, bare)?;
        Ok(in_workspace(kind, name, which))
    }

    /// As a message names it.
    pub fn name(&self) -> &str {
        match self {
            Reference::Workspace { name, .. }
            | Reference::Registry { name, .. }
            | Reference::Curated { name, .. } => name,
        }
    }
}

fn in_workspace(kind: AssetKind, name: &str, which: Which) -> Reference {
    match is_curated(kind, name) {
        true => Reference::Curated { name: name.into(), which },
        false => Reference::Workspace { kind, name: name.into(), which },
    }
}

/// `NAME:VERSION` or `NAME@LABEL`. A version may have colons of its own.
fn short<'t>(kind: AssetKind, text: &str, bare: &'t str) -> Result<(&'t str, Which), BadReference> {
    let no_version = || BadReference::NoVersion { name: shorten(bare) };
    let (name, which) = match bare.find([':', '@']) {
        Some(at) if bare.as_bytes()[at] == b'@' => (&bare[..at], label(text, &bare[at + 1..])?),
        Some(at) => (&bare[..at], Which::of_version(kind, &bare[at + 1..])),
        None => return Err(no_version()),
    };
    match (name, &which) {
        (_, Which::Version(version)) if version.is_empty() => Err(no_version()),
        ("", _) => Err(BadReference::Unknown { text: shorten(text) }),
        (name, _) if name.contains('/') => Err(BadReference::Unknown { text: shorten(text) }),
        (name, _) => Ok((name, which)),
    }
}

fn label(text: &str, label: &str) -> Result<Which, BadReference> {
    match label.eq_ignore_ascii_case(LATEST) {
        true => Ok(Which::Latest),
        false => Err(BadReference::Label { text: shorten(text), label: shorten(label) }),
    }
}

/// `azureml://registries/…` or the long form of a workspace's own.
fn of_address(
    kind: AssetKind,
    text: &str,
    rest: &str,
    workspace: &WorkspaceKey,
) -> Result<Reference, BadReference> {
    let parts: Vec<&str> = rest.split('/').collect();
    let is = |part: &str, word: &str| part.eq_ignore_ascii_case(word);
    match parts.as_slice() {
        [registries, registry, rest @ ..]
            if is(registries, "registries") && !registry.is_empty() =>
        {
            let (kind, name, which) = asset(kind, text, rest)?;
            Ok(Reference::Registry { registry: (*registry).into(), kind, name: name.into(), which })
        }
        [subscriptions, subscription, groups, group, workspaces, name, rest @ ..]
            if is(subscriptions, "subscriptions")
                && is(groups, "resourcegroups")
                && is(workspaces, "workspaces") =>
        {
            let key = WorkspaceKey::new(subscription, group, name);
            of_parts(kind, text, (&key, rest), workspace)
        }
        _ => Err(BadReference::Unknown { text: shorten(text) }),
    }
}

/// What follows a workspace.
fn of_parts(
    kind: AssetKind,
    text: &str,
    (key, rest): (&WorkspaceKey, &[&str]),
    workspace: &WorkspaceKey,
) -> Result<Reference, BadReference> {
    let (kind, name, which) = asset(kind, text, rest)?;
    if key.folded() != workspace.folded() {
        return Err(BadReference::Elsewhere { text: shorten(text) });
    }
    Ok(in_workspace(kind, name, which))
}

/// `environments/NAME/versions/1`, `environments/NAME/labels/latest`.
fn asset<'t>(
    wanted: AssetKind,
    text: &str,
    parts: &[&'t str],
) -> Result<(AssetKind, &'t str, Which), BadReference> {
    let unknown = || BadReference::Unknown { text: shorten(text) };
    let [word, name, rest @ ..] = parts else { return Err(unknown()) };
    let kind = asset_kind_of(word).ok_or_else(unknown)?;
    if kind != wanted {
        let (found, wanted) = (asset_word(kind), asset_word(wanted));
        return Err(BadReference::OtherKind { text: shorten(text), found, wanted });
    }
    // Some clients leave their own prefix inside an id.
    let name = strip_prefix(name);
    let which = match rest {
        [versions, version] if versions.eq_ignore_ascii_case("versions") && !version.is_empty() => {
            Which::of_version(kind, version)
        }
        [labels, given] if labels.eq_ignore_ascii_case("labels") => label(text, given)?,
        [] => return Err(BadReference::NoVersion { name: shorten(name) }),
        _ => return Err(unknown()),
    };
    match name {
        "" => Err(unknown()),
        name => Ok((kind, name, which)),
    }
}
