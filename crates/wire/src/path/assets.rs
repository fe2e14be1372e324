//! The paths of versioned assets, which differ in one word for each kind.

use muster_core::model::{AssetKind, WorkspaceKey};

use super::PathError;
use super::route::{name_of, workspace_path};
use super::segments::encode;

/// The word for each kind in paths and ids.
const WORDS: [(AssetKind, &str); 5] = [
    (AssetKind::Code, "codes"),
    (AssetKind::Environment, "environments"),
    (AssetKind::Data, "data"),
    (AssetKind::Model, "models"),
    (AssetKind::Component, "components"),
];

const ENVIRONMENTS_PROVIDER: &str = "Muster.Environments";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssetRoute {
    AssetContainers {
        workspace: WorkspaceKey,
        kind: AssetKind,
    },
    /// A name with all its versions.
    AssetContainer {
        workspace: WorkspaceKey,
        kind: AssetKind,
        name: Box<str>,
    },
    /// For code, the versions can also be found by the hash of their content, whatever the name.
    AssetVersions {
        workspace: WorkspaceKey,
        kind: AssetKind,
        name: Box<str>,
    },
    AssetVersion {
        workspace: WorkspaceKey,
        kind: AssetKind,
        name: Box<str>,
        version: Box<str>,
    },
    /// Where to upload the files of a version.
    AssetUpload {
        workspace: WorkspaceKey,
        kind: AssetKind,
        name: Box<str>,
        version: Box<str>,
    },
    /// Muster's own: the substitutes for environments and images that are not run.
    Substitutes(WorkspaceKey),
    /// Muster's own: the substitute for this environment or image.
    Substitute {
        workspace: WorkspaceKey,
        name: Box<str>,
    },
    /// Muster's own: how an environment was built.
    BuildLog {
        workspace: WorkspaceKey,
        name: Box<str>,
        version: Box<str>,
    },
}

pub(crate) fn word(kind: AssetKind) -> &'static str {
    let found = WORDS.iter().find(|(known, _)| *known == kind);
    found.map(|(_, word)| *word).expect("the table contains every kind")
}

pub(crate) fn kind_of(word: &str) -> Option<AssetKind> {
    let found = WORDS.iter().find(|(_, known)| known.eq_ignore_ascii_case(word));
    found.map(|(kind, _)| *kind)
}

/// Whether clients upload files for the kind; the others consist of their document only.
fn has_files(kind: AssetKind) -> bool {
    matches!(kind, AssetKind::Code | AssetKind::Data | AssetKind::Model)
}

/// Parses the segments after Muster's own provider: `names` as given, `words` in lower case.
fn of_environments(
    workspace: WorkspaceKey,
    names: &[String],
    words: &[&str],
) -> Result<Option<AssetRoute>, PathError> {
    Ok(Some(match words {
        ["substitutes"] => AssetRoute::Substitutes(workspace),
        ["substitutes", _] => AssetRoute::Substitute { workspace, name: name_of(&names[1])? },
        ["environments", _, "versions", _, "buildlog"] => {
            let (name, version) = (name_of(&names[1])?, names[3].as_str().into());
            AssetRoute::BuildLog { workspace, name, version }
        }
        _ => return Ok(None),
    }))
}

impl AssetRoute {
    /// Parses the segments after a workspace: `names` as given, `words` in lower case.
    pub(super) fn of_workspace(
        workspace: &WorkspaceKey,
        names: &[String],
        words: &[&str],
    ) -> Result<Option<AssetRoute>, PathError> {
        let workspace = workspace.clone();
        if let ["providers", ours, rest @ ..] = words
            && ours.eq_ignore_ascii_case(ENVIRONMENTS_PROVIDER)
        {
            return of_environments(workspace, &names[2..], rest);
        }
        let Some(kind) = words.first().and_then(|word| kind_of(word)) else { return Ok(None) };
        let Some(name) = names.get(1) else {
            return Ok(Some(AssetRoute::AssetContainers { workspace, kind }));
        };
        let name = name_of(name)?;
        let version = || names[3].as_str().into();
        Ok(Some(match &words[2..] {
            [] => AssetRoute::AssetContainer { workspace, kind, name },
            ["versions"] => AssetRoute::AssetVersions { workspace, kind, name },
            ["versions", _] => {
                AssetRoute::AssetVersion { workspace, kind, name, version: version() }
            }
            ["versions", _, "startpendingupload"] if has_files(kind) => {
                AssetRoute::AssetUpload { workspace, kind, name, version: version() }
            }
            _ => return Ok(None),
        }))
    }

