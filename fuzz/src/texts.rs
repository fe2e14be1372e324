//! Paths, queries, filters and forms; durations and points in time.

use muster_core::model::{Activity, ActivityOutcome, ActivityRequest, Scope};
use muster_core::time::Wall;
use muster_wire::activity::ActivityFilter;
use muster_wire::cost::{self, LedgerRequest};
use muster_wire::login::browser::{self, BrowserReply};
use muster_wire::login::{self, TokenForm};
use muster_wire::path::PathError;
use muster_wire::resources::{Filter, ResourcesRequest, Subject};
use muster_wire::{ArmError, Login, Query, Request, Route, access, duration, timestamp};

use crate::core::caller;
use crate::oracle;

const BASE: &str = "https://localhost:8443";

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// As in a request line: everything after the first question mark is the query.
pub fn path(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let (path, query) =
        text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
    let request = match Request::parse(path, query) {
        Ok(request) => request,
        Err(why) => return oracle::refusal(&why.into()),
    };
    let Some(canonical) = request.route.path() else { return };
    let again = Request::parse(&canonical, None).expect("our own path");
    assert_eq!(again.route, request.route, "{canonical}");
    assert_eq!(again.route.path().as_ref(), Some(&canonical));
    assert!(!request.route.methods().is_empty());
    // A link to the next page leads back here, with its token unchanged.
    let token = request.query.skip().unwrap_or("a b&c");
    let version = request.query.api_version().map(|version| ("api-version", version));
    let query: Vec<_> = version.into_iter().chain([("$skipToken", token)]).collect();
    let link = request.route.url(BASE, &query);
    let link = link.expect("the route has a path");
    let (path, query) = link[BASE.len()..].split_once('?').expect("the link has a query");
    match Request::parse(path, Some(query)) {
        Ok(next) => {
            assert_eq!(next.route, request.route);
            assert_eq!(next.query.skip(), Some(token));
            assert_eq!(next.query.api_version(), request.query.api_version());
        }
        // An encoded token may be three times as long.
        Err(PathError::QueryTooLong { .. }) => {}
        Err(other) => panic!("{link}: {other}"),
    }
}

fn query(data: &[u8]) -> Option<Query> {
    match Request::parse("/", Some(text(data)?)) {
        Ok(request) => Some(request.query),
        Err(why) => {
            oracle::refusal(&why.into());
            None
        }
    }
}

pub fn ledger_query(data: &[u8]) {
    let Some(query) = query(data) else { return };
    let request = match LedgerRequest::parse(&query) {
        Ok(request) => request,
        Err(error) => return oracle::refusal(&error),
    };
    if let Some(since) = query.get("since") {
        assert_eq!(cost::parse_since(since), request.since);
    }
    let pairs = request.query();
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(key, value)| (*key, &**value)).collect();
    let url = Route::Login(Login::Metadata).url("", &pairs).expect("the route has a path");
    let written = url.split_once('?').map(|(_, query)| query);
    match Request::parse("/", written) {
        Ok(again) => assert_eq!(LedgerRequest::parse(&again.query), Ok(request)),
        Err(PathError::QueryTooLong { .. }) => {}
        Err(other) => panic!("{url}: {other}"),
    }
}

pub fn resources_query(data: &[u8]) {
    let Some(query) = query(data) else { return };
    if let Err(error) = ResourcesRequest::parse(&query) {
        oracle::refusal(&error);
    }
    // Also uses the text as a filter directly, because most inputs are not a query.
    let Some(text) = text(data) else { return };
    match Filter::parse(text) {
        Ok(filter) => {
            let subject = Subject {
                resource_group: "g",
                resource_type: "t",
                name: "w/n",
                location: "l",
                tags: None,
            };
            // A filter for a tag does not match a resource without tags.
            let asks_for_tag = text.starts_with("tagName") && !text.contains("or");
            assert!(!filter.matches(&subject) || !asks_for_tag, "{text}");
        }
        Err(error) => oracle::refusal(&error),
    }
}

pub fn role_filter(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match access::role_definitions(Some(text)) {
        Ok(found) => assert!(found.len() <= 1, "{text}"),
        Err(error) => oracle::refusal(&error),
    }
}

pub fn activity_filter(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let filter = match ActivityFilter::parse(Some(text)) {
        Ok(filter) => filter,
        Err(error) => return oracle::refusal(&error),
    };
    let activity = Activity {
        at: Wall(1_794_772_332_000_000),
        by: caller(),
        request: ActivityRequest {
            operation: "Microsoft.Authorization/locks/write".into(),
            resource: "/subscriptions/s/resourceGroups/g/ü/locks/l".into(),
            scope: Scope::group("s", "g"),
            correlation: "c".into(),
        },
        outcome: ActivityOutcome::Done { before: None, after: None },
    };
    let fits = filter.fits(&activity);
    // No record outside of its time range matches.
    assert!(!fits || (filter.since <= activity.at && activity.at <= filter.until));
}

pub fn login_form(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match TokenForm::parse(text) {
        Ok(form) => {
            let resource = form.resource();
            assert_ne!(resource.filter(|_| form.get("scope").is_none()), Some(""));
        }
        Err(why) => oracle::refusal(&ArmError::from(why)),
    }
    if let Some(found) = login::instance(BASE, text) {
        assert!(found.tenant_discovery_endpoint.starts_with(BASE), "{text}");
    }
    if let Ok(request) = Request::parse("/t/oauth2/authorize", Some(text))
        && let BrowserReply::Redirect(to) = browser::answer(&request.query)
    {
        // A browser is never redirected to another machine.
        let own = ["http://localhost", "http://127.0.0.1", "http://[::1]"];
        let rest = own.iter().find_map(|own| to.strip_prefix(own));
        assert!(rest.is_some_and(|rest| rest.starts_with([':', '/', '?'])), "{to}");
    }
}

pub fn duration(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match duration::parse(text) {
        Ok(span) => assert_eq!(duration::parse(&duration::format(span)), Ok(span), "{text}"),
        Err(why) => oracle::words(&why.to_string()),
    }
}

pub fn timestamp(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Some(wall) = timestamp::parse(text) {
        assert_eq!(timestamp::parse(&timestamp::format(wall)), Some(wall), "{text}");
    }
}
