//! Sends the output of an attempt to the server, from the file that the job writes to.
//!
//! The file is what counts: the server may restart, answer late, or say that it has less or more
//! than we think, and sending goes on from where it says.
//!
//! A log must not fill the disk. What the server has is cut out of the file, but for the last part, and so is what no
//! server will ever take; the rest keeps its place. So a file is as large as what is not sent, and at most as large as a
//! log may be. The last of what a full log keeps is a line that says so.
//!
//! While the server's disk is full, or the job's workspace has used its share of it, the file here keeps what is written.
//! When the job has ended, that is waited out for a while; then the log ends with as much as the server takes as the last of a
//! log, and a line that says how much is missing, and why.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use muster_core::ErrorChain;
use muster_core::agent::LAST_LOG_BYTES_MAX;
use muster_core::ids::Epoch;
use reqwest::StatusCode;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::attempt::Context;
use crate::backoff::Backoff;
use crate::client::{CallError, Client, IsLast};

/// How often a running job's file is looked at: output shows up within this time, in few pieces.
const LOOK_EVERY: Duration = Duration::from_millis(80);
const PIECE_MAX: u64 = 256 * 1024;
/// So much of what the server has stays here all the same, in case that it loses its last.
const KEPT_BYTES: u64 = 16 << 20;
/// Space is given back in steps of this.
const STEP_BYTES: u64 = 1 << 20;
/// How long an ended job waits for a server that takes nothing, and does not say that its disk is full.
const STUCK_MAX: Duration = Duration::from_secs(10);
/// How often the server may fall back behind what it had said it has, before we take it for
/// confused.
const REWINDS_MAX: u32 = 64;

/// How much is sent, and how patiently.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) bytes_max: u64,
    /// How long an ended job waits for a server that has no room, before it says what is missing. `None`: it does not
    /// wait, and says nothing.
    pub(crate) full_waits: Option<Duration>,
}

impl Bounds {
    pub(crate) fn of(context: &Context) -> Bounds {
        let full_waits = Some(context.full_server.log_waits);
        Bounds { bytes_max: context.log_bytes, full_waits }
    }
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Running,
    /// Its processes are gone. What it left is being kept, which may add to its log.
    Ending,
    /// Nothing will be added to its log.
    Over,
}

/// How long a job that has ended has waited for a server that does not take its log, by cause: what was waited for one says
/// nothing about the other.
#[derive(Debug)]
struct Waited {
    /// For space.
    full: Duration,
    /// For an answer of another kind, since the server last took something.
    stuck: Duration,
    /// Whether the last that it heard is that there is no space.
    is_for_space: bool,
    until: Instant,
}

impl Waited {
    fn nothing(now: Instant) -> Waited {
        let none = Duration::ZERO;
        Waited { full: none, stuck: none, is_for_space: false, until: now }
    }

    /// The server took something. What was waited for space until then counts all the same: it may become free byte by byte.
    fn go_on(&mut self, now: Instant) {
        if self.is_for_space {
            self.add(true, now);
        }
        *self = Waited { full: self.full, ..Waited::nothing(now) };
    }

    /// It waited until now, in vain; says how long it has waited for this in all.
    fn add(&mut self, is_full: bool, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.until, now));
        self.is_for_space = is_full;
        let waited = if is_full { &mut self.full } else { &mut self.stuck };
        *waited += passed;
        *waited
    }
}

/// Returns when the job has ended and the server has all of its output, or will not have it.
pub(crate) async fn send_all(
    client: &Client,
    epoch: Epoch,
    path: &Path,
    bounds: Bounds,
    stage: watch::Receiver<Stage>,
) {
    let sent = match File::options().read(true).write(true).open(path) {
        Ok(file) => tokio::select! {
            sent = Sending::new(client, epoch, &file, bounds, stage).run() => sent,
            error = cut_excess(&file, bounds.bytes_max) => Err(error.into()),
        },
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
    #[error("the server has no room, and the last {missing} bytes are missing there: {words}")]
    ServerFull { missing: u64, words: String },
    #[error("the server keeps losing what it has")]
    Confused,
    #[error(
        "the server lost what it had from byte {next} on, and here it is kept from byte {kept_from} on only"
    )]
    Lost { next: u64, kept_from: u64 },
}

/// When a log is full, and the line that it then ends with.
struct Full {
    bytes_max: u64,
    line: Vec<u8>,
}

impl Full {
    fn at(bytes_max: u64) -> Full {
        let most = match bytes_max.is_multiple_of(1 << 30) {
            true => format!("{} GiB", bytes_max >> 30),
            false => format!("{bytes_max} bytes"),
        };
        // What the job wrote before it may not have ended its line.
        let line = format!("\nmuster: output beyond {most} is dropped\n").into_bytes();
        Full { bytes_max, line }
    }

