//! Users, keys and roles: a refused request changes nothing, and what a user may do follows from the roles.

use crate::support::{self, Stage};
use muster_core::model::{
    Action, Identity, KeyDigest, Role, RoleAssignment, Scope, UserKind, WorkspaceKey,
};
use muster_core::time::Wall;
use muster_core::{AccessRequest, ClusterPatch, Input, InputResult, NewUser, RefusalKind, Reply};

fn create(stage: &mut Stage, name: &str) -> InputResult {
    let request = AccessRequest::CreateUser(NewUser {
        name: name.into(),
        kind: UserKind::Person,
        object_id: format!("oid of {}", name.to_ascii_lowercase()).into(),
        digest: KeyDigest::made_up(name),
    });
    stage.say(Input::ChangeAccess(Box::new(request)))
}

fn ask(stage: &mut Stage, request: AccessRequest) -> InputResult {
    stage.say(Input::ChangeAccess(Box::new(request)))
}

fn assignment(name: &str, user: &str, role: Role, scope: Scope) -> RoleAssignment {
    let object_id = format!("oid of {user}").into();
    RoleAssignment { name: name.into(), object_id, role, scope, created_at: Wall(0) }
}

fn scopes() -> [Scope; 3] {
    [
        Scope::workspace(&WorkspaceKey::new("sub", "group", "space")),
        Scope::workspace(&WorkspaceKey::new("sub", "group", "other")),
        Scope::group("sub", "group"),
    ]
}

#[test]
fn a_user_may_do_what_the_roles_say_and_only_there() {
    let mut stage = Stage::new();
    create(&mut stage, "Ada").expect("a new user");
    let [space, other, group] = scopes();
    let may = |stage: &Stage, action, at: &Scope| {
        stage.world.directory().allows("oid of ada", action, at)
    };
    assert!(!may(&stage, Action::Read, &space), "a new user has no permissions");
    let role = assignment("r1", "ada", Role::DataScientist, space.clone());
    ask(&mut stage, AccessRequest::AssignRole(role)).expect("assigned");
    assert!(may(&stage, Action::Read, &space) && may(&stage, Action::RunJobs, &space));
    assert!(!may(&stage, Action::ManageComputes, &space));
    assert!(!may(&stage, Action::Read, &other) && !may(&stage, Action::Read, &group));
    assert!(stage.world.directory().sees("oid of ada", &group), "its own workspace is in there");
    // Roles add up.
    let role = assignment("r2", "ada", Role::ComputeOperator, group.clone());
    ask(&mut stage, AccessRequest::AssignRole(role)).expect("assigned");
    assert!(may(&stage, Action::ManageComputes, &other) && may(&stage, Action::RunJobs, &space));
    assert!(!may(&stage, Action::RunJobs, &other));
    let elsewhere = AccessRequest::RemoveRole { name: "r1".into(), scope: group };
    assert_eq!(ask(&mut stage, elsewhere), Ok(Reply::NothingToDelete));
    let remove = AccessRequest::RemoveRole { name: "R1".into(), scope: space.clone() };
    ask(&mut stage, remove).expect("removed");
    assert!(!may(&stage, Action::RunJobs, &space) && may(&stage, Action::Read, &space));
    // A deleted user loses all roles, and a later user with the same name does not get them.
    ask(&mut stage, AccessRequest::DeleteUser { user: "ADA".into() }).expect("deleted");
    assert_eq!(stage.world.directory().roles().len(), 0);
    create(&mut stage, "ada").expect("the name is free");
    assert!(!may(&stage, Action::Read, &space));
}

