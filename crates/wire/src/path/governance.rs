//! The paths of locks and of the activity log.

use muster_core::model::Scope;

use super::access::{scope_of, scope_path};
use super::route::parse_id;
use super::segments::encode;

const AUTHORIZATION: &str = "Microsoft.Authorization";
const INSIGHTS: &str = "Microsoft.Insights";
const ACTIVITY: &str = "Muster.Activity";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GovernanceRoute {
    Locks(Scope),
    Lock {
        scope: Scope,
        name: Box<str>,
    },
    /// `None` for the whole server.
    Activity {
        subscription: Option<Box<str>>,
    },
    /// Muster's own: whether the activity log is intact.
    ActivityChain,
}

impl GovernanceRoute {
    /// `words` are the segments in lower case.
    pub(super) fn of(segments: &[String], words: &[&str]) -> Option<GovernanceRoute> {
        let at = words.iter().position(|word| *word == "providers")?;
        let (provider, rest) = words[at + 1..].split_first()?;
        // The path of a compute contains a provider, too.
        if rest.contains(&"providers") {
            let (home, lock) = words.split_at(words.iter().rposition(|word| *word == "providers")?);
            let scope = lockable_of(&segments[..home.len()].join("/"))?;
            return of_lock(scope, &segments[home.len() + 1..], lock.get(1..)?);
        }
        if provider.eq_ignore_ascii_case(INSIGHTS) {
            let ["eventtypes", "management", "values"] = rest else { return None };
            return match &words[..at] {
                [] => Some(GovernanceRoute::Activity { subscription: None }),
                ["subscriptions", _] => Some(GovernanceRoute::Activity {
                    subscription: Some(segments[1].as_str().into()),
                }),
                _ => None,
            };
        }
        if provider.eq_ignore_ascii_case(ACTIVITY) {
            return (at == 0 && rest == ["chain"]).then_some(GovernanceRoute::ActivityChain);
        }
        let scope = lockable_of(&segments[..at].join("/"))?;
        of_lock(scope, &segments[at + 1..], &words[at + 1..])
    }

    pub(super) fn methods(&self) -> &'static str {
        match self {
            GovernanceRoute::Locks(_)
            | GovernanceRoute::Activity { .. }
            | GovernanceRoute::ActivityChain => "GET",
            GovernanceRoute::Lock { .. } => "GET, PUT, DELETE",
        }
    }

    pub(super) fn path(&self) -> String {
        match self {
            GovernanceRoute::Locks(scope) => {
                format!("{}/providers/{AUTHORIZATION}/locks", scope_path(scope))
            }
            GovernanceRoute::Lock { scope, name } => {
                format!("{}/providers/{AUTHORIZATION}/locks/{}", scope_path(scope), encode(name))
            }
            GovernanceRoute::Activity { subscription } => {
                let scope = subscription.as_deref().map_or(Scope::Everything, Scope::subscription);
                format!("{}/providers/{INSIGHTS}/eventtypes/management/values", scope_path(&scope))
            }
            GovernanceRoute::ActivityChain => format!("/providers/{ACTIVITY}/chain"),
        }
    }
}

/// `segments` and `words` begin with the provider.
fn of_lock(scope: Scope, segments: &[String], words: &[&str]) -> Option<GovernanceRoute> {
    match words {
        [provider, "locks"] if provider.eq_ignore_ascii_case(AUTHORIZATION) => {
            Some(GovernanceRoute::Locks(scope))
        }
        [provider, "locks", _] if provider.eq_ignore_ascii_case(AUTHORIZATION) => {
            Some(GovernanceRoute::Lock { scope, name: segments[2].as_str().into() })
        }
        _ => None,
    }
}

/// A scope that can have a lock, in Azure's notation.
pub fn lockable_of(id: &str) -> Option<Scope> {
    scope_of(id).or_else(|| {
        let (workspace, rest) = parse_id(id)?;
        let [computes, name] = rest.as_slice() else { return None };
        let is_compute = computes.eq_ignore_ascii_case("computes");
        is_compute.then(|| Scope::compute(&workspace, name))
    })
}

#[cfg(test)]
mod tests {
    use muster_core::model::WorkspaceKey;

    use super::super::{Request, Route};
    use super::*;

    #[test]
    fn every_address_reads_back() {
        let key = WorkspaceKey::new("s", "r g", "w");
        let scopes = [
            Scope::Everything,
            Scope::subscription("s"),
            Scope::group("s", "g"),
            Scope::workspace(&key),
            Scope::compute(&key, "c"),
        ];
        let mut routes = vec![
            GovernanceRoute::Activity { subscription: None },
            GovernanceRoute::Activity { subscription: Some("s".into()) },
            GovernanceRoute::ActivityChain,
        ];
        for scope in scopes {
            routes.push(GovernanceRoute::Locks(scope.clone()));
            routes.push(GovernanceRoute::Lock { scope, name: "My lock".into() });
        }
        for route in routes {
            let route = Route::Governance(route);
            let path = route.path().expect("every route has a path");
            assert_eq!(
                Request::parse(&path, None).expect("the path is valid").route,
                route,
                "{path}"
            );
            let shouted = path.replace("providers", "PROVIDERS").replace("/locks", "//LOCKS");
            assert_eq!(
                Request::parse(&shouted, None).expect("the path is valid").route,
                route,
                "{shouted}"
            );
        }
    }

    #[test]
    fn nothing_else_is_one() {
        let workspace = "/subscriptions/s/resourceGroups/g/providers/\
                         Microsoft.MachineLearningServices/workspaces/w";
        let locks = "providers/Microsoft.Authorization/locks";
        for path in [
            format!("{workspace}/jobs/j/{locks}"),
            format!("{workspace}/{locks}/a/b"),
            format!("/subscriptions/s/resourceGroups/g/{locks}/x/y"),
            format!("/subscriptions/s/providers/{ACTIVITY}/chain"),
            format!(
                "/subscriptions/s/resourceGroups/g/providers/{INSIGHTS}/eventtypes/management/values"
            ),
        ] {
            assert_eq!(
                Request::parse(&path, None).expect("a path").route,
                Route::Unknown,
                "{path}"
            );
        }
    }
}
