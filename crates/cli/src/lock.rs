//! `muster lock`: locks against deletion and changes, with the commands and flags of `az lock`.

use clap::Subcommand;
use muster_core::model::{LockLevel, Scope};
use muster_wire::lock::{LockDocument, LockProperties, request_json};
use muster_wire::path::lockable_of;
use muster_wire::{GovernanceRoute, Request, Route};
use reqwest::StatusCode;
use serde::Serialize;

use crate::client::Client;
use crate::compute::resource_group;
use crate::dry::{self, DryRun, Plan};
use crate::failure::{CliResult, Failure, quoted};
use crate::names::{self, MaybeName, Name};
use crate::output::{self, Print};
use crate::resource::Named;
use crate::scope::GroupScope;
use crate::values;

const HEADER: [&str; 4] = ["Name", "Level", "On", "Notes"];

/// Manage locks against deletion and changes
#[derive(Debug, Subcommand)]
pub enum Command {
    Create(CreateArgs),
    List(ListArgs),
    Show(ShowArgs),
    Update(UpdateArgs),
    Delete(DeleteArgs),
}

/// Create a lock on a subscription, a resource group or a resource
///
/// A lock also applies to everything below its scope. Without --resource, it is on the resource group that is given or
/// configured; without a group, on the whole subscription.
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: requests that the lock forbids are refused from now on.")]
pub struct CreateArgs {
    #[command(flatten)]
    name: Name<names::NewLock>,
    /// CanNotDelete, or ReadOnly (neither delete nor change)
    #[arg(short = 't', long, value_name = "LEVEL", value_parser = level)]
    lock_type: LockLevel,
    /// Notes, shown to users whose requests the lock refuses
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    on: On,
}

/// List the locks on a scope, above it and below it
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    on: On,
}

/// Show locks
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ShowArgs {
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// Update the level or notes of locks
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating, exposes: a ReadOnly lock that becomes CanNotDelete forbids less."
)]
pub struct UpdateArgs {
    /// CanNotDelete, or ReadOnly (neither delete nor change) [default: unchanged]
    #[arg(short = 't', long, value_name = "LEVEL", value_parser = level,
          required_unless_present = "notes")]
    lock_type: Option<LockLevel>,
    /// Notes, shown to users whose requests the lock refuses; '' removes them [default: unchanged]
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// Delete locks
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating, exposes: requests that the lock forbade are allowed from now on."
)]
pub struct DeleteArgs {
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// The scope of a lock.
#[derive(Debug, clap::Args)]
struct On {
    /// Name of the resource that the lock is on
    #[arg(long, alias = "resource-name", value_name = "NAME", value_parser = values::name,
          requires = "resource_type")]
    resource: Option<String>,
    /// Type of the resource, such as Microsoft.MachineLearningServices/workspaces
    #[arg(long, value_name = "TYPE", requires = "resource")]
    resource_type: Option<String>,
    /// Parent of the resource, such as workspaces/NAME
    #[arg(long, value_name = "TYPE/NAME", requires = "resource")]
    parent: Option<String>,
    /// Namespace of the type, if --resource-type does not include it
    #[arg(long, value_name = "PROVIDER", requires = "resource")]
    namespace: Option<String>,
    #[command(flatten)]
    scope: GroupScope,
}

/// The locks that a command acts on: several by their ids, or one by its name.
#[derive(Debug, clap::Args)]
struct Target {
    /// Ids of locks, from `muster lock list`
    #[arg(long, value_name = "ID", num_args = 1.., value_parser = id,
          conflicts_with_all = ["name", "resource", "resource_group"], required_unless_present = "name")]
    ids: Vec<Address>,
    #[command(flatten)]
    name: MaybeName<names::Lock>,
    #[command(flatten)]
    on: On,
}

/// The location of a lock.
#[derive(Debug, Clone)]
struct Address {
    scope: Scope,
    name: Box<str>,
}

impl Address {
    fn route(&self) -> Route {
        let Address { scope, name } = self.clone();
        Route::Governance(GovernanceRoute::Lock { scope, name })
    }
}

impl On {
    fn place(&self) -> CliResult<Scope> {
        let subscription = self.scope.subscription()?;
        let group = self.scope.group()?;
        let (Some(name), Some(kind)) = (&self.resource, &self.resource_type) else {
            return Ok(match group {
                Some(group) => Scope::group(&subscription, &group),
                None => Scope::subscription(&subscription),
            });
        };
        let group = group.ok_or_else(|| {
            Failure::refused("--resource is in a resource group, and none is given or configured")
                .hint("add --resource-group NAME")
        })?;
        let (namespace, parent) = (self.namespace.as_deref(), self.parent.as_deref());
        let id = Named { flag: "--resource", name, kind, namespace, parent };
        let id = id.id(&subscription, &group)?;
        lockable_of(&id).ok_or_else(|| {
            Failure::refused(format!("{} cannot have a lock", quoted(&id))).hint(
                "workspaces and computes can: --resource-type Microsoft.MachineLearningServices/workspaces, \
                 and for a compute --resource-type \
                 Microsoft.MachineLearningServices/workspaces/computes --parent workspaces/NAME",
            )
        })
    }
}

impl Target {
    fn addresses(&self) -> CliResult<Vec<Address>> {
        match self.name.get() {
            Some(name) => Ok(vec![Address { scope: self.on.place()?, name: name.into() }]),
            None => Ok(self.ids.clone()),
        }
    }

    async fn connect(&self) -> CliResult<Client> {
        self.on.scope.connect().await
    }
}

