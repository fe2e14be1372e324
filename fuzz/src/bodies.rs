//! Bodies of requests. What is read is written by the code of our own clients, read again, and passed to the core.

use std::collections::BTreeMap;

use muster_core::model::{DataKind, DataLocation, JobEnvironment, JobSpec, Registration, Source};
use muster_core::{GovernanceRequest, Input};
use muster_wire::{access, compute, job, lock, manager, quota, workspace};
use serde_json::Value;

use crate::core::{CLUSTER, Stage, caller, key, submission};
use crate::oracle;

/// A fixed digest for any password, so that what was read can be written and read again.
fn digest(_: &str) -> String {
    "digest".to_owned()
}

pub fn compute_put(data: &[u8]) {
    let patch = match compute::parse_request(data, &digest) {
        Ok(patch) => patch,
        Err(error) => return oracle::refusal(&error),
    };
    let password = patch.admin.as_ref().and_then(|admin| admin.password_digest.as_deref());
    let again = compute::request_json(&patch, password);
    oracle::grown(data, &again);
    let mut read = compute::parse_request(again.as_bytes(), &digest).expect("our own JSON");
    // The whitespace and the order of keys may differ.
    read.property_bag.clone_from(&patch.property_bag);
    // Properties without effect are noted, and are not sent again.
    assert!(read.ignored.is_empty(), "{:?}", read.ignored);
    read.ignored.clone_from(&patch.ignored);
    assert_eq!(read, patch);
    let mut stage = Stage::running();
    for name in ["other", CLUSTER] {
        stage.say(Input::PutCluster {
            workspace: key(),
            name: name.to_owned(),
            wanted: Box::new(patch.clone()),
            by: caller(),
        });
    }
}

pub fn compute_patch(data: &[u8]) {
    let patch = match compute::parse_patch(data, &digest) {
        Ok(patch) => patch,
        Err(error) => return oracle::refusal(&error),
    };
    // A patch can contain everything that a put can, in the same form.
    let put = compute::parse_request(data, &digest);
    assert!(put.is_err() || put.is_ok_and(|put| put == patch || is_flat(data)));
    let wanted = Box::new(patch);
    let name = CLUSTER.to_owned();
    Stage::running().say(Input::PatchCluster { workspace: key(), name, wanted });
}

/// Whether the inner `properties` are omitted.
fn is_flat(body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).expect("it was read");
    body.pointer("/properties/properties").is_none_or(Value::is_null)
}

/// Resolves every name.
struct AllThere;

impl job::Resolve for AllThere {
    fn code(&self, id: &str) -> Result<DataLocation, String> {
        Ok(DataLocation { container: "code".into(), path: id.into() })
    }

    fn environment(&self, id: &str) -> Result<JobEnvironment, String> {
        let (notes, variables) = (Vec::new(), BTreeMap::new());
        Ok(JobEnvironment { id: id.into(), recipe: None, image: None, notes, variables })
    }

    fn source(&self, kind: DataKind, uri: &job::DataUri) -> Result<Source, String> {
        let path = format!("{kind:?} {uri:?}").into();
        Ok(Source::Blobs(DataLocation { container: "data".into(), path }))
    }

    fn output(&self, datastore: Option<&str>, path: &str) -> Result<DataLocation, String> {
        Ok(DataLocation { container: datastore.unwrap_or("own").into(), path: path.into() })
    }

    fn registration(&self, _: DataKind, _: &Registration) -> Result<(), String> {
        Ok(())
    }
}

pub fn job(data: &[u8]) {
    let spec = match job::parse_request(data, &key(), "job", &AllThere) {
        Ok(spec) => spec,
        Err(error) => return oracle::refusal(&error),
    };
    let kept = job::spec_text(&spec);
    oracle::grown(data, &kept);
    assert_eq!(job::parse_spec_text(&kept).expect("our own text"), spec);
    let again = job::request_json(&spec, &key());
    let mut read =
        job::parse_request(again.as_bytes(), &key(), "job", &AllThere).expect("our own JSON");
    // Properties without effect are noted, and are not sent again.
    read.properties.remove(JobSpec::NOTE);
    let note = spec.properties.get(JobSpec::NOTE).cloned();
    read.properties.extend(note.map(|note| (JobSpec::NOTE.to_owned(), note)));
    assert_eq!(read, spec);
    Stage::running().say(submission("third", spec));
}

pub fn quota(data: &[u8]) {
    let region = quota::Region { subscription: "s", location: "eastus" };
    let limits = match quota::parse_update(data, region) {
        Ok(limits) => limits,
        Err(error) => return oracle::refusal(&error),
    };
    for (name, limit) in &limits {
        let again = quota::update_json(region, &name.to_string(), *limit);
        let read = quota::parse_update(again.as_bytes(), region).expect("our own JSON");
        assert_eq!(read.into_iter().next(), Some((name.clone(), *limit)));
    }
    let scope = muster_core::model::QuotaScope::new("s", "eastus");
    Stage::running().say(Input::SetQuota { scope, limits });
}

pub fn workspace(data: &[u8]) {
    let wanted = match workspace::parse_request(data) {
        Ok(wanted) => wanted,
        Err(error) => return oracle::refusal(&error),
    };
    let again = workspace::request_json(&wanted);
    oracle::grown(data, &again);
    let mut read = workspace::parse_request(again.as_bytes()).expect("our own JSON");
    assert!(read.ignored.is_empty(), "{:?}", read.ignored);
    read.ignored.clone_from(&wanted.ignored);
    assert_eq!(read, wanted);
    let mut stage = Stage::new();
    let wanted = Box::new(wanted);
    stage.say(Input::PutWorkspace { key: key(), wanted: wanted.clone(), by: caller() });
    stage.say(Input::PatchWorkspace { key: key(), wanted });
}

pub fn group(data: &[u8]) {
    for is_put in [true, false] {
        let wanted = match manager::parse_group(data, is_put) {
            Ok(wanted) => wanted,
            Err(error) => {
                oracle::refusal(&error);
                continue;
            }
        };
        let again = manager::group_json(wanted.location.as_deref(), wanted.tags.as_ref());
        oracle::grown(data, &again);
        let read = manager::parse_group(again.as_bytes(), is_put).expect("our own JSON");
        assert_eq!(read, wanted);
        let (subscription, name) = ("s".into(), "other".into());
        let put = GovernanceRequest::PutGroup { subscription, name, wanted };
        Stage::running().say(Input::ChangeGovernance(Box::new(put)));
    }
}

pub fn lock(data: &[u8]) {
    match lock::parse_request(data) {
        Ok((level, notes)) => {
            let again = lock::request_json(level, notes.as_deref());
            oracle::grown(data, &again);
            let read = lock::parse_request(again.as_bytes()).expect("our own JSON");
            assert_eq!(read, (level, notes));
        }
        Err(error) => oracle::refusal(&error),
    }
}

pub fn role_assignment(data: &[u8]) {
    match access::parse_role_assignment(data) {
        Ok((role, principal)) => {
            let again = access::role_assignment_json(role, &principal);
            oracle::grown(data, &again);
            let read = access::parse_role_assignment(again.as_bytes()).expect("our own JSON");
            assert_eq!(read, (role, principal));
        }
        Err(error) => oracle::refusal(&error),
    }
}

pub fn user(data: &[u8]) {
    match access::parse_user(data) {
        Ok(kind) => {
            let again = access::user_json(kind);
            assert_eq!(access::parse_user(again.as_bytes()).expect("our own JSON"), kind);
        }
        Err(error) => oracle::refusal(&error),
    }
}