    fn line_at(&self) -> u64 {
        self.bytes_max.saturating_sub(self.line.len() as u64)
    }
}

struct Sending<'a> {
    client: &'a Client,
    epoch: Epoch,
    file: &'a File,
    full: Full,
    is_full: bool,
    full_waits: Option<Duration>,
    stage: watch::Receiver<Stage>,
    saw_end: bool,
    /// Before this the file has nothing any more.
    kept_from: u64,
    /// Up to here the server has it, as it last said.
    offset: u64,
    rewinds: u32,
    backoff: Backoff,
    /// Since the job ended.
    waited: Waited,
}

impl<'a> Sending<'a> {
    fn new(
        client: &'a Client,
        epoch: Epoch,
        file: &'a File,
        bounds: Bounds,
        stage: watch::Receiver<Stage>,
    ) -> Sending<'a> {
        let kept_from = first_byte(file);
        Sending {
            client,
            epoch,
            file,
            full: Full::at(bounds.bytes_max),
            is_full: false,
            full_waits: bounds.full_waits,
            stage,
            saw_end: false,
            kept_from,
            offset: kept_from,
            rewinds: 0,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(5)),
            waited: Waited::nothing(Instant::now()),
        }
    }

    async fn run(mut self) -> Result<(), Stopped> {
        loop {
            // Asked before the length: what was written before the end is within it.
            let stage = *self.stage.borrow();
            if stage >= Stage::Ending && !std::mem::replace(&mut self.saw_end, true) {
                self.waited = Waited::nothing(Instant::now());
                self.backoff.reset();
            }
            let is_over = stage == Stage::Over;
            let length = self.sendable(is_over)?;
            if self.offset < length {
                self.send_piece(length, stage).await?;
            } else if is_over {
                return Ok(());
            } else {
                self.rest(LOOK_EVERY).await;
            }
        }
    }

    /// Up to where the file may be sent. The place of the line that says that something is missing is kept back until it
    /// is known whether anything is.
    fn sendable(&mut self, has_ended: bool) -> io::Result<u64> {
        let length = self.file.metadata()?.len();
        if length <= self.full.bytes_max {
            return Ok(if has_ended { length } else { length.min(self.full.line_at()) });
        }
        if !self.is_full {
            // After a restart once more: the same bytes in the same place.
            self.file.write_all_at(&self.full.line, self.full.line_at())?;
            self.is_full = true;
        }
        Ok(self.full.bytes_max)
    }

    async fn send_piece(&mut self, length: u64, stage: Stage) -> Result<(), Stopped> {
        let piece = self.read((length - self.offset).min(PIECE_MAX))?;
        let from = self.offset;
        let error = match self.client.send_log(self.epoch, from, piece, IsLast::No).await {
            Ok(next) if next > from => {
                self.offset = next;
                self.cut_sent();
                self.backoff.reset();
                self.waited.go_on(Instant::now());
                return Ok(());
            }
            Ok(next) if next < self.kept_from => {
                return Err(Stopped::Lost { next, kept_from: self.kept_from });
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
        if stage >= Stage::Ending {
            self.be_patient(error.as_ref(), length, stage).await?;
        }
        if let Some(error) = error {
            tracing::debug!(epoch = %self.epoch, error = %ErrorChain(&error), "cannot send a log");
        }
        let delay = self.backoff.grow();
        self.rest(delay).await;
        Ok(())
    }

    /// Waits no longer than is said for what went wrong, but until nothing is added to the log any more.
    async fn be_patient(
        &mut self,
        error: Option<&CallError>,
        length: u64,
        stage: Stage,
    ) -> Result<(), Stopped> {
        let full = match error {
            Some(CallError::Refused { status: StatusCode::INSUFFICIENT_STORAGE, words }) => {
                Some(words.clone())
            }
            _ => None,
        };
        let waited = self.waited.add(full.is_some(), Instant::now());
        let missing = length - self.offset;
        match (full, self.full_waits) {
            _ if stage < Stage::Over => Ok(()),
            (None, _) if waited >= STUCK_MAX => Err(Stopped::Stuck),
            (Some(words), None) => Err(Stopped::ServerFull { missing, words }),
            (Some(words), Some(most)) if waited >= most => {
                // A server keeps some room for this.
                let (last, missing) = self.last_of(missing, &words)?;
                let said = self.client.send_log(self.epoch, self.offset, last, IsLast::Yes).await;
                if let Err(error) = said {
                    tracing::warn!(error = %ErrorChain(&error), "cannot say that a log is cut");
                }
                Err(Stopped::ServerFull { missing, words })
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// What a log ends with that there is no room for: whole lines, as many as fit, and one that says how many bytes are
    /// missing then, if any are.
    fn last_of(&self, unsent: u64, words: &str) -> io::Result<(Vec<u8>, u64)> {
        let line = |missing: u64| {
            format!("\nmuster: the last {missing} bytes of this log are missing: {words}\n")
        };
        let room = LAST_LOG_BYTES_MAX.saturating_sub(line(unsent).len());
        let mut last = self.read(unsent.min(room as u64))?;
        let whole = last.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        last.truncate(whole);
        let missing = unsent - whole as u64;
        if missing > 0 {
            last.extend_from_slice(line(missing).as_bytes());
        }
        Ok((last, missing))
    }

    fn cut_sent(&mut self) {
        let until = self.offset.saturating_sub(KEPT_BYTES);
        if until >= self.kept_from + STEP_BYTES {
            cut(self.file, self.kept_from, until);
            self.kept_from = until;
        }
    }

    /// So many of the bytes that come next.
    fn read(&self, wanted: u64) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; usize::try_from(wanted).expect("a piece is small")];
        // A job can cut its own output short while we read.
        let read = self.file.read_at(&mut piece, self.offset)?;
        piece.truncate(read);
        Ok(piece)
    }

    /// Waits, but not past the end of the job: from then on the clock runs against us.
    async fn rest(&mut self, at_most: Duration) {
        if *self.stage.borrow() == Stage::Over {
            return sleep(at_most).await;
        }
        tokio::select! {
            () = sleep(at_most) => {}
            // Fails only if nobody can say any more that the job ended; then nobody waits for us
            // either.
            _ = self.stage.changed() => {}
        }
    }
}

/// Cuts off what a job writes beyond what anybody takes, for as long as it is not dropped. One byte of it stays, so that
/// the next agent knows that there was more. Jobs append: their next line comes after what is left.
async fn cut_excess(file: &File, bytes_max: u64) -> io::Error {
    loop {
        sleep(LOOK_EVERY).await;
        let cut = match file.metadata() {
            Ok(found) if found.len() >= bytes_max + STEP_BYTES => file.set_len(bytes_max + 1),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = cut {
            return error;
        }
    }
}

/// Gives the space of these bytes back to the disk; every other byte stays where it is.
fn cut(file: &File, from: u64, until: u64) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if let Err(error) = fallocate(file, flags, from, until - from) {
        // Then the file is as large as it would have been.
        tracing::debug!(%error, "this disk takes no space back from within a file");
    }
}

/// Where the file begins to have something: an earlier agent may have cut what the server has.
fn first_byte(file: &File) -> u64 {
    match seek(file, SeekFrom::Data(0)) {
        Ok(offset) => offset,
        // Nothing at all, or nothing left.
        Err(rustix::io::Errno::NXIO) => file.metadata().map_or(0, |metadata| metadata.len()),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn what_was_waited_for_space_does_not_count_against_a_server_that_fails_once() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut waited = Waited::nothing(began);
        assert_eq!(waited.add(true, at(20)), Duration::from_secs(20));
        assert_eq!(waited.add(false, at(21)), Duration::from_secs(1), "not stuck yet");
        assert_eq!(waited.add(true, at(30)), Duration::from_secs(29));
        // Neither goes on for ever when they take turns.
        assert_eq!(waited.add(false, at(40)), Duration::from_secs(11));
    }

    #[test]
    fn space_that_becomes_free_slowly_is_not_waited_for_any_longer() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut waited = Waited::nothing(began);
        assert_eq!(waited.add(false, at(9)), Duration::from_secs(9));
        assert_eq!(waited.add(true, at(19)), Duration::from_secs(10));
        waited.go_on(at(21));
        assert_eq!(waited.add(true, at(30)), Duration::from_secs(21), "with the wait before");
        assert_eq!(waited.add(false, at(31)), Duration::from_secs(1), "it was not stuck");
        // Sending is no waiting.
        waited.go_on(at(32));
        waited.go_on(at(90));
        assert_eq!(waited.add(true, at(91)), Duration::from_secs(22));
    }

    #[test]
    fn what_is_cut_takes_no_space_and_moves_nothing() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(first_byte(&file), 0);
        let written: Vec<u8> = (0..4 * STEP_BYTES).map(|index| (index % 251) as u8 + 1).collect();
        file.write_all_at(&written, 0).unwrap();
        file.sync_all().unwrap();
        let before = file.metadata().unwrap();
        cut(&file, 0, 2 * STEP_BYTES);
        let after = file.metadata().unwrap();
        assert_eq!(before.len(), after.len());
        assert!(
            after.blocks() <= before.blocks() / 2 + 16,
            "{} {}",
            before.blocks(),
            after.blocks()
        );
        assert_eq!(first_byte(&file), 2 * STEP_BYTES);
        let mut kept = vec![0; written.len() / 2];
        file.read_exact_at(&mut kept, 2 * STEP_BYTES).unwrap();
        assert!(kept == written[written.len() / 2..]);
    }
}
