//! Assets: their content never changes, their description and tags may, and they are only in rows.

use crate::support::{Stage, user, workspace};
use muster_core::model::{
    Asset, AssetContainer, AssetKind, AssetSpec, ContainerSpec, LockLevel, Scope,
};
use muster_core::{
    AssetAction, AssetRequest, Change, GovernanceRequest, Input, InputResult, KnownAsset, NewLock,
    RefusalKind, Reply, step,
};

/// What the rows show after everything that the stage has logged, as `look_up` finds it in a store.
fn known(stage: &Stage, kind: AssetKind, name: &str, version: Option<&str>) -> KnownAsset {
    let mut known = KnownAsset::default();
    let is_it = |of: AssetKind, other: &str| of == kind && other.eq_ignore_ascii_case(name);
    for change in &stage.log {
        match change {
            Change::AssetChanged(asset)
                if is_it(asset.kind, &asset.name) && Some(&*asset.version) == version =>
            {
                known.asset = Some((**asset).clone());
            }
            Change::AssetGone { kind, name, version: gone, .. }
                if is_it(*kind, name) && Some(&**gone) == version =>
            {
                known.asset = None;
            }
            Change::AssetContainerChanged(container) if is_it(container.kind, &container.name) => {
                known.container = Some((**container).clone());
            }
            Change::AssetContainerGone { kind, name, .. } if is_it(*kind, name) => {
                known = KnownAsset::default();
            }
            _ => {}
        }
    }
    known
}

fn asked(kind: AssetKind, name: &str, action: AssetAction, known: KnownAsset) -> Input {
    let (workspace, name, by) = (workspace(), name.into(), user("ada"));
    Input::ChangeAsset(Box::new(AssetRequest { workspace, kind, name, action, by, known }))
}

fn say(stage: &mut Stage, kind: AssetKind, name: &str, action: AssetAction) -> InputResult {
    let known = known(stage, kind, name, action.version());
    stage.say(asked(kind, name, action, known))
}

fn spec(body: &str) -> AssetSpec {
    AssetSpec { body: body.into(), ..AssetSpec::default() }
}

fn action(version: &str, wanted: AssetSpec) -> AssetAction {
    AssetAction::Put { version: version.into(), wanted, is_archived: None }
}

fn put(stage: &mut Stage, name: &str, version: &str, wanted: AssetSpec) -> InputResult {
    say(stage, AssetKind::Environment, name, action(version, wanted))
}

fn made(answer: InputResult) -> (Box<Asset>, bool) {
    match answer {
        Ok(Reply::Asset { asset, is_new }) => (asset, is_new),
        other => panic!("{other:?}"),
    }
}

fn kind(answer: InputResult) -> Option<RefusalKind> {
    answer.err().map(|refused| refused.kind)
}

fn container(stage: &Stage, name: &str) -> AssetContainer {
    known(stage, AssetKind::Environment, name, None).container.expect("it is there")
}

#[test]
fn a_version_is_made_once_and_only_what_is_written_on_it_changes() {
    let mut stage = Stage::new();
    let (first, is_new) = made(put(&mut stage, "Env", "1", spec("one")));
    assert!(is_new);
    let logged = stage.log.len();
    let (again, is_new) = made(put(&mut stage, "env", "1", spec("one")));
    assert!(!is_new && again == first, "the same request again");
    assert_eq!(stage.log.len(), logged, "it changes nothing");
    stage.pass_s(5);
    let other =
        AssetSpec { description: Some("d".into()), metadata: Some("{}".into()), ..spec("one") };
    let (changed, _) = made(put(&mut stage, "env", "1", other.clone()));
    assert_eq!((&changed.about, changed.created_at), (&other, first.created_at));
    assert!(changed.changed_at > first.changed_at);
    let refused = put(&mut stage, "ENV", "1", spec("two")).expect_err("it is another");
    assert_eq!(refused.kind, RefusalKind::Conflict);
    assert!(
        refused.to_string().contains("cannot be changed; choose another version"),
        "{}",
        refused
    );
    let hashed = AssetSpec { hash: Some("h".into()), ..spec("one") };
    assert_eq!(kind(put(&mut stage, "env", "1", hashed)), Some(RefusalKind::Conflict));
    let (second, is_new) = made(put(&mut stage, "ENV", "2", spec("two")));
    assert!(is_new && &*second.name == "Env", "the name is spelled as in the first version");
    let (elsewhere, is_new) =
        made(say(&mut stage, AssetKind::Data, "env", action("1", spec("three"))));
    assert!(is_new && elsewhere.kind == AssetKind::Data, "each kind has its own names");
}