#[test]
fn a_new_key_replaces_the_old_one_at_once() {
    let mut stage = Stage::new();
    create(&mut stage, "ada").expect("a new user");
    let holder = |stage: &Stage, word: &str| {
        let found = stage.world.directory().holder_of(&KeyDigest::made_up(word), |a, b| a == b);
        found.map(|user| user.name.to_string())
    };
    assert_eq!(holder(&stage, "ada").as_deref(), Some("ada"));
    let digest = Some(KeyDigest::made_up("second"));
    ask(&mut stage, AccessRequest::SetKey { user: "Ada".into(), digest }).expect("rotated");
    assert_eq!(holder(&stage, "ada"), None);
    assert_eq!(holder(&stage, "second").as_deref(), Some("ada"));
    ask(&mut stage, AccessRequest::SetKey { user: "ada".into(), digest: None }).expect("revoked");
    assert_eq!(holder(&stage, "second"), None);
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut stage = Stage::new();
    create(&mut stage, "ada").expect("a new user");
    let [space, ..] = scopes();
    let role = assignment("r1", "ada", Role::Reader, space.clone());
    ask(&mut stage, AccessRequest::AssignRole(role.clone())).expect("assigned");
    let before = stage.log.len();
    let long = "x".repeat(65);
    let kind_of = |answer: InputResult| answer.expect_err("it must be refused").kind;
    for name in ["", " ada", "-ada", "a b", "ä", "a/b", "a\nb", &long] {
        assert_eq!(kind_of(create(&mut stage, name)), RefusalKind::Invalid, "{name:?}");
    }
    assert_eq!(kind_of(create(&mut stage, "ADA")), RefusalKind::Conflict);
    let gone = AccessRequest::SetKey { user: "eve".into(), digest: None };
    assert_eq!(kind_of(ask(&mut stage, gone)), RefusalKind::NotFound);
    let gone = AccessRequest::DeleteUser { user: "eve".into() };
    assert_eq!(kind_of(ask(&mut stage, gone)), RefusalKind::NotFound);
    let unknown = assignment("r2", "eve", Role::Owner, space.clone());
    let answer = ask(&mut stage, AccessRequest::AssignRole(unknown));
    assert_eq!(kind_of(answer), RefusalKind::Invalid);
    let other = assignment("r1", "ada", Role::Owner, space.clone());
    let answer = ask(&mut stage, AccessRequest::AssignRole(other));
    assert_eq!(kind_of(answer), RefusalKind::Conflict, "a role does not change under its name");
    let twice = assignment("r2", "ada", Role::Reader, space);
    let answer = ask(&mut stage, AccessRequest::AssignRole(twice));
    assert_eq!(kind_of(answer), RefusalKind::Conflict, "the same role twice");
    let slash = RoleAssignment { name: "a/b".into(), ..role.clone() };
    let answer = ask(&mut stage, AccessRequest::AssignRole(slash));
    assert_eq!(kind_of(answer), RefusalKind::Invalid);
    // Requesting what already exists is neither refused nor a change.
    let again = ask(&mut stage, AccessRequest::AssignRole(role.clone())).expect("as before");
    let Reply::Role(known) = again else { panic!("{again:?}") };
    assert_eq!((&known.object_id, known.role), (&role.object_id, role.role));
    let none = AccessRequest::RemoveRole { name: "none".into(), scope: Scope::Everything };
    let nothing = ask(&mut stage, none);
    assert_eq!(nothing, Ok(Reply::NothingToDelete));
    assert_eq!(stage.log.len(), before);
}

#[test]
fn a_clusters_identity_is_created_and_deleted_with_it() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    let own = |system_assigned| Identity { system_assigned, user_assigned: Default::default() };
    let put = |stage: &mut Stage, identity| {
        let wanted = ClusterPatch { identity: Some(identity), ..Default::default() };
        stage.put("pool", wanted).expect("changed");
    };
    let cluster = stage.world.clusters().next().expect("there is one").id;
    assert_eq!(stage.world.directory().identity_of(cluster), None, "not asked for");
    put(&mut stage, own(true));
    let identity = stage.world.directory().identity_of(cluster).cloned().expect("made with it");
    assert_eq!(identity.key, None, "it cannot be used to sign in");

    // It can be given roles, but everything else about it is decided by its cluster.
    let [space, ..] = scopes();
    let role = assignment("r1", "", Role::Reader, space.clone());
    let role = RoleAssignment { object_id: identity.object_id.clone(), ..role };
    ask(&mut stage, AccessRequest::AssignRole(role)).expect("assigned");
    assert!(stage.world.directory().allows(&identity.object_id, Action::Read, &space));
    let before = stage.world.directory().clone();
    let user = identity.name.clone();
    for request in [
        AccessRequest::DeleteUser { user: user.clone() },
        AccessRequest::SetKey { user, digest: Some(KeyDigest::made_up("key")) },
    ] {
        let refused = ask(&mut stage, request).expect_err("refused");
        assert_eq!(refused.kind, RefusalKind::Conflict);
    }
    assert_eq!(*stage.world.directory(), before);

    put(&mut stage, own(true));
    assert_eq!(stage.world.directory().identity_of(cluster), Some(&identity), "unchanged");
    put(&mut stage, own(false));
    assert_eq!(stage.world.directory().identity_of(cluster), None);
    assert_eq!(stage.world.directory().roles().len(), 0, "its roles are deleted with it");
    stage.pass_s(1);
    put(&mut stage, own(true));
    let second = stage.world.directory().identity_of(cluster).cloned().expect("a new one");
    assert_ne!(second.object_id, identity.object_id, "it does not inherit what the first one had");

    let delete = Input::DeleteCluster { workspace: support::workspace(), name: "pool".into() };
    stage.say(delete).expect("accepted");
    assert_eq!(stage.world.directory().users().len(), 0);
}
