//! Jobs after their submit: changing their metadata, archiving them and deleting them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{self, Stage, Wants, known_job, request, workspace};
use muster_core::model::{JobMetadata, JobPhase, JobSpec, LockLevel, Scope, SpecHash};
use muster_core::why::Remedy;
use muster_core::{
    GovernanceRequest, Input, InputResult, JobAction, JobEdit, JobPatch, JobRequest, KnownJob,
    NewLock, RefusalKind, Reply,
};

fn known(stage: &Stage, name: &str) -> Option<KnownJob> {
    known_job(&stage.log, name)
}

fn edit(stage: &mut Stage, name: &str, action: JobAction) -> InputResult {
    let known = known(stage, name);
    let edit = JobEdit { workspace: workspace(), name: name.into(), action, known };
    stage.say(Input::EditJob(Box::new(edit)))
}

fn patch(stage: &mut Stage, name: &str, patch: JobPatch) -> InputResult {
    edit(stage, name, JobAction::Patch(patch))
}

fn submit(stage: &mut Stage, mut request: JobRequest) -> InputResult {
    request.existing = known(stage, &request.name);
    stage.say(Input::SubmitJob(Box::new(request)))
}

fn with(name: &str, change: impl FnOnce(&mut JobSpec)) -> JobRequest {
    let mut wanted = request(name, "cpu", Wants::default());
    let mut spec = (*wanted.spec).clone();
    change(&mut spec);
    wanted.spec_hash = SpecHash::made_up(&format!("{spec:?}"));
    wanted.spec = Arc::new(spec);
    wanted
}

