//! `muster monitor activity-log`: which requests were made by which user, and their outcomes, with the commands and
//! flags of `az monitor activity-log`; and whether the log is intact, which az does not offer.

mod verify;

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use muster_core::time::{Span, Wall};
use muster_wire::activity::ActivityDocument;
use muster_wire::{GovernanceRoute, Route, timestamp};

use crate::failure::{CliResult, Failure};
use crate::output::{self, Print, width};
use crate::scope::GroupScope;
use crate::values;

const HEADER: [&str; 5] = ["Time", "Caller", "Operation", "Resource", "Status"];
/// The length of a timestamp up to its seconds.
const TIME_CHARS: usize = 19;
/// The default of az.
const OFFSET_DEFAULT: Span = Span::seconds(6 * 3_600);

/// Show the activity log
#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(subcommand)]
    ActivityLog(ActivityLog),
}

/// The activity log: every request that changed something or was refused
#[derive(Debug, Subcommand)]
pub enum ActivityLog {
    List(ListArgs),
    Verify(verify::Args),
}

/// List the requests that changed something or were refused, newest first
///
/// The default is the last six hours. Entries without a subscription, such as those about users, are listed with --all.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    /// Start time: a date, a time (RFC 3339), or a duration before now such as 24h
    #[arg(long, value_name = "WHEN", value_parser = values::when, allow_hyphen_values = true)]
    start_time: Option<Wall>,
    /// End time, in the same forms [default: now]
    #[arg(long, value_name = "WHEN", value_parser = values::when, allow_hyphen_values = true)]
    end_time: Option<Wall>,
    /// Duration before the end time, or after --start-time, such as 90m or 1d12h [default: 6h]
    #[arg(long, value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    offset: Option<Span>,
    /// List only requests of this user: a name or an object id
    #[arg(long, value_name = "USER", add = crate::complete::users())]
    caller: Option<String>,
    /// List only requests with this status: Succeeded or Failed
    #[arg(long, value_parser = status)]
    status: Option<&'static str>,
    /// List only requests about this resource, or anything in it
    #[arg(long, value_name = "ID", value_parser = values::name)]
    resource_id: Option<String>,
    /// List only requests to this provider, such as Microsoft.Authorization
    #[arg(long, value_name = "PROVIDER", value_parser = values::name)]
    namespace: Option<String>,
    /// List only the entries with this correlation id
    #[arg(long, value_name = "ID", value_parser = values::name)]
    correlation_id: Option<String>,
    /// Maximum number of entries
    #[arg(long, value_name = "COUNT", value_parser = values::at_least_one, default_value = "50",
          allow_negative_numbers = true)]
    max_events: u32,
    /// List the entries of the whole server, which requires a role on everything
    #[arg(long, conflicts_with_all = ["resource_group", "subscription"])]
    all: bool,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: GroupScope,
}

pub async fn run(command: Command) -> CliResult {
    match command {
        Command::ActivityLog(ActivityLog::List(args)) => list(&args).await,
        Command::ActivityLog(ActivityLog::Verify(args)) => verify::run(&args).await,
    }
}

async fn list(args: &ListArgs) -> CliResult {
    let route = Route::Governance(match args.all {
        true => GovernanceRoute::ServerActivity,
        false => GovernanceRoute::Activity { subscription: args.scope.subscription()?.into() },
    });
    let filter = args.filter(now())?;
    let client = args.scope.connect().await?;
    let query = [("$filter", filter.as_str())];
    // One more than wanted shows whether there are more.
    let asked = args.max_events.saturating_add(1);
    let mut events: Vec<ActivityDocument> = client.list_with(&route, &query, Some(asked)).await?;
    if events.len() > args.max_events as usize {
        events.truncate(args.max_events as usize);
        output::say(&format!("these are the newest {}; list more with --max-events", events.len()));
    }
    args.print.show(&events, || {
        let rows = events.iter().map(row).collect();
        let rows = width::cut(
            &HEADER,
            rows,
            width::size().0,
            &["Caller", "Operation", "Resource", "Status"],
        );
        output::table(&HEADER, rows, "no entries in this period; look further back with --offset")
    })
}

