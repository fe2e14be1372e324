//! Whether nobody changed the activity log.

use muster_wire::activity::{ActivityDocument, ChainDocument};
use muster_wire::{GovernanceRoute, Route};
use serde::Serialize;

use crate::client::Client;
use crate::failure::{CliResult, Failure, quoted};
use crate::output::{self, Print};
use crate::server_location::StateDirArg;

/// Of a digest.
const HEX_DIGITS: usize = 64;

/// Check that nobody changed the activity log
///
/// Each line carries a digest of itself and all before it. Note the head that is printed elsewhere: with --head
/// it shows later that everything up to there is as it was.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing. Exit code 1 if something was changed.")]
pub struct Args {
    /// A head that was noted down: is it still in the log?
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
    /// The first entry that does not follow from the one before.
    broken_at: Option<u64>,
    /// The entry with the digest that was asked for.
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
        output::table(&["Whole", "Entries", "Head", "Given head at"], vec![row], "")
    })?;
    if let Some(number) = verdict.broken_at {
        return Err(Failure::error(format!(
            "the activity log was changed: entry {number} does not follow from the one before"
        ))
        .hint("compare it with a backup of the state directory: it is no evidence any more"));
    }
    match (&args.head, verdict.head_found_at) {
        (Some(digest), None) => Err(Failure::error(format!(
            "no entry has the digest {}: the log was written anew, or the entry is older than 90 days",
            quoted(digest)
        ))),
        (Some(_), Some(number)) => {
            output::say(&format!("nothing up to entry {number} was changed since it was noted"));
            Ok(())
        }
        (None, _) => Ok(()),
    }
}

/// The number of the entry with this digest. Newest first, as a head that was noted down is mostly recent.
async fn find(client: &Client, digest: &str) -> CliResult<Option<u64>> {
    let all = Route::Governance(GovernanceRoute::Activity { subscription: None });
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
        false => Err(format!("a digest has {HEX_DIGITS} hexadecimal digits, as head has")),
    }
}
