//! The `$filter` of the activity log: comparisons joined by `and`.

use muster_core::model::{Activity, ActivityOutcome};
use muster_core::time::Wall;

use crate::error::ArmError;
use crate::json::shorten;
use crate::timestamp;

/// What somebody wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityFilter {
    pub since: Wall,
    pub until: Wall,
    wanted: Vec<(Field, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    ResourceGroup,
    Resource,
    Provider,
    Caller,
    Status,
    Correlation,
    Operation,
}

const FIELDS: [(&str, Field); 9] = [
    ("resourceGroupName", Field::ResourceGroup),
    ("resourceId", Field::Resource),
    ("resourceUri", Field::Resource),
    ("resourceProvider", Field::Provider),
    ("caller", Field::Caller),
    ("status", Field::Status),
    ("correlationId", Field::Correlation),
    ("operationName", Field::Operation),
    ("operations", Field::Operation),
];

impl ActivityFilter {
    /// Without a filter, everything.
    pub fn parse(text: Option<&str>) -> Result<ActivityFilter, ArmError> {
        let mut filter =
            ActivityFilter { since: Wall(0), until: Wall(u64::MAX), wanted: Vec::new() };
        for part in split(text.unwrap_or("")) {
            filter.add(&part)?;
        }
        Ok(filter)
    }

    fn add(&mut self, part: &str) -> Result<(), ArmError> {
        let mut words = part.splitn(3, char::is_whitespace);
        let (name, operator) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let value = words.next().unwrap_or("").trim();
        // az leaves the quotes of times out.
        let quoted = value.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        let value = quoted.map_or_else(|| value.to_owned(), |text| text.replace("''", "'"));
        if name.eq_ignore_ascii_case("eventTimestamp") {
            // az leaves the zone out, too: it means UTC.
            let at = timestamp::parse(&value).or_else(|| timestamp::parse(&format!("{value}Z")));
            let at =
                at.ok_or_else(|| bad(part, "give eventTimestamp as '2026-11-15T08:00:00Z'"))?;
            match operator.to_ascii_lowercase().as_str() {
                "ge" | "gt" => self.since = self.since.max(at),
                "le" | "lt" => self.until = self.until.min(at),
                _ => return Err(bad(part, "compare eventTimestamp with ge or le")),
            }
            return Ok(());
        }
        let known = FIELDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let Some((_, field)) = known else {
            let names = FIELDS.map(|(name, _)| name).join(", ");
            return Err(bad(part, &format!("it compares eventTimestamp, {names}")));
        };
        if !operator.eq_ignore_ascii_case("eq") || value.is_empty() {
            return Err(bad(part, "compare it with eq and a 'text'"));
        }
        self.wanted.push((*field, value));
        Ok(())
    }

    pub fn fits(&self, activity: &Activity) -> bool {
        let time = self.since <= activity.at && activity.at <= self.until;
        time && self.wanted.iter().all(|(field, value)| is_like(activity, *field, value))
    }
}

fn is_like(activity: &Activity, field: Field, value: &str) -> bool {
    let activity_request = &activity.request;
    let same = |text: &str| text.eq_ignore_ascii_case(value);
    match field {
        Field::ResourceGroup => same(super::home(&activity_request.scope).1),
        // What happened to a thing includes what happened to what is in it.
        Field::Resource => {
            let (wanted, found) = (value.trim_end_matches('/'), &*activity_request.resource);
            found.get(..wanted.len()).is_some_and(|head| head.eq_ignore_ascii_case(wanted))
                && (found.len() == wanted.len() || found[wanted.len()..].starts_with('/'))
        }
        Field::Provider => activity_request.operation.split('/').next().is_some_and(same),
        Field::Caller => same(&activity.by.name) || same(&activity.by.object_id),
        Field::Status => same(match activity.outcome {
            ActivityOutcome::Done { .. } => "Succeeded",
            ActivityOutcome::Refused { .. } => "Failed",
        }),
        Field::Correlation => same(&activity_request.correlation),
        Field::Operation => value
            .split(',')
            .any(|name| activity_request.operation.eq_ignore_ascii_case(name.trim())),
    }
}

fn bad(part: &str, remedy: &str) -> ArmError {
    let message = format!("'{}' in $filter is not understood; {remedy}", shorten(part));
    ArmError::invalid_property("$filter", message)
}

/// The parts between `and`, which may stand in a quoted text too.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_quoted = false;
    for word in text.split_inclusive(char::is_whitespace) {
        if !is_quoted && word.trim().eq_ignore_ascii_case("and") {
            parts.push(String::new());
            continue;
        }
        is_quoted ^= word.matches('\'').count() % 2 == 1;
        parts.last_mut().expect("there is one").push_str(word);
    }
    let trimmed = parts.into_iter().map(|part| part.trim().to_owned());
    trimmed.filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use muster_core::model::{ActivityRequest, Caller, Scope};

    use super::*;

    fn activity() -> Activity {
        Activity {
            at: Wall(1_794_772_332_000_000),
            by: Caller { object_id: "oid".into(), name: "Ada and Bob".into() },
            request: ActivityRequest {
                operation: "Microsoft.Authorization/locks/write".into(),
                resource: "/subscriptions/s/resourceGroups/G/providers/p/locks/l".into(),
                scope: Scope::group("s", "G"),
                correlation: "c1".into(),
            },
            outcome: ActivityOutcome::Done { before: None, after: None },
        }
    }

    #[test]
    fn what_az_sends_is_understood() {
        for (text, fits) in [
            (
                "eventTimestamp ge 2026-11-14T00:00:00Z and eventTimestamp le 2030-01-01T00:00:00Z",
                true,
            ),
            ("eventTimestamp ge '2030-01-01T00:00:00Z'", false),
            ("eventTimestamp ge 2026-11-14T00:00:00.123456", true),
            ("resourceGroupName eq 'g' and caller eq 'Ada and Bob'", true),
            ("resourceGroupName eq 'other'", false),
            ("resourceId eq '/subscriptions/S/resourcegroups/g'", true),
            ("resourceId eq '/subscriptions/s/resourceGroups/G2'", false),
            ("status eq 'Failed'", false),
            ("resourceProvider eq 'microsoft.authorization' AND correlationId eq 'C1'", true),
            ("operations eq 'a/write, Microsoft.Authorization/locks/write'", true),
            ("", true),
        ] {
            let filter = ActivityFilter::parse(Some(text)).expect("understood");
            assert_eq!(filter.fits(&activity()), fits, "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_it_was() {
        for text in [
            "nonsense",
            "color eq 'red'",
            "status gt 'x'",
            "eventTimestamp ge yesterday",
            "caller eq",
        ] {
            let error = ActivityFilter::parse(Some(text)).expect_err("not understood");
            assert_eq!((error.status, error.target()), (400, Some("$filter")), "{text}");
        }
    }
}
