//! Lists of resources of any type: `/subscriptions/{s}/resources`, and the same for a resource group.

mod filter;

pub use filter::{Filter, Subject};

use std::collections::BTreeMap;

use muster_core::model::{Cluster, Workspace, WorkspaceKey};
use muster_core::time::Wall;
use serde::{Deserialize, Serialize};

use crate::compute::ProvisioningState;
use crate::error::ArmError;
use crate::json::shorten;
use crate::page::page_size;
use crate::path::{Query, workspace_id};
use crate::timestamp;
use crate::workspace::Sku;

/// Azure's page size.
const PAGE_MAX: usize = 1_000;

/// A resource of any type as a list shows it. Properties that `$expand` does not ask for are omitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenericResource {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub resource_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<Sku>,
    pub location: String,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_state: Option<ProvisioningState>,
}

/// Which resources a client requests, and which of their properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourcesRequest {
    filter: Option<Filter>,
    with_created_time: bool,
    with_changed_time: bool,
    with_state: bool,
    page: usize,
    /// The id of the last resource that was shown, in lower case.
    after: Option<String>,
}

impl ResourcesRequest {
    pub fn parse(query: &Query) -> Result<ResourcesRequest, ArmError> {
        let given = |key: &str| query.get(key).filter(|text| !text.trim().is_empty());
        let mut request = ResourcesRequest {
            filter: given("$filter").map(Filter::parse).transpose()?,
            with_created_time: false,
            with_changed_time: false,
            with_state: false,
            page: page_size(query, PAGE_MAX)?,
            after: query.skip().map(str::to_lowercase),
        };
        for word in given("$expand").unwrap_or("").split(',').map(str::trim) {
            match word.to_ascii_lowercase().as_str() {
                "" => {}
                "createdtime" => request.with_created_time = true,
                "changedtime" => request.with_changed_time = true,
                "provisioningstate" => request.with_state = true,
                _ => {
                    let message = format!(
                        "$expand names '{}'; give createdTime, changedTime or provisioningState, separated \
                         by commas",
                        shorten(word)
                    );
                    return Err(ArmError::invalid_property("$expand", message));
                }
            }
        }
        Ok(request)
    }

    /// One page of `all`, and the token of the next page if there is one.
    pub fn page(&self, all: Vec<Found<'_>>) -> (Vec<GenericResource>, Option<String>) {
        let mut found: Vec<(String, Found<'_>)> = all
            .into_iter()
            .filter(|found| self.filter.as_ref().is_none_or(|filter| found.fits(filter)))
            .map(|found| (found.id().to_lowercase(), found))
            .filter(|(id, _)| self.after.as_ref().is_none_or(|after| id > after))
            .collect();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        let is_more = found.len() > self.page;
        found.truncate(self.page);
        let next = found.last().filter(|_| is_more).map(|(id, _)| id.clone());
        (found.iter().map(|(_, found)| self.shown(found)).collect(), next)
    }

    fn shown(&self, found: &Found<'_>) -> GenericResource {
        let when = |wanted: bool, at: Wall| wanted.then(|| timestamp::format(at));
        let (created_at, changed_at) = match found {
            Found::Workspace(workspace) => (workspace.created_at, workspace.created_at),
            Found::Cluster(_, cluster) => (cluster.created_at, cluster.modified_at),
        };
        let is_workspace = matches!(found, Found::Workspace(_));
        let state = match found {
            Found::Workspace(_) => ProvisioningState::Succeeded,
            Found::Cluster(_, cluster) => crate::compute::state_of(cluster.phase),
        };
        GenericResource {
            id: found.id(),
            name: found.name(),
            resource_type: found.resource_type().to_owned(),
            kind: is_workspace.then(|| "Default".to_owned()),
            sku: is_workspace.then(|| Sku { name: "Basic".into(), tier: "Basic".into() }),
            location: found.location().to_owned(),
            tags: found.tags().cloned().unwrap_or_default(),
            created_time: when(self.with_created_time, created_at),
            changed_time: when(self.with_changed_time, changed_at),
            provisioning_state: self.with_state.then_some(state),
        }
    }
}

/// A resource of any type.
#[derive(Debug, Clone, Copy)]
pub enum Found<'a> {
    Workspace(&'a Workspace),
    Cluster(&'a WorkspaceKey, &'a Cluster),
}

impl<'a> Found<'a> {
    fn key(&self) -> &'a WorkspaceKey {
        match self {
            Found::Workspace(workspace) => &workspace.key,
            Found::Cluster(key, _) => key,
        }
    }

