//! The paths of each group of routes, in the spellings that clients use.

use muster_core::model::{Scope, WorkspaceKey};

use super::{Home, Request, location_name};
use crate::routes::{AccessRoute, DeploymentRoute, GovernanceRoute, Manager, Route};

#[test]
fn the_path_of_every_role_and_user_leads_back() {
    let workspace = Scope::workspace(&WorkspaceKey::new("s", "r g", "w"));
    let scopes = [Scope::Everything, Scope::subscription("s"), Scope::group("s", "r%g"), workspace];
    let mut routes = vec![AccessRoute::Me, AccessRoute::Users];
    let name: Box<str> = "ada@x".into();
    routes.push(AccessRoute::User { name: name.clone() });
    routes.push(AccessRoute::RotateKey { name: name.clone() });
    routes.push(AccessRoute::RevokeKey { name: name.clone() });
    for scope in scopes {
        routes.push(AccessRoute::RoleAssignments(scope.clone()));
        routes.push(AccessRoute::RoleDefinitions(scope.clone()));
        routes.push(AccessRoute::RoleAssignment { scope, name: name.clone() });
    }
    for route in routes {
        let route = Route::Access(route);
        let path = route.path().expect("every route has a path");
        assert_eq!(Request::parse(&path, None).expect("the path is valid").route, route, "{path}");
        let shouted = path.replace("providers", "PROVIDERS").replace("/users", "//USERS");
        assert_eq!(
            Request::parse(&shouted, None).expect("the path is valid").route,
            route,
            "{shouted}"
        );
    }
}

#[test]
fn the_path_of_every_lock_and_log_leads_back() {
    let key = WorkspaceKey::new("s", "r g", "w");
    let scopes = [
        Scope::Everything,
        Scope::subscription("s"),
        Scope::group("s", "g"),
        Scope::workspace(&key),
        Scope::compute(&key, "c"),
    ];
    let mut routes = vec![
        GovernanceRoute::ServerActivity,
        GovernanceRoute::Activity { subscription: "s".into() },
        GovernanceRoute::ActivityChain,
    ];
    for scope in scopes {
        routes.push(GovernanceRoute::Locks(scope.clone()));
        routes.push(GovernanceRoute::Lock { scope, name: "My lock".into() });
    }
    for route in routes {
        let route = Route::Governance(route);
        let path = route.path().expect("every route has a path");
        assert_eq!(Request::parse(&path, None).expect("the path is valid").route, route, "{path}");
        let shouted = path.replace("providers", "PROVIDERS").replace("/locks", "//LOCKS");
        assert_eq!(
            Request::parse(&shouted, None).expect("the path is valid").route,
            route,
            "{shouted}"
        );
    }
}

#[test]
fn other_paths_are_no_locks_or_logs() {
    let workspace = "/subscriptions/s/resourceGroups/g/providers/\
                     Microsoft.MachineLearningServices/workspaces/w";
    let locks = "providers/Microsoft.Authorization/locks";
    for path in [
        format!("{workspace}/jobs/j/{locks}"),
        format!("{workspace}/{locks}/a/b"),
        format!("/subscriptions/s/resourceGroups/g/{locks}/x/y"),
        "/subscriptions/s/providers/Muster.Activity/chain".to_owned(),
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Insights/eventtypes/management/values"
            .to_owned(),
    ] {
        assert_eq!(Request::parse(&path, None).expect("a path").route, Route::Unknown, "{path}");
    }
}

#[test]
fn the_path_of_every_deployment_leads_back() {
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
        assert_eq!(Request::parse(&path, None).expect("the path is valid").route, route, "{path}");
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
        let path =
            format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Resources/{path}");
        assert_eq!(Request::parse(&path, None).expect("a path").route, Route::Unknown, "{path}");
    }
}

#[test]
fn the_path_of_every_list_leads_back_in_any_case() {
    let (subscription, name) = (Box::<str>::from("S ub"), Box::<str>::from("Rg"));
    let location = location_name("East US");
    for route in [
        Manager::Tenants,
        Manager::Subscriptions,
        Manager::Subscription { subscription: subscription.clone() },
        Manager::Locations { subscription: subscription.clone() },
        Manager::Providers { subscription: subscription.clone() },
        Manager::Provider { subscription: subscription.clone(), namespace: name.clone() },
        Manager::ResourceGroups { subscription: subscription.clone() },
        Manager::ResourceGroup { subscription: subscription.clone(), name: name.clone() },
        Manager::Resources { subscription: subscription.clone() },
        Manager::ResourcesOfGroup { subscription: subscription.clone(), name: name.clone() },
        Manager::MachineSizes { subscription: subscription.clone(), location: location.clone() },
        Manager::MachineUsages { subscription, location },
    ] {
        let path = Route::Manager(route.clone()).path().unwrap();
        let again = |path: &str| Request::parse(path, None).unwrap().route;
        assert_eq!(again(&path), Route::Manager(route.clone()), "{path}");
        let shouted = path
            .replace("/subscriptions", "//SUBSCRIPTIONS")
            .replace("/resourceGroups", "/resourcegroups");
        assert_eq!(again(&shouted), Route::Manager(route), "{shouted}");
    }
}
