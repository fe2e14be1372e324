//! `muster role`: the roles of users, with the commands and flags of `az role`.

use clap::Subcommand;
use muster_core::model::{Role, Scope as RoleScope};
use muster_core::nearest::suggestion;
use muster_wire::access::{
    RoleAssignmentDocument, RoleDefinitionDocument, UserDocument, role_assignment_json,
};
use muster_wire::path::scope_of;
use muster_wire::{AccessRoute, Page, Route};
use serde::Serialize;

use crate::client::Client;
use crate::complete;
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, Failure, printable, quoted};
use crate::names::{self, MaybeName};
use crate::output::{self, Print};
use crate::server_location::StateDirArg;
use crate::values;

const HEADER: [&str; 4] = ["Principal", "Role", "Scope", "Name"];
const DEFINITION_HEADER: [&str; 2] = ["Name", "Description"];

/// Manage roles and role assignments
#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(subcommand)]
    Assignment(Assignment),
    #[command(subcommand)]
    Definition(Definition),
}

/// Manage role assignments: which user has which role on which scope
#[derive(Debug, Subcommand)]
pub enum Assignment {
    Create(CreateArgs),
    List(ListArgs),
    Delete(DeleteArgs),
}

/// Show the available roles
#[derive(Debug, Subcommand)]
pub enum Definition {
    List(DefinitionListArgs),
}

/// Assign a role to a user, on a scope and everything below it
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating, exposes: the user has more permissions from now on.")]
pub struct CreateArgs {
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    wanted: AssignmentArgs,
    #[command(flatten)]
    print: Print,
}

/// List the role assignments on a scope, above it and below it
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    /// List only assignments of this user: a name or an object id
    #[arg(long, value_name = "USER", value_parser = values::name, add = complete::users())]
    assignee: Option<String>,
    /// Scope: / or /subscriptions/S[/resourceGroups/G[/…/workspaces/W]]
    #[arg(long, value_name = "SCOPE", value_parser = scope, default_value = "/")]
    scope: RoleScope,
    #[command(flatten)]
    place: StateDirArg,
    #[command(flatten)]
    print: Print,
}

/// Delete a role assignment
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: the user has fewer permissions from now on.")]
pub struct DeleteArgs {
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    wanted: AssignmentArgs,
}

/// List the available roles
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct DefinitionListArgs {
    #[command(flatten)]
    name: MaybeName<names::Role>,
    #[command(flatten)]
    place: StateDirArg,
    #[command(flatten)]
    print: Print,
}

#[derive(Debug, clap::Args)]
struct AssignmentArgs {
    /// User: a name or an object id
    #[arg(long, value_name = "USER", value_parser = values::name, add = complete::users())]
    assignee: String,
    /// Role, such as Reader or "AzureML Data Scientist"
    #[arg(long, value_parser = role)]
    role: Role,
    /// Scope: / or /subscriptions/S[/resourceGroups/G[/…/workspaces/W]]
    #[arg(long, value_name = "SCOPE", value_parser = scope)]
    scope: RoleScope,
    #[command(flatten)]
    place: StateDirArg,
}

/// An assignment in the form that az prints.
#[derive(Debug, Serialize)]
struct Row {
    id: String,
    name: String,
    #[serde(rename = "principalId")]
    principal_id: String,
    #[serde(rename = "principalName")]
    principal_name: Option<String>,
    #[serde(rename = "principalType")]
    principal_type: Option<String>,
    #[serde(rename = "roleDefinitionId")]
    role_definition_id: String,
    #[serde(rename = "roleDefinitionName")]
    role_definition_name: Option<String>,
    scope: String,
}

impl Row {
    fn of(document: RoleAssignmentDocument) -> Row {
        let properties = document.properties;
        Row {
            id: document.id,
            name: document.name,
            principal_id: properties.principal_id,
            principal_name: properties.principal_name,
            principal_type: properties.principal_type,
            role_definition_id: properties.role_definition_id,
            role_definition_name: properties.role_name,
            scope: properties.scope,
        }
    }

    fn cells(&self) -> Vec<String> {
        let principal = self.principal_name.as_ref().unwrap_or(&self.principal_id).clone();
        let role = self.role_definition_name.clone().unwrap_or_default();
        vec![principal, role, self.scope.clone(), self.name.clone()]
    }

    fn is_of(&self, user: &str) -> bool {
        self.principal_id == user
            || self.principal_name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(user))
    }
}

pub async fn run(command: Command) -> CliResult {
    match command {
        Command::Assignment(Assignment::Create(args)) => create(&args).await,
        Command::Assignment(Assignment::List(args)) => list(&args).await,
        Command::Assignment(Assignment::Delete(args)) => delete(&args).await,
        Command::Definition(Definition::List(args)) => definitions(&args).await,
    }
}