    fn id(&self) -> String {
        let workspace = workspace_id(self.key());
        match self {
            Found::Workspace(_) => workspace,
            Found::Cluster(_, cluster) => format!("{workspace}/computes/{}", cluster.name),
        }
    }

    /// The name, preceded by the parent's name, as Azure lists child resources.
    fn name(&self) -> String {
        match self {
            Found::Workspace(workspace) => workspace.key.name.to_string(),
            Found::Cluster(key, cluster) => format!("{}/{}", key.name, cluster.name),
        }
    }

    fn resource_type(&self) -> &'static str {
        match self {
            Found::Workspace(_) => "Microsoft.MachineLearningServices/workspaces",
            Found::Cluster(..) => "Microsoft.MachineLearningServices/workspaces/computes",
        }
    }

    fn location(&self) -> &'a str {
        match self {
            Found::Workspace(workspace) => &workspace.location,
            Found::Cluster(_, cluster) => &cluster.spec.location,
        }
    }

    fn tags(&self) -> Option<&'a BTreeMap<String, String>> {
        match self {
            Found::Workspace(workspace) => Some(&workspace.about.tags),
            Found::Cluster(_, cluster) => Some(&cluster.spec.tags),
        }
    }

    fn fits(&self, filter: &Filter) -> bool {
        filter.matches(&Subject {
            resource_group: &self.key().resource_group,
            resource_type: self.resource_type(),
            name: &self.name(),
            location: self.location(),
            tags: self.tags(),
        })
    }
}

#[cfg(test)]
mod tests {
    use muster_core::ids::{PrincipalId, WorkspaceId};

    use super::*;
    use crate::path::Request;

    fn request(query: &str) -> Result<ResourcesRequest, ArmError> {
        let query = Request::parse("/", Some(query)).unwrap().query;
        ResourcesRequest::parse(&query)
    }

    fn workspace(name: &str) -> Workspace {
        Workspace {
            id: WorkspaceId(1),
            key: WorkspaceKey::new("S", "Rg", name),
            location: "eastus".into(),
            created_at: Wall(1_794_772_332_000_000),
            created_by: PrincipalId(1),
            about: Default::default(),
            deletion: None,
        }
    }

    #[test]
    fn pages_follow_each_other_without_gaps() {
        let all: Vec<Workspace> = ["c", "B", "a", "d", "e"].map(workspace).into();
        let found = || all.iter().map(Found::Workspace).collect();
        let mut names = Vec::new();
        let mut query = "$top=2".to_owned();
        loop {
            let (page, next) = request(&query).unwrap().page(found());
            assert!(page.len() <= 2);
            names.extend(page.into_iter().map(|resource| resource.name));
            let Some(next) = next else { break };
            query = format!("$top=2&$skipToken={next}");
        }
        assert_eq!(names, ["a", "B", "c", "d", "e"]);
        let (page, next) = request("").unwrap().page(found());
        assert_eq!((page.len(), next), (5, None));
        let (page, _) = request("$filter=name%20eq%20%27b%27").unwrap().page(found());
        assert_eq!(page[0].name, "B");
        assert_eq!(page.len(), 1);
    }

    #[test]
    fn only_what_is_asked_for_is_expanded() {
        let workspace = workspace("w");
        let show = |query| {
            let (page, _) = request(query).unwrap().page(vec![Found::Workspace(&workspace)]);
            crate::to_json(&page[0])
        };
        assert!(!show("").contains("Time"));
        let all = show("$expand=createdTime,changedTime,%20provisioningstate");
        for text in ["\"createdTime\":\"2026-", "\"changedTime\":", "\"provisioningState\":\"Suc"] {
            assert!(all.contains(text), "{text} in {all}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (query, target) in [
            ("$top=0", "$top"),
            ("$top=-1", "$top"),
            ("$top=many", "$top"),
            ("$expand=everything", "$expand"),
            ("$filter=name", "$filter"),
        ] {
            assert_eq!(request(query).unwrap_err().target(), Some(target), "{query}");
        }
        assert!(request("$top=99999999&$filter=&$expand=").is_ok());
    }
}
