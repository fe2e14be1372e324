//! Which resource a path refers to, and the path of a resource.

use muster_core::model::WorkspaceKey;

use super::PathError;
use super::access::AccessRoute;
use super::assets::AssetRoute;
use super::deployments::DeploymentRoute;
use super::governance::GovernanceRoute;
use super::history::HistoryRoute;
use super::hosts::HostRoute;
use super::location_name;
use super::login::Login;
use super::manager::Manager;
use super::segments::encode;
use super::storage::StorageRoute;
use super::v1::V1Route;

const PROVIDER: &str = "Microsoft.MachineLearningServices";
const COST_PROVIDER: &str = "Muster.Cost";
const QUOTA_PROVIDER: &str = "Muster.Quota";
const WHY_PROVIDER: &str = "Muster.Why";
const REHEARSAL_PROVIDER: &str = "Muster.Rehearsal";
const JOBS_PROVIDER: &str = "Muster.Jobs";
const POST_MORTEM_PROVIDER: &str = "Muster.PostMortem";
/// The prefix that some clients put before a name.
const NAME_PREFIX: &str = "azureml:";

/// Everything that is served. Names are as the user wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// The cloud's metadata document.
    Metadata,
    /// The identity endpoint, in the forms of App Service and of Azure ML.
    Token,
    /// Signing in as a service principal, and the ways of signing in that are refused.
    Login(Login),
    /// The services of a workspace, which are the same for all workspaces.
    Discovery,
    WorkspacesOfSubscription {
        subscription: Box<str>,
    },
    WorkspacesOfGroup {
        subscription: Box<str>,
        resource_group: Box<str>,
    },
    Workspace(WorkspaceKey),
    WorkspaceAction {
        workspace: WorkspaceKey,
        action: WorkspaceAction,
    },
    Computes(WorkspaceKey),
    Compute {
        workspace: WorkspaceKey,
        name: Box<str>,
    },
    ComputeNodes {
        workspace: WorkspaceKey,
        name: Box<str>,
    },
    /// Azure's other actions on a compute. None of them makes sense for a cluster.
    ComputeAction {
        workspace: WorkspaceKey,
        name: Box<str>,
        action: ComputeAction,
    },
    Jobs(WorkspaceKey),
    Job {
        workspace: WorkspaceKey,
        name: Box<str>,
    },
    JobCancel {
        workspace: WorkspaceKey,
        name: Box<str>,
    },
    /// The state of a long-running operation.
    Operation {
        subscription: Box<str>,
        location: Box<str>,
        id: Box<str>,
    },
    /// Run history's view of jobs.
    History(HistoryRoute),
    /// Routes that only SDK v1 uses.
    V1(V1Route),
    /// Muster's own: what the workspace's nodes did and cost.
    Ledger(WorkspaceKey),
    /// Muster's own: how much of its limits a workspace has used.
    WorkspaceUsages(WorkspaceKey),
    /// Muster's own: why a job waits.
    WhyJob {
        workspace: WorkspaceKey,
        name: Box<str>,
    },
    /// Muster's own: why a cluster has its current size.
    WhyCompute {
        workspace: WorkspaceKey,
        name: Box<str>,
    },
    /// Muster's own: evicts a low-priority node, to rehearse a real eviction.
    EvictNode {
        workspace: WorkspaceKey,
        compute: Box<str>,
        node: Box<str>,
    },
    /// Muster's own: the post-mortems of a compute's nodes that failed or were lost.
    PostMortems {
        workspace: WorkspaceKey,
        compute: Box<str>,
    },
    /// Muster's own: the post-mortem of one node.
    PostMortem {
        workspace: WorkspaceKey,
        compute: Box<str>,
        node: Box<str>,
    },
    /// Muster's own: whether a job would be accepted.
    JobCheck {
        workspace: WorkspaceKey,
        name: Box<str>,
    },
    /// Muster's own: the attempts of a job, their logs, their cost and the files that they left.
    JobAttempts {
        workspace: WorkspaceKey,
        name: Box<str>,
    },
    /// Muster's own: a list of files that jobs may use.
    Tree {
        workspace: WorkspaceKey,
        id: Box<str>,
    },
    /// Muster's own: the bytes of one such file.
    Blob {
        workspace: WorkspaceKey,
        digest: Box<str>,
    },
    /// How much of a region's quotas is reserved and used.
    Usages {
        subscription: Box<str>,
        location: Box<str>,
    },
    /// The VM sizes that clusters can have.
    VmSizes {
        subscription: Box<str>,
        location: Box<str>,
    },
    Quotas {
        subscription: Box<str>,
        location: Box<str>,
    },
    UpdateQuotas {
        subscription: Box<str>,
        location: Box<str>,
    },
    /// Users, keys and roles.
    Access(AccessRoute),
    /// The hosts that nodes run on.
    Hosts(HostRoute),
    /// Locks, and the activity log.
    Governance(GovernanceRoute),
    /// Datastores, and maintenance of the blob storage.
    Storage(StorageRoute),
    /// Versioned assets: code, environments, data, models, components.
    Assets(AssetRoute),
    /// Deployments of templates.
    Deployments(DeploymentRoute),
    /// Subscriptions, groups, providers, and lists of resources of any type.
    Manager(Manager),
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComputeAction {
    Start,
    Stop,
    Restart,
    ListKeys,
}

