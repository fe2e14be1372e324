//! `muster storage`: maintenance of the blob storage.

use clap::Subcommand;
use muster_wire::datastore::{Collected, GarbageRequest};
use muster_wire::{Route, StorageRoute, to_json};

use crate::client::Client;
use crate::failure::CliResult;
use crate::output::{self, Print};
use crate::server_location::StateDirArg;
use crate::values;

/// Maintain the blob storage
#[derive(Debug, Subcommand)]
pub enum Command {
    Gc(GcArgs),
}

/// Delete bytes that no blob, uncommitted block or job references any more
///
/// The server does this automatically, every two minutes for recent changes; this command checks every file.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Destructive: deletes files that nothing references. Blobs and the outputs of jobs are kept."
)]
pub struct GcArgs {
    /// Only report what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// Keep files that were uploaded or requested within this time [default: the server's blob-grace-seconds]
    #[arg(long, value_name = "SECONDS", value_parser = values::count)]
    grace_seconds: Option<u32>,
    /// First delete uncommitted blocks that are older than this [default: the server's block-lifetime-seconds]
    ///
    /// An upload in progress that sent blocks before then fails when it commits them.
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
    let route = Route::Storage(StorageRoute::CollectGarbage);
    let swept: Collected = client.post_body(&route, body).await?.document()?;
    args.print.show(&swept, || {
        let [files, bytes, kept] = [swept.files, swept.bytes, swept.kept].map(|it| it.to_string());
        let deleted = if swept.dry_run { "Would be deleted" } else { "Deleted" };
        output::table(&[deleted, "Bytes", "Kept"], vec![vec![files, bytes, kept]], "")
    })
}
