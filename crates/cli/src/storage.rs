//! `muster storage`: what the server stores, and maintenance of the blob storage.

use std::collections::BTreeMap;

use clap::Subcommand;
use muster_wire::datastore::{Collected, GarbageRequest};
use muster_wire::storage_size::StorageSize;
use muster_wire::{Page, Route, StorageRoute, to_json};
use serde::Serialize;

use crate::client::Client;
use crate::failure::CliResult;
use crate::output::{self, Print, PrintForPeople};
use crate::server_location::StateDirArg;
use crate::values;

/// Show what the server stores, and maintain the blob storage
#[derive(Debug, Subcommand)]
pub enum Command {
    Gc(GcArgs),
    Show(ShowArgs),
}

/// Show how much space everything takes that the server stores, and which settings limit it
///
/// Sizes are in MiB. The settings are described in docs/reference/configuration.md; 0 means no limit.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Read-only: requires a role that may read everything, such as Reader on '/'."
)]
pub struct ShowArgs {
    #[command(flatten)]
    place: StateDirArg,
    #[command(flatten)]
    print: PrintForPeople,
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
    match command {
        Command::Gc(args) => collect_garbage(args).await,
        Command::Show(args) => show(args).await,
    }
}

async fn show(args: ShowArgs) -> CliResult {
    let client = Client::connect(args.place.find()?).await?;
    let page: Page<StorageSize> = client.get(&Route::Storage(StorageRoute::StorageSizes)).await?;
    let rows: Vec<Row> = page.value.into_iter().map(Row::of).collect();
    args.print.show(&rows, || {
        let all: u64 = rows.iter().map(|row| row.bytes).sum();
        let mut cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
        cells.push(["total", "", &mib(all), "", "", ""].map(str::to_owned).to_vec());
        output::table(&["Content", "Location", "MiB", "Entries", "Oldest", "Settings"], cells, "")
    })
}

/// One kind of content, as it is printed.
#[derive(Debug, Serialize)]
struct Row {
    content: String,
    location: String,
    bytes: u64,
    entries: Option<u64>,
    oldest: Option<String>,
    settings: BTreeMap<String, u64>,
}

impl Row {
    fn of(size: StorageSize) -> Row {
        let StorageSize { content, location, bytes, entries, oldest, settings } = size;
        let settings = settings.into_iter().map(|setting| (setting.name, setting.value)).collect();
        Row { content, location, bytes, entries, oldest, settings }
    }

    fn cells(&self) -> Vec<String> {
        let settings: Vec<String> =
            self.settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        // The day is enough for people.
        let day = self.oldest.as_deref().and_then(|oldest| oldest.split('T').next());
        vec![
            self.content.clone(),
            self.location.clone(),
            mib(self.bytes),
            self.entries.map_or_else(String::new, |entries| entries.to_string()),
            day.unwrap_or_default().to_owned(),
            settings.join(", "),
        ]
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

async fn collect_garbage(args: GcArgs) -> CliResult {
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
