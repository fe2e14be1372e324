//! The log files of a server: rotated by size, and without slowing the server down.
//!
//! Logging only adds a line to a queue in memory; a single thread writes. While the disk accepts no writes, the queue
//! keeps the newest lines, and the file later says how many are missing. The usual libraries rotate by time, drop the
//! newest lines, or make the logging thread wait for the disk.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use crate::output;

/// The maximum size of the queue. With lines of 250 bytes, it holds some 16,000 lines.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// The pause before writing is tried again after an error.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Only the owner may read the log, because it contains names and addresses.
const ONLY_OWNER: u32 = 0o600;

/// The path of the log, and how much of it is kept.
#[derive(Debug, Clone)]
pub struct LogTarget {
    pub path: PathBuf,
    pub bytes_max: u64,
    /// Including the current file.
    pub files_max: u64,
}

/// The sender of lines. Cheap to clone.
#[derive(Clone)]
pub struct LogFile {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Since the last successful write.
    dropped: u64,
    /// Whether the thread is writing lines that it took from the queue.
    is_writing: bool,
}

impl Queue {
    fn push(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.lines.push_back(line);
        self.shrink();
    }

    /// Returns lines that could not be written to the front: they are older than all others.
    fn put_back(&mut self, lines: VecDeque<Vec<u8>>) {
        self.bytes += lines.iter().map(Vec::len).sum::<usize>();
        for line in lines.into_iter().rev() {
            self.lines.push_front(line);
        }
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.bytes > WAITING_BYTES_MAX
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= oldest.len();
            self.dropped += 1;
        }
    }

    fn take(&mut self) -> VecDeque<Vec<u8>> {
        self.bytes = 0;
        std::mem::take(&mut self.lines)
    }
}

impl LogFile {
    /// Fails if the file cannot be written and waiting would not help.
    pub fn open(place: LogTarget) -> io::Result<LogFile> {
        let mut files = Files { place, current: None };
        files.remove_surplus();
        match files.open() {
            Err(why) if !is_passing(&why) => return Err(why),
            Ok(()) | Err(_) => {}
        }
        let shared = Arc::new(Shared::default());
        let log = LogFile { shared: Arc::clone(&shared) };
        std::thread::Builder::new().name("log".to_owned()).spawn(move || shared.write_to(files))?;
        Ok(log)
    }

    /// Waits until everything is written, up to a time limit.
    pub fn flush(&self, within: Duration) {
        let queue = self.shared.lock();
        let is_busy = |queue: &mut Queue| queue.is_writing || !queue.lines.is_empty();
        let waited = self.shared.changed.wait_timeout_while(queue, within, is_busy);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_to(&self, mut files: Files) {
        let mut is_well = true;
        loop {
            let mut lines = self.next();
            let written = files.write(&mut lines);
            let mut queue = self.lock();
            queue.is_writing = false;
            let Err(why) = written else {
                let dropped = std::mem::take(&mut queue.dropped);
                self.changed.notify_all();
                drop(queue);
                is_well = true;
                if dropped > 0 {
                    tracing::warn!(
                        dropped,
                        "lines are missing from this log, because it could not be written for a while"
                    );
                }
                continue;
            };
            queue.put_back(lines);
            drop(queue);
            if std::mem::take(&mut is_well) {
                let path = files.place.path.display();
                output::say(&format!(
                    "cannot write the log {path}: {why}; the newest lines are kept in memory until it can be written"
                ));
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }

    fn next(&self) -> VecDeque<Vec<u8>> {
        let queue = self.lock();
        let wait = self.changed.wait_while(queue, |queue| queue.lines.is_empty());
        let mut queue = wait.unwrap_or_else(PoisonError::into_inner);
        queue.is_writing = true;
        queue.take()
    }
}

/// One line that is being composed.
pub struct Line<'a> {
    log: &'a LogFile,
    text: Vec<u8>,
}

impl Write for Line<'_> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if !self.text.is_empty() {
            self.log.shared.lock().push(std::mem::take(&mut self.text));
            self.log.shared.changed.notify_all();
        }
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { log: self, text: Vec::new() }
    }
}

