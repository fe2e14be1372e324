//! az's other verbs on a compute. Those that the server knows are its to answer; those that cannot make sense
//! here are refused with what does.

use muster_wire::{ComputeAction, Route};

use super::Target;
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, Failure, quoted};
use crate::operation;
use crate::output::Print;

/// Start a compute instance; a cluster starts nodes by itself
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating, costs money: what is started costs while it is up.")]
pub struct StartArgs {
    #[command(flatten)]
    act: Act,
}

/// Stop a compute instance; a cluster lets idle nodes go by itself
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: what runs on it ends.")]
pub struct StopArgs {
    #[command(flatten)]
    act: Act,
}

/// Restart a compute instance; a cluster's nodes come and go with the jobs
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating: what runs on it ends.")]
pub struct RestartArgs {
    #[command(flatten)]
    act: Act,
}

/// Attach a machine from elsewhere: refused, for nodes come from this server
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: it is always refused, and says what to do instead.")]
pub struct AttachArgs {
    #[command(flatten)]
    ignored: Anything,
}

/// Detach what was attached: refused, for nothing can be attached
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: it is always refused, and says what to do instead.")]
pub struct DetachArgs {
    #[command(flatten)]
    ignored: Anything,
}

/// Open a shell on a compute instance: refused, for nodes have no SSH port
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: it is always refused, and says what to do instead.")]
pub struct ConnectSshArgs {
    #[command(flatten)]
    ignored: Anything,
}

/// Turn single sign-on on a compute instance on or off: refused, there are no consoles to sign on to
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: it is always refused, and says what to do instead.")]
pub struct EnableSsoArgs {
    #[command(flatten)]
    ignored: Anything,
}

#[derive(Debug, clap::Args)]
struct Act {
    /// Do not wait until it is done
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// az's flags of a command that is refused whatever they say.
#[derive(Debug, clap::Args)]
pub struct Anything {
    /// Whatever az takes here
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

/// Why a verb that needs something from outside is not possible, and what is.
pub fn refuse(verb: &str, why: &str, instead: &str) -> CliResult {
    Err(Failure::refused(format!("compute {} is not possible here: {why}", quoted(verb)))
        .hint(instead))
}

pub fn attach() -> CliResult {
    let why = "nodes come from this server's own machines, and none are attached from elsewhere";
    refuse("attach", why, "make a cluster: muster compute create --name NAME --max-instances COUNT")
}

pub fn detach() -> CliResult {
    let why = "nothing can be attached, so nothing can be detached";
    refuse("detach", why, "to end a cluster with its nodes: muster compute delete --name NAME")
}

pub fn connect_ssh() -> CliResult {
    let why = "nodes take jobs from this server only and have no SSH port";
    let instead = "run a command as a job and follow it: muster job create --compute NAME --command … --stream";
    refuse("connect-ssh", why, instead)
}

pub fn enable_sso() -> CliResult {
    let why = "compute instances have no console to sign on to";
    refuse("enable-sso", why, "who may use a cluster is a role: muster role assignment create")
}
