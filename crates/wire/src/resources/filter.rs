//! `$filter` of the list of resources, with `tagName eq 'k' and tagValue eq 'v'` for one tag.

use std::collections::BTreeMap;

use crate::error::ArmError;
use crate::odata::{self, Operator, Term};

/// The properties that a filter examines.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub resource_group: &'a str,
    /// `Microsoft.MachineLearningServices/workspaces/computes`.
    pub resource_type: &'a str,
    /// The name, preceded by its parents' names: `workspace/compute`.
    pub name: &'a str,
    pub location: &'a str,
    /// `None` if this kind of resource has no tags.
    pub tags: Option<&'a BTreeMap<String, String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter(odata::Filter<Property>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Property {
    ResourceGroup,
    ResourceType,
    Name,
    Location,
    TagName,
    TagValue,
}

const PROPERTIES: [(&str, Property); 6] = [
    ("resourceGroup", Property::ResourceGroup),
    ("resourceType", Property::ResourceType),
    ("name", Property::Name),
    ("location", Property::Location),
    ("tagName", Property::TagName),
    ("tagValue", Property::TagValue),
];

const REMEDY: &str = "compare resourceGroup, resourceType, name, location or tagName (and tagValue) with eq and a 'text', \
                      or use substringof('text', name), joined by and, or";

impl Filter {
    pub fn parse(text: &str) -> Result<Filter, ArmError> {
        let filter = odata::Filter::parse(text, &PROPERTIES)
            .and_then(|filter| check(&filter).map(|()| Filter(filter)));
        filter.map_err(|why| odata::refusal(text, &why, REMEDY))
    }

    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        matches(&self.0, subject)
    }
}

fn check(filter: &odata::Filter<Property>) -> Result<(), String> {
    for all in &filter.0 {
        let mut before = None;
        for term in all {
            check_term(term, before)?;
            before = Some(term);
        }
    }
    Ok(())
}

fn check_term(term: &Term<Property>, before: Option<&Term<Property>>) -> Result<(), String> {
    use Property::{TagName, TagValue};
    let follows_name = matches!(before, Some(Term::Compare { field: TagName, .. }));
    match term {
        Term::Group(filter) => check(filter),
        Term::Contains { field: TagName | TagValue, .. } => {
            Err("substringof does not look into tags".into())
        }
        Term::Contains { .. } => Ok(()),
        Term::Compare { field: TagValue, .. } if !follows_name => {
            Err("tagValue needs its tagName right before it, joined by and".into())
        }
        Term::Compare { operator: Operator::Eq, value, .. } => value.quoted().map(drop),
        Term::Compare { field: TagName | TagValue, .. } => {
            Err("tags are compared with eq only".into())
        }
        Term::Compare { operator: Operator::Ne, value, .. } => value.quoted().map(drop),
        Term::Compare { operator, .. } => Err(format!("\"{operator}\" is none of eq and ne")),
    }
}

fn matches(filter: &odata::Filter<Property>, subject: &Subject<'_>) -> bool {
    filter.0.iter().any(|all| {
        let is_met = |(place, term): (usize, &Term<Property>)| match term {
            Term::Group(filter) => matches(filter, subject),
            Term::Contains { field, text } => {
                field.of(subject).to_lowercase().contains(&text.to_lowercase())
            }
            Term::Compare { field: Property::TagName, value: name, .. } => match all.get(place + 1)
            {
                Some(Term::Compare { field: Property::TagValue, value, .. }) => {
                    has_tag(subject, name.text(), Some(value.text()))
                }
                _ => has_tag(subject, name.text(), None),
            },
            // Looked at together with its name.
            Term::Compare { field: Property::TagValue, .. } => true,
            Term::Compare { field, operator, value } => {
                field.is(subject, value.text()) == (*operator == Operator::Eq)
            }
        };
        all.iter().enumerate().all(is_met)
    })
}

fn has_tag(subject: &Subject<'_>, name: &str, value: Option<&str>) -> bool {
    let is_it = |(key, kept): (&String, &String)| {
        key.eq_ignore_ascii_case(name) && value.is_none_or(|value| value == kept)
    };
    subject.tags.is_some_and(|tags| tags.iter().any(is_it))
}