/// The fields that az prints: flat, with the resource group from the id.
#[derive(Debug, Serialize)]
struct Lock {
    id: String,
    level: String,
    name: String,
    notes: Option<String>,
    #[serde(rename = "resourceGroup")]
    resource_group: Option<String>,
    #[serde(rename = "type")]
    kind: String,
}

impl Lock {
    fn of(document: LockDocument) -> Lock {
        let LockDocument { id, name, kind, properties } = document;
        let (level, notes, resource_group) =
            (properties.level, properties.notes, resource_group(&id));
        Lock { id, level, name, notes, resource_group, kind }
    }

    fn row(&self) -> Vec<String> {
        let on = self.id.rsplit_once("/providers/").map_or("", |(on, _)| on);
        let notes = self.notes.clone().unwrap_or_default();
        vec![self.name.clone(), self.level.clone(), on.to_owned(), notes]
    }
}

pub async fn run(command: Command) -> CliResult {
    match command {
        Command::Create(args) => create(&args).await,
        Command::List(args) => list(&args).await,
        Command::Show(args) => show(&args).await,
        Command::Update(args) => update(&args).await,
        Command::Delete(args) => delete(&args).await,
    }
}

async fn create(args: &CreateArgs) -> CliResult {
    let lock = Address { scope: args.on.place()?, name: args.name.as_str().into() };
    output::say(&format!("on {}", lock.scope));
    let client = args.on.scope.connect().await?;
    let body = request_json(args.lock_type, args.notes.as_deref());
    if args.dry.dry_run {
        return Plan::new("PUT", &lock.route(), &body).show(&client, &args.print).await;
    }
    let made: LockDocument = client.put(&lock.route(), body).await?.document()?;
    print(vec![Lock::of(made)], &args.print)
}

async fn list(args: &ListArgs) -> CliResult {
    let route = Route::Governance(GovernanceRoute::Locks(args.on.place()?));
    let client = args.on.scope.connect().await?;
    let found: Vec<LockDocument> = client.list(&route, None).await?;
    let found: Vec<Lock> = found.into_iter().map(Lock::of).collect();
    args.print.show(&found, || print_table(&found))
}

async fn show(args: &ShowArgs) -> CliResult {
    let locks = args.target.addresses()?;
    let client = args.target.connect().await?;
    let mut found = Vec::new();
    for lock in locks {
        found.push(Lock::of(client.get(&lock.route()).await?));
    }
    print(found, &args.print)
}

async fn update(args: &UpdateArgs) -> CliResult {
    let locks = args.target.addresses()?;
    let client = args.target.connect().await?;
    let mut wanted = Vec::new();
    for lock in locks {
        output::say(&format!("on {}", lock.scope));
        // A PUT would create a missing lock, and replaces all values.
        let now: LockDocument = client.get(&lock.route()).await?;
        wanted.push((lock.route(), args.body(&now.properties)?));
    }
    if args.dry.dry_run {
        let plans: Vec<_> =
            wanted.iter().map(|(route, body)| Plan::new("PUT", route, body)).collect();
        return dry::show_all(&plans, &client, &args.print).await;
    }
    let mut changed = Vec::new();
    for (route, body) in wanted {
        changed.push(Lock::of(client.put(&route, body).await?.document()?));
    }
    print(changed, &args.print)
}

impl UpdateArgs {
    /// Values that are not given are kept.
    fn body(&self, now: &LockProperties) -> CliResult<String> {
        let level = self.lock_type.or_else(|| LockLevel::parse(&now.level));
        let level = level.ok_or_else(|| {
            let level = quoted(&now.level);
            Failure::error(format!("the server reports the unknown lock level {level}"))
                .hint("give --lock-type")
        })?;
        let notes = self.notes.as_deref().or(now.notes.as_deref());
        Ok(request_json(level, notes.filter(|notes| !notes.is_empty())))
    }
}

async fn delete(args: &DeleteArgs) -> CliResult {
    let locks = args.target.addresses()?;
    let client = args.target.connect().await?;
    if args.dry.dry_run {
        let routes: Vec<Route> = locks.iter().map(Address::route).collect();
        let plans: Vec<_> = routes.iter().map(|route| Plan::new("DELETE", route, "")).collect();
        return dry::show_all(&plans, &client, &args.print).await;
    }
    for lock in locks {
        let route = lock.route();
        let named = format!("lock {} on {}", quoted(&lock.name), lock.scope);
        if client.delete(&route).await?.status == StatusCode::NO_CONTENT {
            let missing = Failure::not_found(format!("there is no {named}"))
                .hint("list the locks with `muster lock list`");
            return Err(client.suggest(&route, missing).await);
        }
        output::say(&format!("deleted {named}"));
    }
    Ok(())
}

/// A single lock is printed as an object, several as a list, as az does.
fn print(locks: Vec<Lock>, print: &Print) -> CliResult {
    match locks.as_slice() {
        [only] => print.show(only, || print_table(&locks)),
        all => print.show(&all, || print_table(all)),
    }
}

fn print_table(locks: &[Lock]) -> CliResult {
    output::table(&HEADER, locks.iter().map(Lock::row).collect(), "no locks")
}

fn level(text: &str) -> Result<LockLevel, String> {
    LockLevel::parse(text).ok_or_else(|| "give CanNotDelete or ReadOnly".to_owned())
}

fn id(text: &str) -> Result<Address, String> {
    match Request::parse(text, None).map(|request| request.route) {
        Ok(Route::Governance(GovernanceRoute::Lock { scope, name })) => Ok(Address { scope, name }),
        Ok(_) => {
            Err("not the id of a lock; list ids with `muster lock list --query [].id`".to_owned())
        }
        Err(why) => Err(why.to_string()),
    }
}