/// Azure's actions on a workspace that are supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceAction {
    Diagnose,
    ResyncKeys,
}

impl WorkspaceAction {
    /// The last segment of the path.
    pub fn as_str(self) -> &'static str {
        match self {
            WorkspaceAction::Diagnose => "diagnose",
            WorkspaceAction::ResyncKeys => "resyncKeys",
        }
    }
}

const COMPUTE_ACTIONS: [(&str, ComputeAction); 4] = [
    ("start", ComputeAction::Start),
    ("stop", ComputeAction::Stop),
    ("restart", ComputeAction::Restart),
    ("listKeys", ComputeAction::ListKeys),
];

impl ComputeAction {
    /// The last segment of the path.
    pub fn as_str(self) -> &'static str {
        let found = COMPUTE_ACTIONS.iter().find(|(_, action)| *action == self);
        found.map(|(word, _)| *word).expect("the table contains every action")
    }

    fn of(word: &str) -> Option<ComputeAction> {
        let found = COMPUTE_ACTIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word));
        found.map(|(_, action)| *action)
    }
}

impl Route {
    pub(super) fn of(segments: &[String]) -> Result<Route, PathError> {
        let folded: Vec<String> =
            segments.iter().map(|segment| segment.to_ascii_lowercase()).collect();
        let words: Vec<&str> = folded.iter().map(String::as_str).collect();
        if let Some(access) = AccessRoute::of(segments, &words) {
            return Ok(Route::Access(access));
        }
        if let Some(hosts) = HostRoute::of(segments, &words) {
            return Ok(Route::Hosts(hosts));
        }
        if let Some(storage) = StorageRoute::of(&words) {
            return Ok(Route::Storage(storage));
        }
        if let Some(history) = HistoryRoute::of(segments, &words)? {
            return Ok(Route::History(history));
        }
        if let Some(v1) = V1Route::of(segments, &words)? {
            return Ok(Route::V1(v1));
        }
        if let Some(governance) = GovernanceRoute::of(segments, &words) {
            return Ok(Route::Governance(governance));
        }
        if let Some(deployments) = DeploymentRoute::of(segments, &words) {
            return Ok(Route::Deployments(deployments));
        }
        Ok(match words.as_slice() {
            ["metadata", "endpoints"] => Route::Metadata,
            ["msi", "token"] => Route::Token,
            ["discovery", ..] => Route::Discovery,
            ["subscriptions", _, "providers", ml, rest @ ..]
                if is_provider(ml) && !rest.is_empty() =>
            {
                of_subscription(segments, rest)
            }
            ["subscriptions", _, "resourcegroups", _, "providers", ml, "workspaces"]
                if is_provider(ml) =>
            {
                Route::WorkspacesOfGroup {
                    subscription: segments[1].as_str().into(),
                    resource_group: segments[3].as_str().into(),
                }
            }
            _ => match split_workspace(segments, &words) {
                Some((workspace, names, rest)) => of_workspace(workspace, names, rest)?,
                None => Manager::of(segments, &words)
                    .map(Route::Manager)
                    .or_else(|| Login::of(segments, &words).map(Route::Login))
                    .unwrap_or(Route::Unknown),
            },
        })
    }

