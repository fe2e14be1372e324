//! `muster whoami`: which user, server and workspace commands would use.

use muster_wire::access::MeDocument;
use muster_wire::{AccessRoute, Route};
use serde::Serialize;

use crate::failure::CliResult;
use crate::output::{self, PrintForPeople};
use crate::scope::Scope;

/// Show the signed-in user, your roles, and the server and workspace that commands use
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct Args {
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    print: PrintForPeople,
}

#[derive(Debug, Serialize)]
struct Me {
    name: String,
    object_id: String,
    tenant_id: String,
    is_owner: bool,
    roles: Vec<Role>,
    server: String,
    key_source: String,
    subscription: String,
    resource_group: String,
    workspace: String,
}

#[derive(Debug, Serialize)]
struct Role {
    role: String,
    scope: String,
}

pub async fn run(args: &Args) -> CliResult {
    let workspace = args.scope.workspace()?;
    let client = args.scope.connect().await?;
    let me: MeDocument = client.get(&Route::Access(AccessRoute::Me)).await?;
    let roles = me.roles.into_iter().map(|mine| Role { role: mine.role, scope: mine.scope });
    let me = Me {
        name: me.name,
        object_id: me.object_id,
        tenant_id: me.tenant_id,
        is_owner: me.is_owner,
        roles: roles.collect(),
        server: client.server_url().to_owned(),
        key_source: client.key_source().to_owned(),
        subscription: workspace.subscription.into(),
        resource_group: workspace.resource_group.into(),
        workspace: workspace.name.into(),
    };
    args.print.show(&me, || print_table(&me))
}

fn print_table(me: &Me) -> CliResult {
    let roles: Vec<String> =
        me.roles.iter().map(|one| format!("{} on {}", one.role, one.scope)).collect();
    let roles = match (me.is_owner, roles.is_empty()) {
        (true, _) => "all; you own this server".to_owned(),
        (false, true) => "none; ask an owner for one".to_owned(),
        (false, false) => roles.join(", "),
    };
    let rows = [
        ("Name", &me.name),
        ("Object id", &me.object_id),
        ("Tenant", &me.tenant_id),
        ("Roles", &roles),
        ("Server", &me.server),
        ("Key from", &me.key_source),
        ("Subscription", &me.subscription),
        ("Resource group", &me.resource_group),
        ("Workspace", &me.workspace),
    ];
    let rows = rows.into_iter().map(|(what, value)| vec![what.to_owned(), value.clone()]);
    output::table(&["What", "Value"], rows.collect(), "")
}