impl Property {
    fn of<'a>(self, subject: &Subject<'a>) -> &'a str {
        match self {
            Property::ResourceGroup => subject.resource_group,
            Property::ResourceType => subject.resource_type,
            Property::Name => subject.name,
            Property::Location => subject.location,
            Property::TagName | Property::TagValue => unreachable!("tags are looked up by name"),
        }
    }

    fn is(self, subject: &Subject<'_>, text: &str) -> bool {
        let value = self.of(subject);
        match self {
            // Matches either the whole name or its last part.
            Property::Name => {
                let last = value.rsplit('/').next().unwrap_or(value);
                value.eq_ignore_ascii_case(text) || last.eq_ignore_ascii_case(text)
            }
            // `East US` is the same as `eastus`.
            Property::Location => value.eq_ignore_ascii_case(&text.replace(' ', "")),
            _ => value.eq_ignore_ascii_case(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "Microsoft.MachineLearningServices/workspaces/computes";

    fn matches(filter: &str) -> bool {
        let tag = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let tags = [("team", "blue"), ("cost", "it's red")].map(tag).into();
        let subject = Subject {
            resource_group: "Rg-1",
            resource_type: TYPE,
            name: "ws/Pool",
            location: "eastus",
            tags: Some(&tags),
        };
        Filter::parse(filter).unwrap().matches(&subject)
    }

    #[test]
    fn what_clients_send_is_understood() {
        for filter in [
            "resourceGroup eq 'rg-1'",
            "RESOURCEGROUP  EQ 'RG-1'",
            "resourceType eq 'microsoft.machinelearningservices/workspaces/computes'",
            "name eq 'pool'",
            "name eq 'ws/pool'",
            "location eq 'East US'",
            "resourceType ne 'x'",
            "substringof('oo', name)",
            "substringof('RG',resourceGroup)",
            "tagName eq 'Team'",
            "tagName eq 'team' and tagValue eq 'blue'",
            "tagName eq 'cost' and tagValue eq 'it''s red'",
            "name eq 'x' or name eq 'pool' and location eq 'eastus'",
            "(name eq 'x' or name eq 'pool') and location eq 'eastus'",
            "resourceGroup eq 'rg-1' and tagName eq 'team' and tagValue eq 'blue' and name eq 'pool'",
        ] {
            assert!(matches(filter), "{filter}");
        }
        for filter in [
            "resourceGroup eq 'rg'",
            "resourceType eq 'Microsoft.MachineLearningServices/workspaces'",
            "name ne 'pool'",
            "tagName eq 'team' and tagValue eq 'red'",
            "tagName eq 'team' and tagValue eq 'it''s red'",
            "(name eq 'pool' or name eq 'x') and location eq 'westus'",
            "substringof('x', name)",
        ] {
            assert!(!matches(filter), "{filter}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_is_wrong() {
        for (filter, word) in [
            ("", "too early"),
            ("name", "too early"),
            ("name eq", "too early"),
            ("name eq pool", "\"pool\""),
            ("name eq 'pool", "missing"),
            ("name gt 'pool'", "\"gt\""),
            ("plan/name eq 'x'", "plan/name"),
            ("startswith(tagName, 'x')", "startswith"),
            ("name eq 'a' name eq 'b'", "\"name\""),
            ("name eq 'a' and", "too early"),
            ("(name eq 'a'", "too early"),
            ("name eq 'a')", "\")\""),
            ("tagValue eq 'x'", "tagName"),
            ("tagName eq 'a' or tagValue eq 'x'", "tagName"),
            ("tagName eq 'a' and tagValue eq 'x' and tagValue eq 'y'", "tagName"),
            ("tagName ne 'a'", "eq only"),
            ("substringof('a', tagName)", "tags"),
            ("substringof(name, 'a')", "'…'"),
            ("name eq 'a' & 1", "'&'"),
            (&format!("{}name eq 'a'", "(".repeat(17)), "16"),
            (&format!("name eq '{}'", "x".repeat(4_096)), "4096"),
        ] {
            let error = Filter::parse(filter).unwrap_err();
            assert_eq!((error.status, error.target()), (400, Some("$filter")), "{filter}");
            assert!(error.to_string().contains(word), "{filter}: {error}");
        }
    }
}
