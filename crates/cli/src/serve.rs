//! `muster serve`: a server for many users.

use crate::failure::CliResult;
use crate::up::{Start, start};
use muster_server::Workspaces;

/// Start a server for many users in the foreground
///
/// Like `muster up`, but for more than one person: workspaces exist only once they are created with `muster workspace
/// create`, and users need roles for everything (`muster user`, `muster role`). The owner of the state directory has
/// all permissions.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating: writes the state directory and starts processes on this machine."
)]
pub struct Args {
    #[command(flatten)]
    start: Start,
}

pub fn run(args: Args) -> CliResult {
    start(&args.start, Workspaces::ByHand)
}
