//! Resolves a reference to the asset that the user means.

use muster_core::model::{Asset, AssetKind, Workspace};
use muster_store::Archived;
use muster_wire::ArmError;
use muster_wire::asset::{Reference, Which};

use super::super::Failed;
use crate::app::App;

/// From 0 to 1. Below this, a suggestion is more often wrong than right.
const LIKENESS_MIN: f64 = 0.8;
/// How many names are compared for a suggestion.
const NAMES_MAX: usize = 1_000;

/// The asset, or what is wrong with the reference. Curated environments and registries are not in a workspace.
pub fn resolve(app: &App, home: &Workspace, reference: &Reference) -> Result<Asset, Failed> {
    match reference {
        Reference::Workspace { kind, name, which: Which::Version(wanted) } => {
            version(app, home, *kind, name, wanted)
        }
        Reference::Workspace { kind, name, which: Which::Latest } => {
            let (id, kind) = (home.id, *kind);
            let found = app.readers.look_up(|reader| reader.asset_container(id, kind, name))?;
            match found.map(|found| found.latest) {
                Some(Some(latest)) => Ok(latest),
                Some(None) => {
                    let message = format!(
                        "{} '{name}' has only archived versions; restore one, or give a version",
                        kind.as_str()
                    );
                    Err(ArmError::not_found(kind.as_str(), message).into())
                }
                None => Err(no_such(app, home, kind, name)?),
            }
        }
        Reference::Registry { registry, name, .. } => {
            let message = format!(
                "'{name}' is in the registry '{registry}', not in this workspace; create it here, and refer to that"
            );
            Err(ArmError::not_supported("registry", message).into())
        }
        Reference::Curated { name, .. } => {
            let message = format!(
                "'{name}' comes with Azure's service, not with this one; create an environment here, and refer to that"
            );
            Err(ArmError::not_supported("environment", message).into())
        }
    }
}

/// One version, whether it is archived or not.
fn version(
    app: &App,
    home: &Workspace,
    kind: AssetKind,
    name: &str,
    version: &str,
) -> Result<Asset, Failed> {
    let id = home.id;
    let found = app.readers.look_up(|reader| reader.asset(id, kind, name, version))?;
    if let Some(found) = found {
        return Ok(found);
    }
    let known = app.readers.look_up(|reader| reader.asset_container(id, kind, name))?;
    let Some(known) = known else { return Err(no_such(app, home, kind, name)?) };
    let hint = match known.latest {
        Some(latest) => format!("the latest is '{}'", latest.version),
        None => "all its versions are archived".to_owned(),
    };
    let message = format!("{} '{name}' has no version '{version}'; {hint}", kind.as_str());
    Err(ArmError::not_found(kind.as_str(), message).into())
}

/// The refusal of an unknown name, with the most similar one as a suggestion.
fn no_such(app: &App, home: &Workspace, kind: AssetKind, name: &str) -> Result<Failed, Failed> {
    let id = home.id;
    let names = app
        .readers
        .look_up(|reader| reader.asset_containers(id, kind, Archived::Both, None, NAMES_MAX))?;
    let names = names.items.into_iter().map(|view| view.container.name);
    let hint = match nearest(name, names) {
        Some(near) => format!("did you mean '{near}'?"),
        None => "check the name, or list the existing ones".to_owned(),
    };
    let message = format!("{} '{name}' does not exist in this workspace; {hint}", kind.as_str());
    Ok(ArmError::not_found(kind.as_str(), message).into())
}

/// The most similar of the names, if one is similar enough.
fn nearest(name: &str, names: impl Iterator<Item = Box<str>>) -> Option<Box<str>> {
    let wanted = name.to_lowercase();
    let likeness = |known: &str| strsim::jaro_winkler(&wanted, &known.to_lowercase());
    let scored = names.map(|known| (likeness(&known), known));
    let (likeness, best) = scored.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (likeness >= LIKENESS_MIN).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_distinguished_from_another_name() {
        let names = || ["sklearn-env", "torch"].into_iter().map(Box::from);
        assert_eq!(nearest("skleanr-env", names()).as_deref(), Some("sklearn-env"));
        assert_eq!(nearest("Torhc", names()).as_deref(), Some("torch"));
        assert_eq!(nearest("evaluate", names()), None);
    }
}
