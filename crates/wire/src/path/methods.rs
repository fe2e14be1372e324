//! The methods that a route accepts. docs/reference/arm.md lists the same, and a test here compares the two.

use super::Route;

impl Route {
    /// The methods in the form of an `Allow` header.
    pub fn methods(&self) -> &'static str {
        match self {
            Route::Compute { .. } => "GET, PUT, PATCH, DELETE",
            Route::Workspace(_) => "GET, PUT, PATCH, DELETE",
            Route::Job { .. } => "GET, PUT, DELETE",
            Route::Tree { .. } | Route::Blob { .. } => "PUT",
            // The first page is requested with POST; clients follow the links to further pages with GET.
            Route::ComputeNodes { .. } => "GET, POST",
            Route::WorkspaceAction { .. }
            | Route::ComputeAction { .. }
            | Route::EvictNode { .. }
            | Route::JobCancel { .. }
            | Route::JobCheck { .. }
            | Route::UpdateQuotas { .. } => "POST",
            Route::Metadata
            | Route::Token
            | Route::Discovery
            | Route::WorkspacesOfSubscription { .. }
            | Route::WorkspacesOfGroup { .. }
            | Route::Computes(_)
            | Route::Jobs(_)
            | Route::Operation { .. }
            | Route::Ledger(_)
            | Route::WorkspaceUsages(_)
            | Route::WhyJob { .. }
            | Route::WhyCompute { .. }
            | Route::PostMortems { .. }
            | Route::PostMortem { .. }
            | Route::JobAttempts { .. }
            | Route::Usages { .. }
            | Route::VmSizes { .. }
            | Route::Quotas { .. } => "GET",
            Route::Manager(route) => route.methods(),
            Route::Access(route) => route.methods(),
            Route::History(route) => route.methods(),
            Route::V1(route) => route.methods(),
            Route::Hosts(route) => route.methods(),
            Route::Governance(route) => route.methods(),
            Route::Storage(route) => route.methods(),
            Route::Assets(route) => route.methods(),
            Route::Deployments(route) => route.methods(),
            Route::Login(login) => login.methods(),
            Route::Unknown => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::path::Request;

    const PAGE: &str = include_str!("../../../../docs/reference/arm.md");

    /// `Compute { workspace: … }` → `Compute`.
    fn first_word(text: &str) -> &str {
        text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("")
    }

    /// The names of an enum's variants, taken from its source, which is the only complete list.
    fn variants<'a>(source: &'a str, name: &str) -> BTreeSet<&'a str> {
        let (_, body) = source.split_once(&format!("pub enum {name} {{")).unwrap();
        let (body, _) = body.split_once("\n}").unwrap();
        let indented = body.lines().filter_map(|line| line.strip_prefix("    "));
        indented.filter(|line| line.starts_with(char::is_uppercase)).map(first_word).collect()
    }

    #[test]
    fn the_page_lists_every_route_with_its_methods() {
        let mut listed = BTreeSet::new();
        for row in PAGE.lines().filter(|line| line.starts_with("| `/")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let path = cells[1].trim_matches('`').replace(['{', '}'], "");
            let path = path.replace("/SCOPE", "/subscriptions/s").replace(
                "/WORKSPACE",
                "/subscriptions/s/resourceGroups/g/providers/\
                Microsoft.MachineLearningServices/workspaces/w",
            );
            let route = Request::parse(&path, None).unwrap().route;
            assert_eq!(route.methods(), cells[2], "{row}");
            let shown = format!("{route:?}");
            let inner = [
                "Manager(",
                "Access(",
                "History(",
                "V1(",
                "Hosts(",
                "Governance(",
                "Deployments(",
                "Storage(",
                "Assets(",
                "Login(",
            ];
            let shown = inner.iter().find_map(|name| shown.strip_prefix(name)).unwrap_or(&shown);
            listed.insert(first_word(shown).to_owned());
        }
        let mut known = variants(include_str!("route.rs"), "Route");
        for family in [
            "Unknown",
            "Manager",
            "Access",
            "History",
            "V1",
            "Hosts",
            "Governance",
            "Deployments",
            "Storage",
            "Assets",
            "Login",
        ] {
            assert!(known.remove(family), "{family}");
        }
        known.extend(variants(include_str!("access.rs"), "AccessRoute"));
        known.extend(variants(include_str!("deployments.rs"), "DeploymentRoute"));
        known.extend(variants(include_str!("governance.rs"), "GovernanceRoute"));
        known.extend(variants(include_str!("history.rs"), "HistoryRoute"));
        known.extend(variants(include_str!("hosts.rs"), "HostRoute"));
        known.extend(variants(include_str!("v1.rs"), "V1Route"));
        known.extend(variants(include_str!("manager.rs"), "Manager"));
        known.extend(variants(include_str!("storage.rs"), "StorageRoute"));
        known.extend(variants(include_str!("assets.rs"), "AssetRoute"));
        known.extend(variants(include_str!("login.rs"), "Login"));
        let missing: Vec<_> = known.iter().filter(|name| !listed.contains(**name)).collect();
        assert!(missing.is_empty(), "add to docs/reference/arm.md: {missing:?}");
    }
}
