//! `muster compute`: clusters and compute instances, with the commands and flags of `az ml compute`.

mod delete;
mod evict;
pub mod file;
mod history;
mod post_mortem;
mod price;
mod put;
mod region;
mod verbs;
pub mod view;
mod watch;

pub use verbs::Anything;
pub use view::resource_group;

use std::io::IsTerminal as _;

use clap::Subcommand;
use muster_core::model::WorkspaceKey;
use muster_wire::Route;
use muster_wire::compute::{NodeInfo, NodeList, SeenCompute};

use crate::client::Client;
use crate::failure::CliResult;
use crate::names::{self, Name};
use crate::output::{self, Print};
use crate::scope::Scope;
use crate::values::{self, ComputeType};

/// Manage clusters and compute instances
#[derive(Debug, Subcommand)]
pub enum Command {
    Create(Box<put::CreateArgs>),
    Update(put::UpdateArgs),
    Show(ShowArgs),
    List(ListArgs),
    ListNodes(ListNodesArgs),
    ListPostMortems(post_mortem::ListArgs),
    ShowPostMortem(post_mortem::ShowArgs),
    ListSizes(region::SizesArgs),
    ListUsage(region::UsageArgs),
    History(history::Args),
    Watch(watch::Args),
    Delete(delete::Args),
    Evict(evict::Args),
    Start(verbs::StartArgs),
    Stop(verbs::StopArgs),
    Restart(verbs::RestartArgs),
    Attach(verbs::AttachArgs),
    Detach(verbs::DetachArgs),
    ConnectSsh(verbs::ConnectSshArgs),
    EnableSso(verbs::EnableSsoArgs),
}

/// Show a cluster or compute instance: its settings, state and nodes
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ShowArgs {
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// List the clusters and compute instances in a workspace
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    /// List only computes of this type
    #[arg(long = "type", value_enum, ignore_case = true, value_name = "TYPE")]
    compute_type: Option<ComputeType>,
    /// Maximum number of results
    #[arg(short = 'r', long, value_name = "COUNT", value_parser = values::at_least_one,
          allow_negative_numbers = true)]
    max_results: Option<u32>,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// List the nodes of a cluster or compute instance, and their jobs
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListNodesArgs {
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// The compute that a command acts on.
#[derive(Debug, clap::Args)]
struct Target {
    #[command(flatten)]
    name: Name<names::Compute>,
    #[command(flatten)]
    scope: Scope,
}

impl Target {
    fn route(&self) -> CliResult<Route> {
        Ok(route(self.scope.workspace()?, &self.name))
    }

    /// For a command that changes the cluster; it also prints the workspace.
    fn route_to_change(&self) -> CliResult<Route> {
        Ok(route(self.scope.workspace_to_change()?, &self.name))
    }
}

pub async fn run(command: Command) -> CliResult {
    match command {
        Command::Create(args) => put::create(*args).await,
        Command::Update(args) => put::update(args).await,
        Command::Show(args) => show(&args).await,
        Command::List(args) => list(&args).await,
        Command::ListNodes(args) => list_nodes(&args).await,
        Command::ListPostMortems(args) => post_mortem::list(&args).await,
        Command::ShowPostMortem(args) => post_mortem::show(&args).await,
        Command::ListSizes(args) => region::sizes(&args).await,
        Command::ListUsage(args) => region::usage(&args).await,
        Command::History(args) => history::run(&args).await,
        Command::Watch(args) => watch::run(&args).await,
        Command::Delete(args) => delete::run(&args).await,
        Command::Evict(args) => evict::run(&args).await,
        Command::Start(args) => verbs::start(&args).await,
        Command::Stop(args) => verbs::stop(&args).await,
        Command::Restart(args) => verbs::restart(&args).await,
        Command::Attach(_) => verbs::attach(),
        Command::Detach(_) => verbs::detach(),
        Command::ConnectSsh(_) => verbs::connect_ssh(),
        Command::EnableSso(_) => verbs::enable_sso(),
    }
}

async fn show(args: &ShowArgs) -> CliResult {
    let route = args.target.route()?;
    let client = args.target.scope.connect().await?;
    print(&client, &route, &args.print).await
}

async fn list(args: &ListArgs) -> CliResult {
    let route = Route::Computes(args.scope.workspace()?);
    let client = args.scope.connect().await?;
    // Computes of other types do not count, so all are requested if only one type is wanted.
    let asked = args.max_results.filter(|_| args.compute_type.is_none());
    let mut computes: Vec<SeenCompute> = client.list(&route, asked).await?;
    if let Some(kind) = args.compute_type {
        let is_wanted =
            |found: &SeenCompute| found.properties.compute_type.eq_ignore_ascii_case(kind.as_str());
        computes.retain(is_wanted);
    }
    computes.truncate(args.max_results.map_or(usize::MAX, |count| count as usize));
    let computes: Vec<_> = computes.iter().map(view::entity).collect();
    args.print.show(&computes, || print_table(&computes))
}

async fn list_nodes(args: &ListNodesArgs) -> CliResult {
    let workspace = args.target.scope.workspace()?;
    let route = Route::ComputeNodes { workspace, name: args.target.name.as_str().into() };
    let client = args.target.scope.connect().await?;
    let nodes = all_nodes(&client, &route).await?;
    let nodes: Vec<_> = nodes.into_iter().map(view::node).collect();
    args.print.show(&nodes, || {
        let columns = std::io::stdout().is_terminal().then(|| output::width::size().0);
        let (header, rows) = view::node_table(&nodes, columns);
        output::table(&header, rows, "no nodes at the moment")
    })
}

async fn all_nodes(client: &Client, route: &Route) -> CliResult<Vec<NodeInfo>> {
    let mut page: NodeList = client.post(route).await?.document()?;
    let mut nodes = std::mem::take(&mut page.nodes);
    while let Some(link) = page.next_link.take() {
        page = client.follow(&link).await?.document()?;
        nodes.append(&mut page.nodes);
    }
    Ok(nodes)
}

fn route(workspace: WorkspaceKey, name: &str) -> Route {
    Route::Compute { workspace, name: name.into() }
}

/// Prints the current state of the compute.
async fn print(client: &Client, route: &Route, print: &Print) -> CliResult {
    let compute: SeenCompute = client.get(route).await?;
    if let Some(note) = &compute.properties.properties.note {
        output::say(&format!("note: {note}"));
    }
    let compute = view::entity(&compute);
    print.show(&compute, || print_table(std::slice::from_ref(&compute)))
}

fn print_table(computes: &[view::Compute]) -> CliResult {
    let rows = computes.iter().map(view::row).collect();
    output::table(&view::HEADER, rows, "no clusters or compute instances in this workspace")
}
