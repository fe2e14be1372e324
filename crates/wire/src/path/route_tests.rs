use muster_core::model::{AssetKind, WorkspaceKey};
use proptest::prelude::*;

use super::*;
use crate::path::ids::{parse_id, strip_prefix};
use crate::path::{ComputeAction, Request};
use crate::routes::{AssetRoute, HistoryRoute, Login, StorageRoute};

const WS: &str =
    "/subscriptions/S/resourceGroups/Rg/providers/Microsoft.MachineLearningServices/workspaces/Ws";

fn key() -> WorkspaceKey {
    WorkspaceKey::new("S", "Rg", "Ws")
}

fn route(path: &str) -> Route {
    Request::parse(path, None).unwrap().route
}

#[test]
fn every_route_is_found_and_names_keep_their_case() {
    let (workspace, name) = (key(), Box::<str>::from("Cpu-Cluster"));
    let at = |rest: &str| format!("{WS}{rest}");
    let in_region = |what: &str| {
        format!(
            "/subscriptions/S/providers/Microsoft.MachineLearningServices/locations/eastus/{what}"
        )
    };
    let cases = [
        ("/metadata/endpoints".into(), Route::Login(Login::Metadata)),
        ("/msi/token".into(), Route::Login(Login::Token)),
        ("/obo/token".into(), Route::Login(Login::OnBehalfOf)),
        ("/discovery".into(), Route::Login(Login::Discovery)),
        ("/discovery/v1.0/x".into(), Route::Login(Login::Discovery)),
        (
            "/subscriptions/S/providers/Microsoft.MachineLearningServices/workspaces".into(),
            Route::WorkspacesOfSubscription { subscription: "S".into() },
        ),
        (
            WS.trim_end_matches("/Ws").into(),
            Route::WorkspacesOfGroup { subscription: "S".into(), resource_group: "Rg".into() },
        ),
        (at(""), Route::Workspace(key())),
        (at("/diagnose"), Route::WorkspaceDiagnosis(key())),
        (at("/resyncKeys"), Route::WorkspaceKeys(key())),
        (at("/computes"), Route::Computes(key())),
        (
            at("/computes/Cpu-Cluster"),
            Route::Compute { workspace: workspace.clone(), name: name.clone() },
        ),
        (
            at("/computes/Cpu-Cluster/listNodes"),
            Route::ComputeNodes { workspace: workspace.clone(), name: name.clone() },
        ),
        (
            at("/computes/Cpu-Cluster/listKeys"),
            Route::ComputeKeys { workspace: workspace.clone(), name: name.clone() },
        ),
        (
            at("/computes/Cpu-Cluster/restart"),
            Route::ComputeAction {
                workspace: workspace.clone(),
                name: name.clone(),
                action: ComputeAction::Restart,
            },
        ),
        (at("/jobs"), Route::Jobs(key())),
        (at("/jobs/Cpu-Cluster"), Route::Job { workspace: workspace.clone(), name: name.clone() }),
        (
            at("/jobs/Cpu-Cluster/cancel"),
            Route::JobCancel { workspace: workspace.clone(), name: name.clone() },
        ),
        (
            format!("/history/v1.0{WS}/runs/Cpu-Cluster/details"),
            Route::History(HistoryRoute::RunDetails { workspace, run: name }),
        ),
        (at("/providers/Muster.Cost/ledger"), Route::Ledger(key())),
        (at("/providers/Muster.Events/events"), Route::Events(key())),
        (at("/providers/Muster.Quota/usages"), Route::WorkspaceUsages(key())),
        (at("/datastores"), Route::Storage(StorageRoute::Datastores(key()))),
        (
            at("/datastores/Mine"),
            Route::Storage(StorageRoute::Datastore { workspace: key(), name: "Mine".into() }),
        ),
        (
            at("/datastores/Mine/listSecrets"),
            Route::Storage(StorageRoute::DatastoreSecrets {
                workspace: key(),
                name: "Mine".into(),
            }),
        ),
        (
            at("/codes"),
            Route::Assets(AssetRoute::AssetContainers { workspace: key(), kind: AssetKind::Code }),
        ),
        (
            at("/environments/E"),
            Route::Assets(AssetRoute::AssetContainer {
                workspace: key(),
                kind: AssetKind::Environment,
                name: "E".into(),
            }),
        ),
        (
            at("/models/M/versions"),
            Route::Assets(AssetRoute::AssetVersions {
                workspace: key(),
                kind: AssetKind::Model,
                name: "M".into(),
            }),
        ),
        (
            at("/components/C/versions/18.04%3A1"),
            Route::Assets(AssetRoute::AssetVersion {
                workspace: key(),
                kind: AssetKind::Component,
                name: "C".into(),
                version: "18.04:1".into(),
            }),
        ),
        (
            at("/data/D/versions/1/startPendingUpload"),
            Route::Assets(AssetRoute::AssetUpload {
                workspace: key(),
                kind: AssetKind::Data,
                name: "D".into(),
                version: "1".into(),
            }),
        ),
        (
            at("/providers/Muster.Environments/substitutes"),
            Route::Assets(AssetRoute::Substitutes(key())),
        ),
        (
            at("/providers/Muster.Environments/substitutes/AzureML-X"),
            Route::Assets(AssetRoute::Substitute { workspace: key(), name: "AzureML-X".into() }),
        ),
        (
            at("/providers/Muster.Environments/environments/E/versions/1/buildLog"),
            Route::Assets(AssetRoute::BuildLog {
                workspace: key(),
                name: "E".into(),
                version: "1".into(),
            }),
        ),
        (
            "/providers/Muster.Storage/collectGarbage".into(),
            Route::Storage(StorageRoute::CollectGarbage),
        ),
        ("/providers/Muster.Storage/sizes".into(), Route::Storage(StorageRoute::StorageSizes)),
        (
            at("/providers/Muster.Why/jobs/J1"),
            Route::WhyJob { workspace: key(), name: "J1".into() },
        ),
        (
            at("/providers/Muster.Rehearsal/computes/Cpu/nodes/cpu-1/evict"),
            Route::EvictNode { workspace: key(), compute: "Cpu".into(), node: "cpu-1".into() },
        ),
        (
            at("/providers/Muster.PostMortem/computes/Cpu/nodes"),
            Route::PostMortems { workspace: key(), compute: "Cpu".into() },
        ),
        (
            at("/providers/Muster.PostMortem/computes/Cpu/nodes/cpu-1"),
            Route::PostMortem { workspace: key(), compute: "Cpu".into(), node: "cpu-1".into() },
        ),
        (
            at("/providers/Muster.Jobs/jobs/J1/attempts"),
            Route::JobAttempts { workspace: key(), name: "J1".into() },
        ),
        (at("/providers/Muster.Jobs/trees/0a"), Route::Tree { workspace: key(), id: "0a".into() }),
        (
            at("/providers/Muster.Jobs/blobs/0a"),
            Route::Blob { workspace: key(), digest: "0a".into() },
        ),
        (
            at("/providers/Muster.Why/computes/Cpu"),
            Route::WhyCompute { workspace: key(), name: "Cpu".into() },
        ),
        (
            at("/providers/Muster.History/computes/Cpu"),
            Route::ComputeHistory { workspace: key(), name: "Cpu".into() },
        ),
        (
            in_region("usages"),
            Route::Usages { subscription: "S".into(), location: "eastus".into() },
        ),
        (
            in_region("vmSizes"),
            Route::VmSizes { subscription: "S".into(), location: "eastus".into() },
        ),
        (
            in_region("quotas"),
            Route::Quotas { subscription: "S".into(), location: "eastus".into() },
        ),
        (
            in_region("updateQuotas"),
            Route::UpdateQuotas { subscription: "S".into(), location: "eastus".into() },
        ),
        (
            "/subscriptions/S/providers/Microsoft.MachineLearningServices/locations/eastus/\
             computeOperationsStatus/o1"
                .into(),
            Route::Operation {
                subscription: "S".into(),
                location: "eastus".into(),
                id: "o1".into(),
            },
        ),
    ];
    for (path, wanted) in cases {
        assert_eq!(route(&path), wanted, "{path}");
        if wanted != Route::Login(Login::Discovery) {
            assert_eq!(wanted.path().as_deref(), Some(path.as_str()));
        }
    }
}

