//! Sends the output of an attempt to the server, from the file that the job writes to.
//!
//! The file is authoritative: the server may restart, respond late, or report that it has less or more than we think,
//! and sending continues from where it says.
//!
//! A log must not fill the disk. What the server has is cut out of the file, except for the last part, and so is what
//! no server will ever accept; the rest keeps its position. The file is therefore as large as what has not been sent,
//! and at most as large as a log may be. A full log ends with a line that says so.
//!
//! While the server's disk is full, or the job's workspace has used up its share of it, the file here keeps what is
//! written. When the job has ended, we wait for a while. After that, the log ends with as much as the server accepts as
//! the last part of a log, and with a line that says how much is missing, and why.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use muster_core::ErrorChain;
use muster_core::agent::{LAST_LOG_BYTES_MAX, SHORT_LOG_BYTES_MAX};
use muster_core::ids::Epoch;
use reqwest::StatusCode;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::attempt::Context;
use crate::backoff::Backoff;
use crate::client::{CallError, Client, IsLast};

/// How often a running job's file is checked: output shows up within this time, in few chunks.
const LOOK_EVERY: Duration = Duration::from_millis(80);
const PIECE_MAX: u64 = 256 * 1024;
/// How much of what the server has is still kept here, in case the server loses its last part.
const KEPT_BYTES: u64 = 16 << 20;
/// Space is freed in steps of this size.
const STEP_BYTES: u64 = 1 << 20;
/// How long an ended job waits for a server that accepts nothing and does not report a full disk.
const STUCK_MAX: Duration = Duration::from_secs(10);
/// How often the server may report less than it had reported before, until we consider it broken.
const REWINDS_MAX: u32 = 64;

/// How much is sent, and how patiently.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) bytes_max: u64,
    /// How long an ended job waits for a server that has no room, before it reports what is missing. `None` means that
    /// it does not wait and reports nothing.
    pub(crate) full_waits: Option<Duration>,
    /// Whether a short log may be returned, to be sent with the next report.
    pub(crate) may_return: bool,
}

impl Bounds {
    pub(crate) fn of(context: &Context) -> Bounds {
        let full_waits = Some(context.full_server.log_waits);
        Bounds { bytes_max: context.log_bytes, full_waits, may_return: false }
    }
}

/// How far the job has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Running,
    /// Its processes have ended. Its outputs are being saved, which may add to its log.
    Ending,
    /// Nothing will be added to its log any more.
    Over,
}

/// How long an ended job has waited for a server that does not accept its log, by cause: waiting for one says nothing
/// about the other.
#[derive(Debug)]
struct Waited {
    /// The wait for space.
    full: Duration,
    /// The wait for any other reason, since the server last accepted something.
    stuck: Duration,
    /// Whether the server's last response was that there is no space.
    is_for_space: bool,
    until: Instant,
}

impl Waited {
    fn nothing(now: Instant) -> Waited {
        let none = Duration::ZERO;
        Waited { full: none, stuck: none, is_for_space: false, until: now }
    }

    /// Records that the server accepted something. The wait for space until then still counts, because space may become
    /// free byte by byte.
    fn go_on(&mut self, now: Instant) {
        if self.is_for_space {
            self.add(true, now);
        }
        *self = Waited { full: self.full, ..Waited::nothing(now) };
    }

    /// Records a failed wait until now. Returns how long it has waited for this cause in total.
    fn add(&mut self, is_full: bool, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.until, now));
        self.is_for_space = is_full;
        let waited = if is_full { &mut self.full } else { &mut self.stuck };
        *waited += passed;
        *waited
    }
}

/// Returns when the job has ended and the server has all of its output, or will never have it. A short output of which
/// nothing was sent is returned instead, if the bounds allow that.
pub(crate) async fn send_all(
    client: &Client,
    epoch: Epoch,
    path: &Path,
    bounds: Bounds,
    stage: watch::Receiver<Stage>,
) -> Option<String> {
    let sent = match File::options().read(true).write(true).open(path) {
        Ok(file) => tokio::select! {
            sent = Sending::new(client, epoch, &file, bounds, stage).run() => sent,
            error = cut_excess(&file, bounds.bytes_max) => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    };
    match sent {
        Ok(short) => return short,
        Err(Stopped::Superseded) => tracing::debug!(%epoch, "the server has given up this log"),
        Err(error) => {
            tracing::warn!(%epoch, error = %ErrorChain(&error), "the log is incomplete")
        }
    }
    None
}

#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("cannot read the log")]
    Unreadable(#[from] io::Error),
    #[error("the server has moved on")]
    Superseded,
    #[error("the server accepted nothing for {} s", STUCK_MAX.as_secs())]
    Stuck,
    #[error("the server has no room, and the last {missing} bytes are missing there: {words}")]
    ServerFull { missing: u64, words: String },
    #[error("the server keeps losing what it has")]
    Confused,
    #[error(
        "the server lost what it had from byte {next} on, but this node has it only from byte {kept_from} on"
    )]
    Lost { next: u64, kept_from: u64 },
}