async fn create(args: &CreateArgs) -> CliResult {
    let AssignmentArgs { assignee, role, scope, place } = &args.wanted;
    let client = Client::connect(place.find()?).await?;
    let user = AccessRoute::User { name: assignee.as_str().into() };
    // Names are resolved if the caller may list users; otherwise the server checks whether it is an object id.
    let found = client.get::<UserDocument>(&Route::Access(user)).await;
    let principal_id = found.map_or_else(|_| assignee.clone(), |user| user.object_id);
    let name = assignment_name(&principal_id, *role, scope).into();
    let route = Route::Access(AccessRoute::RoleAssignment { scope: scope.clone(), name });
    let body = role_assignment_json(*role, &principal_id);
    if args.dry.dry_run {
        return Plan::new("PUT", &route, &body).show(&client, &args.print).await;
    }
    let answer = client.put(&route, body).await?;
    let document: RoleAssignmentDocument = answer.document()?;
    if let Some(note) = &document.properties.note {
        output::say(&format!("note: {}", printable(note)));
    }
    let row = Row::of(document);
    args.print.show(&row, || print_table(std::slice::from_ref(&row)))
}

async fn assignments(client: &Client, scope: &RoleScope) -> CliResult<Vec<Row>> {
    let route = Route::Access(AccessRoute::RoleAssignments(scope.clone()));
    let page: Page<RoleAssignmentDocument> = client.get(&route).await?;
    Ok(page.value.into_iter().map(Row::of).collect())
}

async fn list(args: &ListArgs) -> CliResult {
    let client = Client::connect(args.place.find()?).await?;
    let mut rows = assignments(&client, &args.scope).await?;
    if let Some(assignee) = &args.assignee {
        rows.retain(|row| row.is_of(assignee));
    }
    args.print.show(&rows, || print_table(&rows))
}

async fn delete(args: &DeleteArgs) -> CliResult {
    let wanted = &args.wanted;
    let client = Client::connect(wanted.place.find()?).await?;
    let rows = assignments(&client, &wanted.scope).await?;
    let found = rows.into_iter().find(|row| {
        row.is_of(&wanted.assignee)
            && row.scope == wanted.scope.to_string()
            && row.role_definition_name.as_deref() == Some(wanted.role.as_str())
    });
    let found = found.ok_or_else(|| {
        Failure::not_found(format!(
            "{} does not have the role {} on {}",
            quoted(&wanted.assignee),
            wanted.role.as_str(),
            wanted.scope
        ))
        .hint("list the assignments with `muster role assignment list -o table`")
    })?;
    let (scope, name) = (wanted.scope.clone(), found.name.into());
    let route = Route::Access(AccessRoute::RoleAssignment { scope, name });
    if args.dry.dry_run {
        return Plan::new("DELETE", &route, "").show(&client, &args.print).await;
    }
    client.delete(&route).await.map(|_| ())
}

async fn definitions(args: &DefinitionListArgs) -> CliResult {
    let client = Client::connect(args.place.find()?).await?;
    let route = Route::Access(AccessRoute::RoleDefinitions(RoleScope::Everything));
    let page: Page<RoleDefinitionDocument> = client.get(&route).await?;
    let is_wanted = |found: &RoleDefinitionDocument| {
        let wanted = args.name.get();
        wanted.is_none_or(|name| found.properties.role_name.eq_ignore_ascii_case(name))
    };
    let found: Vec<_> = page.value.into_iter().filter(is_wanted).collect();
    args.print.show(&found, || {
        let cells = |one: &RoleDefinitionDocument| {
            vec![one.properties.role_name.clone(), one.properties.description.clone()]
        };
        output::table(&DEFINITION_HEADER, found.iter().map(cells).collect(), "no matching roles")
    })
}

fn print_table(rows: &[Row]) -> CliResult {
    let rows = rows.iter().map(Row::cells).collect();
    output::table(&HEADER, rows, "no role assignments on this scope; the owner has all permissions")
}

/// The name is derived from the role, the user and the scope, so that assigning a role twice has no further effect.
fn assignment_name(principal_id: &str, role: Role, scope: &RoleScope) -> String {
    let short = |text: &str| text.chars().take(8).collect::<String>();
    let mut sum: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in format!("{principal_id} {scope}").bytes() {
        sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{}-{sum:016x}", short(role.definition_id()))
}

fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| {
        let known = Role::ALL.map(Role::as_str);
        let near = suggestion(text, known.into_iter());
        let near = near.map(|near| format!("{near} ")).unwrap_or_default();
        format!("unknown role; {near}use one of {}", known.join(", "))
    })
}

fn scope(text: &str) -> Result<RoleScope, String> {
    scope_of(text).filter(|_| text.starts_with('/')).ok_or_else(|| {
        "write it as Azure does: /, /subscriptions/S, /subscriptions/S/resourceGroups/G, or the full id \
         of a workspace"
            .to_owned()
    })
}
