//! Names that are unique beyond one workspace: a conflict tells that a name is taken, but not by whom or where.

use crate::support::{Stage, someone, user};
use muster_core::model::{
    Capacity, HostName, KeyDigest, Role, RoleAssignment, Scope, UserKind, WorkspaceKey,
};
use muster_core::time::{Span, Wall};
use muster_core::{
    AccessRequest, ClusterNames, ClusterPatch, HostRequest, Input, NewHost, NewUser, RefusalKind,
    Reply,
};

/// Words of the user who has all the names. None of them may appear in an answer to another user.
const THEIRS: [&str; 5] = ["their-sub", "their-group", "their-space", "mallory", "owner"];
const REGION: &str = "eastus";

fn theirs() -> WorkspaceKey {
    WorkspaceKey::new("their-sub", "their-group", "their-space")
}

fn ours() -> WorkspaceKey {
    WorkspaceKey::new("our-sub", "our-group", "our-space")
}

fn workspace(key: WorkspaceKey, by: &str) -> Input {
    Input::workspace(key, REGION, user(by))
}

fn cluster(workspace: WorkspaceKey, by: &str) -> Input {
    let wanted = ClusterPatch { location: Some(REGION.into()), ..ClusterPatch::default() };
    Input::PutCluster { workspace, name: "pool".into(), wanted: Box::new(wanted), by: user(by) }
}

fn role(role: Role, key: &WorkspaceKey) -> Input {
    let (name, object_id) = ("assignment".into(), "oid of mallory".into());
    let scope = Scope::workspace(key);
    let assignment = RoleAssignment { name, object_id, role, scope, created_at: Wall(0) };
    Input::ChangeAccess(Box::new(AccessRequest::AssignRole(assignment)))
}

fn account(object_id: &str) -> Input {
    Input::ChangeAccess(Box::new(AccessRequest::CreateUser(NewUser {
        name: "Taken".into(),
        kind: UserKind::Person,
        object_id: object_id.into(),
        digest: KeyDigest::made_up(object_id),
    })))
}

fn ticket(word: &str, intent: Scope) -> Input {
    let digest = KeyDigest::made_up(word);
    let good_for = Span::seconds(60);
    Input::ChangeHosts(Box::new(HostRequest::IssueTicket { digest, intent, host: None, good_for }))
}

fn host(word: &str) -> Input {
    let (ticket, key) = (KeyDigest::made_up(word), KeyDigest::made_up(word));
    let name = HostName::new("machine").expect("a name");
    let capacity = Capacity { vcpus: 4, memory_mb: 8_192, ..Capacity::default() };
    Input::ChangeHosts(Box::new(HostRequest::Join(NewHost { ticket, name, capacity, key })))
}

#[test]
fn a_name_that_is_taken_does_not_say_whose_it_is() {
    let mut stage = Stage::new();
    let mallory = Input::ChangeAccess(Box::new(AccessRequest::CreateUser(NewUser {
        name: "mallory".into(),
        kind: UserKind::Person,
        object_id: "oid of mallory".into(),
        digest: KeyDigest::made_up("mallory"),
    })));
    for input in [
        mallory,
        workspace(theirs(), "mallory"),
        workspace(ours(), &someone().name),
        cluster(theirs(), "mallory"),
        role(Role::Owner, &theirs()),
        account("oid of theirs"),
        ticket("first", Scope::workspace(&theirs())),
        host("first"),
        ticket("second", Scope::workspace(&ours())),
    ] {
        stage.say(input).expect("the name is free");
    }
    for (what, input) in [
        ("compute", cluster(ours(), "us")),
        ("role assignment", role(Role::Reader, &ours())),
        ("user", account("oid of ours")),
        ("host", host("second")),
    ] {
        let before = stage.log.len();
        let refused = stage.say(input).expect_err(what);
        assert_eq!(refused.kind, RefusalKind::Conflict, "{what}: {refused}");
        let said = refused.to_string().to_ascii_lowercase();
        assert!(said.contains("choose another"), "{what}: {refused}");
        let leaked: Vec<_> = THEIRS.iter().filter(|word| said.contains(*word)).collect();
        assert!(leaked.is_empty(), "{what} tells {leaked:?}: {refused}");
        // Nor does it tell what the other resource is like.
        assert!(!said.contains("assigns another role"), "{what}: {refused}");
        assert_eq!(stage.log.len(), before, "{what}: something changed");
    }
    // A caller who may see it is told what to do about it.
    let refused = stage.say(role(Role::Reader, &theirs())).expect_err("it is another role");
    assert!(refused.to_string().contains("assigns another role; remove it"), "{refused}");
}

/// Many public programs call their cluster `cpu-cluster`, so each workspace has its own.
#[test]
fn names_may_be_unique_within_a_workspace_only() {
    let mut stage = Stage::new();
    stage.world.settings.cluster_names = ClusterNames::UniqueInWorkspace;
    for input in [workspace(theirs(), "mallory"), workspace(ours(), &someone().name)] {
        stage.say(input).expect("the name is free");
    }
    for key in [theirs(), ours()] {
        let made = stage.say(cluster(key, "us")).expect("it is free in this workspace");
        assert!(matches!(made, Reply::Cluster { is_new: true, .. }), "{made:?}");
    }
    // The same name in the same workspace is the same cluster.
    let again = stage.say(cluster(ours(), "us")).expect("an update");
    assert!(matches!(again, Reply::Cluster { is_new: false, .. }), "{again:?}");
    let delete = Input::DeleteCluster { workspace: theirs(), name: "pool".into() };
    stage.say(delete).expect("it is there");
    stage.pass_s(60);
    assert!(stage.world.workspace(&ours()).is_some());
    // With the other setting, a cluster that is left in the region keeps the name.
    stage.world.settings.cluster_names = ClusterNames::UniqueInRegion;
    let refused = stage.say(cluster(theirs(), "mallory")).expect_err("ours has it");
    assert_eq!(refused.kind, RefusalKind::Conflict, "{refused}");
}