/// Short enough for a terminal. The other formats contain everything.
fn row(event: &ActivityDocument) -> Vec<String> {
    let status = match event.properties.get("statusCode") {
        Some(code) => code.to_string(),
        None => event.status.value.clone(),
    };
    let time = event.event_timestamp.get(..TIME_CHARS).unwrap_or(&event.event_timestamp);
    let words: Vec<&str> = event.operation_name.value.split('/').collect();
    // The type and the verb: `computes/write`, `computes/start/action`.
    let kept = if words.last() == Some(&"action") { 3 } else { 2 };
    let operation = words[words.len().saturating_sub(kept)..].join("/");
    vec![format!("{time}Z"), event.caller.clone(), operation, short_id(&event.resource_id), status]
}

/// The names in an id, without its types: `lab/vision/cpu`.
fn short_id(id: &str) -> String {
    let parts: Vec<&str> = id.split('/').filter(|part| !part.is_empty()).collect();
    let mut names = Vec::new();
    let mut rest = parts.as_slice();
    while let [kind, name, more @ ..] = rest {
        // The provider is between the parent scope and the first type.
        if !kind.eq_ignore_ascii_case("providers") && !kind.eq_ignore_ascii_case("subscriptions") {
            names.push(*name);
        }
        rest = more;
    }
    if names.is_empty() { id.to_owned() } else { names.join("/") }
}

impl ListArgs {
    fn filter(&self, now: Wall) -> CliResult<String> {
        let (since, until) = self.times(now)?;
        let time =
            |how: &str, at: Wall| format!("eventTimestamp {how} '{}'", timestamp::format(at));
        let mut parts = vec![time("ge", since), time("le", until)];
        let group = if self.all { None } else { self.scope.group()? };
        let texts = [
            ("resourceGroupName", group.as_deref()),
            ("caller", self.caller.as_deref()),
            ("status", self.status),
            ("resourceId", self.resource_id.as_deref()),
            ("resourceProvider", self.namespace.as_deref()),
            ("correlationId", self.correlation_id.as_deref()),
        ];
        for (name, text) in texts {
            parts.extend(text.map(|text| format!("{name} eq '{}'", text.replace('\'', "''"))));
        }
        Ok(parts.join(" and "))
    }

    /// As az counts: back from the end, or forward from the start.
    fn times(&self, now: Wall) -> CliResult<(Wall, Wall)> {
        let offset = self.offset.unwrap_or(OFFSET_DEFAULT);
        match (self.start_time, self.end_time) {
            (Some(_), Some(_)) if self.offset.is_some() => Err(Failure::refused(
                "--start-time, --end-time and --offset cannot all be given; remove one of them",
            )),
            (Some(since), Some(until)) if until < since => {
                Err(Failure::refused("--end-time is before --start-time; swap them"))
            }
            (Some(since), Some(until)) => Ok((since, until)),
            (Some(since), None) => Ok((since, Wall(since.0.saturating_add(offset.0)))),
            (None, until) => {
                let until = until.unwrap_or(now);
                Ok((Wall(until.0.saturating_sub(offset.0)), until))
            }
        }
    }
}

fn now() -> Wall {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall(u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
}

fn status(text: &str) -> Result<&'static str, String> {
    let found = ["Succeeded", "Failed"].into_iter().find(|known| known.eq_ignore_ascii_case(text));
    found.ok_or_else(|| "give Succeeded or Failed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_shortened_to_its_names() {
        for (id, wanted) in [
            ("/subscriptions/s/resourceGroups/lab", "lab"),
            (
                "/subscriptions/s/resourceGroups/lab/providers/Microsoft.MachineLearningServices/workspaces/v/computes/c",
                "lab/v/c",
            ),
            ("/subscriptions/s", "/subscriptions/s"),
            ("", ""),
        ] {
            assert_eq!(short_id(id), wanted, "{id}");
        }
    }
}
