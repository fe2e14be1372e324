//! `muster account`: the subscription that commands act in, with the commands of `az account`.

use clap::Subcommand;
use muster_wire::access::MeDocument;
use muster_wire::cloud::CLOUD_NAME;
use muster_wire::manager::Subscription;
use muster_wire::{AccessRoute, Manager, Route};
use serde::Serialize;

use crate::client::Client;
use crate::defaults::{self, Defaults, Setting};
use crate::dry::DryRun;
use crate::failure::{CliResult, Failure, quoted};
use crate::nearest;
use crate::output::{self, Print};
use crate::scope::SubscriptionScope;
use crate::server_location::StateDirArg;
use crate::values;

const HEADER: [&str; 4] = ["Name", "SubscriptionId", "State", "IsDefault"];

/// Show, list and select subscriptions
#[derive(Debug, Subcommand)]
pub enum Command {
    Show(ShowArgs),
    List(ListArgs),
    Set(SetArgs),
}

/// Show the current subscription
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ShowArgs {
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: SubscriptionScope,
}

/// List the subscriptions in which you have a role
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: SubscriptionScope,
}

/// Set the current subscription
///
/// It is saved with the other defaults, as with `muster configure --defaults subscription=ID`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: changes the current user's defaults file.")]
pub struct SetArgs {
    /// Id or name of the subscription
    #[arg(short = 's', long, visible_alias = "name", visible_short_alias = 'n', value_name = "SUBSCRIPTION",
          value_parser = values::name, required_unless_present = "alone", conflicts_with = "alone")]
    subscription: Option<String>,
    /// Id or name of the subscription
    #[arg(value_name = "NAME", value_parser = values::name)]
    alone: Option<String>,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    place: StateDirArg,
}

/// The fields that az prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Account {
    environment_name: &'static str,
    home_tenant_id: String,
    id: String,
    is_default: bool,
    managed_by_tenants: [&'static str; 0],
    name: String,
    state: String,
    tenant_id: String,
    user: User,
}

#[derive(Debug, Serialize)]
struct User {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
}

impl Account {
    fn of(found: Subscription, me: &MeDocument, chosen: &str) -> Account {
        Account {
            environment_name: CLOUD_NAME,
            home_tenant_id: found.tenant_id.clone(),
            is_default: found.subscription_id.eq_ignore_ascii_case(chosen),
            id: found.subscription_id,
            managed_by_tenants: [],
            name: found.display_name,
            state: found.state,
            tenant_id: found.tenant_id,
            user: User { name: me.name.clone(), kind: "user" },
        }
    }

    fn row(&self) -> Vec<String> {
        let default = if self.is_default { "True" } else { "False" };
        vec![self.name.clone(), self.id.clone(), self.state.clone(), default.to_owned()]
    }
}

pub async fn run(command: Command) -> CliResult {
    match command {
        Command::Show(args) => show(&args).await,
        Command::List(args) => list(&args).await,
        Command::Set(args) => set(&args).await,
    }
}

async fn show(args: &ShowArgs) -> CliResult {
    let chosen = args.scope.id()?;
    let client = args.scope.connect().await?;
    let me = me(&client).await?;
    let found = all(&client)
        .await?
        .into_iter()
        .find(|one| one.subscription_id.eq_ignore_ascii_case(&chosen));
    let found = found.unwrap_or_else(|| {
        output::say("note: this subscription is empty");
        muster_wire::manager::subscription(&chosen, &me.tenant_id)
    });
    let account = Account::of(found, &me, &chosen);
    args.print.show(&account, || output::table(&HEADER, vec![account.row()], ""))
}

async fn list(args: &ListArgs) -> CliResult {
    let chosen = args.scope.id()?;
    let client = args.scope.connect().await?;
    let me = me(&client).await?;
    let found = all(&client).await?.into_iter();
    let accounts: Vec<Account> = found.map(|one| Account::of(one, &me, &chosen)).collect();
    args.print.show(&accounts, || {
        let rows = accounts.iter().map(Account::row).collect();
        output::table(&HEADER, rows, "there is no subscription in which you have a role")
    })
}

async fn set(args: &SetArgs) -> CliResult {
    let wanted = args.subscription.as_ref().or(args.alone.as_ref()).cloned().unwrap_or_default();
    let client = Client::connect(args.place.find()?).await?;
    let known = all(&client).await?;
    let is_it = |one: &&Subscription| {
        one.subscription_id.eq_ignore_ascii_case(&wanted)
            || one.display_name.eq_ignore_ascii_case(&wanted)
    };
    let Some(found) = known.iter().find(is_it) else { return Err(unknown(&wanted, &known)) };
    let path = defaults::path()?;
    let id = &found.subscription_id;
    if args.dry.dry_run {
        output::say(&format!(
            "dry run: subscription {} is not written to {}",
            quoted(id),
            path.display()
        ));
        return Ok(());
    }
    let mut defaults = Defaults::read(&path)?;
    *defaults.slot(Setting::Subscription) = Some(id.clone());
    defaults.write(&path)?;
    output::say(&format!(
        "commands now act in subscription {}; saved in {}",
        quoted(id),
        path.display()
    ));
    Ok(())
}

fn unknown(wanted: &str, known: &[Subscription]) -> Failure {
    let names: Vec<String> = known
        .iter()
        .flat_map(|one| [one.subscription_id.clone(), one.display_name.clone()])
        .collect();
    let text = format!("there is no subscription {} in which you have a role", quoted(wanted));
    Failure::not_found(text).hint(match nearest::nearest(wanted, &names) {
        Some(near) => format!("did you mean {}?", quoted(near)),
        None => "list them with `muster account list -o table`; `muster up` creates a subscription on first use, so set it \
                 with `muster configure --defaults subscription=ID`"
            .to_owned(),
    })
}

async fn me(client: &Client) -> CliResult<MeDocument> {
    client.get(&Route::Access(AccessRoute::Me)).await
}

async fn all(client: &Client) -> CliResult<Vec<Subscription>> {
    client.list(&Route::Manager(Manager::Subscriptions), None).await
}
