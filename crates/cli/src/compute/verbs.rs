//! az's other compute commands. Those that the server supports are sent to it; those that do not apply to Muster are
//! refused, with an alternative.

use muster_wire::{ComputeAction, Route};

use super::Target;
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, Failure, quoted};
use crate::operation;
use crate::output::Print;

/// Start a compute instance (a cluster starts its nodes automatically)
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating, costs money: a compute instance costs money while it is running."
)]
pub struct StartArgs {
    #[command(flatten)]
    act: Act,
}

/// Stop a compute instance (a cluster deletes idle nodes automatically)
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: stops everything that runs on it.")]
pub struct StopArgs {
    #[command(flatten)]
    act: Act,
}

/// Restart a compute instance (a cluster manages its nodes automatically)
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: stops everything that runs on it.")]
pub struct RestartArgs {
    #[command(flatten)]
    act: Act,
}

/// Not supported: attach an existing machine (use `muster compute create`)
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: always refused, with an alternative.")]
pub struct AttachArgs {
    #[command(flatten)]
    ignored: Anything,
}

/// Not supported: detach an attached machine (nothing can be attached)
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: always refused, with an alternative.")]
pub struct DetachArgs {
    #[command(flatten)]
    ignored: Anything,
}

/// Not supported: open a shell on a compute instance (nodes have no SSH port)
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: always refused, with an alternative.")]
pub struct ConnectSshArgs {
    #[command(flatten)]
    ignored: Anything,
}

/// Not supported: turn single sign-on of a compute instance on or off (there is no console)
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: always refused, with an alternative.")]
pub struct EnableSsoArgs {
    #[command(flatten)]
    ignored: Anything,
}

#[derive(Debug, clap::Args)]
struct Act {
    /// Do not wait until the operation has finished
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// az's flags of a command that is always refused.
#[derive(Debug, clap::Args)]
pub struct Anything {
    /// Any arguments of the az command
    #[arg(value_name = "ARGUMENTS", num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<String>,
}

pub async fn start(args: &StartArgs) -> CliResult {
    args.act.run(ComputeAction::Start, "starting").await
}

pub async fn stop(args: &StopArgs) -> CliResult {
    args.act.run(ComputeAction::Stop, "stopping").await
}

pub async fn restart(args: &RestartArgs) -> CliResult {
    args.act.run(ComputeAction::Restart, "restarting").await
}

impl Act {
    async fn run(&self, action: ComputeAction, what: &str) -> CliResult {
        let name = &self.target.name;
        let workspace = self.target.scope.workspace_to_change()?;
        let subject = super::route(workspace.clone(), name);
        let route = Route::ComputeAction { workspace, name: name.as_str().into(), action };
        let client = self.target.scope.connect().await?;
        if self.dry.dry_run {
            let plan = Plan { subject: Some(&subject), ..Plan::new("POST", &route, "") };
            return plan.show(&client, &self.print).await;
        }
        let answer = client.post(&route).await?;
        if !self.no_wait {
            operation::follow(&client, &answer, format!("{what} {name}")).await?;
        }
        super::print(&client, &subject, &self.print).await
    }
}

/// Refuses a command that does not apply to Muster: why, and the alternative.
pub fn refuse(verb: &str, why: &str, instead: &str) -> CliResult {
    Err(Failure::refused(format!("compute {} is not supported: {why}", quoted(verb))).hint(instead))
}

pub fn attach() -> CliResult {
    let why = "nodes run on this server's own hosts, and existing machines cannot be attached";
    let instead = "create a cluster: muster compute create --name NAME --max-instances COUNT";
    refuse("attach", why, instead)
}

pub fn detach() -> CliResult {
    let why = "nothing can be attached, so nothing can be detached";
    refuse("detach", why, "to delete a cluster with its nodes: muster compute delete --name NAME")
}

pub fn connect_ssh() -> CliResult {
    let why = "nodes accept jobs from this server only and have no SSH port";
    let instead = "run a command as a job and follow it: muster job create --compute NAME --command … --stream";
    refuse("connect-ssh", why, instead)
}

pub fn enable_sso() -> CliResult {
    let why = "compute instances have no console to sign in to";
    refuse("enable-sso", why, "control access with roles: muster role assignment create")
}
