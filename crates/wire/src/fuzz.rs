//! No input, however odd, may panic: it is read or refused.

use muster_core::model::WorkspaceKey;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::error::ArmError;
use crate::path::Request;
use crate::resources::{Filter, Subject};
use crate::{compute, job, quota};

const WS: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w";

fn key() -> WorkspaceKey {
    WorkspaceKey::new("s", "g", "w")
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!("AmlCompute")),
        Just(json!("PT2M")),
        Just(json!(WS)),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z./]{0,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A good body with odd values at good places: it gets further than noise does.
fn odd_body(good: Value, places: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let odd = prop::collection::vec((0..places.len(), any_json()), 0..4);
    odd.prop_map(move |odd| {
        let mut body = good.clone();
        for (index, value) in odd {
            let (parent, name) = places[index].rsplit_once('/').unwrap();
            if let Some(Value::Object(map)) = body.pointer_mut(parent) {
                map.insert(name.to_owned(), value);
            }
        }
        body.to_string().into_bytes()
    })
}

const COMPUTE_PLACES: &[&str] = &[
    "/location",
    "/tags",
    "/identity",
    "/identity/type",
    "/identity/userAssignedIdentities",
    "/properties",
    "/properties/computeType",
    "/properties/disableLocalAuth",
    "/properties/properties",
    "/properties/properties/vmSize",
    "/properties/properties/vmPriority",
    "/properties/properties/subnet",
    "/properties/properties/subnet/id",
    "/properties/properties/scaleSettings",
    "/properties/properties/scaleSettings/maxNodeCount",
    "/properties/properties/scaleSettings/nodeIdleTimeBeforeScaleDown",
    "/properties/properties/userAccountCredentials",
    "/properties/properties/userAccountCredentials/adminUserPassword",
    "/properties/properties/propertyBag",
];

const JOB_PLACES: &[&str] = &[
    "/properties",
    "/properties/jobType",
    "/properties/command",
    "/properties/computeId",
    "/properties/resources",
    "/properties/resources/instanceCount",
    "/properties/resources/properties",
    "/properties/resources/properties/cpus",
    "/properties/resources/properties/memory",
    "/properties/queueSettings",
    "/properties/queueSettings/priority",
    "/properties/limits",
    "/properties/limits/timeout",
    "/properties/tags",
    "/properties/environmentVariables",
    "/properties/inputs",
    "/properties/isArchived",
];

const QUOTA_PLACES: &[&str] = &["/value", "/value/0/id", "/value/0/limit"];

fn good_quota() -> Value {
    json!({"value": [{"id": "TotalDedicatedCores", "limit": 3}]})
}

fn good_compute() -> Value {
    json!({
        "identity": {},
        "properties": {
            "computeType": "AmlCompute",
            "properties": {
                "scaleSettings": {},
                "subnet": {},
                "userAccountCredentials": {"adminUserName": "u"},
            },
        },
    })
}

fn good_job() -> Value {
    json!({
        "properties": {
            "jobType": "Command",
            "command": "ls",
            "computeId": "cpu",
            "resources": {"properties": {}},
            "queueSettings": {},
            "limits": {},
        },
    })
}

/// A refusal is a 4xx with words, and its body reads back.
fn check_refusal(error: &ArmError) -> Result<(), TestCaseError> {
    prop_assert!((400..500).contains(&error.status));
    prop_assert!(!error.body.error.message.is_empty());
    prop_assert!(error.body.error.message.len() < 2_000);
    let read: crate::error::ErrorBody = crate::from_json(error.to_json().as_bytes()).unwrap();
    prop_assert_eq!(&read, &*error.body);
    Ok(())
}

fn check_compute(body: &[u8]) -> Result<(), TestCaseError> {
    match compute::parse_request(body, &|_| "digest".to_owned()) {
        Ok(patch) => {
            // The digest stands for any password, so that what was read can be written and read again.
            let password = patch.admin.as_ref().and_then(|admin| admin.password_digest.as_deref());
            let again = compute::request_json(&patch, password);
            let mut read =
                compute::parse_request(again.as_bytes(), &|_| "digest".to_owned()).unwrap();
            // Its spaces and the order of its keys may differ.
            read.property_bag.clone_from(&patch.property_bag);
            prop_assert_eq!(read, patch);
            Ok(())
        }
        Err(error) => check_refusal(&error),
    }
}

fn check_patch(body: &[u8]) -> Result<(), TestCaseError> {
    match compute::parse_patch(body, &|_| "digest".to_owned()) {
        // What a put can say, a patch can say in the same words.
        Ok(patch) => {
            let put = compute::parse_request(body, &|_| "digest".to_owned());
            prop_assert!(put.is_err() || put.is_ok_and(|put| put == patch || flat(body)));
            Ok(())
        }
        Err(error) => check_refusal(&error),
    }
}

/// Whether the inner `properties` are left out.
fn flat(body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap();
    body.pointer("/properties/properties").is_none_or(Value::is_null)
}

fn check_job(body: &[u8]) -> Result<(), TestCaseError> {
    match job::parse_request(body, &key()) {
        Ok(spec) => {
            prop_assert_eq!(&job::parse_spec_text(&job::spec_text(&spec)).unwrap(), &spec);
            Ok(())
        }
        Err(error) => check_refusal(&error),
    }
}

fn check_quota(body: &[u8]) -> Result<(), TestCaseError> {
    let region = quota::Region { subscription: "s", location: "eastus" };
    match quota::parse_update(body, region) {
        Ok(limits) => {
            for (name, limit) in limits {
                let again = quota::update_json(region, &name.to_string(), limit);
                let read = quota::parse_update(again.as_bytes(), region).unwrap();
                prop_assert_eq!(read.into_iter().next(), Some((name, limit)));
            }
            Ok(())
        }
        Err(error) => check_refusal(&error),
    }
}

fn check_filter(text: &str) -> Result<(), TestCaseError> {
    match Filter::parse(text) {
        Ok(filter) => {
            let subject = Subject {
                resource_group: "g",
                resource_type: "t",
                name: "w/n",
                location: "l",
                tags: None,
            };
            // A filter that asks for a tag finds nothing that has none.
            let asks_for_tag = text.starts_with("tagName") && !text.contains("or");
            prop_assert!(!filter.matches(&subject) || !asks_for_tag, "{text}");
            Ok(())
        }
        Err(error) => check_refusal(&error),
    }
}

proptest! {
    #[test]
    fn no_filter_panics(
        noise in "\\PC{0,40}",
        words in "((name|tagName|tagValue|eq|and|or|substringof|'[é']{0,2}'|[(),']) ?){0,12}",
    ) {
        check_filter(&noise)?;
        check_filter(&words)?;
    }

    #[test]
    fn no_path_panics(path in "\\PC{0,60}", query in proptest::option::of("\\PC{0,40}")) {
        if let Err(why) = Request::parse(&path, query.as_deref()) {
            check_refusal(&why.into())?;
        }
    }

    #[test]
    fn no_path_below_a_workspace_panics(rest in "(/(computes|jobs|[%a-f0-9.:é]{0,6})){0,5}") {
        for path in [format!("{WS}{rest}"), format!("/history/v1.0{WS}{rest}")] {
            if let Ok(request) = Request::parse(&path, None)
                && let Some(path) = request.route.path()
            {
                prop_assert_eq!(Request::parse(&path, None).unwrap().route, request.route);
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check_compute(&bytes)?;
        check_patch(&bytes)?;
        check_job(&bytes)?;
        check_quota(&bytes)?;
    }

    #[test]
    fn no_json_panics(value in any_json()) {
        check_compute(value.to_string().as_bytes())?;
        check_patch(value.to_string().as_bytes())?;
        check_job(value.to_string().as_bytes())?;
    }

    #[test]
    fn no_odd_compute_panics(body in odd_body(good_compute(), COMPUTE_PLACES)) {
        check_compute(&body)?;
        check_patch(&body)?;
    }

    #[test]
    fn no_odd_quota_panics(body in odd_body(good_quota(), QUOTA_PLACES)) {
        check_quota(&body)?;
    }

    #[test]
    fn no_odd_job_panics(body in odd_body(good_job(), JOB_PLACES)) {
        check_job(&body)?;
    }
}
