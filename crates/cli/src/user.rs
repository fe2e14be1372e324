//! `muster user`: the users of the server, each with their own key.

use clap::Subcommand;
use muster_core::model::UserKind;
use muster_wire::access::{self, MeDocument, UserDocument};
use muster_wire::{AccessRoute, Page, Route};
use serde::Serialize;

use crate::client::Client;
use crate::confirm::confirm;
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, printable, quoted};
use crate::names::{self, Name};
use crate::output::{self, Print};
use crate::server_location::StateDirArg;

const HEADER: [&str; 5] = ["Name", "Type", "Object id", "Created", "Key created"];

/// Manage users and their keys
#[derive(Debug, Subcommand)]
pub enum Command {
    Create(CreateArgs),
    List(ListArgs),
    Show(ShowArgs),
    RotateKey(RotateKeyArgs),
    RevokeKey(RevokeKeyArgs),
    Delete(DeleteArgs),
}

/// Create a user and print the key, which is not shown again
///
/// A new user has no permissions: assign roles with `muster role assignment create`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating, exposes: anyone with the printed key can act as this user.")]
pub struct CreateArgs {
    /// Create a service principal, for a program instead of a person
    #[arg(long)]
    service: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    target: Target,
}

/// List all users
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    #[command(flatten)]
    place: StateDirArg,
    #[command(flatten)]
    print: Print,
}

/// Show a user
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ShowArgs {
    #[command(flatten)]
    target: Target,
}

/// Replace the key of a user and print the new one; the old key and its tokens become invalid at once
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating, exposes: programs with the old key are refused, and a new key is printed."
)]
pub struct RotateKeyArgs {
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    target: Target,
}

/// Revoke the key of a user; the key and its tokens become invalid at once
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: the user has no access until `muster user rotate-key`.")]
pub struct RevokeKeyArgs {
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    target: Target,
}

/// Delete a user with their key and roles; their jobs and other resources are kept
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Destructive: the user's roles are deleted; a new user with that name does not get them."
)]
pub struct DeleteArgs {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Args)]
struct Target {
    #[command(flatten)]
    name: Name<names::User>,
    #[command(flatten)]
    place: StateDirArg,
    #[command(flatten)]
    print: Print,
}

/// The user in the form that is printed.
#[derive(Debug, Serialize)]
struct User {
    name: String,
    object_id: String,
    principal_type: String,
    created_on: String,
    key_made_on: Option<String>,
    key: Option<String>,
}

impl User {
    fn of(user: UserDocument) -> User {
        let UserDocument { name, object_id, principal_type, created_on, key_made_on, key } = user;
        User { name, object_id, principal_type, created_on, key_made_on, key }
    }

    /// Commands for a shell, without the key itself: messages may end up in a log.
    async fn how_to_log_in(&self, client: &Client) -> CliResult<String> {
        let me: MeDocument = client.get(&Route::Access(AccessRoute::Me)).await?;
        let (name, id) = (printable(&self.name), printable(&self.object_id));
        let (ours, azs) = match self.principal_type == UserKind::Service.as_str() {
            true => {
                let flags = format!("login --service-principal -u {id} -p KEY");
                (format!("muster {flags}"), format!("az {flags} --tenant {}", me.tenant_id))
            }
            false => (
                "MUSTER_API_KEY=KEY muster login --identity".to_owned(),
                "az login --identity".to_owned(),
            ),
        };
        Ok(format!(
            "the key is shown only once; to act as {name}, replace KEY with it, copy {} to ca.pem, and run:\n    \
             export MUSTER_URL={} MUSTER_CA_FILE=ca.pem\n    {ours}\n\
             and for Azure's clients and az:\n    eval \"$(muster env)\"\n    {azs}",
            client.ca_file().display(),
            client.server_url()
        ))
    }

    fn row(&self) -> Vec<String> {
        let made = self.key_made_on.clone().unwrap_or_else(|| "no key".to_owned());
        let (name, kind) = (self.name.clone(), self.principal_type.clone());
        vec![name, kind, self.object_id.clone(), self.created_on.clone(), made]
    }
}

impl Target {
    async fn connect(&self) -> CliResult<Client> {
        Client::connect(self.place.find()?).await
    }

    fn name(&self) -> Box<str> {
        self.name.as_str().into()
    }

    fn route(&self) -> Route {
        Route::Access(AccessRoute::User { name: self.name() })
    }

    /// Changes the user's key.
    async fn post(&self, route: &Route, dry: DryRun) -> CliResult {
        let client = self.connect().await?;
        if dry.dry_run {
            let subject = self.route();
            let plan = Plan { subject: Some(&subject), ..Plan::new("POST", route, "") };
            return plan.show(&client, &self.print).await;
        }
        self.show(&client, client.post(route).await?.document()?).await
    }

    async fn show(&self, client: &Client, user: UserDocument) -> CliResult {
        let user = User::of(user);
        if user.key.is_some() {
            output::say(&user.how_to_log_in(client).await?);
        }
        self.print.show(&user, || {
            print_table(std::slice::from_ref(&user))?;
            match &user.key {
                Some(key) => output::bytes(format!("\nkey: {key}\n").as_bytes()),
                None => Ok(()),
            }
        })
    }
}

pub async fn run(command: Command) -> CliResult {
    match command {
        Command::Create(args) => {
            let kind = if args.service { UserKind::Service } else { UserKind::Person };
            let client = args.target.connect().await?;
            let route = args.target.route();
            let body = access::user_json(kind);
            if args.dry.dry_run {
                return Plan::new("PUT", &route, &body).show(&client, &args.target.print).await;
            }
            let made = client.put(&route, body).await?.document()?;
            args.target.show(&client, made).await
        }
        Command::List(args) => list(&args).await,
        Command::Show(args) => {
            let client = args.target.connect().await?;
            args.target.show(&client, client.get(&args.target.route()).await?).await
        }
        Command::RotateKey(RotateKeyArgs { dry, target }) => {
            let route = Route::Access(AccessRoute::RotateKey { name: target.name() });
            target.post(&route, dry).await
        }
        Command::RevokeKey(RevokeKeyArgs { dry, target }) => {
            let route = Route::Access(AccessRoute::RevokeKey { name: target.name() });
            target.post(&route, dry).await
        }
        Command::Delete(args) => {
            let name = &args.target.name;
            let route = args.target.route();
            if args.dry.dry_run {
                let client = args.target.connect().await?;
                return Plan::new("DELETE", &route, "").show(&client, &args.target.print).await;
            }
            if !args.yes {
                let thing = format!("user {}", quoted(name));
                confirm(&format!("delete {thing} with their key and roles"), &thing)?;
            }
            let client = args.target.connect().await?;
            client.delete(&route).await.map(|_| ())
        }
    }
}

async fn list(args: &ListArgs) -> CliResult {
    let client = Client::connect(args.place.find()?).await?;
    let page: Page<UserDocument> = client.get(&Route::Access(AccessRoute::Users)).await?;
    let users: Vec<_> = page.value.into_iter().map(User::of).collect();
    args.print.show(&users, || print_table(&users))
}

fn print_table(users: &[User]) -> CliResult {
    let nothing = "no users except the owner; create one with `muster user create`";
    output::table(&HEADER, users.iter().map(User::row).collect(), nothing)
}