#[test]
fn a_name_knows_the_next_number_whatever_else_there_is() {
    let mut stage = Stage::new();
    let longest = "9".repeat(18);
    let versions =
        [("7", 8), ("3", 8), ("v9", 8), ("18.04:2022", 8), ("010", 11), (&longest, 10u64.pow(18))];
    for (version, next) in versions {
        made(put(&mut stage, "e", version, spec(version)));
        assert_eq!(container(&stage, "e").next_version(), next, "{version}");
    }
    let far = "9".repeat(40);
    made(put(&mut stage, "e", &far, spec(&far)));
    assert_eq!(container(&stage, "e").versions, 7);
    let delete = AssetAction::Delete { version: longest.into() };
    assert_eq!(say(&mut stage, AssetKind::Environment, "e", delete.clone()), Ok(Reply::Noted));
    let left = container(&stage, "e");
    assert_eq!((left.versions, left.next_version()), (6, 10u64.pow(18)), "no number is reused");
    let again = say(&mut stage, AssetKind::Environment, "e", delete);
    assert_eq!(again, Ok(Reply::NothingToDelete));
}

#[test]
fn versions_and_names_go_into_the_archive_and_come_back() {
    let mut stage = Stage::new();
    made(put(&mut stage, "e", "1", spec("one")));
    let archive =
        |is_archived| AssetAction::Put { version: "1".into(), wanted: spec("one"), is_archived };
    let (there, _) = made(say(&mut stage, AssetKind::Environment, "e", archive(Some(true))));
    assert!(there.is_archived);
    let (there, _) = made(say(&mut stage, AssetKind::Environment, "e", archive(None)));
    assert!(there.is_archived, "unless stated, it remains archived");
    let (there, _) = made(say(&mut stage, AssetKind::Environment, "e", archive(Some(false))));
    assert!(!there.is_archived);
    let name =
        |is_archived| AssetAction::PutContainer { wanted: ContainerSpec::default(), is_archived };
    let answer = say(&mut stage, AssetKind::Environment, "E", name(Some(true)));
    assert_eq!(answer, Ok(Reply::AssetContainer { is_new: false }));
    let seen = container(&stage, "e");
    assert!(seen.is_archived && seen.versions == 1 && &*seen.name == "e");
    made(put(&mut stage, "e", "2", spec("two")));
    assert!(container(&stage, "e").is_archived, "a new version does not restore it");
    let answer = say(&mut stage, AssetKind::Environment, "new", name(None));
    assert_eq!(answer, Ok(Reply::AssetContainer { is_new: true }));
    assert_eq!(container(&stage, "new").versions, 0);
}

#[test]
fn a_name_goes_with_its_last_version_or_with_all_of_them() {
    let mut stage = Stage::new();
    for version in ["1", "2"] {
        made(put(&mut stage, "e", version, spec(version)));
    }
    for version in ["2", "1"] {
        let delete = AssetAction::Delete { version: version.into() };
        assert_eq!(say(&mut stage, AssetKind::Environment, "e", delete), Ok(Reply::Noted));
    }
    assert_eq!(known(&stage, AssetKind::Environment, "e", Some("1")), KnownAsset::default());
    made(put(&mut stage, "e", "1", spec("another")));
    let whole = || AssetAction::DeleteContainer;
    assert_eq!(say(&mut stage, AssetKind::Environment, "E", whole()), Ok(Reply::Noted));
    assert_eq!(say(&mut stage, AssetKind::Environment, "e", whole()), Ok(Reply::NothingToDelete));
}

#[test]
fn an_anonymous_asset_is_not_listed_until_it_gets_a_name() {
    let mut stage = Stage::new();
    let anonymous = AssetSpec { is_anonymous: true, ..spec("one") };
    made(put(&mut stage, "e", "1", anonymous.clone()));
    assert!(container(&stage, "e").is_anonymous);
    let (named, _) = made(put(&mut stage, "e", "1", spec("one")));
    assert!(!named.about.is_anonymous && !container(&stage, "e").is_anonymous);
    let (still, _) = made(put(&mut stage, "e", "1", anonymous.clone()));
    assert!(!still.about.is_anonymous);
    made(put(&mut stage, "e", "2", AssetSpec { body: "two".into(), ..anonymous }));
    assert!(!container(&stage, "e").is_anonymous);
}