fn tags(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn metadata(stage: &Stage, name: &str) -> JobMetadata {
    known(stage, name).expect("it is known").metadata()
}

fn ended(stage: &mut Stage, name: &str) {
    stage.cancel(name).expect("it waits");
    assert_eq!(known(stage, name).expect("known").job.phase(), JobPhase::Canceled);
}

fn kind(answer: InputResult) -> RefusalKind {
    answer.expect_err("refused").kind
}

#[test]
fn a_patch_changes_what_it_names_and_adds_tags() {
    let mut stage = Stage::with_cluster("cpu", 0, 0, 60);
    submit(&mut stage, with("j", |spec| spec.tags = tags(&[("a", "1")]))).expect("accepted");
    let wanted = JobPatch {
        display_name: Some("new".into()),
        tags: tags(&[("b", "2")]),
        ..JobPatch::default()
    };
    assert_eq!(patch(&mut stage, "j", wanted.clone()), Ok(Reply::Noted));
    let written = metadata(&stage, "j");
    assert_eq!(written.display_name.as_deref(), Some("new"));
    assert_eq!(written.tags, tags(&[("a", "1"), ("b", "2")]));
    assert!(!written.is_archived);
    let changes = stage.log.len();
    patch(&mut stage, "j", wanted).expect("the same again");
    assert_eq!(stage.log.len(), changes, "which changes nothing");
    // This also works when it has ended.
    ended(&mut stage, "j");
    patch(&mut stage, "j", JobPatch { is_archived: Some(true), ..<_>::default() }).expect("known");
    assert!(metadata(&stage, "j").is_archived);
    assert_eq!(metadata(&stage, "j").display_name.as_deref(), Some("new"));
    assert_eq!(kind(patch(&mut stage, "other", JobPatch::default())), RefusalKind::NotFound);
}

#[test]
fn what_is_written_has_limits() {
    let mut stage = Stage::with_cluster("cpu", 0, 0, 60);
    submit(&mut stage, with("j", |_| {})).expect("accepted");
    let many: BTreeMap<_, _> = (0..60).map(|n| (format!("t{n}"), String::new())).collect();
    let long = tags(&[("p", &"x".repeat(70_000))]);
    for wanted in [
        JobPatch { display_name: Some("x".repeat(300).into()), ..JobPatch::default() },
        JobPatch { tags: many, ..JobPatch::default() },
        JobPatch { properties: long.clone(), ..JobPatch::default() },
    ] {
        assert_eq!(kind(patch(&mut stage, "j", wanted)), RefusalKind::Invalid);
    }
    assert_eq!(known(&stage, "j").expect("known").metadata, None);
    let answer = submit(&mut stage, with("k", |spec| spec.properties = long));
    assert_eq!(kind(answer), RefusalKind::Invalid);
}

#[test]
fn a_put_again_writes_on_it_but_never_changes_what_it_does() {
    let mut stage = Stage::with_cluster("cpu", 0, 0, 60);
    let first = with("j", |spec| spec.properties = tags(&[("git", "abc")]));
    submit(&mut stage, first.clone()).expect("accepted");
    let other = with("j", |spec| {
        spec.display_name = Some("x".into());
        spec.tags = tags(&[("a", "1")]);
    });
    let answer = submit(&mut stage, other).expect("the same work");
    assert!(matches!(answer, Reply::JobAccepted { is_new: false, .. }));
    let written = metadata(&stage, "j");
    assert_eq!((written.display_name.as_deref(), written.tags.len()), (Some("x"), 1));
    assert_eq!(written.properties, tags(&[("git", "abc")]), "properties are only added");
    let archived = JobRequest { is_archived: Some(true), ..first.clone() };
    submit(&mut stage, archived).expect("into the archive");
    assert!(metadata(&stage, "j").is_archived);
    submit(&mut stage, first.clone()).expect("which leaves it there");
    assert!(metadata(&stage, "j").is_archived);
    submit(&mut stage, JobRequest { is_archived: Some(false), ..first }).expect("and out of it");
    assert!(!metadata(&stage, "j").is_archived);
    let another = submit(&mut stage, with("j", |spec| spec.command = "false".into()));
    let refused = another.expect_err("it runs something else");
    assert_eq!(refused.kind, RefusalKind::Conflict);
    assert!(refused.to_string().contains("choose another name"), "{refused}");
    let unborn = JobRequest { is_archived: Some(true), ..with("new", |_| {}) };
    assert_eq!(kind(submit(&mut stage, unborn)), RefusalKind::Invalid);
}

#[test]
fn only_what_has_ended_is_deleted_and_its_name_is_free_again() {
    let mut stage = Stage::with_cluster("cpu", 0, 0, 60);
    submit(&mut stage, with("j", |_| {})).expect("accepted");
    let refused = edit(&mut stage, "j", JobAction::Delete).expect_err("it waits");
    assert_eq!(refused.kind, RefusalKind::Conflict);
    assert_eq!(support::remedy(&refused), Remedy::Cancel { job: "j".into() });
    ended(&mut stage, "j");
    assert_eq!(
        edit(&mut stage, "J", JobAction::Delete),
        Ok(Reply::NothingToDelete),
        "unknown here"
    );
    assert_eq!(edit(&mut stage, "j", JobAction::Delete), Ok(Reply::Noted));
    assert_eq!(edit(&mut stage, "j", JobAction::Delete), Ok(Reply::NothingToDelete));
    let again = submit(&mut stage, with("j", |spec| spec.command = "false".into()));
    assert!(matches!(again, Ok(Reply::JobAccepted { is_new: true, .. })), "{again:?}");
}

/// The rows were read before any of this happened.
#[test]
fn what_happens_in_one_step_is_seen_in_the_same() {
    let mut stage = Stage::with_cluster("cpu", 0, 0, 60);
    let name: Box<str> = "j".into();
    let cancel = Input::CancelJob { workspace: workspace(), name: "j".into(), known: None };
    let edit = |action| {
        let edit = JobEdit { workspace: workspace(), name: name.clone(), action, known: None };
        Input::EditJob(Box::new(edit))
    };
    let hide = JobPatch { is_archived: Some(true), ..JobPatch::default() };
    let inputs = [
        Input::SubmitJob(Box::new(with("j", |_| {}))),
        edit(JobAction::Patch(hide)),
        edit(JobAction::Delete),
        cancel.clone(),
        edit(JobAction::Delete),
        cancel,
        Input::SubmitJob(Box::new(with("j", |_| {}))),
    ];
    let output = muster_core::step(&mut stage.world, &inputs, stage.now);
    let answers: Vec<_> = output.answers.iter().map(|answer| answer.as_ref().err()).collect();
    let kinds: Vec<_> = answers.iter().map(|refused| refused.map(|it| it.kind)).collect();
    assert_eq!(kinds[..2], [None, None]);
    assert_eq!(kinds[2], Some(RefusalKind::Conflict), "it still waits");
    assert_eq!(kinds[3..5], [None, None], "canceled, then deleted");
    assert_eq!(kinds[5], Some(RefusalKind::NotFound));
    assert!(matches!(output.answers[6], Ok(Reply::JobAccepted { is_new: true, .. })));
}

#[test]
fn locks_hold_for_jobs_too() {
    let mut stage = Stage::with_cluster("cpu", 0, 0, 60);
    submit(&mut stage, with("j", |_| {})).expect("accepted");
    ended(&mut stage, "j");
    for (level, may_patch) in [(LockLevel::CanNotDelete, true), (LockLevel::ReadOnly, false)] {
        let scope = Scope::workspace(&workspace());
        let lock = NewLock { name: "keep".into(), scope, level, notes: None };
        let put = GovernanceRequest::PutLock(lock);
        stage.say(Input::ChangeGovernance(Box::new(put))).expect("locked");
        let wanted = JobPatch { is_archived: Some(!may_patch), ..JobPatch::default() };
        let answer = patch(&mut stage, "j", wanted);
        assert_eq!(answer.is_ok(), may_patch, "{answer:?}");
        assert_eq!(kind(edit(&mut stage, "j", JobAction::Delete)), RefusalKind::Locked);
    }
}
