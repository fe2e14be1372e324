//! Resource manager's own routes: subscriptions, groups, providers, and lists of resources of any type.

use super::location_name;
use super::segments::encode;

const COMPUTE_PROVIDER: &str = "Microsoft.Compute";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manager {
    Tenants,
    Subscriptions,
    Subscription {
        subscription: Box<str>,
    },
    Locations {
        subscription: Box<str>,
    },
    Providers {
        subscription: Box<str>,
    },
    Provider {
        subscription: Box<str>,
        namespace: Box<str>,
    },
    ResourceGroups {
        subscription: Box<str>,
    },
    ResourceGroup {
        subscription: Box<str>,
        name: Box<str>,
    },
    Resources {
        subscription: Box<str>,
    },
    ResourcesOfGroup {
        subscription: Box<str>,
        name: Box<str>,
    },
    /// The sizes for `az vm list-sizes`.
    MachineSizes {
        subscription: Box<str>,
        location: Box<str>,
    },
    /// The usage for `az vm list-usage`.
    MachineUsages {
        subscription: Box<str>,
        location: Box<str>,
    },
}

impl Manager {
    /// `words` are the `segments` in lower case.
    pub(super) fn of(segments: &[String], words: &[&str]) -> Option<Manager> {
        let subscription = || segments[1].as_str().into();
        let third = || segments[3].as_str().into();
        Some(match words {
            ["tenants"] => Manager::Tenants,
            ["subscriptions"] => Manager::Subscriptions,
            ["subscriptions", _] => Manager::Subscription { subscription: subscription() },
            ["subscriptions", _, "locations"] => {
                Manager::Locations { subscription: subscription() }
            }
            ["subscriptions", _, "providers"] => {
                Manager::Providers { subscription: subscription() }
            }
            ["subscriptions", _, "providers", _] => {
                Manager::Provider { subscription: subscription(), namespace: third() }
            }
            ["subscriptions", _, "resourcegroups"] => {
                Manager::ResourceGroups { subscription: subscription() }
            }
            ["subscriptions", _, "resourcegroups", _] => {
                Manager::ResourceGroup { subscription: subscription(), name: third() }
            }
            ["subscriptions", _, "resources"] => {
                Manager::Resources { subscription: subscription() }
            }
            ["subscriptions", _, "resourcegroups", _, "resources"] => {
                Manager::ResourcesOfGroup { subscription: subscription(), name: third() }
            }
            ["subscriptions", _, "providers", compute, "locations", _, what]
                if compute.eq_ignore_ascii_case(COMPUTE_PROVIDER) =>
            {
                let (subscription, location) = (subscription(), location_name(&segments[5]));
                match *what {
                    "vmsizes" => Manager::MachineSizes { subscription, location },
                    "usages" => Manager::MachineUsages { subscription, location },
                    _ => return None,
                }
            }
            _ => return None,
        })
    }

    pub(super) fn path(&self) -> String {
        let at = |subscription: &str, rest: &str| {
            format!("/subscriptions/{}{rest}", encode(subscription))
        };
        match self {
            Manager::Tenants => "/tenants".into(),
            Manager::Subscriptions => "/subscriptions".into(),
            Manager::Subscription { subscription } => at(subscription, ""),
            Manager::Locations { subscription } => at(subscription, "/locations"),
            Manager::Providers { subscription } => at(subscription, "/providers"),
            Manager::Provider { subscription, namespace } => {
                at(subscription, &format!("/providers/{}", encode(namespace)))
            }
            Manager::ResourceGroups { subscription } => at(subscription, "/resourceGroups"),
            Manager::ResourceGroup { subscription, name } => {
                at(subscription, &format!("/resourceGroups/{}", encode(name)))
            }
            Manager::Resources { subscription } => at(subscription, "/resources"),
            Manager::ResourcesOfGroup { subscription, name } => {
                at(subscription, &format!("/resourceGroups/{}/resources", encode(name)))
            }
            Manager::MachineSizes { subscription, location } => {
                let location = encode(location);
                at(
                    subscription,
                    &format!("/providers/{COMPUTE_PROVIDER}/locations/{location}/vmSizes"),
                )
            }
            Manager::MachineUsages { subscription, location } => {
                let location = encode(location);
                at(
                    subscription,
                    &format!("/providers/{COMPUTE_PROVIDER}/locations/{location}/usages"),
                )
            }
        }
    }

    pub(super) fn methods(&self) -> &'static str {
        match self {
            Manager::ResourceGroup { .. } => "GET, HEAD, PUT, PATCH, DELETE",
            Manager::Tenants
            | Manager::Subscriptions
            | Manager::Subscription { .. }
            | Manager::Locations { .. }
            | Manager::Providers { .. }
            | Manager::Provider { .. }
            | Manager::ResourceGroups { .. }
            | Manager::Resources { .. }
            | Manager::ResourcesOfGroup { .. }
            | Manager::MachineSizes { .. }
            | Manager::MachineUsages { .. } => "GET",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Request, Route};

    #[test]
    fn every_route_leads_back_to_itself_in_any_case() {
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
            Manager::MachineSizes {
                subscription: subscription.clone(),
                location: location.clone(),
            },
            Manager::MachineUsages { subscription, location },
        ] {
            let path = route.path();
            let again = |path: &str| Request::parse(path, None).unwrap().route;
            assert_eq!(again(&path), Route::Manager(route.clone()), "{path}");
            let shouted = path
                .replace("/subscriptions", "//SUBSCRIPTIONS")
                .replace("/resourceGroups", "/resourcegroups");
            assert_eq!(again(&shouted), Route::Manager(route), "{shouted}");
        }
    }
}
