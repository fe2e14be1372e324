//! `--dry-run`: shows what a command would send and what that would change, without sending it.
//!
//! It only reads existing resources. It does not check whether the server would accept the request.

use muster_wire::Route;
use serde::Serialize;
use serde_json::Value;

use crate::client::Client;
use crate::failure::CliResult;
use crate::output::{self, Print};

const HEADER: [&str; 3] = ["Field", "Now", "Then"];
/// Displayed instead of a secret.
const MASK: &str = "***";

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct DryRun {
    /// Show what would be sent and what it would change, without sending it
    #[arg(long)]
    pub dry_run: bool,
}

/// A request that is not sent.
pub struct Plan<'a> {
    pub method: &'static str,
    pub route: &'a Route,
    /// JSON, or empty.
    pub body: &'a str,
    /// The resource that is changed, if it is not that of the route.
    pub subject: Option<&'a Route>,
    /// The maximum cost per hour afterwards.
    pub usd_per_hour_max: Option<String>,
}

#[derive(Debug, Serialize)]
struct Document {
    dry_run: bool,
    method: &'static str,
    url: String,
    body: Option<Value>,
    /// Whether the subject exists already.
    is_there: bool,
    changes: Vec<Change>,
    usd_per_hour_max: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Change {
    field: String,
    /// Left out if there is no value.
    now: Option<Value>,
    then: Option<Value>,
}

impl Plan<'_> {
    pub fn new<'a>(method: &'static str, route: &'a Route, body: &'a str) -> Plan<'a> {
        Plan { method, route, body, subject: None, usd_per_hour_max: None }
    }

    pub async fn show(&self, client: &Client, print: &Print) -> CliResult {
        let document = self.document(client).await?;
        print.show(&document, || print_table(std::slice::from_ref(&document)))
    }

    async fn document(&self, client: &Client) -> CliResult<Document> {
        let now: Option<Value> = client.find(self.subject.unwrap_or(self.route)).await?;
        let body: Option<Value> = serde_json::from_str(self.body).ok().map(masked);
        let mut changes = Vec::new();
        match (self.method, &now, &body) {
            ("DELETE", Some(now), _) => {
                let name = now.get("id").or_else(|| now.get("name")).cloned();
                changes.push(Change { field: "id".to_owned(), now: name, then: None });
            }
            (_, _, Some(body)) => difference(now.as_ref(), body, "", &mut changes),
            _ => {}
        }
        let document = Document {
            dry_run: true,
            method: self.method,
            url: client.url_of(self.route),
            body,
            is_there: now.is_some(),
            changes,
            usd_per_hour_max: self.usd_per_hour_max.clone(),
        };
        output::say(&format!("dry run: {} {} is not sent", document.method, document.url));
        if let Some(usd) = &document.usd_per_hour_max {
            output::say(&format!("it would cost at most {usd} USD per hour"));
        }
        Ok(document)
    }
}

/// For a command with several requests: a single one is printed as an object, several as a list.
pub async fn show_all(plans: &[Plan<'_>], client: &Client, print: &Print) -> CliResult {
    if let [only] = plans {
        return only.show(client, print).await;
    }
    let mut documents = Vec::new();
    for plan in plans {
        documents.push(plan.document(client).await?);
    }
    print.show(&documents, || print_table(&documents))
}

fn print_table(documents: &[Document]) -> CliResult {
    let changes = documents.iter().flat_map(|document| &document.changes);
    output::table(&HEADER, changes.map(Change::row).collect(), "no changes")
}

impl Change {
    fn row(&self) -> Vec<String> {
        let text = |value: &Option<Value>| match value {
            None => "-".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        vec![self.field.clone(), text(&self.now), text(&self.then)]
    }
}

/// Every value of `then` that differs from `now`. Omitted values are kept.
fn difference(now: Option<&Value>, then: &Value, path: &str, changes: &mut Vec<Change>) {
    match then {
        // Mappings with user-defined names are replaced as a whole: omitted names are removed.
        Value::Object(then) if path != "tags" => {
            for (name, then) in then {
                let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                difference(now.and_then(|now| now.get(name)), then, &inner, changes);
            }
        }
        _ if now.is_some_and(|now| is_same(now, then)) => {}
        _ => changes.push(Change {
            field: path.to_owned(),
            now: now.filter(|now| !now.is_null()).cloned(),
            then: Some(then.clone()),
        }),
    }
}

/// Sizes and words are compared without regard to case, as the server does.
fn is_same(now: &Value, then: &Value) -> bool {
    match (now, then) {
        (Value::String(now), Value::String(then)) => now.eq_ignore_ascii_case(then),
        _ => now == then,
    }
}

fn masked(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| match key.to_ascii_lowercase().contains("password") {
                true => (key, Value::String(MASK.to_owned())),
                false => (key, masked(value)),
            })
            .collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_a_change() {
        let now = json!({"a": 1, "b": {"c": "X", "d": null}, "tags": {"x": "1"}});
        let then = json!({"a": 1, "b": {"c": "x", "d": 2}, "tags": {"y": "1"}, "e": true});
        let mut changes = Vec::new();
        difference(Some(&now), &then, "", &mut changes);
        let text: Vec<String> = changes.iter().map(|change| change.row().join("|")).collect();
        assert_eq!(text, ["b.d|-|2", "e|-|true", r#"tags|{"x":"1"}|{"y":"1"}"#]);
        let mut all = Vec::new();
        difference(None, &json!({"a": {"b": 1}}), "", &mut all);
        assert_eq!(all[0].row(), ["a.b", "-", "1"]);
    }

    #[test]
    fn a_password_is_not_shown() {
        let body = masked(json!({"a": {"adminUserPassword": "secret", "adminUserName": "ada"}}));
        assert!(!body.to_string().contains("secret"), "{body}");
        assert_eq!(body["a"]["adminUserName"], "ada");
    }
}
