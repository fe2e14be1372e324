//! `muster serve`: the server for many users.

use crate::failure::CliResult;
use crate::up::{Start, start};
use muster_server::Workspaces;

/// Start a server for many users and keep it in the foreground
///
/// As `muster up`, but made for more than one person: workspaces exist only once somebody has made them with
/// `muster workspace create`, and users need roles for everything (`muster user`, `muster role`). Whoever
/// owns the state directory may do everything.
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