#[test]
fn the_ways_in_which_clients_misspell_paths_lead_to_the_same_route() {
    let wanted = Route::Compute { workspace: key(), name: "cpu".into() };
    for path in [
        format!("{WS}/computes/cpu"),
        format!("{WS}/COMPUTES/cpu/"),
        format!("/{WS}//computes///cpu"),
        format!("{WS}/computes/azureml:cpu"),
        format!("{WS}/computes/AzureML%3Acpu"),
        WS.replace("resourceGroups", "resourcegroups") + "/computes/cpu",
        WS.replace("Services/", "Services//").replace("Microsoft", "microsoft") + "/computes/cpu",
        WS.replace("workspaces", "w%6Frkspaces") + "/computes/cpu",
    ] {
        assert_eq!(route(&path), wanted, "{path}");
    }
}

#[test]
fn what_is_not_served_is_unknown() {
    for path in [
        "/",
        "/metadata",
        "/metadata/identity/oauth2",
        "/tenants/t",
        "/subscriptions/S/resourceGroups/Rg/providers",
        "/history/v1.0",
        "/history/v1.0/runs/x/details",
        "/subscriptions/S/providers/Microsoft.Compute/workspaces",
        &format!("{WS}/datastores/d/x"),
        &format!("{WS}/computes/cpu/resize"),
        &format!("{WS}/jobs/j/cancel/x"),
        &format!("/x{WS}"),
    ] {
        assert_eq!(route(path), Route::Unknown, "{path}");
        assert_eq!(route(path).path(), None);
    }
}

