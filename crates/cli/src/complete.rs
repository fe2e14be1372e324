//! Names for shell completion: they come from the server at once, or not at all.
//!
//! A user who presses Tab wants neither to wait nor to read an error, so every failure results in no names.

use std::ffi::OsStr;
use std::time::Duration;

use clap::{Args as _, FromArgMatches as _};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use muster_core::catalogue::Catalogue;
use muster_core::model::Scope as Place;
use muster_wire::{AccessRoute, GovernanceRoute, Manager, Page, Route};
use serde::Deserialize;

use crate::client::Client;
use crate::failure::CliResult;
use crate::scope::Scope;

/// Together with the start of the process, this is below what people notice.
const ANSWER_WITHIN: Duration = Duration::from_millis(80);
/// More names than a person would read.
const NAMES_MAX: usize = 200;

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Clone, Copy)]
enum What {
    Computes,
    Jobs,
    Workspaces,
    Groups,
    Users,
    Locations,
    Locks,
}

pub fn computes() -> ArgValueCompleter {
    names(What::Computes)
}

pub fn jobs() -> ArgValueCompleter {
    names(What::Jobs)
}

pub fn workspaces() -> ArgValueCompleter {
    names(What::Workspaces)
}

pub fn groups() -> ArgValueCompleter {
    names(What::Groups)
}

pub fn users() -> ArgValueCompleter {
    names(What::Users)
}

pub fn locations() -> ArgValueCompleter {
    names(What::Locations)
}

pub fn locks() -> ArgValueCompleter {
    names(What::Locks)
}

/// Every server has the built-in catalogue, so the server need not send its thousand sizes.
pub fn sizes() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let catalogue = Catalogue::builtin();
        let offered = catalogue.iter().filter(|size| size.retirement.accepts_creation());
        fitting(typed, offered.map(|size| size.name.to_string()).collect())
    })
}

fn names(what: What) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| fitting(typed, ask(what).unwrap_or_default()))
}

fn fitting(typed: &OsStr, mut found: Vec<String>) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy().to_lowercase();
    found.retain(|name| name.to_lowercase().starts_with(&typed));
    found.truncate(NAMES_MAX);
    found.into_iter().map(CompletionCandidate::new).collect()
}

fn ask(what: What) -> Option<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async {
        tokio::time::timeout(ANSWER_WITHIN, fetch(what)).await.ok().and_then(Result::ok)
    })
}

async fn fetch(what: What) -> CliResult<Vec<String>> {
    let scope = typed_scope();
    let workspace = scope.workspace()?;
    let subscription = workspace.subscription.clone();
    let client = scope.connect().await?;
    let route = match what {
        What::Computes => Route::Computes(workspace),
        What::Jobs => Route::Jobs(workspace),
        What::Workspaces => match scope.group()? {
            Some(group) => Route::WorkspacesOfGroup { subscription, resource_group: group.into() },
            None => Route::WorkspacesOfSubscription { subscription },
        },
        What::Groups => Route::Manager(Manager::ResourceGroups { subscription }),
        What::Users => Route::Access(AccessRoute::Users),
        What::Locks => Route::Governance(GovernanceRoute::Locks(match scope.group()? {
            Some(group) => Place::group(&subscription, &group),
            None => Place::subscription(&subscription),
        })),
        What::Locations => Route::Manager(Manager::Locations { subscription }),
    };
    first_page(&client, &route).await
}

/// One page is enough: a person would not read more.
async fn first_page(client: &Client, route: &Route) -> CliResult<Vec<String>> {
    let page: Page<Named> = client.get(route).await?;
    Ok(page.value.into_iter().map(|one| one.name).collect())
}

/// The scope that the words before the cursor specify. They are not a complete command yet, so each flag is searched
/// for by itself.
fn typed_scope() -> Scope {
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let parser = Scope::augment_args(clap::Command::new("place").no_binary_name(true));
    let mut known = Vec::new();
    let flags =
        ["-g", "--resource-group", "-w", "--workspace-name", "--subscription", "--state-dir"];
    for (index, word) in words.iter().enumerate() {
        if flags.contains(&word.as_str())
            && let Some(value) = words.get(index + 1).filter(|value| !value.is_empty())
        {
            known.extend([word.clone(), value.clone()]);
        } else if flags.iter().any(|flag| word.starts_with(&format!("{flag}=")) && flag.len() > 2) {
            known.push(word.clone());
        }
    }
    let given = parser.clone().try_get_matches_from(&known).ok();
    let given = given.or_else(|| parser.try_get_matches_from(Vec::<String>::new()).ok());
    given
        .and_then(|matches| Scope::from_arg_matches(&matches).ok())
        .expect("none of its flags is required")
}