    pub fn workspace(&self) -> &WorkspaceKey {
        match self {
            AssetRoute::AssetContainers { workspace, .. }
            | AssetRoute::AssetContainer { workspace, .. }
            | AssetRoute::AssetVersions { workspace, .. }
            | AssetRoute::AssetVersion { workspace, .. }
            | AssetRoute::AssetUpload { workspace, .. }
            | AssetRoute::Substitutes(workspace)
            | AssetRoute::Substitute { workspace, .. }
            | AssetRoute::BuildLog { workspace, .. } => workspace,
        }
    }

    pub fn path(&self) -> String {
        match self {
            AssetRoute::AssetContainers { workspace, kind } => {
                format!("{}/{}", workspace_path(workspace), word(*kind))
            }
            AssetRoute::AssetContainer { workspace, kind, name } => {
                format!("{}/{}/{}", workspace_path(workspace), word(*kind), encode(name))
            }
            AssetRoute::AssetVersions { workspace, kind, name } => {
                format!("{}/{}/{}/versions", workspace_path(workspace), word(*kind), encode(name))
            }
            AssetRoute::AssetVersion { workspace, kind, name, version } => {
                let (workspace, kind) = (workspace_path(workspace), word(*kind));
                format!("{workspace}/{kind}/{}/versions/{}", encode(name), encode(version))
            }
            AssetRoute::AssetUpload { workspace, kind, name, version } => {
                let (workspace, kind) = (workspace_path(workspace), word(*kind));
                let (name, version) = (encode(name), encode(version));
                format!("{workspace}/{kind}/{name}/versions/{version}/startPendingUpload")
            }
            AssetRoute::Substitutes(workspace) => {
                let workspace = workspace_path(workspace);
                format!("{workspace}/providers/{ENVIRONMENTS_PROVIDER}/substitutes")
            }
            AssetRoute::Substitute { workspace, name } => {
                let (workspace, name) = (workspace_path(workspace), encode(name));
                format!("{workspace}/providers/{ENVIRONMENTS_PROVIDER}/substitutes/{name}")
            }
            AssetRoute::BuildLog { workspace, name, version } => {
                let (workspace, name) = (workspace_path(workspace), encode(name));
                let version = encode(version);
                format!(
                    "{workspace}/providers/{ENVIRONMENTS_PROVIDER}/environments/{name}/versions/{version}/buildLog"
                )
            }
        }
    }

    pub fn methods(&self) -> &'static str {
        match self {
            AssetRoute::AssetContainers { .. }
            | AssetRoute::AssetVersions { .. }
            | AssetRoute::Substitutes(_)
            | AssetRoute::Substitute { .. }
            | AssetRoute::BuildLog { .. } => "GET",
            AssetRoute::AssetContainer { .. } | AssetRoute::AssetVersion { .. } => {
                "GET, PUT, DELETE"
            }
            AssetRoute::AssetUpload { .. } => "POST",
        }
    }

    /// Azure's name for the type of the resource that is changed, relative to a workspace, and the action unless it is
    /// a plain write or delete.
    pub(crate) fn operation(&self) -> Option<(String, Option<&'static str>)> {
        match self {
            AssetRoute::AssetContainers { .. }
            | AssetRoute::AssetVersions { .. }
            | AssetRoute::Substitutes(_)
            | AssetRoute::Substitute { .. }
            | AssetRoute::BuildLog { .. } => None,
            AssetRoute::AssetContainer { kind, .. } => Some((word(*kind).to_owned(), None)),
            AssetRoute::AssetVersion { kind, .. } => {
                Some((format!("{}/versions", word(*kind)), None))
            }
            AssetRoute::AssetUpload { kind, .. } => {
                Some((format!("{}/versions", word(*kind)), Some("startPendingUpload")))
            }
        }
    }
}