    /// The path of this route, encoded, without a query. `Unknown` has none.
    pub fn path(&self) -> Option<String> {
        Some(match self {
            Route::Metadata => "/metadata/endpoints".into(),
            Route::Token => "/msi/token".into(),
            Route::Discovery => "/discovery".into(),
            Route::WorkspacesOfSubscription { subscription } => {
                format!("/subscriptions/{}/providers/{PROVIDER}/workspaces", encode(subscription))
            }
            Route::WorkspacesOfGroup { subscription, resource_group } => format!(
                "/subscriptions/{}/resourceGroups/{}/providers/{PROVIDER}/workspaces",
                encode(subscription),
                encode(resource_group)
            ),
            Route::Workspace(key) => workspace_path(key),
            Route::WorkspaceAction { workspace, action } => {
                format!("{}/{}", workspace_path(workspace), action.as_str())
            }
            Route::Computes(key) => format!("{}/computes", workspace_path(key)),
            Route::Compute { workspace, name } => {
                format!("{}/computes/{}", workspace_path(workspace), encode(name))
            }
            Route::ComputeNodes { workspace, name } => {
                format!("{}/computes/{}/listNodes", workspace_path(workspace), encode(name))
            }
            Route::ComputeAction { workspace, name, action } => {
                let (workspace, action) = (workspace_path(workspace), action.as_str());
                format!("{workspace}/computes/{}/{action}", encode(name))
            }
            Route::Jobs(key) => format!("{}/jobs", workspace_path(key)),
            Route::Job { workspace, name } => {
                format!("{}/jobs/{}", workspace_path(workspace), encode(name))
            }
            Route::JobCancel { workspace, name } => {
                format!("{}/jobs/{}/cancel", workspace_path(workspace), encode(name))
            }
            Route::Operation { subscription, location, id } => format!(
                "/subscriptions/{}/providers/{PROVIDER}/locations/{}/computeOperationsStatus/{}",
                encode(subscription),
                encode(location),
                encode(id)
            ),
            Route::History(route) => route.path(),
            Route::V1(route) => route.path(),
            Route::Ledger(key) => {
                format!("{}/providers/{COST_PROVIDER}/ledger", workspace_path(key))
            }
            Route::WorkspaceUsages(key) => {
                format!("{}/providers/{QUOTA_PROVIDER}/usages", workspace_path(key))
            }
            Route::WhyJob { workspace, name } => {
                let workspace = workspace_path(workspace);
                format!("{workspace}/providers/{WHY_PROVIDER}/jobs/{}", encode(name))
            }
            Route::WhyCompute { workspace, name } => {
                let workspace = workspace_path(workspace);
                format!("{workspace}/providers/{WHY_PROVIDER}/computes/{}", encode(name))
            }
            Route::EvictNode { workspace, compute, node } => {
                let workspace = workspace_path(workspace);
                let (compute, node) = (encode(compute), encode(node));
                format!(
                    "{workspace}/providers/{REHEARSAL_PROVIDER}/computes/{compute}/nodes/{node}/evict"
                )
            }
            Route::PostMortems { workspace, compute } => {
                let (workspace, compute) = (workspace_path(workspace), encode(compute));
                format!("{workspace}/providers/{POST_MORTEM_PROVIDER}/computes/{compute}/nodes")
            }
            Route::PostMortem { workspace, compute, node } => {
                let (workspace, compute) = (workspace_path(workspace), encode(compute));
                let node = encode(node);
                format!(
                    "{workspace}/providers/{POST_MORTEM_PROVIDER}/computes/{compute}/nodes/{node}"
                )
            }
            Route::JobCheck { workspace, name } => {
                let workspace = workspace_path(workspace);
                format!("{workspace}/providers/{JOBS_PROVIDER}/jobs/{}/check", encode(name))
            }
            Route::JobAttempts { workspace, name } => {
                let workspace = workspace_path(workspace);
                format!("{workspace}/providers/{JOBS_PROVIDER}/jobs/{}/attempts", encode(name))
            }
            Route::Tree { workspace, id } => {
                let workspace = workspace_path(workspace);
                format!("{workspace}/providers/{JOBS_PROVIDER}/trees/{}", encode(id))
            }
            Route::Blob { workspace, digest } => {
                let workspace = workspace_path(workspace);
                format!("{workspace}/providers/{JOBS_PROVIDER}/blobs/{}", encode(digest))
            }
            Route::Usages { subscription, location } => {
                region_path(subscription, location, "usages")
            }
            Route::VmSizes { subscription, location } => {
                region_path(subscription, location, "vmSizes")
            }
            Route::Quotas { subscription, location } => {
                region_path(subscription, location, "quotas")
            }
            Route::UpdateQuotas { subscription, location } => {
                region_path(subscription, location, "updateQuotas")
            }
            Route::Access(access) => access.path(),
            Route::Hosts(route) => route.path(),
            Route::Governance(governance) => governance.path(),
            Route::Storage(route) => route.path(),
            Route::Assets(route) => route.path(),
            Route::Deployments(route) => route.path(),
            Route::Manager(route) => route.path(),
            Route::Login(login) => login.path(),
            Route::Unknown => return None,
        })
    }

