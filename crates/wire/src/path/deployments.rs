//! The paths of template deployments.

use muster_core::model::Scope;

use super::access::scope_path;
use super::segments::encode;

const RESOURCES: &str = "Microsoft.Resources";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeploymentRoute {
    /// The deployments of a resource group.
    OfGroup(Home),
    One {
        home: Home,
        name: Box<str>,
    },
    /// One entry for each resource of a deployment.
    Operations {
        home: Home,
        name: Box<str>,
    },
    OneOperation {
        home: Home,
        name: Box<str>,
        id: Box<str>,
    },
    /// The status of a deployment, for clients that wait for it.
    Status {
        home: Home,
        name: Box<str>,
        id: Box<str>,
    },
    /// Whether the template could be deployed.
    Validate {
        home: Home,
        name: Box<str>,
    },
    /// The changes that the template would make.
    WhatIf {
        home: Home,
        name: Box<str>,
    },
}

/// A resource group as the user wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    pub subscription: Box<str>,
    pub resource_group: Box<str>,
}

impl Home {
    pub fn scope(&self) -> Scope {
        Scope::group(&self.subscription, &self.resource_group)
    }
}

impl DeploymentRoute {
    /// `words` are the segments in lower case.
    pub(super) fn of(segments: &[String], words: &[&str]) -> Option<DeploymentRoute> {
        let (at, rest) = match words {
            [
                "subscriptions",
                _,
                "resourcegroups",
                _,
                "providers",
                provider,
                "deployments",
                rest @ ..,
            ] if provider.eq_ignore_ascii_case(RESOURCES) => (7, rest),
            // Azure omits the provider in this path only.
            ["subscriptions", _, "resourcegroups", _, "deployments", rest @ ..]
                if rest.get(1) == Some(&"operations") =>
            {
                (5, rest)
            }
            _ => return None,
        };
        let text = |place: usize| -> Box<str> { segments[place].as_str().into() };
        let home = Home { subscription: text(1), resource_group: text(3) };
        match rest {
            [] => Some(DeploymentRoute::OfGroup(home)),
            [_] => Some(DeploymentRoute::One { home, name: text(at) }),
            [_, "operations"] => Some(DeploymentRoute::Operations { home, name: text(at) }),
            [_, "operations", _] => {
                Some(DeploymentRoute::OneOperation { home, name: text(at), id: text(at + 2) })
            }
            [_, "operationstatuses", _] => {
                Some(DeploymentRoute::Status { home, name: text(at), id: text(at + 2) })
            }
            [_, "validate"] => Some(DeploymentRoute::Validate { home, name: text(at) }),
            [_, "whatif"] => Some(DeploymentRoute::WhatIf { home, name: text(at) }),
            _ => None,
        }
    }

    pub fn home(&self) -> &Home {
        match self {
            DeploymentRoute::OfGroup(home)
            | DeploymentRoute::One { home, .. }
            | DeploymentRoute::Operations { home, .. }
            | DeploymentRoute::OneOperation { home, .. }
            | DeploymentRoute::Status { home, .. }
            | DeploymentRoute::Validate { home, .. }
            | DeploymentRoute::WhatIf { home, .. } => home,
        }
    }

    pub(super) fn methods(&self) -> &'static str {
        match self {
            DeploymentRoute::OfGroup(_)
            | DeploymentRoute::Operations { .. }
            | DeploymentRoute::OneOperation { .. }
            | DeploymentRoute::Status { .. } => "GET",
            DeploymentRoute::One { .. } => "GET, HEAD, PUT, DELETE",
            DeploymentRoute::Validate { .. } | DeploymentRoute::WhatIf { .. } => "POST",
        }
    }

    pub(super) fn path(&self) -> String {
        let Home { subscription, resource_group } = self.home();
        let group = Scope::Group {
            subscription: subscription.clone(),
            resource_group: resource_group.clone(),
        };
        let all = format!("{}/providers/{RESOURCES}/deployments", scope_path(&group));
        match self {
            DeploymentRoute::OfGroup(_) => all,
            DeploymentRoute::One { name, .. } => format!("{all}/{}", encode(name)),
            DeploymentRoute::Operations { name, .. } => {
                format!("{all}/{}/operations", encode(name))
            }
            DeploymentRoute::OneOperation { name, id, .. } => {
                format!("{all}/{}/operations/{}", encode(name), encode(id))
            }
            DeploymentRoute::Status { name, id, .. } => {
                format!("{all}/{}/operationStatuses/{}", encode(name), encode(id))
            }
            DeploymentRoute::Validate { name, .. } => format!("{all}/{}/validate", encode(name)),
            DeploymentRoute::WhatIf { name, .. } => format!("{all}/{}/whatIf", encode(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Request, Route};
    use super::*;

    #[test]
    fn every_address_reads_back() {
        let home = || Home { subscription: "S".into(), resource_group: "r g".into() };
        let (name, id): (Box<str>, Box<str>) = ("Ws-17 %".into(), "o1".into());
        let routes = [
            DeploymentRoute::OfGroup(home()),
            DeploymentRoute::One { home: home(), name: name.clone() },
            DeploymentRoute::Operations { home: home(), name: name.clone() },
            DeploymentRoute::OneOperation { home: home(), name: name.clone(), id: id.clone() },
            DeploymentRoute::Status { home: home(), name: name.clone(), id },
            DeploymentRoute::Validate { home: home(), name: name.clone() },
            DeploymentRoute::WhatIf { home: home(), name },
        ];
        for route in routes {
            let route = Route::Deployments(route);
            let path = route.path().expect("every route has a path");
            assert_eq!(
                Request::parse(&path, None).expect("the path is valid").route,
                route,
                "{path}"
            );
            let shouted =
                path.replace("resourceGroups", "RESOURCEGROUPS").replace("/deploy", "//DEPLOY");
            assert_eq!(
                Request::parse(&shouted, None).expect("the path is valid").route,
                route,
                "{shouted}"
            );
        }
        let short = "/subscriptions/S/resourcegroups/r%20g/deployments/d/operations";
        let route = DeploymentRoute::Operations { home: home(), name: "d".into() };
        assert_eq!(Request::parse(short, None).expect("a path").route, Route::Deployments(route));
        for path in ["deployments/d/cancel", "deployments/d/operations/1/x", "templates"] {
            let path = format!("/subscriptions/s/resourceGroups/g/providers/{RESOURCES}/{path}");
            assert_eq!(
                Request::parse(&path, None).expect("a path").route,
                Route::Unknown,
                "{path}"
            );
        }
    }
}
