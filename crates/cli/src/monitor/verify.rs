//! Whether the activity log is unchanged.

use muster_wire::activity::{ActivityDocument, ChainDocument};
use muster_wire::{GovernanceRoute, Route};
use serde::Serialize;

use crate::client::Client;
use crate::failure::{CliResult, Failure, quoted};
use crate::output::{self, Print};
use crate::server_location::StateDirArg;

/// The length of a digest.
const HEX_DIGITS: usize = 64;

/// Verify that the activity log has not been tampered with
///
/// Each entry has a digest of itself and all entries before it. Store the printed head in another place: later, --head
/// proves with it that all entries up to that point are unchanged.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing. Exit code 1 if the log was changed.")]
pub struct Args {
    /// Head that was printed earlier, to check that it is still in the log
    #[arg(long, value_name = "DIGEST", value_parser = digest)]
    head: Option<String>,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    place: StateDirArg,
}

#[derive(Debug, Serialize)]
struct Verdict {
    is_whole: bool,
    entries: u64,
    head: String,
    /// The first entry whose digest does not match the entry before.
    broken_at: Option<u64>,
    /// The number of the entry with the given digest.
    head_found_at: Option<u64>,
}

pub async fn run(args: &Args) -> CliResult {
    let client = Client::connect(args.place.find()?).await?;
    let chain: ChainDocument =
        client.get(&Route::Governance(GovernanceRoute::ActivityChain)).await?;
    let head_found_at = match &args.head {
        Some(digest) => find(&client, digest).await?,
        None => None,
    };
    let verdict = Verdict {
        is_whole: chain.broken_at.is_none(),
        entries: chain.entries,
        head: chain.head,
        broken_at: chain.broken_at,
        head_found_at,
    };
    args.print.show(&verdict, || {
        let found = verdict.head_found_at.map_or_else(String::new, |number| number.to_string());
        let row = vec![
            verdict.is_whole.to_string(),
            verdict.entries.to_string(),
            verdict.head.clone(),
            found,
        ];
        output::table(&["Intact", "Entries", "Head", "Given head at"], vec![row], "")
    })?;
    if let Some(number) = verdict.broken_at {
        return Err(Failure::error(format!(
            "the activity log was changed: entry {number} does not match the entry before it"
        ))
        .hint(
            "compare it with a backup of the state directory; it cannot serve as evidence any more",
        ));
    }
    match (&args.head, verdict.head_found_at) {
        (Some(digest), None) => Err(Failure::error(format!(
            "no entry has the digest {}: the log was rewritten, or the entry is older than 90 days",
            quoted(digest)
        ))),
        (Some(_), Some(number)) => {
            output::say(&format!("all entries up to {number} are unchanged"));
            Ok(())
        }
        (None, _) => Ok(()),
    }
}

/// The number of the entry with this digest. The search starts with the newest, because a stored head is usually
/// recent.
async fn find(client: &Client, digest: &str) -> CliResult<Option<u64>> {
    let all = Route::Governance(GovernanceRoute::ServerActivity);
    let mut page: muster_wire::Page<ActivityDocument> = client.get(&all).await?;
    loop {
        let property = |event: &ActivityDocument, name: &str| event.properties.get(name).cloned();
        let found =
            page.value.iter().find(|event| property(event, "digest").as_deref() == Some(digest));
        if let Some(event) = found {
            return Ok(property(event, "number").and_then(|number| number.parse().ok()));
        }
        let Some(link) = page.next_link.take() else { return Ok(None) };
        page = client.follow(&link).await?.document()?;
    }
}

fn digest(text: &str) -> Result<String, String> {
    let is_hex = text.len() == HEX_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_hex {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(format!("a digest has {HEX_DIGITS} hexadecimal digits, like head")),
    }
}