    /// The absolute URL of this route. `base_url` is a configured one, never the Host header, because clients send
    /// their tokens there.
    pub fn url(&self, base_url: &str, query: &[(&str, &str)]) -> Option<String> {
        let mut url = format!("{}{}", base_url.trim_end_matches('/'), self.path()?);
        for (index, (key, value)) in query.iter().enumerate() {
            url.push(if index == 0 { '?' } else { '&' });
            // `$` is allowed in a query, and every client and its documentation shows it unencoded.
            url.push_str(&encode(key).replace("%24", "$"));
            url.push('=');
            url.push_str(&encode(value));
        }
        Some(url)
    }
}

/// The ARM id of a workspace. Unlike a path, it is not encoded, because clients compare and split it as it is.
pub fn workspace_id(key: &WorkspaceKey) -> String {
    format!(
        "/subscriptions/{}/resourceGroups/{}/providers/{PROVIDER}/workspaces/{}",
        key.subscription, key.resource_group, key.name
    )
}

/// The id of a quota (`what` is `quotas`) or of its usage (`usages`).
pub(crate) fn quota_id(subscription: &str, location: &str, what: &str, name: &str) -> String {
    format!("/subscriptions/{subscription}/providers/{PROVIDER}/locations/{location}/{what}/{name}")
}

fn region_path(subscription: &str, location: &str, what: &str) -> String {
    let (subscription, location) = (encode(subscription), encode(location));
    format!("/subscriptions/{subscription}/providers/{PROVIDER}/locations/{location}/{what}")
}

/// The workspace and the remaining segments, if the id or path is that of a workspace or of something in it.
pub(crate) fn parse_id(id: &str) -> Option<(WorkspaceKey, Vec<&str>)> {
    let parts: Vec<&str> = id.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [subscriptions, sub, groups, group, providers, ml, workspaces, name, rest @ ..]
            if subscriptions.eq_ignore_ascii_case("subscriptions")
                && groups.eq_ignore_ascii_case("resourcegroups")
                && providers.eq_ignore_ascii_case("providers")
                && is_provider(ml)
                && workspaces.eq_ignore_ascii_case("workspaces") =>
        {
            Some((WorkspaceKey::new(sub, group, name), rest.to_vec()))
        }
        _ => None,
    }
}

/// `azureml:cpu` → `cpu`.
pub(crate) fn strip_prefix(name: &str) -> &str {
    match name.get(..NAME_PREFIX.len()) {
        Some(prefix) if prefix.eq_ignore_ascii_case(NAME_PREFIX) => &name[NAME_PREFIX.len()..],
        Some(_) | None => name,
    }
}

fn is_provider(word: &str) -> bool {
    word.eq_ignore_ascii_case(PROVIDER)
}

pub(super) fn workspace_path(key: &WorkspaceKey) -> String {
    workspace_id(&WorkspaceKey::new(
        &encode(&key.subscription),
        &encode(&key.resource_group),
        &encode(&key.name),
    ))
}

pub(super) fn name_of(segment: &str) -> Result<Box<str>, PathError> {
    match strip_prefix(segment) {
        "" => Err(PathError::EmptyName { text: segment.to_owned() }),
        name => Ok(name.into()),
    }
}

type AfterWorkspace<'a> = (WorkspaceKey, &'a [String], &'a [&'a str]);

pub(super) fn split_workspace<'a>(
    segments: &'a [String],
    words: &'a [&str],
) -> Option<AfterWorkspace<'a>> {
    match words {
        ["subscriptions", _, "resourcegroups", _, "providers", ml, "workspaces", _, rest @ ..]
            if is_provider(ml) =>
        {
            let key = WorkspaceKey::new(&segments[1], &segments[3], strip_prefix(&segments[7]));
            Some((key, &segments[8..], rest))
        }
        _ => None,
    }
}

fn of_subscription(segments: &[String], rest: &[&str]) -> Route {
    match rest {
        ["workspaces"] => {
            Route::WorkspacesOfSubscription { subscription: segments[1].as_str().into() }
        }
        ["locations", _, "computeoperationsstatus", _] => Route::Operation {
            subscription: segments[1].as_str().into(),
            location: location_name(&segments[5]),
            id: segments[7].as_str().into(),
        },
        ["locations", _, what] => {
            let subscription = segments[1].as_str().into();
            let location = location_name(&segments[5]);
            match *what {
                "usages" => Route::Usages { subscription, location },
                "vmsizes" => Route::VmSizes { subscription, location },
                "quotas" => Route::Quotas { subscription, location },
                "updatequotas" => Route::UpdateQuotas { subscription, location },
                _ => Route::Unknown,
            }
        }
        _ => Route::Unknown,
    }
}

