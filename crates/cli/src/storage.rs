//! `muster storage`: the upkeep of the blob storage.

use clap::Subcommand;
use muster_wire::datastore::{Collected, GarbageRequest};
use muster_wire::{Route, StorageRoute, to_json};

use crate::client::Client;
use crate::failure::CliResult;
use crate::output::{self, Print};
use crate::server_location::StateDirArg;
use crate::values;

/// Look after the blob storage
#[derive(Debug, Subcommand)]
pub enum Command {
    Gc(GcArgs),
}

/// Remove the bytes that no blob, no waiting block and no job names any more
///
/// The server does so by itself, every two minutes for what has changed; this looks at every file.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Destructive: removes files that nothing leads to. What is in a blob or was left by a job stays."
)]
pub struct GcArgs {
    /// Only count what would go
    #[arg(long)]
    dry_run: bool,
    /// Leave alone what was sent or asked for within this time [default: the server's blob-grace-seconds]
    #[arg(long, value_name = "SECONDS", value_parser = values::count)]
    grace_seconds: Option<u32>,
    /// First drop uncommitted blocks that were sent longer ago than this [default: the server's block-lifetime-seconds]
    ///
    /// An upload that is under way, and that sent blocks before then, fails when it puts them together.
    #[arg(long, value_name = "SECONDS", value_parser = values::count)]
    block_seconds: Option<u32>,
    #[command(flatten)]
    place: StateDirArg,
    #[command(flatten)]
    print: Print,
}

pub async fn run(command: Command) -> CliResult {
    let Command::Gc(args) = command;
    let client = Client::connect(args.place.find()?).await?;
    let (grace_seconds, block_seconds) = (args.grace_seconds, args.block_seconds);
    let body = to_json(&GarbageRequest { dry_run: args.dry_run, grace_seconds, block_seconds });
    let route = Route::Storage(StorageRoute::StorageSweep);
    let swept: Collected = client.post_body(&route, body).await?.document()?;
    args.print.show(&swept, || {
        let [files, bytes, kept] = [swept.files, swept.bytes, swept.kept].map(|it| it.to_string());
        let gone = if swept.dry_run { "Would go" } else { "Gone" };
        output::table(&[gone, "Bytes", "Stay"], vec![vec![files, bytes, kept]], "")
    })
}
