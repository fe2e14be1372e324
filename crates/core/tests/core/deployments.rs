//! Templates: everything in one is created or nothing is, and each resource is recorded separately.

use std::collections::BTreeMap;

use crate::support::{Stage, user, workspace};
use muster_core::model::{
    Activity, ActivityOutcome, ActivityRequest, ClusterPhase, ComputeKind, Deployment, LeftOut,
    LockLevel, QuotaName, QuotaScope, Record, Scope, WorkspaceKey,
};
use muster_core::{
    Change, ClusterPatch, DeployRequest, DeployStep, DeployWhat, GovernanceRequest, Input,
    InputResult, NewLock, RefusalKind, Reply, WorkspacePatch,
};

fn activity_request(resource: &str) -> ActivityRequest {
    ActivityRequest {
        operation: "write".into(),
        resource: resource.into(),
        scope: Scope::group("sub", "group"),
        correlation: "c1".into(),
    }
}

fn new_workspace(name: &str) -> DeployStep {
    let key = WorkspaceKey::new("sub", "group", name);
    let wanted = WorkspacePatch { location: Some("eastus".into()), ..WorkspacePatch::default() };
    let what = DeployWhat::Workspace { key, wanted: Box::new(wanted) };
    DeployStep { activity_request: activity_request(&format!("/{name}")), what }
}

fn new_cluster(home: &str, name: &str, nodes_max: u32) -> DeployStep {
    let workspace = WorkspaceKey::new("sub", "group", home);
    let wanted = ClusterPatch { nodes_max: Some(nodes_max), ..ClusterPatch::default() };
    let what = DeployWhat::Compute { workspace, name: name.into(), wanted: Box::new(wanted) };
    DeployStep { activity_request: activity_request(&format!("/{home}/{name}")), what }
}

fn request(steps: Vec<DeployStep>) -> DeployRequest {
    DeployRequest {
        subscription: "sub".into(),
        resource_group: "group".into(),
        name: "D".into(),
        by: user("ada"),
        correlation: "c1".into(),
        template_hash: "h".into(),
        steps,
        left_out: vec![LeftOut { resource: "/sa".into(), kind: "Storage".into() }],
        outputs: Some("{}".into()),
        is_trial: false,
    }
}

fn ask(stage: &mut Stage, request: DeployRequest) -> InputResult {
    let input = Box::new(Input::Deploy(Box::new(request)));
    stage.say(Input::Asked {
        by: user("ada"),
        activity_request: Box::new(activity_request("/D")),
        input,
    })
}

fn deployment(answer: InputResult) -> Deployment {
    match answer.expect("it can be done") {
        Reply::Deployment(deployment) | Reply::Tried { deployment, .. } => *deployment,
        other => panic!("{other:?}"),
    }
}

/// The caller, the resource, and whether it is new.
fn noted(stage: &Stage) -> Vec<(&str, &str, bool)> {
    fn line(change: &Change) -> Option<(&str, &str, bool)> {
        let Change::ActivityNoted(activity) = change else { return None };
        let Activity { by, request, outcome, .. } = &**activity;
        let is_new = matches!(outcome, ActivityOutcome::Done { before: None, after: Some(_) });
        Some((&by.name, &request.resource, is_new))
    }
    stage.log.iter().filter_map(line).collect()
}

#[test]
fn a_template_is_made_in_order_and_each_part_is_noted() {
    let mut stage = Stage::new();
    let steps = vec![new_workspace("w"), new_cluster("w", "cpu", 2), new_workspace("space")];
    let made = deployment(ask(&mut stage, request(steps.clone())));
    let parts: Vec<_> = made.made.iter().map(|made| (&*made.resource, made.is_new)).collect();
    assert_eq!(parts, [("/w", true), ("/w/cpu", true), ("/space", false)]);
    assert!(made.made.iter().all(|made| made.operation.is_none()), "all of it exists already");
    assert_eq!((made.left_out.len(), &*made.by.name), (1, "ada"));
    // An existing resource that does not change is not recorded.
    let lines = [("ada", "/w", true), ("ada", "/w/cpu", true), ("ada", "/D", false)];
    assert_eq!(noted(&stage), lines);
    let home = stage.world.workspace(&WorkspaceKey::new("sub", "group", "w")).expect("made");
    let cluster = stage.world.cluster_by_name(home.id, "cpu").expect("made");
    assert_ne!(cluster.phase, ClusterPhase::Deleting);
    let operation = stage.log.iter().find_map(|change| match change {
        Change::OperationChanged(operation) => Some(operation.clone()),
        _ => None,
    });
    let by = operation.expect("the cluster's").by;
    assert_eq!(by.as_deref(), Some("ada"), "the caller who deployed it may follow it");

    let again = deployment(ask(&mut stage, request(steps)));
    assert!(again.made.iter().all(|made| !made.is_new));
    assert_ne!(again.id, made.id);
}