/// `names` and `rest` are the segments after the workspace, as given and in lower case.
fn of_workspace(
    workspace: WorkspaceKey,
    names: &[String],
    rest: &[&str],
) -> Result<Route, PathError> {
    if workspace.name.is_empty() {
        return Err(PathError::EmptyName { text: NAME_PREFIX.to_owned() });
    }
    if let Some(storage) = StorageRoute::of_workspace(&workspace, names, rest)? {
        return Ok(Route::Storage(storage));
    }
    if let Some(assets) = AssetRoute::of_workspace(&workspace, names, rest)? {
        return Ok(Route::Assets(assets));
    }
    Ok(match rest {
        [] => Route::Workspace(workspace),
        ["diagnose"] => Route::WorkspaceAction { workspace, action: WorkspaceAction::Diagnose },
        ["resynckeys"] => Route::WorkspaceAction { workspace, action: WorkspaceAction::ResyncKeys },
        ["computes"] => Route::Computes(workspace),
        ["computes", _] => Route::Compute { workspace, name: name_of(&names[1])? },
        ["computes", _, "listnodes"] => {
            Route::ComputeNodes { workspace, name: name_of(&names[1])? }
        }
        ["computes", _, word] => match ComputeAction::of(word) {
            Some(action) => Route::ComputeAction { workspace, name: name_of(&names[1])?, action },
            None => Route::Unknown,
        },
        ["jobs"] => Route::Jobs(workspace),
        ["jobs", _] => Route::Job { workspace, name: name_of(&names[1])? },
        ["jobs", _, "cancel"] => Route::JobCancel { workspace, name: name_of(&names[1])? },
        ["providers", cost, "ledger"] if cost.eq_ignore_ascii_case(COST_PROVIDER) => {
            Route::Ledger(workspace)
        }
        ["providers", quota, "usages"] if quota.eq_ignore_ascii_case(QUOTA_PROVIDER) => {
            Route::WorkspaceUsages(workspace)
        }
        ["providers", why, "jobs", _] if why.eq_ignore_ascii_case(WHY_PROVIDER) => {
            Route::WhyJob { workspace, name: name_of(&names[3])? }
        }
        ["providers", why, "computes", _] if why.eq_ignore_ascii_case(WHY_PROVIDER) => {
            Route::WhyCompute { workspace, name: name_of(&names[3])? }
        }
        ["providers", jobs, "jobs", _, "attempts"] if jobs.eq_ignore_ascii_case(JOBS_PROVIDER) => {
            Route::JobAttempts { workspace, name: name_of(&names[3])? }
        }
        ["providers", jobs, "jobs", _, "check"] if jobs.eq_ignore_ascii_case(JOBS_PROVIDER) => {
            Route::JobCheck { workspace, name: name_of(&names[3])? }
        }
        ["providers", jobs, "trees", _] if jobs.eq_ignore_ascii_case(JOBS_PROVIDER) => {
            Route::Tree { workspace, id: name_of(&names[3])? }
        }
        ["providers", jobs, "blobs", _] if jobs.eq_ignore_ascii_case(JOBS_PROVIDER) => {
            Route::Blob { workspace, digest: name_of(&names[3])? }
        }
        ["providers", rehearsal, "computes", _, "nodes", _, "evict"]
            if rehearsal.eq_ignore_ascii_case(REHEARSAL_PROVIDER) =>
        {
            let (compute, node) = (name_of(&names[3])?, name_of(&names[5])?);
            Route::EvictNode { workspace, compute, node }
        }
        ["providers", ours, "computes", _, "nodes"]
            if ours.eq_ignore_ascii_case(POST_MORTEM_PROVIDER) =>
        {
            Route::PostMortems { workspace, compute: name_of(&names[3])? }
        }
        ["providers", ours, "computes", _, "nodes", _]
            if ours.eq_ignore_ascii_case(POST_MORTEM_PROVIDER) =>
        {
            let (compute, node) = (name_of(&names[3])?, name_of(&names[5])?);
            Route::PostMortem { workspace, compute, node }
        }
        _ => Route::Unknown,
    })
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
