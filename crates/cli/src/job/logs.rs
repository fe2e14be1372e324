//! `job logs`: prints the log of a job, or the end of it, and with `--follow` also what the job writes afterwards.

use muster_wire::job::JobResource;

use super::{Target, attempts, stream};
use crate::client::Client;
use crate::failure::{CliResult, Failure, quoted};
use crate::output;
use crate::values;

/// How much of the end of a log is first searched for the last lines.
const WINDOW_BYTES: u64 = 64 << 10;

/// Print the log of a job
///
/// Standard output gets the bytes that the job wrote, and nothing else. Without flags, it is the whole log of the first
/// process of the latest attempt. With --follow, it ends like `job stream`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct Args {
    /// Keep printing until the job has ended; Ctrl-C does not affect the job
    #[arg(short, long, conflicts_with = "attempt")]
    follow: bool,
    /// Print only this many lines from the end, and then what follows them
    #[arg(short, long, value_name = "LINES", value_parser = values::count, allow_negative_numbers = true)]
    tail: Option<u32>,
    /// Print the log of this process, from 0; a job on several nodes has one process per node
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = values::count,
          allow_negative_numbers = true)]
    rank: u32,
    /// Print the log of this attempt (a number from `job list-attempts`) [default: the latest]
    #[arg(long, value_name = "NUMBER", value_parser = values::at_least_one, allow_negative_numbers = true)]
    attempt: Option<u32>,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: &Args) -> CliResult {
    let workspace = args.target.scope.workspace()?;
    let client = args.target.scope.connect().await?;
    let name = args.target.name.as_str();
    let all = attempts::fetch(&client, workspace.clone(), name).await?;
    let found = match args.attempt {
        Some(number) => all.value.iter().find(|entry| entry.number == number),
        None => all.value.last(),
    };
    let Some(found) = found else {
        if let Some(number) = args.attempt {
            let text =
                format!("job {} has no attempt {number}; it has {}", quoted(name), all.value.len());
            return Err(Failure::not_found(text));
        }
        if args.follow {
            return stream::follow(&client, workspace, name, args.rank, None).await;
        }
        let job: JobResource = client.get(&args.target.route()?).await?;
        if job.properties.status.is_terminal() {
            output::say(&format!("job {name} ended before it started, so it has no log"));
            return Ok(());
        }
        output::say(&format!("job {name} has not started, so it has no log yet"));
        let hint =
            format!("to see why it is waiting: muster why {name}{}", args.target.scope.flags());
        output::say(&hint);
        return Ok(());
    };
    let url = stream::log_of(&found.log_files, args.rank).ok_or_else(|| {
        let count = found.log_files.len();
        if count == 0 {
            let text =
                format!("job {} consists of other jobs and has no log of its own", quoted(name));
            let list =
                format!("muster job list --parent-job-name {name}{}", args.target.scope.flags());
            return Failure::not_found(text)
                .hint(format!("print the log of one that this lists: {list}"));
        }
        let text = format!("job {} has no process {}; it has {count}", quoted(name), args.rank);
        Failure::not_found(text).hint(format!("give --rank from 0 to {}", count.saturating_sub(1)))
    })?;
    let from = match args.tail {
        Some(lines) => start_of_last(&client, url, u64::from(lines)).await?,
        None => 0,
    };
    if args.follow {
        let begun = Some((url.to_owned(), from));
        return stream::follow(&client, workspace, name, args.rank, begun).await;
    }
    let mut out = output::Raw::default();
    attempts::copy(&client, url, from, &mut out).await?;
    out.end()
}

/// The offset at which the last `lines` lines begin. The last line may be incomplete.
async fn start_of_last(client: &Client, url: &str, lines: u64) -> CliResult<u64> {
    let mut window = WINDOW_BYTES;
    let total = client.log(url, 0).await?.total.unwrap_or_default();
    loop {
        let from = total.saturating_sub(window);
        let mut bytes = Vec::new();
        while from + (bytes.len() as u64) < total {
            let piece = client.log(url, from + bytes.len() as u64).await?;
            if piece.bytes.is_empty() {
                break;
            }
            bytes.extend(piece.bytes);
        }
        match last_lines(&bytes, lines) {
            Some(at) => return Ok(from + at as u64),
            None if from == 0 => return Ok(0),
            None => window = window.saturating_mul(4),
        }
    }
}

/// The offset at which the lines begin, if all of them and the preceding line end are in the buffer.
fn last_lines(bytes: &[u8], lines: u64) -> Option<usize> {
    if lines == 0 {
        return Some(bytes.len());
    }
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    let nth = usize::try_from(lines - 1).unwrap_or(usize::MAX);
    ends.map(|(at, _)| at + 1).nth(nth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found_with_and_without_an_end() {
        let text = b"one\ntwo\nthree\n";
        for (lines, wanted) in [(0, Some(14)), (1, Some(8)), (2, Some(4)), (3, None), (9, None)] {
            assert_eq!(last_lines(text, lines), wanted, "{lines}");
        }
        assert_eq!(last_lines(b"one\ntwo", 1), Some(4));
        assert_eq!(last_lines(b"\n\n", 1), Some(1));
        assert_eq!(last_lines(b"", 1), None);
    }
}
