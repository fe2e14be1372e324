//! The `$filter` of the activity log: comparisons joined by `and`.

use muster_core::model::{Activity, ActivityOutcome};
use muster_core::time::Wall;

use crate::error::ArmError;
use crate::odata::{self, Operator, Term, Value};
use crate::timestamp;

/// The records that a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityFilter {
    pub since: Wall,
    pub until: Wall,
    wanted: Vec<(Field, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Time,
    ResourceGroup,
    Resource,
    Provider,
    Caller,
    Status,
    Correlation,
    Operation,
}

const FIELDS: [(&str, Field); 10] = [
    ("eventTimestamp", Field::Time),
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

const REMEDY: &str = "compare eventTimestamp with ge or le and a time, or resourceGroupName, resourceId, resourceProvider, \
                      caller, status, correlationId or operations with eq and a 'text', joined by and";

impl ActivityFilter {
    /// Without a filter, every record matches.
    pub fn parse(text: Option<&str>) -> Result<ActivityFilter, ArmError> {
        let mut filter =
            ActivityFilter { since: Wall(0), until: Wall(u64::MAX), wanted: Vec::new() };
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Ok(filter) };
        filter.add(text).map_err(|why| odata::refusal(text, &why, REMEDY))?;
        Ok(filter)
    }

    fn add(&mut self, text: &str) -> Result<(), String> {
        let odata::Filter(mut any) = odata::Filter::parse(text, &FIELDS)?;
        let all = any.pop().filter(|_| any.is_empty()).ok_or("it has an or")?;
        for term in all {
            let Term::Compare { field, operator, value } = term else {
                return Err("it has more than comparisons".into());
            };
            match field {
                Field::Time => self.add_time(operator, &value)?,
                _ if operator != Operator::Eq => {
                    return Err(format!("\"{operator}\" compares nothing but eventTimestamp"));
                }
                _ => self.wanted.push((field, value.text().to_owned())),
            }
        }
        Ok(())
    }

    fn add_time(&mut self, operator: Operator, value: &Value) -> Result<(), String> {
        let value = value.text();
        // az leaves the zone out: it means UTC.
        let at = timestamp::parse(value).or_else(|| timestamp::parse(&format!("{value}Z")));
        let at = at.ok_or("give eventTimestamp as '2026-11-15T08:00:00Z'")?;
        match operator {
            Operator::Ge | Operator::Gt => self.since = self.since.max(at),
            Operator::Le | Operator::Lt => self.until = self.until.min(at),
            Operator::Eq | Operator::Ne => {
                return Err("eventTimestamp is compared with ge and le".into());
            }
        }
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
        Field::Time => true,
        Field::ResourceGroup => same(super::home(&activity_request.scope).1),
        // What happened to a resource includes what happened to the resources in it.
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
            let error = ActivityFilter::parse(Some(text)).expect_err("the filter is refused");
            assert_eq!((error.status, error.target()), (400, Some("$filter")), "{text}");
        }
    }
}
