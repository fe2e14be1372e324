//! Resource groups, locks and the activity log.

use muster_core::governance::GovernanceChange;
use muster_core::ids::OperationId;
use muster_core::limits::DEPLOYMENTS_PER_GROUP_MAX;
use muster_core::model::{
    Activity, ActivityOutcome, ActivityRequest, Caller, Deployed, Deployment, LeftOut, LockLevel,
    Scope, WorkspaceKey,
};
use muster_core::time::Wall;
use muster_core::{Change, GovernanceRequest, GroupPatch, Input, NewLock, Reply};

use super::{Database, Stage};
use crate::{ActivityQuery, Reader};

pub fn groups_and_locks_read_back(database: &dyn Database) {
    let mut stage = Stage::new(database);
    let mut ask = |request| {
        stage.say(Input::ChangeGovernance(Box::new(request))).expect("the request is accepted")
    };
    let group = Scope::group("s", "net");
    let (subscription, name): (Box<str>, Box<str>) = ("S".into(), "Net".into());
    for tag in ["one", "two"] {
        let tags = [("tag".to_owned(), tag.to_owned())].into_iter().collect();
        let wanted = GroupPatch { location: Some("eastus".into()), tags: Some(tags) };
        let (subscription, name) = (subscription.clone(), name.clone());
        ask(GovernanceRequest::PutGroup { subscription, name, wanted });
    }
    for level in LockLevel::ALL {
        let (name, scope, notes) = ("Keep".into(), group.clone(), Some("it's ours".into()));
        ask(GovernanceRequest::PutLock(NewLock { name, scope, level, notes }));
    }
    // The stage compares World with the rows after every input; this checks the rows themselves.
    let rows = database.store().load().expect("rows can be read");
    assert_eq!(rows.groups.iter().filter(|group| &*group.name == "Net").count(), 1);
    assert_eq!(rows.locks.len(), 1);
    assert_eq!(rows.locks[0].level, LockLevel::ReadOnly);
    ask(GovernanceRequest::DeleteLock { scope: group, name: "KEEP".into() });
    let gone = ask(GovernanceRequest::DeleteGroup { subscription, name });
    assert!(matches!(gone, Reply::Deleting { .. }));
    let rows = database.store().load().expect("rows can be read");
    assert!(rows.locks.is_empty() && rows.groups.iter().all(|group| &*group.name != "Net"));
}

pub fn deployments_read_back_and_the_oldest_are_deleted(database: &dyn Database) {
    let mut store = database.store();
    store.claim(1).expect("claimed");
    let deployment = |id: u64, group: &str, name: &str| {
        Change::DeploymentChanged(Box::new(Deployment {
            id: OperationId(id),
            subscription: "S".into(),
            resource_group: group.into(),
            name: name.into(),
            at: Wall(id),
            by: Caller { object_id: "ada".into(), name: "Ada".into() },
            correlation: "c".into(),
            template_hash: "h".into(),
            made: vec![Deployed {
                resource: "/r".into(),
                kind: "k".into(),
                is_new: true,
                operation: Some(OperationId(3)),
            }],
            left_out: vec![LeftOut { resource: "/l".into(), kind: "l".into() }],
            outputs: Some("{}".into()),
        }))
    };
    let most = DEPLOYMENTS_PER_GROUP_MAX as u64;
    let mut changes: Vec<Change> =
        (1..=most).map(|id| deployment(id, "G", &format!("D{id}"))).collect();
    changes.push(deployment(most + 1, "other", "D1"));
    store.commit(&changes, Wall(1)).expect("the claim is valid");
    let (group, other) = (Scope::group("s", "g"), Scope::group("S", "Other"));
    let mut reader = database.reader();
    let found = reader.deployment(&group, "d7").expect("rows can be read").expect("the row exists");
    assert_eq!(Change::DeploymentChanged(Box::new(found)), deployment(7, "G", "D7"));
    // A deployment that is repeated becomes the newest; with one more name, the oldest is deleted.
    let again = [deployment(most + 2, "g", "d1"), deployment(most + 3, "G", "new")];
    store.commit(&again, Wall(2)).expect("the claim is valid");
    let names = |reader: &mut dyn Reader, group: &Scope| -> Vec<String> {
        let found = reader.deployments(group).expect("rows can be read");
        found.into_iter().map(|found| found.name.into()).collect()
    };
    let listed = names(&mut *reader, &group);
    assert_eq!((listed.len() as u64, &*listed[0], &*listed[1]), (most, "new", "d1"));
    assert_eq!(listed.last().map(String::as_str), Some("D3"));
    let gone = Change::DeploymentGone { group: group.clone(), name: "new".into() };
    store.commit(&[gone], Wall(3)).expect("the claim is valid");
    assert_eq!(reader.deployment(&group, "NEW").expect("rows can be read"), None);
    // Deployments are deleted with their group.
    let gone = Change::GovernanceChanged(GovernanceChange::GroupGone(group.clone()));
    store.commit(&[gone], Wall(4)).expect("the claim is valid");
    assert_eq!(names(&mut *reader, &group), [""; 0]);
    assert_eq!(names(&mut *reader, &other), ["D1"]);
}

