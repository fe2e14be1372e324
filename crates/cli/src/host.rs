//! `muster host`: the hosts on which nodes run.

use clap::Subcommand;
use muster_core::model::Scope as Place;
use muster_core::time::Span;
use muster_wire::host::{self, HostDocument, TokenDocument};
use muster_wire::path::lockable_of;
use muster_wire::{HostAction, HostRoute, Route};
use serde::Serialize;

use crate::client::Client;
use crate::complete;
use crate::confirm::confirm;
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, quoted};
use crate::names::{self, Name};
use crate::output::{self, Print};
use crate::scope::Scope;
use crate::server_location::StateDirArg;
use crate::values;

const HEADER: [&str; 9] =
    ["Name", "State", "Cores", "Used", "Memory", "Used", "GPUs", "Nodes", "Scope"];

/// Manage the hosts on which nodes run
#[derive(Debug, Subcommand)]
pub enum Command {
    List(ListArgs),
    Show(ShowArgs),
    Token(TokenArgs),
    Cordon(CordonArgs),
    Uncordon(UncordonArgs),
    Drain(DrainArgs),
    Remove(RemoveArgs),
}

/// List all hosts, with their capacity and how much of it nodes use
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    #[command(flatten)]
    place: StateDirArg,
    #[command(flatten)]
    print: Print,
}

/// Show a host
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ShowArgs {
    #[command(flatten)]
    target: Target,
}

/// Create a join token, with which another machine can join once
///
/// Nodes of all computes can then run on that host, or only those that --compute or --scope selects. Run the printed
/// command on the other machine.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating, exposes: anyone with the printed token can add a machine on which jobs run."
)]
pub struct TokenArgs {
    /// Only a machine with this name may use the token
    #[arg(long, value_name = "HOST", value_parser = values::name)]
    name: Option<String>,
    /// Accept only nodes of this compute
    #[arg(long, value_name = "NAME", value_parser = values::compute, add = complete::computes())]
    compute: Option<String>,
    /// Accept only nodes in this scope: the id of a subscription, resource group, workspace or compute
    #[arg(long, value_name = "ID", value_parser = place, conflicts_with = "compute")]
    scope: Option<Place>,
    /// How long the token is valid [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = values::span)]
    expires_in: Option<Span>,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    home: Scope,
    #[command(flatten)]
    print: Print,
}

/// Cordon a host: no new nodes, and no new jobs on its existing nodes
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: running jobs continue; `muster host uncordon` undoes it.")]
pub struct CordonArgs {
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    target: Target,
}

/// Uncordon a host that was cordoned or drained
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating, costs money: nodes can be created there again.")]
pub struct UncordonArgs {
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    target: Target,
}

/// Drain a host: idle nodes are deleted at once, others after their jobs
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: running jobs continue until they end; no new ones start.")]
pub struct DrainArgs {
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    target: Target,
}

/// Remove a host without nodes and revoke its key
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Destructive: with --force, its running jobs are abandoned and start again elsewhere."
)]
pub struct RemoveArgs {
    /// Remove the host even if it has nodes; their jobs start elsewhere once their leases have ended
    #[arg(long)]
    force: bool,
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
    name: Name<names::Host>,
    #[command(flatten)]
    place: StateDirArg,
    #[command(flatten)]
    print: Print,
}

/// The host in the form that is printed.
#[derive(Debug, Serialize)]
struct Host {
    name: String,
    state: String,
    pool: String,
    cores: u32,
    cores_used: u32,
    memory_mb: u64,
    memory_mb_used: u64,
    gpus: u32,
    gpus_used: u32,
    nodes: u32,
    over_commit: bool,
    not_enforced: Vec<String>,
    joined_on: String,
}

impl Host {
    fn of(host: HostDocument) -> Host {
        let HostDocument {
            name, state, pool, cores, cores_used, memory_mb, memory_mb_used, ..
        } = host;
        let HostDocument { gpus, gpus_used, nodes, over_commit, not_enforced, joined_on, .. } =
            host;
        Host {
            name,
            state,
            pool,
            cores,
            cores_used,
            memory_mb,
            memory_mb_used,
            gpus,
            gpus_used,
            nodes,
            over_commit,
            not_enforced,
            joined_on,
        }
    }

    fn row(&self) -> Vec<String> {
        let scope = if self.pool == "/" { "all".to_owned() } else { self.pool.clone() };
        let over_commit = self.over_commit.then_some("over-commit");
        let weak = (!self.not_enforced.is_empty()).then_some("not all enforced");
        let state = [Some(self.state.as_str()), over_commit, weak];
        let state: Vec<&str> = state.into_iter().flatten().collect();
        vec![
            self.name.clone(),
            state.join(", "),
            self.cores.to_string(),
            self.cores_used.to_string(),
            gigabytes(self.memory_mb),
            gigabytes(self.memory_mb_used),
            self.gpus.to_string(),
            self.nodes.to_string(),
            scope,
        ]
    }
}

fn gigabytes(megabytes: u64) -> String {
    format!("{}.{} GB", megabytes / 1024, megabytes % 1024 * 10 / 1024)
}