/// When a log is full, and the line with which it then ends.
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
        // The job may not have ended its last line.
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
    may_return: bool,
    /// The file contains nothing before this offset any more.
    kept_from: u64,
    /// How much of the log the server has, as it last reported.
    offset: u64,
    rewinds: u32,
    backoff: Backoff,
    /// The waits since the job ended.
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
            may_return: bounds.may_return && kept_from == 0,
            kept_from,
            offset: kept_from,
            rewinds: 0,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(5)),
            waited: Waited::nothing(Instant::now()),
        }
    }

    async fn run(mut self) -> Result<Option<String>, Stopped> {
        if self.may_return {
            // A job that ends within this time probably leaves a short log.
            self.rest(LOOK_EVERY).await;
        }
        loop {
            // Read before the length, so that the length includes everything that was written before the end.
            let stage = *self.stage.borrow();
            if stage >= Stage::Ending && !std::mem::replace(&mut self.saw_end, true) {
                self.waited = Waited::nothing(Instant::now());
                self.backoff.reset();
            }
            let is_over = stage == Stage::Over;
            let length = self.sendable(is_over)?;
            let is_short =
                self.may_return && self.offset == 0 && length <= SHORT_LOG_BYTES_MAX as u64;
            if is_over && is_short && length > 0 {
                if let Ok(text) = String::from_utf8(self.read(length)?) {
                    return Ok(Some(text));
                }
                self.may_return = false;
            } else if is_short && stage == Stage::Ending {
                // Usually this takes no time.
                self.rest(LOOK_EVERY).await;
                self.may_return = *self.stage.borrow() == Stage::Over;
            } else if self.offset < length {
                self.may_return = false;
                self.send_piece(length, stage).await?;
            } else if is_over {
                return Ok(None);
            } else {
                self.rest(LOOK_EVERY).await;
            }
        }
    }

    /// Returns up to where the file may be sent. Room for the line about missing output is reserved until it is known
    /// whether anything is missing.
    fn sendable(&mut self, has_ended: bool) -> io::Result<u64> {
        let length = self.file.metadata()?.len();
        if length <= self.full.bytes_max {
            return Ok(if has_ended { length } else { length.min(self.full.line_at()) });
        }
        if !self.is_full {
            // Repeated after a restart: the same bytes in the same place.
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

    /// Waits no longer than is allowed for this error, but at least until nothing is added to the log any more.
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
                // The server reserves some room for this.
                let (last, missing) = self.last_of(missing, &words)?;
                let said = self.client.send_log(self.epoch, self.offset, last, IsLast::Yes).await;
                if let Err(error) = said {
                    tracing::warn!(error = %ErrorChain(&error), "cannot report that a log is incomplete");
                }
                Err(Stopped::ServerFull { missing, words })
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// Returns the end of a log for which there is no room: as many whole lines as fit, and a line that says how many
    /// bytes are missing, if any are.
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

    /// Reads this many of the bytes that come next.
    fn read(&self, wanted: u64) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; usize::try_from(wanted).expect("a chunk is small")];
        // A job can truncate its own output while we read.
        let read = self.file.read_at(&mut piece, self.offset)?;
        piece.truncate(read);
        Ok(piece)
    }

    /// Waits, but not past the end of the job, because from then on time is limited.
    async fn rest(&mut self, at_most: Duration) {
        if *self.stage.borrow() == Stage::Over {
            return sleep(at_most).await;
        }
        tokio::select! {
            () = sleep(at_most) => {}
            // Fails only if the sender is gone; then nothing waits for us either.
            _ = self.stage.changed() => {}
        }
    }
}

/// Cuts off what a job writes beyond the limit, until it is dropped. One byte of the excess is kept, so that the next
/// agent knows that there was more. Jobs append, so their next line comes after what is left.
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

/// Returns the space of these bytes to the disk; every other byte keeps its position.
fn cut(file: &File, from: u64, until: u64) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if let Err(error) = fallocate(file, flags, from, until - from) {
        // The file then takes as much space as it would have anyway.
        tracing::debug!(%error, "this file system cannot free space within a file");
    }
}

/// Returns where the file's contents begin: an earlier agent may have cut what the server has.
fn first_byte(file: &File) -> u64 {
    match seek(file, SeekFrom::Data(0)) {
        Ok(offset) => offset,
        // The file is empty, or everything has been cut.
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
        // Neither wait goes on forever when they alternate.
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
        // Sending does not count as waiting.
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