/// A user who owns the file or may write to it could change it, or read names and addresses from it.
fn check_ours(path: &Path, found: &std::fs::Metadata) -> io::Result<()> {
    let (owner, us) = (found.uid(), rustix::process::geteuid().as_raw());
    let refused = |what: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    if owner != us {
        return refused(format!(
            "it belongs to user {owner}, who could read and change it; change its owner to user {us}, who runs this (chown {us} \
             {}), or choose another file with log-file",
            path.display()
        ));
    }
    if found.mode() & 0o022 != 0 {
        return refused(format!(
            "other users may write to it (mode {:04o}); check its content, then run: chmod go-w {}",
            found.mode() & 0o7777,
            path.display()
        ));
    }
    Ok(())
}

/// Whether the error may go away: a full or read-only disk may be repaired.
fn is_passing(why: &io::Error) -> bool {
    let kinds = [
        io::ErrorKind::StorageFull,
        io::ErrorKind::QuotaExceeded,
        io::ErrorKind::ReadOnlyFilesystem,
    ];
    kinds.contains(&why.kind())
}

/// `LOG`, and the older files `LOG.1` to `LOG.n`.
struct Files {
    place: LogTarget,
    current: Option<Current>,
}

struct Current {
    file: File,
    bytes: u64,
    /// Device and inode, because the file may be moved or removed by others.
    identity: (u64, u64),
}

impl Files {
    /// Writes whole lines or none, and removes the written lines from the list.
    fn write(&mut self, lines: &mut VecDeque<Vec<u8>>) -> io::Result<()> {
        while let Some(first) = lines.front() {
            let first = first.len() as u64;
            self.open()?;
            let bytes = self.current.as_ref().map_or(0, |current| current.bytes);
            if bytes > 0 && bytes + first > self.place.bytes_max {
                self.rotate()?;
                continue;
            }
            let room = self.place.bytes_max.saturating_sub(bytes);
            let (mut count, mut piece) = (0, Vec::new());
            for line in lines.iter() {
                if count > 0 && (piece.len() + line.len()) as u64 > room {
                    break;
                }
                piece.extend_from_slice(line);
                count += 1;
            }
            self.append(&piece)?;
            lines.drain(..count);
        }
        Ok(())
    }

    fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        let current = self.current.as_mut().expect("it was opened");
        if let Err(why) = current.file.write_all(piece) {
            // Half a line would be joined with the next one.
            let _ = current.file.set_len(current.bytes);
            self.current = None;
            return Err(why);
        }
        current.bytes += piece.len() as u64;
        Ok(())
    }

    /// Opens the file, unless it is open and still has its path.
    fn open(&mut self) -> io::Result<()> {
        let path = &self.place.path;
        if let Some(current) = &self.current {
            let found = std::fs::symlink_metadata(path);
            if found.is_ok_and(|found| (found.dev(), found.ino()) == current.identity) {
                return Ok(());
            }
        }
        self.current = None;
        if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a plain file; choose another, or remove log-file to log to standard error",
            ));
        }
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(ONLY_OWNER);
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(path)?;
        let found = file.metadata()?;
        check_ours(path, &found)?;
        let identity = (found.dev(), found.ino());
        self.current = Some(Current { file, bytes: found.len(), identity });
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.current = None;
        for number in (0..self.place.files_max - 1).rev() {
            match std::fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
                _ => {}
            }
        }
        Ok(())
    }

    /// Deletes files from a time when more were kept.
    fn remove_surplus(&self) {
        let mut numbers = self.place.files_max..;
        while numbers
            .next()
            .is_some_and(|number| std::fs::remove_file(self.numbered(number)).is_ok())
        {}
    }

    fn numbered(&self, number: u64) -> PathBuf {
        if number == 0 {
            return self.place.path.clone();
        }
        let mut name = self.place.path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        Path::new(&name).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path, bytes_max: u64, files_max: u64) -> Files {
        Files { place: LogTarget { path: folder.join("log"), bytes_max, files_max }, current: None }
    }

    fn write(files: &mut Files, numbers: std::ops::Range<u32>) {
        let mut lines = numbers.map(|number| format!("line {number:04}\n").into_bytes()).collect();
        files.write(&mut lines).expect("there is room");
        assert!(lines.is_empty());
    }

    fn text(folder: &Path, name: &str) -> String {
        std::fs::read_to_string(folder.join(name)).unwrap_or_default()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("ours").flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_rotated_by_size_and_the_newest_lines_stay() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path();
        // Ten lines per file.
        let mut files = files(folder, 100, 3);
        write(&mut files, 0..7);
        write(&mut files, 7..95);
        assert_eq!(names(folder), ["log", "log.1", "log.2"]);
        let all = ["log.2", "log.1", "log"].map(|name| text(folder, name)).concat();
        let wanted: String = (70..95).map(|number| format!("line {number:04}\n")).collect();
        assert_eq!(all, wanted);
        for name in names(folder) {
            assert!(text(folder, &name).len() <= 100, "{name}");
        }
        // The next start appends, and may keep fewer files.
        let mut files = self::files(folder, 100, 2);
        files.remove_surplus();
        write(&mut files, 95..97);
        assert_eq!(names(folder), ["log", "log.1"]);
        assert!(text(folder, "log").ends_with("line 0094\nline 0095\nline 0096\n"));
    }

    #[test]
    fn a_line_that_is_larger_than_a_file_is_written_all_the_same() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut files = files(dir.path(), 5, 2);
        write(&mut files, 0..2);
        assert_eq!(text(dir.path(), "log"), "line 0001\n");
        assert_eq!(text(dir.path(), "log.1"), "line 0000\n");
    }

    #[test]
    fn a_file_that_somebody_moved_away_is_made_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut files = files(dir.path(), 100, 2);
        write(&mut files, 0..1);
        std::fs::rename(dir.path().join("log"), dir.path().join("theirs")).expect("ours");
        write(&mut files, 1..2);
        assert_eq!(
            (text(dir.path(), "theirs"), text(dir.path(), "log")),
            ("line 0000\n".into(), "line 0001\n".into())
        );
        let mode = std::fs::metadata(dir.path().join("log")).expect("it is there").mode();
        assert_eq!(mode & 0o777, ONLY_OWNER);
    }

    #[test]
    fn links_and_folders_are_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let place =
            |name: &str| LogTarget { path: dir.path().join(name), bytes_max: 100, files_max: 2 };
        std::os::unix::fs::symlink("elsewhere", dir.path().join("link")).expect("ours");
        std::fs::create_dir(dir.path().join("folder")).expect("ours");
        for name in ["link", "folder", "missing/log"] {
            assert!(LogFile::open(place(name)).is_err(), "{name}");
        }
        assert!(!dir.path().join("elsewhere").exists());
    }

    #[test]
    fn a_file_of_others_or_open_to_others_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("log");
        let open = || LogFile::open(LogTarget { path: path.clone(), bytes_max: 100, files_max: 2 });
        std::fs::write(&path, "").expect("ours");
        let chmod = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("ours");
        };
        for (mode, is_good) in [(0o600, true), (0o644, true), (0o620, false), (0o666, false)] {
            chmod(mode);
            let said = open().map(drop).map_err(|why| why.to_string());
            assert_eq!(said.is_ok(), is_good, "{mode:o}: {said:?}");
            assert!(said.err().is_none_or(|said| said.contains("chmod go-w")));
        }
        if !rustix::process::geteuid().is_root() {
            return eprintln!("not root: only root can give a file away");
        }
        chmod(0o600);
        std::os::unix::fs::chown(&path, Some(12_345), None).expect("we are root");
        let refused = open().map(drop).expect_err("it is not ours").to_string();
        assert!(
            refused.contains("belongs to user 12345") && refused.contains("chown 0"),
            "{refused}"
        );
    }

    #[test]
    fn a_queue_without_a_disk_keeps_the_newest_lines() {
        let mut queue = Queue::default();
        let line = |number: u32| format!("{number:0>1000}").into_bytes();
        for number in 0..5_000 {
            queue.push(line(number));
        }
        let taken = queue.take();
        queue.push(line(5_000));
        queue.put_back(taken);
        assert!(queue.bytes <= WAITING_BYTES_MAX);
        let kept = u64::try_from(queue.lines.len()).expect("a few");
        assert_eq!(kept + queue.dropped, 5_001);
        assert_eq!(queue.lines.back(), Some(&line(5_000)));
        assert_eq!(queue.lines.front(), Some(&line(u32::try_from(queue.dropped).expect("a few"))));
    }
}
