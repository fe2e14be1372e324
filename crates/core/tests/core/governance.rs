//! Resource groups, locks and deletions: what a lock forbids is refused with the name of the lock and changes nothing,
//! a cluster under a lock explains why it does not grow, and deleting something deletes everything in it.

use crate::support::{self, Stage, apply, someone, user, workspace};
use muster_core::model::{
    Activity, ActivityOutcome, ActivityRequest, ClusterPhase, LockLevel, NodePhase, OperationKind,
    OperationStatus, Record, Role, RoleAssignment, Scope, UserKind, WorkspaceKey,
};
use muster_core::model::{JobPhase, KeyDigest};
use muster_core::time::Wall;
use muster_core::why::{Reason, Remedy, why, why_cluster};
use muster_core::{
    AccessRequest, Change, ClusterPatch, GovernanceRequest, GroupPatch, Input, InputResult,
    NewLock, NewUser, RefusalKind, Refused, Reply, WorkspacePatch,
};

fn ask(stage: &mut Stage, request: GovernanceRequest) -> InputResult {
    stage.say(Input::ChangeGovernance(Box::new(request)))
}

fn lock(stage: &mut Stage, name: &str, scope: Scope, level: LockLevel) -> InputResult {
    ask(stage, GovernanceRequest::PutLock(NewLock { name: name.into(), scope, level, notes: None }))
}

fn unlock(stage: &mut Stage, name: &str, scope: Scope) -> InputResult {
    ask(stage, GovernanceRequest::DeleteLock { scope, name: name.into() })
}

fn put_group(stage: &mut Stage, name: &str, location: Option<&str>) -> InputResult {
    let wanted = GroupPatch { location: location.map(Into::into), tags: None };
    ask(
        stage,
        GovernanceRequest::PutGroup { subscription: "sub".into(), name: name.into(), wanted },
    )
}

fn delete_cluster(stage: &mut Stage, name: &str) -> InputResult {
    stage.say(Input::DeleteCluster { workspace: workspace(), name: name.into() })
}

fn delete_group(stage: &mut Stage, name: &str) -> InputResult {
    ask(stage, GovernanceRequest::DeleteGroup { subscription: "sub".into(), name: name.into() })
}

/// The request is refused because of this lock, and changes nothing.
#[track_caller]
fn assert_locked(stage: &mut Stage, lock: &str, input: Input) {
    let before = stage.log.len();
    let refused: Refused = stage.say(input).expect_err("it is locked");
    assert_eq!(refused.kind, RefusalKind::Locked, "{refused}");
    assert!(refused.to_string().contains(&format!("'{lock}'")), "{refused}");
    let remedy = support::remedy(&refused);
    assert!(
        matches!(&remedy, Remedy::Unlock { lock: found } if *found.name == *lock),
        "{remedy:?}"
    );
    assert_eq!(stage.log.len(), before);
}

fn put_input(name: &str, wanted: ClusterPatch) -> Input {
    let (workspace, name) = (workspace(), name.to_owned());
    Input::PutCluster { workspace, name, wanted: Box::new(wanted), by: someone() }
}

fn delete_input(name: &str) -> Input {
    Input::DeleteCluster { workspace: workspace(), name: name.into() }
}

#[test]
fn a_lock_on_the_group_stops_growth_and_says_so_until_it_is_removed() {
    let mut stage = Stage::with_cluster("cpu", 0, 2, 60);
    let group = Scope::group("sub", "GROUP");
    lock(&mut stage, "keep", group.clone(), LockLevel::CanNotDelete).expect("a lock");

    stage.submit("job", "cpu", 1).expect("jobs are accepted, but wait");
    assert_eq!(stage.nodes(), []);
    let id = stage.job("job").expect("it waits").id;
    let reasons = why(&stage.world, id);
    assert!(matches!(&reasons[0], Reason::Locked { lock, .. } if &*lock.name == "keep"));
    assert!(reasons[0].to_string().contains("cannot grow: the lock 'keep' (CanNotDelete)"));
    let cluster = stage.job("job").expect("it waits").cluster;
    assert_eq!(why_cluster(&stage.world, cluster)[0], reasons[0]);

    assert_locked(&mut stage, "keep", put_input("gpu", ClusterPatch::default()));
    let larger = ClusterPatch { nodes_max: Some(3), ..ClusterPatch::default() };
    assert_locked(&mut stage, "keep", put_input("cpu", larger));
    assert_locked(&mut stage, "keep", delete_input("cpu"));

    // Following the advice of the reason is enough.
    apply(&mut stage, &reasons[0].remedy());
    assert_eq!(stage.nodes(), [NodePhase::Requested]);
    stage.provide();
    stage.run("job");

    // If it is locked again, the idle node is still deleted: a lock never costs money.
    lock(&mut stage, "keep", group.clone(), LockLevel::ReadOnly).expect("a lock");
    stage.finish("job");
    stage.pass_s(61);
    stage.provide();
    assert_eq!(stage.nodes(), []);
    unlock(&mut stage, "KEEP", group).expect("names ignore case");
    delete_cluster(&mut stage, "cpu").expect("nothing forbids it any more");
}