#[test]
fn a_prefix_alone_is_no_name() {
    let text = "azureml:".to_owned();
    let path = format!("{WS}/computes/azureml:");
    assert_eq!(Request::parse(&path, None), Err(PathError::EmptyName { text }));
    assert!(Request::parse(&WS.replace("Ws", "azureml%3A"), None).is_err());
}

#[test]
fn links_are_absolute_and_encoded() {
    let route = Route::Jobs(WorkspaceKey::new("S", "R g", "Ws"));
    let query = [("api-version", "2024-01-01-preview"), ("$skipToken", "j&1=")];
    let link = route.url("https://h:8443/", &query).unwrap();
    assert_eq!(
        link,
        "https://h:8443/subscriptions/S/resourceGroups/R%20g/providers/\
         Microsoft.MachineLearningServices/workspaces/Ws/jobs\
         ?api-version=2024-01-01-preview&$skipToken=j%261%3D"
    );
    let (path, query) = link["https://h:8443".len()..].split_once('?').unwrap();
    let again = Request::parse(path, Some(query)).unwrap();
    assert_eq!(again.route, route);
    assert_eq!(again.query.skip(), Some("j&1="));
}

#[test]
fn ids_are_taken_apart_in_any_case() {
    let id = format!("{}/computes/cpu", WS.to_ascii_uppercase());
    let (key, rest) = parse_id(&id).unwrap();
    assert_eq!(key, WorkspaceKey::new("S", "RG", "WS"));
    assert_eq!(rest, ["computes", "cpu"]);
    assert_eq!(parse_id("/subscriptions/S/resourceGroups/Rg"), None);
}

fn a_name() -> impl Strategy<Value = String> {
    "[^/\\pC]{1,12}".prop_filter("neither a dot segment nor a prefix", |name| {
        name != "." && name != ".." && strip_prefix(name) == name
    })
}

proptest! {
    #[test]
    fn the_path_of_a_route_leads_back_to_it(
        subscription in a_name(), group in a_name(), ws in a_name(), name in a_name(),
    ) {
        let workspace = WorkspaceKey::new(&subscription, &group, &ws);
        let name = name.into_boxed_str();
        for route in [
            Route::Compute { workspace: workspace.clone(), name: name.clone() },
            Route::JobCancel { workspace: workspace.clone(), name: name.clone() },
            Route::History(HistoryRoute::RunDetails {
                workspace: workspace.clone(),
                run: name.clone(),
            }),
            Route::History(HistoryRoute::Run { workspace: workspace.clone(), run: name.clone() }),
            Route::History(HistoryRoute::ResolvedModels(workspace.clone())),
            Route::History(HistoryRoute::RunChildren {
                workspace: workspace.clone(),
                run: name.clone(),
            }),
            Route::History(HistoryRoute::RunServices {
                workspace: workspace.clone(),
                run: name.clone(),
                node: name.clone(),
            }),
            Route::History(HistoryRoute::RunData(workspace.clone())),
            Route::History(HistoryRoute::ResolvedData(workspace.clone())),
            Route::WhyJob { workspace: workspace.clone(), name: name.clone() },
            Route::WhyCompute { workspace: workspace.clone(), name: name.clone() },
            Route::ComputeHistory { workspace: workspace.clone(), name: name.clone() },
            Route::JobAttempts { workspace: workspace.clone(), name: name.clone() },
            Route::JobCheck { workspace: workspace.clone(), name: name.clone() },
            Route::Tree { workspace: workspace.clone(), id: name.clone() },
            Route::Blob { workspace: workspace.clone(), digest: name.clone() },
            Route::PostMortems { workspace: workspace.clone(), compute: name.clone() },
            Route::PostMortem {
                workspace: workspace.clone(),
                compute: name.clone(),
                node: name.clone(),
            },
            Route::EvictNode {
                workspace: workspace.clone(),
                compute: name.clone(),
                node: name.clone(),
            },
            Route::UpdateQuotas { subscription: subscription.into(), location: "eastus".into() },
            Route::Ledger(workspace.clone()),
            Route::Events(workspace.clone()),
            Route::WorkspaceUsages(workspace),
        ] {
            let path = route.path().unwrap();
            prop_assert_eq!(Request::parse(&path, None).unwrap().route, route);
        }
    }
}
