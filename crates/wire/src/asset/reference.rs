//! How a job, a component or a client refers to an asset, in every form that clients write.

use muster_core::model::{AssetKind, WorkspaceKey};

use crate::error::ArmError;
use crate::json::shorten;
use crate::path::{asset_kind_of, asset_word, parse_id, strip_prefix};

const BYTES_MAX: usize = 4_096;
const LATEST: &str = "latest";
const DEFAULT_VERSION: &str = "azureml_default";
/// The prefix that is reserved for the environments that come with Muster.
const CURATED_PREFIX: &str = "AzureML-";

/// A reference to an asset, which may not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// An asset of the workspace.
    Workspace { kind: AssetKind, name: Box<str>, which: Which },
    /// An asset of a registry, which workspaces share.
    Registry { registry: Box<str>, kind: AssetKind, name: Box<str>, which: Which },
    /// An environment that comes with Muster.
    Curated { name: Box<str>, which: Which },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    Version(Box<str>),
    /// The newest version that is not archived.
    Latest,
}

impl Which {
    /// Clients write `azureml_default` to ask for a component without naming a version.
    pub fn of_version(kind: AssetKind, version: &str) -> Which {
        match is_default_version(kind, version) {
            true => Which::Latest,
            false => Which::Version(version.into()),
        }
    }
}

/// Whether this is a placeholder for another version, so that no asset can have it.
pub fn is_default_version(kind: AssetKind, version: &str) -> bool {
    kind == AssetKind::Component && version.eq_ignore_ascii_case(DEFAULT_VERSION)
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadReference {
    #[error("the reference has {got} bytes; at most {BYTES_MAX} are allowed")]
    TooLong { got: usize },
    #[error("the reference is empty or contains a control character; give azureml:NAME:VERSION")]
    Empty,
    #[error("'{name}' names no version; write {name}:VERSION or {name}@latest")]
    NoVersion { name: String },
    #[error("'{text}' has the label '{label}'; the only label is 'latest'")]
    Label { text: String, label: String },
    #[error("'{text}' is in another workspace; assets can be used only in their own workspace")]
    Elsewhere { text: String },
    #[error("'{text}' refers to {found}, but {wanted} are expected here")]
    OtherKind { text: String, found: &'static str, wanted: &'static str },
    #[error(
        "'{text}' is not a reference; give azureml:NAME:VERSION, azureml:NAME@latest or the id of a version"
    )]
    Unknown { text: String },
}

impl BadReference {
    /// The error for the property that has the reference.
    pub fn at(&self, target: &str) -> ArmError {
        ArmError::invalid_property(target, format!("{target}: {self}"))
    }
}

/// Whether a name is reserved for the environments that come with Muster.
pub fn is_curated(kind: AssetKind, name: &str) -> bool {
    let start = name.get(..CURATED_PREFIX.len());
    kind == AssetKind::Environment
        && start.is_some_and(|start| start.eq_ignore_ascii_case(CURATED_PREFIX))
}

impl Reference {
    /// `kind` is the kind that is expected, and `workspace` the workspace of the request.
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

    /// The reference as messages show it.
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

/// `NAME:VERSION` or `NAME@LABEL`. A version may contain colons itself.
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

/// `azureml://registries/…` or the long form of a reference to this workspace.
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

/// The part after the workspace.
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
