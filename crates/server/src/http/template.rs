//! Paths without the names that callers choose: safe to log, and few enough to use as a label.

use muster_wire::Route;

/// The fixed words of the routes. Everything else in a path is a name that a user chose.
const WORDS: [&str; 104] = [
    ".well-known",
    "Microsoft.Authorization",
    "Microsoft.Compute",
    "Microsoft.Insights",
    "Microsoft.MachineLearningServices",
    "Microsoft.Resources",
    "Muster.Activity",
    "Muster.Cost",
    "Muster.Environments",
    "Muster.Hosts",
    "Muster.Identity",
    "Muster.Jobs",
    "Muster.PostMortem",
    "Muster.Quota",
    "Muster.Rehearsal",
    "Muster.Storage",
    "Muster.Why",
    "attempts",
    "authorize",
    "batchGetResolvedUris",
    "blobs",
    "buildLog",
    "cancel",
    "chain",
    "check",
    "children",
    "codes",
    "collectGarbage",
    "common",
    "components",
    "computeOperationsStatus",
    "computes",
    "cordon",
    "data",
    "datastores",
    "dataversion",
    "deployments",
    "details",
    "devicecode",
    "diagnose",
    "discovery",
    "drain",
    "endpoints",
    "environments",
    "eventtypes",
    "evict",
    "experiments",
    "giveUp",
    "history",
    "hosts",
    "identity",
    "instance",
    "jobs",
    "ledger",
    "listKeys",
    "listNodes",
    "listSecrets",
    "locations",
    "locks",
    "management",
    "me",
    "metadata",
    "modelregistry",
    "models",
    "msi",
    "nodes",
    "oauth2",
    "obo",
    "openid-configuration",
    "operationStatuses",
    "operations",
    "providers",
    "quotas",
    "resourceGroups",
    "resources",
    "restart",
    "resyncKeys",
    "revokeKey",
    "roleAssignments",
    "roleDefinitions",
    "rotateKey",
    "rp",
    "rundata",
    "runs",
    "serviceinstances",
    "start",
    "startPendingUpload",
    "stop",
    "subscriptions",
    "substitutes",
    "tenants",
    "token",
    "trees",
    "uncordon",
    "updateQuotas",
    "usages",
    "users",
    "v1.0",
    "validate",
    "values",
    "versions",
    "vmSizes",
    "whatIf",
    "workspaces",
];

/// Returns `/subscriptions/{}/resourceGroups/{}/…`.
pub fn of(route: &Route) -> String {
    match route.path() {
        Some(path) => of_path(&path),
        None => "unknown".to_owned(),
    }
}

fn of_path(path: &str) -> String {
    let known = |segment: &str| WORDS.iter().find(|word| word.eq_ignore_ascii_case(segment));
    let part = |segment: &str| match segment {
        "" => "",
        segment => known(segment).copied().unwrap_or("{}"),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use muster_wire::Request;

    use super::*;

    #[test]
    fn names_are_left_out() {
        let path = "/subscriptions/s1/resourcegroups/g/providers/microsoft.machinelearningservices/workspaces/w\
                    /computes/cpu/listNodes";
        let Request { route, .. } = Request::parse(path, Some("sig=secret")).unwrap();
        assert_eq!(
            of(&route),
            "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.MachineLearningServices/workspaces/{}\
             /computes/{}/listNodes"
        );
        let Request { route, .. } = Request::parse("/no/such/thing", None).unwrap();
        assert_eq!(of(&route), "unknown");
    }

    /// A new route must add its words to the list.
    #[test]
    fn the_words_of_every_route_are_known() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/arm.md");
        let page = std::fs::read_to_string(page).unwrap();
        let paths = page.lines().filter_map(|line| line.strip_prefix("| `/")?.split('`').next());
        let mut seen = 0;
        for path in paths {
            let literal = |segment: &&str| !segment.is_empty() && !segment.starts_with('{');
            for segment in path.split('/').filter(literal) {
                let stands_for_more = ["WORKSPACE", "SCOPE"].contains(&segment);
                assert!(
                    stands_for_more || of_path(segment) != "{}",
                    "add {segment} of {path} to the words"
                );
                seen += 1;
            }
        }
        assert!(seen > 100);
    }
}