#[test]
fn a_lock_on_the_group_of_the_network_holds_the_clusters_in_it() {
    let mut stage = Stage::new();
    let subnet = "/subscriptions/SUB/resourceGroups/Net/providers/Microsoft.Network/virtualNetworks/v/subnets/s";
    let wanted = ClusterPatch { subnet: Some(subnet.into()), ..ClusterPatch::default() };
    stage.put("inside", wanted.clone()).expect("a cluster");
    stage.put_cluster("outside", 0, 2, 60).expect("a cluster");
    let net = Scope::group("sub", "net");
    let refused = lock(&mut stage, "net-lock", net.clone(), LockLevel::ReadOnly);
    assert_eq!(refused.expect_err("no such group").kind, RefusalKind::NotFound);
    put_group(&mut stage, "net", Some("eastus")).expect("a group");
    lock(&mut stage, "net-lock", net.clone(), LockLevel::ReadOnly).expect("a lock");

    stage.submit("a", "inside", 1).expect("taken");
    stage.submit("b", "outside", 1).expect("taken");
    assert_eq!(stage.nodes().len(), 1, "only the cluster outside grows");
    assert_locked(&mut stage, "net-lock", delete_input("inside"));
    assert_locked(&mut stage, "net-lock", put_input("more", wanted));
    assert_locked(&mut stage, "net-lock", Input::DeleteWorkspace { key: workspace() });
    unlock(&mut stage, "net-lock", net).expect("unlocked");
    assert_eq!(stage.nodes().len(), 2, "it grows without another request");
}

#[test]
fn read_only_means_that_nothing_is_changed_but_jobs_can_be_cancelled() {
    let mut stage = Stage::with_cluster("cpu", 0, 2, 60);
    stage.submit("job", "cpu", 1).expect("a job");
    let home = Scope::workspace(&workspace());
    lock(&mut stage, "frozen", home.clone(), LockLevel::ReadOnly).expect("a lock");
    let refused = stage.submit("next", "cpu", 1).expect_err("locked");
    assert_eq!(refused.kind, RefusalKind::Locked);
    stage.submit("job", "cpu", 1).expect("a retry of an accepted submit gets the same answer");
    let wanted = Box::new(WorkspacePatch { description: Some("x".into()), ..Default::default() });
    assert_locked(&mut stage, "frozen", Input::PatchWorkspace { key: workspace(), wanted });
    stage.cancel("job").expect("a lock never prevents a job from being canceled");
    // With a lock on one compute, the others are free.
    unlock(&mut stage, "frozen", home).expect("unlocked");
    let compute = Scope::compute(&workspace(), "CPU");
    lock(&mut stage, "one", compute.clone(), LockLevel::CanNotDelete).expect("a lock");
    assert_locked(&mut stage, "one", delete_input("cpu"));
    assert_locked(&mut stage, "one", Input::DeleteWorkspace { key: workspace() });
    stage.put_cluster("cpu", 0, 3, 60).expect("it may be changed");
    stage.put_cluster("gpu", 0, 1, 60).expect("others may be created");
    delete_cluster(&mut stage, "gpu").expect("and deleted");
}

