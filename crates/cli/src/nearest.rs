//! Suggestions for misspelt names.

use muster_wire::{AccessRoute, AssetRoute, GovernanceRoute, HistoryRoute, Manager, Route};

/// From 0 to 1. Below this a suggestion is wrong more often than right; "cpu" and "cpu-cluster" are at 0.83.
const LIKENESS_MIN: f64 = 0.8;

/// The route that lists the names among which the given route's name belongs, and that name.
pub fn listing(route: &Route) -> Option<(Route, &str)> {
    match route {
        Route::Compute { workspace, name }
        | Route::ComputeNodes { workspace, name }
        | Route::PostMortems { workspace, compute: name }
        | Route::ComputeHistory { workspace, name }
        | Route::WhyCompute { workspace, name } => Some((Route::Computes(workspace.clone()), name)),
        Route::Job { workspace, name }
        | Route::JobCancel { workspace, name }
        | Route::WhyJob { workspace, name }
        | Route::JobAttempts { workspace, name }
        | Route::History(HistoryRoute::RunDetails { workspace, run: name }) => {
            Some((Route::Jobs(workspace.clone()), name))
        }
        Route::Workspace(key) => {
            let (subscription, resource_group) =
                (key.subscription.clone(), key.resource_group.clone());
            Some((Route::WorkspacesOfGroup { subscription, resource_group }, &key.name))
        }
        Route::Assets(AssetRoute::AssetContainer { workspace, kind, name }) => {
            let (workspace, kind) = (workspace.clone(), *kind);
            Some((Route::Assets(AssetRoute::AssetContainers { workspace, kind }), name))
        }
        Route::ComputeAction { workspace, name, .. } => {
            Some((Route::Computes(workspace.clone()), name))
        }
        Route::Access(
            AccessRoute::User { name }
            | AccessRoute::RotateKey { name }
            | AccessRoute::RevokeKey { name },
        ) => Some((Route::Access(AccessRoute::Users), name)),
        Route::Governance(GovernanceRoute::Lock { scope, name }) => {
            Some((Route::Governance(GovernanceRoute::Locks(scope.clone())), name))
        }
        Route::Manager(Manager::ResourceGroup { subscription, name }) => {
            let subscription = subscription.clone();
            Some((Route::Manager(Manager::ResourceGroups { subscription }), name))
        }
        _ => None,
    }
}

/// The most similar of the names, unless the name itself is among them or none is similar enough.
pub fn nearest<'a>(name: &str, names: &'a [String]) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    let likeness = |known: &String| strsim::jaro_winkler(&wanted, &known.to_lowercase());
    let scored = names.iter().map(|known| (likeness(known), known));
    let (likeness, best) = scored.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (likeness >= LIKENESS_MIN && best.to_lowercase() != wanted).then_some(best.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_distinguished_from_another_name() {
        let names = ["cpu-cluster", "gpu-cluster", "train"].map(str::to_owned);
        for (typed, wanted) in [
            ("cpu", Some("cpu-cluster")),
            ("CPU-Xluster", Some("cpu-cluster")),
            ("gpucluster", Some("gpu-cluster")),
            ("traim", Some("train")),
            ("Train", None),
            ("evaluate", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, &names), wanted, "{typed}");
        }
        assert_eq!(nearest("cpu", &[]), None);
    }
}
