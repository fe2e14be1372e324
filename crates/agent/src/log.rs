//! Sends the output of an attempt to the server, from the file that the job writes to.
//!
//! The file is what counts: the server may restart, answer late, or say that it has less or more
//! than we think, and sending goes on from where it says.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use muster_core::ErrorChain;
use muster_core::ids::Epoch;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::backoff::Backoff;
use crate::client::{CallError, Client};

/// How often a running job's file is looked at: output shows up within this time, in few pieces.
const LOOK_EVERY: Duration = Duration::from_millis(80);
const PIECE_MAX: u64 = 256 * 1024;
/// How long an ended job waits for a server that takes nothing.
const STUCK_MAX: Duration = Duration::from_secs(10);
/// How often the server may fall back behind what it had said it has, before we take it for
/// confused.
const REWINDS_MAX: u32 = 64;

/// Returns when the job has ended and the server has all of its output, or will not have it.
pub(crate) async fn send_all(
    client: &Client,
    epoch: Epoch,
    path: &Path,
    ended: watch::Receiver<bool>,
) {
    let sent = match File::open(path) {
        Ok(file) => Sending::new(client, epoch, file, ended).run().await,
        Err(error) => Err(error.into()),
    };
    match sent {
        Ok(()) => {}
        Err(Stopped::Superseded) => tracing::debug!(%epoch, "the server wants no more of this log"),
        Err(error) => {
            tracing::warn!(%epoch, error = %ErrorChain(&error), "the log is not complete")
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("cannot read it")]
    Unreadable(#[from] io::Error),
    #[error("the server has moved on")]
    Superseded,
    #[error("the server took nothing for {} s", STUCK_MAX.as_secs())]
    Stuck,
    #[error("the server keeps losing what it has")]
    Confused,
}

struct Sending<'a> {
    client: &'a Client,
    epoch: Epoch,
    file: File,
    ended: watch::Receiver<bool>,
    /// Up to here the server has it, as it last said.
    offset: u64,
    rewinds: u32,
    backoff: Backoff,
    /// When it last went on, or when the job ended if that was later.
    went_on_at: Instant,
}

impl Sending<'_> {
    fn new(client: &Client, epoch: Epoch, file: File, ended: watch::Receiver<bool>) -> Sending<'_> {
        Sending {
            client,
            epoch,
            file,
            ended,
            offset: 0,
            rewinds: 0,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(5)),
            went_on_at: Instant::now(),
        }
    }

    async fn run(mut self) -> Result<(), Stopped> {
        loop {
            // Asked before the length: what was written before the end is within it.
            let has_ended = *self.ended.borrow();
            let length = self.file.metadata()?.len();
            if self.offset < length {
                self.send_piece(length, has_ended).await?;
            } else if has_ended {
                return Ok(());
            } else {
                self.rest(LOOK_EVERY).await;
            }
        }
    }

    async fn send_piece(&mut self, length: u64, has_ended: bool) -> Result<(), Stopped> {
        let piece = self.read(length)?;
        let from = self.offset;
        let error = match self.client.send_log(self.epoch, from, piece).await {
            Ok(next) if next > from => {
                self.offset = next;
                self.backoff.reset();
                self.went_on_at = Instant::now();
                return Ok(());
            }
            Ok(next) => {
                self.offset = next;
                self.rewinds += u32::from(next < from);
                if self.rewinds > REWINDS_MAX {
                    return Err(Stopped::Confused);
                }
                None
            }
            Err(CallError::Superseded) => return Err(Stopped::Superseded),
            Err(error) => Some(error),
        };
        if has_ended && self.went_on_at.elapsed() >= STUCK_MAX {
            return Err(Stopped::Stuck);
        }
        if let Some(error) = error {
            tracing::debug!(epoch = %self.epoch, error = %ErrorChain(&error), "cannot send a log");
        }
        let delay = self.backoff.grow();
        self.rest(delay).await;
        Ok(())
    }

    fn read(&self, length: u64) -> io::Result<Vec<u8>> {
        let wanted = (length - self.offset).min(PIECE_MAX);
        let mut piece = vec![0; usize::try_from(wanted).expect("a piece is small")];
        // A job can cut its own output short while we read.
        let read = self.file.read_at(&mut piece, self.offset)?;
        piece.truncate(read);
        Ok(piece)
    }

    /// Waits, but not past the end of the job: from then on the clock runs against us.
    async fn rest(&mut self, at_most: Duration) {
        if *self.ended.borrow() {
            return sleep(at_most).await;
        }
        tokio::select! {
            () = sleep(at_most) => {}
            // Fails only if nobody can say any more that the job ended; then nobody waits for us
            // either.
            _ = self.ended.changed() => {
                self.went_on_at = Instant::now();
                self.backoff.reset();
            }
        }
    }
}