#[test]
fn a_workspace_goes_with_its_last_cluster_and_takes_its_roles_along() {
    let mut stage = Stage::with_cluster("cpu", 0, 2, 60);
    let new = NewUser {
        name: "ada".into(),
        kind: UserKind::Person,
        object_id: "ada".into(),
        digest: KeyDigest::made_up("ada"),
    };
    let create = AccessRequest::CreateUser(new);
    stage.say(Input::ChangeAccess(Box::new(create))).expect("a user");
    for (name, scope) in
        [("here", Scope::workspace(&workspace())), ("above", Scope::subscription("sub"))]
    {
        let (name, object_id) = (name.into(), "ada".into());
        let role =
            RoleAssignment { name, object_id, role: Role::Owner, scope, created_at: Wall(0) };
        stage.say(Input::ChangeAccess(Box::new(AccessRequest::AssignRole(role)))).expect("a role");
    }
    stage.submit("job", "cpu", 1).expect("a job");
    stage.provide();
    stage.run("job");
    let asked = asked(Input::DeleteWorkspace { key: workspace() });
    let Ok(Reply::Deleting { operation }) = stage.say(asked) else { panic!("it is deleted") };
    assert!(stage.world.workspace(&workspace()).is_some(), "a job still runs in it");
    let refused = stage.put_cluster("late", 0, 1, 60).expect_err("it is being deleted");
    assert_eq!(refused.kind, RefusalKind::Conflict);
    let again = stage.say(Input::DeleteWorkspace { key: workspace() });
    assert_eq!(again, Ok(Reply::Deleting { operation }));

    assert_eq!(stage.phase("job"), JobPhase::CancelRequested);
    stage.finish("job");
    stage.provide();
    assert_eq!(stage.world.workspace(&workspace()), None);
    assert_eq!(stage.world.clusters().len(), 0);
    let roles: Vec<_> = stage.world.directory().roles().map(|role| &*role.name).collect();
    assert_eq!(roles, ["above"], "if it is created again, old users have no access");
    let ended = stage.log.iter().rev().find_map(|change| match change {
        Change::OperationChanged(found) if found.id == operation => Some(found.clone()),
        _ => None,
    });
    let ended = ended.expect("the operation ended");
    assert_eq!(
        (ended.kind, ended.status),
        (OperationKind::DeleteWorkspace, OperationStatus::Succeeded)
    );
    assert_eq!(ended.by.as_deref(), Some("asker"), "the caller, who has no role there any more");
    let again = stage.say(Input::DeleteWorkspace { key: workspace() });
    assert_eq!(again, Ok(Reply::NothingToDelete));
    // The group still exists, and a new workspace with that name is a different one.
    assert!(stage.world.governance().group("sub", "group").is_some());
    stage.say(Input::workspace(workspace(), "westus", someone())).expect("a new one");
    assert_eq!(stage.world.workspace(&workspace()).expect("made").location.as_ref(), "westus");
}

#[test]
fn a_group_goes_with_everything_in_it_or_not_at_all() {
    let mut stage = Stage::with_cluster("cpu", 1, 2, 60);
    stage.provide();
    let other = WorkspaceKey::new("sub", "group", "other");
    stage.say(Input::workspace(other.clone(), "eastus", someone())).expect("a workspace");
    lock(&mut stage, "one", Scope::compute(&workspace(), "cpu"), LockLevel::CanNotDelete)
        .expect("a lock");
    let refused = delete_group(&mut stage, "group").expect_err("something in it is locked");
    assert_eq!(refused.kind, RefusalKind::Locked);
    assert!(stage.world.workspace(&other).is_some_and(|found| found.deletion.is_none()));
    unlock(&mut stage, "one", Scope::compute(&workspace(), "cpu")).expect("unlocked");

    assert!(matches!(delete_group(&mut stage, "Group"), Ok(Reply::Deleting { .. })));
    assert_eq!(stage.world.workspace(&other), None, "it was empty");
    assert!(stage.world.governance().group("sub", "group").is_some());
    let refused =
        stage.say(Input::workspace(other, "eastus", someone())).expect_err("it is being deleted");
    assert_eq!(refused.kind, RefusalKind::Conflict);
    stage.provide();
    assert!(stage.world.governance().group("sub", "group").is_none());
    assert_eq!(stage.world.workspaces().count(), 0);
    assert_eq!(delete_group(&mut stage, "group"), Ok(Reply::NothingToDelete));
}

