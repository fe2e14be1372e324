//! Datastores: they are named, locked and refused like everything else, and are not in World.

use crate::support::{Stage, user, workspace};
use muster_core::model::{DatastoreSpec, LockLevel, Scope};
use muster_core::{GovernanceRequest, Input, InputResult, NewLock, RefusalKind, Reply};

fn put(stage: &mut Stage, name: &str) -> InputResult {
    let wanted = DatastoreSpec { container: "data".into(), ..DatastoreSpec::default() };
    let (wanted, by) = (Box::new(wanted), user("ada"));
    stage.say(Input::PutDatastore { workspace: workspace(), name: name.into(), wanted, by })
}

fn delete(stage: &mut Stage, name: &str) -> InputResult {
    stage.say(Input::DeleteDatastore { workspace: workspace(), name: name.into() })
}

fn kind(answer: InputResult) -> Option<RefusalKind> {
    answer.err().map(|refused| refused.kind)
}

#[test]
fn a_name_is_a_plain_word_and_not_one_of_the_workspaces_own() {
    let mut stage = Stage::new();
    assert!(
        matches!(put(&mut stage, "Mine_1"), Ok(Reply::Datastore(made)) if &*made.name == "Mine_1")
    );
    for bad in ["", "a-b", "a/b", "ü", &"n".repeat(256)] {
        assert_eq!(kind(put(&mut stage, bad)), Some(RefusalKind::Invalid), "{bad:?}");
    }
    for own in ["workspaceblobstore", "WorkspaceArtifactStore"] {
        assert_eq!(kind(put(&mut stage, own)), Some(RefusalKind::Conflict), "{own}");
        assert_eq!(kind(delete(&mut stage, own)), Some(RefusalKind::Conflict), "{own}");
    }
    assert_eq!(delete(&mut stage, "mine_1"), Ok(Reply::Noted));
}

#[test]
fn a_lock_of_the_workspace_holds_for_them() {
    let mut stage = Stage::new();
    put(&mut stage, "mine").expect("no lock yet");
    let lock = |level| {
        Input::ChangeGovernance(Box::new(GovernanceRequest::PutLock(NewLock {
            scope: Scope::workspace(&workspace()),
            name: "l".into(),
            level,
            notes: None,
        })))
    };
    stage.say(lock(LockLevel::CanNotDelete)).expect("a lock");
    assert_eq!(kind(delete(&mut stage, "mine")), Some(RefusalKind::Locked));
    put(&mut stage, "mine").expect("the lock does not forbid changes");
    stage.say(lock(LockLevel::ReadOnly)).expect("a lock");
    assert_eq!(kind(put(&mut stage, "mine")), Some(RefusalKind::Locked));
}