pub fn a_deleted_workspace_leaves_only_its_ledger(database: &dyn Database) {
    let mut stage = Stage::new(database);
    let key = WorkspaceKey::new("S", "G", "gone");
    stage.create_workspace(key.clone());
    let first = database.reader().workspace(&key).expect("rows can be read").expect("made");
    stage.say(Input::DeleteWorkspace { key: key.clone() }).expect("deleted");
    assert_eq!(database.reader().workspace(&key).expect("rows can be read"), None);
    stage.create_workspace(key.clone());
    let second = database.reader().workspace(&key).expect("rows can be read").expect("made again");
    assert_ne!(first.id, second.id, "the second workspace does not get the ledger of the first");
}

pub fn the_activity_log_is_a_chain(database: &dyn Database) {
    let mut store = database.store();
    store.claim(1).expect("claimed");
    let note = |number: u64, scope: Scope| {
        Change::ActivityNoted(Box::new(Activity {
            at: Wall(number * 1_000_000),
            by: Caller { object_id: "ada".into(), name: "Ada".into() },
            request: ActivityRequest {
                operation: "write".into(),
                resource: format!("/r/{number}").into(),
                scope,
                correlation: "c".into(),
            },
            outcome: ActivityOutcome::Refused {
                status: 403,
                code: "No".into(),
                message: "no".into(),
            },
        }))
    };
    let mut reader = database.reader();
    let empty = reader.verify_activity().expect("rows can be read");
    assert_eq!((empty.entries, empty.broken_at), (0, None));
    let mut heads = std::collections::BTreeSet::new();
    for number in 1..=9 {
        let scope = if number % 3 == 0 { Scope::Everything } else { Scope::group("S", "g") };
        store.commit(&[note(number, scope)], Wall(number)).expect("the claim is valid");
        let chain = reader.verify_activity().expect("rows can be read");
        assert_eq!((chain.entries, chain.broken_at), (number, None));
        assert!(heads.insert(chain.head), "every head is different");
    }
    let all = ActivityQuery { subscription: None, since: Wall(0), until: Wall(u64::MAX) };
    assert_eq!(numbers(&mut *reader, &all), [9, 8, 7, 6, 5, 4, 3, 2, 1]);
    let some = ActivityQuery {
        subscription: Some("S".into()),
        since: Wall(2_000_000),
        until: Wall(7_000_000),
    };
    assert_eq!(numbers(&mut *reader, &some), [7, 5, 4, 2]);
}

/// Reads all records, page by page.
fn numbers(reader: &mut dyn Reader, query: &ActivityQuery) -> Vec<u64> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = reader.activity(query, after.as_deref(), 2).expect("rows can be read");
        assert!(page.items.len() <= 2);
        found.extend(page.items.iter().map(|entry| entry.number));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}