#[test]
fn groups_are_made_by_hand_or_with_the_first_workspace() {
    let mut stage = Stage::new();
    let refused = put_group(&mut stage, "new", None).expect_err("a new one needs a location");
    assert_eq!(refused.kind, RefusalKind::NotFound);
    assert!(matches!(
        put_group(&mut stage, "new", Some("eastus")),
        Ok(Reply::Group { is_new: true, .. })
    ));
    assert!(matches!(
        put_group(&mut stage, "NEW", Some("EastUS")),
        Ok(Reply::Group { is_new: false, .. })
    ));
    let refused = put_group(&mut stage, "new", Some("westus")).expect_err("it cannot be moved");
    assert_eq!((refused.kind, refused.target), (RefusalKind::Conflict, "location".into()));
    for name in ["", ".", "a/b", &"x".repeat(91)] {
        let refused = put_group(&mut stage, name, Some("eastus")).expect_err("a bad name");
        assert_eq!(refused.kind, RefusalKind::Invalid, "{name:?}");
    }
    let made = stage.world.governance().group("SUB", "group").expect("made with the workspace");
    assert_eq!(&*made.location, "eastus");
    let refused = lock(&mut stage, "all", Scope::Everything, LockLevel::ReadOnly);
    assert_eq!(refused.expect_err("not everything").kind, RefusalKind::Invalid);
}

fn activity_request() -> Box<ActivityRequest> {
    Box::new(ActivityRequest {
        operation: "an operation".into(),
        resource: "/a/resource".into(),
        scope: Scope::workspace(&workspace()),
        correlation: "request 1".into(),
    })
}

fn asked(input: Input) -> Input {
    Input::Asked { by: user("asker"), activity_request: activity_request(), input: Box::new(input) }
}

fn activities(stage: &Stage) -> Vec<Activity> {
    let noted = |change: &Change| match change {
        Change::ActivityNoted(activity) => Some((**activity).clone()),
        _ => None,
    };
    stage.log.iter().filter_map(noted).collect()
}

#[test]
fn what_is_asked_for_is_noted_with_before_and_after() {
    let mut stage = Stage::new();
    let wanted = |nodes_max| ClusterPatch { nodes_max: Some(nodes_max), ..ClusterPatch::default() };
    stage.say(asked(put_input("cpu", wanted(1)))).expect("a cluster");
    stage.say(asked(put_input("cpu", wanted(2)))).expect("changed");
    stage.say(asked(delete_input("cpu"))).expect("deleted");
    stage.say(asked(delete_input("cpu"))).expect("nothing to delete");
    stage.say(asked(put_input("x", wanted(1)))).expect_err("a bad name");
    stage.say(delete_input("missing")).expect("nothing to delete");

    let noted = activities(&stage);
    let maxima: Vec<_> = noted
        .iter()
        .map(|activity| {
            assert_eq!(
                (&*activity.by.name, &*activity.request.correlation),
                ("asker", "request 1")
            );
            let ActivityOutcome::Done { before, after } = &activity.outcome else {
                panic!("refusals are recorded by the layer that passes them on")
            };
            let maximum = |record: &Option<Box<Record>>| match record.as_deref() {
                Some(Record::Compute { spec, phase }) => Some((spec.scale.nodes_max, *phase)),
                None => None,
                other => panic!("{other:?}"),
            };
            (maximum(before), maximum(after))
        })
        .collect();
    use ClusterPhase::{Creating, Deleting, Succeeded, Updating};
    assert_eq!(
        maxima,
        [
            (None, Some((1, Creating))),
            (Some((1, Succeeded)), Some((2, Updating))),
            (Some((2, Succeeded)), Some((2, Deleting))),
        ]
    );
}

#[test]
fn secrets_are_not_noted() {
    let mut stage = Stage::new();
    let admin = muster_core::model::AdminAccount {
        user_name: "root".into(),
        ssh_public_key: None,
        password_digest: Some("a digest".into()),
    };
    let wanted = ClusterPatch { admin: Some(admin), ..ClusterPatch::default() };
    stage.say(asked(put_input("cpu", wanted))).expect("a cluster");
    let text = serde_json::to_string(&activities(&stage)).expect("it is plain data");
    assert!(text.contains("root") && !text.contains("a digest"), "{text}");
}