#[test]
fn if_one_part_is_refused_nothing_is_made() {
    let mut stage = Stage::with_cluster("taken", 0, 1, 60);
    let large = BTreeMap::from([(QuotaName::Region, Some(16))]);
    stage
        .say(Input::SetQuota { scope: QuotaScope::new("sub", "eastus"), limits: large })
        .expect("a limit");
    let cases = [
        // Some are refused only because of what precedes them in the same template.
        (
            vec![new_cluster("v", "one", 2), new_cluster("v", "two", 2)],
            RefusalKind::QuotaExceeded,
            "/v/two",
        ),
        (vec![new_cluster("v", "taken", 1)], RefusalKind::Conflict, "/v/taken"),
        (vec![new_cluster("nowhere", "xyz", 1)], RefusalKind::NotFound, "/nowhere/xyz"),
        (vec![new_cluster("v", "9bad", 1)], RefusalKind::Invalid, "/v/9bad"),
        (vec![new_workspace("")], RefusalKind::Invalid, "/"),
    ];
    for (bad, kind, resource) in cases {
        let before = stage.log.len();
        let steps = [vec![new_workspace("v")], bad].concat();
        let refused = ask(&mut stage, request(steps)).expect_err(resource);
        assert_eq!(refused.kind, kind, "{refused}");
        assert!(refused.to_string().starts_with(&format!("{resource}: ")), "{refused}");
        assert_eq!(stage.log.len(), before);
    }
    let named = DeployRequest { name: "a/b".into(), ..request(vec![]) };
    assert_eq!(ask(&mut stage, named).expect_err("no name").kind, RefusalKind::Invalid);
}

#[test]
fn a_trial_answers_the_same_and_changes_nothing() {
    let mut stage = Stage::new();
    let before = stage.log.len();
    let steps = vec![new_workspace("w"), new_cluster("w", "cpu", 2), new_workspace("space")];
    let trial = DeployRequest { is_trial: true, ..request(steps.clone()) };
    let tried = deployment(ask(&mut stage, trial.clone()));
    assert_eq!(stage.log.len(), before);
    let made = deployment(ask(&mut stage, request(steps)));
    let parts = |deployment: &Deployment| -> Vec<_> {
        deployment.made.iter().map(|made| (made.resource.clone(), made.is_new)).collect()
    };
    assert_eq!(parts(&tried), parts(&made));
    assert_eq!(
        deployment(ask(&mut stage, trial)).made.iter().filter(|made| made.is_new).count(),
        0
    );
}

#[test]
fn only_an_instance_is_waited_for() {
    let mut stage = Stage::new();
    let mut instance = new_cluster("w", "mine", 1);
    if let DeployWhat::Compute { wanted, .. } = &mut instance.what {
        **wanted = ClusterPatch { kind: Some(ComputeKind::Instance), ..ClusterPatch::default() };
    }
    let steps = vec![new_workspace("w"), new_cluster("w", "cpu", 2), instance];
    let made = deployment(ask(&mut stage, request(steps))).made;
    let waited: Vec<bool> = made.iter().map(|made| made.operation.is_some()).collect();
    assert_eq!(waited, [false, false, true]);
}

#[test]
fn a_trial_shows_how_each_resource_would_change() {
    let mut stage = Stage::new();
    let foreseen = |stage: &mut Stage, steps| {
        let trial = DeployRequest { is_trial: true, ..request(steps) };
        match ask(stage, trial).expect("it can be done") {
            Reply::Tried { foreseen, .. } => foreseen,
            other => panic!("{other:?}"),
        }
    };
    let nodes_max = |record: &Option<Record>| match record {
        Some(Record::Compute { spec, .. }) => Some(spec.scale.nodes_max),
        _ => None,
    };
    let steps = vec![new_workspace("w"), new_cluster("w", "cpu", 2)];
    let new = foreseen(&mut stage, steps.clone());
    assert!(new.iter().all(|one| one.before.is_none() && one.after.is_some()), "{new:?}");
    deployment(ask(&mut stage, request(steps)));
    let changed = foreseen(&mut stage, vec![new_workspace("w"), new_cluster("w", "cpu", 3)]);
    let cluster = changed.last().expect("the cluster would change");
    assert_eq!((nodes_max(&cluster.before), nodes_max(&cluster.after)), (Some(2), Some(3)));
}

#[test]
fn locks_hold_for_templates_too() {
    let mut stage = Stage::new();
    let lock = |scope, level| {
        let lock = NewLock { name: "keep".into(), scope, level, notes: None };
        Input::ChangeGovernance(Box::new(GovernanceRequest::PutLock(lock)))
    };
    let group = Scope::group("sub", "group");
    stage.say(lock(Scope::workspace(&workspace()), LockLevel::ReadOnly)).expect("a lock");
    let refused = ask(&mut stage, request(vec![new_cluster("space", "cpu", 1)]));
    assert_eq!(refused.expect_err("locked").kind, RefusalKind::Locked);
    stage.say(lock(group.clone(), LockLevel::CanNotDelete)).expect("a lock");
    deployment(ask(&mut stage, request(vec![])));
    let delete = Input::DeleteDeployment { group: group.clone(), name: "d".into() };
    assert_eq!(stage.say(delete).expect_err("locked").kind, RefusalKind::Locked);
    stage.say(lock(group, LockLevel::ReadOnly)).expect("a lock");
    assert_eq!(ask(&mut stage, request(vec![])).expect_err("locked").kind, RefusalKind::Locked);
}