impl Target {
    async fn connect(&self) -> CliResult<Client> {
        Client::connect(self.place.find()?).await
    }

    fn route(&self) -> Route {
        Route::Hosts(HostRoute::Host { name: self.name.as_str().into() })
    }

    fn action(&self, action: HostAction) -> Route {
        Route::Hosts(HostRoute::HostAction { name: self.name.as_str().into(), action })
    }

    async fn act(&self, action: HostAction, dry: DryRun) -> CliResult {
        let client = self.connect().await?;
        let route = self.action(action);
        if dry.dry_run {
            return self.plan(&client, "POST", &route).await;
        }
        self.show(client.post(&route).await?.document()?)
    }

    async fn plan(&self, client: &Client, method: &'static str, route: &Route) -> CliResult {
        let subject = self.route();
        let plan = Plan { subject: Some(&subject), ..Plan::new(method, route, "") };
        plan.show(client, &self.print).await
    }

    fn show(&self, host: HostDocument) -> CliResult {
        let host = Host::of(host);
        self.print.show(&host, || print_table(std::slice::from_ref(&host)))
    }
}

pub async fn run(command: Command) -> CliResult {
    match command {
        Command::List(args) => list(&args).await,
        Command::Show(ShowArgs { target }) => {
            let client = target.connect().await?;
            target.show(client.get(&target.route()).await?)
        }
        Command::Token(args) => token(&args).await,
        Command::Cordon(CordonArgs { dry, target }) => target.act(HostAction::Cordon, dry).await,
        Command::Uncordon(UncordonArgs { dry, target }) => {
            target.act(HostAction::Uncordon, dry).await
        }
        Command::Drain(DrainArgs { dry, target }) => target.act(HostAction::Drain, dry).await,
        Command::Remove(args) => remove(&args).await,
    }
}

async fn list(args: &ListArgs) -> CliResult {
    let client = Client::connect(args.place.find()?).await?;
    let hosts: Vec<HostDocument> = client.list(&Route::Hosts(HostRoute::Hosts), None).await?;
    let hosts: Vec<Host> = hosts.into_iter().map(Host::of).collect();
    args.print.show(&hosts, || print_table(&hosts))
}

async fn token(args: &TokenArgs) -> CliResult {
    let place = match (&args.compute, &args.scope) {
        (Some(name), _) => Place::compute(&args.home.workspace()?, name),
        (None, Some(place)) => place.clone(),
        (None, None) => Place::Everything,
    };
    let seconds = args.expires_in.map(Span::as_seconds);
    let body = host::ticket_json(&place, args.name.as_deref(), seconds);
    let route = Route::Hosts(HostRoute::HostToken);
    let client = args.home.connect().await?;
    if args.dry.dry_run {
        let subject = Route::Hosts(HostRoute::Hosts);
        let plan = Plan { subject: Some(&subject), ..Plan::new("POST", &route, &body) };
        return plan.show(&client, &args.print).await;
    }
    let made: TokenDocument = client.post_body(&route, body).await?.document()?;
    if is_loopback(&made.command) {
        output::say(&format!(
            "warning: the server listens only on {}, which other machines cannot reach; restart it with \
             --listen ADDRESS:PORT, such as --listen 0.0.0.0:7443, and --trusted-users",
            client.server_url()
        ));
    }
    output::say(
        "the token is shown only once and can be used only once; on the other machine, run:",
    );
    if !args.print.is_for_people() {
        output::say(&format!("  {}", made.command));
    }
    args.print.show(&made, || output::bytes(format!("{}\n", made.command).as_bytes()))
}

async fn remove(args: &RemoveArgs) -> CliResult {
    let target = &args.target;
    let (method, route) = match args.force {
        true => ("POST", target.action(HostAction::GiveUp)),
        false => ("DELETE", target.route()),
    };
    let client = target.connect().await?;
    if args.dry.dry_run {
        return target.plan(&client, method, &route).await;
    }
    if !args.yes {
        let thing = format!("host {}", quoted(&target.name));
        let with = if args.force { " and abandon its running jobs" } else { "" };
        confirm(&format!("remove {thing}{with}"), &thing)?;
    }
    match args.force {
        true => client.post(&route).await.map(|_| ()),
        false => client.delete(&route).await.map(|_| ()),
    }
}

/// Whether the address in a command would lead other machines to themselves.
fn is_loopback(command: &str) -> bool {
    let address = command.split_whitespace().find_map(|word| word.strip_prefix("https://"));
    let host = address.and_then(|address| address.rsplit_once(':')).map_or("", |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_own = host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    is_own || host.eq_ignore_ascii_case("localhost")
}

fn place(text: &str) -> Result<Place, String> {
    lockable_of(text).filter(|_| text.starts_with('/')).ok_or_else(|| {
        "give the id of a subscription, a resource group, a workspace or a compute, or / for all".to_owned()
    })
}

fn print_table(hosts: &[Host]) -> CliResult {
    let nothing = "no hosts; the server's own machine becomes one as soon as it has been measured";
    output::table(&HEADER, hosts.iter().map(Host::row).collect(), nothing)
}