/// The rows were read before any of these requests was made.
#[test]
fn of_two_in_one_step_the_second_sees_the_first() {
    let mut stage = Stage::new();
    let put = |version, body| {
        asked(AssetKind::Model, "m", action(version, spec(body)), KnownAsset::default())
    };
    let delete = asked(AssetKind::Model, "M", AssetAction::DeleteContainer, KnownAsset::default());
    let inputs =
        [put("1", "a"), put("1", "a"), put("1", "b"), put("2", "b"), delete, put("1", "b")];
    let output = step(&mut stage.world, &inputs, stage.now);
    let [first, same, other, second, gone, after] = &output.answers[..] else { panic!() };
    assert!(made(first.clone()).1 && !made(same.clone()).1 && made(second.clone()).1);
    assert_eq!(kind(other.clone()), Some(RefusalKind::Conflict));
    assert_eq!(gone, &Ok(Reply::Noted));
    assert!(made(after.clone()).1);
    stage.log.extend(output.changes);
    let seen = known(&stage, AssetKind::Model, "m", Some("2"));
    assert_eq!((seen.asset, seen.container.map(|seen| seen.versions)), (None, Some(1)));
}

#[test]
fn names_versions_and_sizes_have_limits() {
    let mut stage = Stage::new();
    for bad in ["", "a/b", "ü", ".x", &"n".repeat(256)] {
        assert_eq!(
            kind(put(&mut stage, bad, "1", spec("x"))),
            Some(RefusalKind::Invalid),
            "{bad:?}"
        );
        assert_eq!(
            kind(put(&mut stage, "e", bad, spec("x"))),
            Some(RefusalKind::Invalid),
            "{bad:?}"
        );
    }
    let large = spec(&"x".repeat(muster_core::limits::ASSET_BODY_BYTES_MAX + 1));
    assert_eq!(kind(put(&mut stage, "e", "1", large)), Some(RefusalKind::Invalid));
    let properties = "x".repeat(muster_core::limits::ASSET_PROPERTIES_BYTES_MAX + 1);
    let wide = AssetSpec { properties: Some(properties.into()), ..spec("x") };
    assert_eq!(kind(put(&mut stage, "e", "1", wide)), Some(RefusalKind::Invalid));
    made(put(&mut stage, "e", "1", spec("x")));
    let full = AssetContainer {
        versions: muster_core::limits::ASSET_VERSIONS_MAX,
        ..container(&stage, "e")
    };
    let known = KnownAsset { asset: None, container: Some(full) };
    let answer = stage.say(asked(AssetKind::Environment, "e", action("2", spec("x")), known));
    assert_eq!(kind(answer), Some(RefusalKind::Conflict));
}

#[test]
fn a_lock_of_the_workspace_holds_for_them() {
    let mut stage = Stage::new();
    made(put(&mut stage, "e", "1", spec("x")));
    let lock = |level| {
        Input::ChangeGovernance(Box::new(GovernanceRequest::PutLock(NewLock {
            scope: Scope::workspace(&workspace()),
            name: "l".into(),
            level,
            notes: None,
        })))
    };
    let delete = || AssetAction::Delete { version: "1".into() };
    stage.say(lock(LockLevel::CanNotDelete)).expect("a lock");
    for action in [delete(), AssetAction::DeleteContainer] {
        let answer = say(&mut stage, AssetKind::Environment, "e", action);
        assert_eq!(kind(answer), Some(RefusalKind::Locked));
    }
    made(put(&mut stage, "e", "2", spec("x")));
    stage.say(lock(LockLevel::ReadOnly)).expect("a lock");
    assert_eq!(kind(put(&mut stage, "e", "3", spec("x"))), Some(RefusalKind::Locked));
    let name =
        AssetAction::PutContainer { wanted: ContainerSpec::default(), is_archived: Some(true) };
    assert_eq!(kind(say(&mut stage, AssetKind::Environment, "e", name)), Some(RefusalKind::Locked));
}
