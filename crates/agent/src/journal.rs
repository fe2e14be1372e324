//! What the agent must not forget: one JSON record per line, written before anything that follows from it.
//!
//! A journal outlives its agent but not its host: a power cut ends the node and everything that it ran. Within one boot
//! the page cache outlives every process, so nothing waits for the disk. The first line names the boot, and an agent
//! does not continue a journal of another boot, because anything may be missing from it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use muster_core::agent::Record;
use muster_core::ids::Epoch;
use rustix::fs::FallocateFlags;
use serde::{Deserialize, Serialize};

/// A journal longer than this is rewritten as soon as nothing in it is still owed to the server. A node that exists for
/// years runs any number of jobs.
const LENGTH_TO_COMPACT: u64 = 256 * 1024;
/// Allocated when the journal is created, so that an agent can continue to write it on a disk that others have filled.
const RESERVED: u64 = 4 * LENGTH_TO_COMPACT;

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    /// The kernel's id of this boot.
    boot: Box<str>,
    /// Opened by the first record.
    file: Option<File>,
    length: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot read or write the journal {path}")]
    Io { path: PathBuf, source: io::Error },
    #[error("the journal {path} is damaged at line {line}")]
    Damaged { path: PathBuf, line: usize, source: serde_json::Error },
    #[error(
        "the journal {path} is from an earlier boot: the host went down, and this node with it"
    )]
    OtherBoot { path: PathBuf },
}

#[derive(Serialize, Deserialize)]
enum First {
    Boot(Box<str>),
}

impl Journal {
    /// Opens an existing journal and reads it back. An incomplete last line was being written when the agent died;
    /// nothing followed from it yet, so it is cut off.
    pub(crate) fn open(path: PathBuf, boot: &str) -> Result<(Journal, Vec<Record>), JournalError> {
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(JournalError::Io { path, source }),
        };
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut lines = text[..whole].split_inclusive(|byte| *byte == b'\n').enumerate();
        if let Some((_, first)) = lines.next() {
            match serde_json::from_slice(first) {
                Ok(First::Boot(written)) if *written == *boot => {}
                _ => return Err(JournalError::OtherBoot { path }),
            }
        }
        let mut records = Vec::new();
        for (index, line) in lines {
            let record = serde_json::from_slice(line).map_err(|source| JournalError::Damaged {
                path: path.clone(),
                line: index + 1,
                source,
            })?;
            records.push(record);
        }
        let journal = Journal { path, boot: boot.into(), file: None, length: whole as u64 };
        if whole < text.len() {
            journal.cut(whole as u64).map_err(|source| journal.failed(source))?;
        }
        Ok((journal, records))
    }

    /// Appends a record. When this returns, the record outlives us.
    pub(crate) fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        self.try_append(record).map_err(|source| self.failed(source))
    }

    /// Starts a new journal with only the floor, if it has grown long. Only for a node that owes the server nothing. If
    /// this fails, the long journal is just as good.
    pub(crate) fn compact(&mut self, floor: Epoch) {
        if self.length >= LENGTH_TO_COMPACT
            && let Err(error) = self.try_compact(floor)
        {
            tracing::warn!(%error, "cannot shorten the journal");
        }
    }

    fn try_append(&mut self, record: &Record) -> io::Result<()> {
        // A single write, so that a crash damages at most this line.
        let mut text = if self.length == 0 { self.first_line()? } else { Vec::new() };
        text.extend(line_of(record)?);
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(open_for_append(&self.path)?),
        };
        file.write_all(&text)?;
        self.length += text.len() as u64;
        Ok(())
    }

    fn try_compact(&mut self, floor: Epoch) -> io::Result<()> {
        let temporary = self.path.with_extension("new");
        let mut text = self.first_line()?;
        text.extend(line_of(&Record::Floor(floor))?);
        std::fs::write(&temporary, &text)?;
        std::fs::rename(&temporary, &self.path)?;
        self.file = None;
        self.length = text.len() as u64;
        Ok(())
    }

    fn first_line(&self) -> io::Result<Vec<u8>> {
        line_of(&First::Boot(self.boot.clone()))
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.set_len(length)
    }

    fn failed(&self, source: io::Error) -> JournalError {
        JournalError::Io { path: self.path.clone(), source }
    }
}

fn line_of(record: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    Ok(line)
}

fn open_for_append(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    // Not every file system can reserve space; the journal is then written as far as there is space.
    let _ = rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, RESERVED);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::model::Exit;

    fn path() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        (dir, path)
    }

    fn ended(epoch: u64) -> Record {
        Record::Ended { epoch: Epoch(epoch), exit: Exit::Code(3) }
    }

    const BOOT: &str = "first";

    fn read(path: &Path) -> Vec<Record> {
        Journal::open(path.to_path_buf(), BOOT).unwrap().1
    }

    #[test]
    fn records_come_back_in_order_and_a_torn_one_does_not() {
        let (_dir, path) = path();
        let (mut journal, records) = Journal::open(path.clone(), BOOT).unwrap();
        assert_eq!(records, []);
        assert!(!path.exists());
        let all = [Record::Took(Epoch(1)), ended(1), Record::Forgotten(Epoch(1))];
        for record in &all {
            journal.append(record).unwrap();
        }
        let whole = std::fs::read(&path).unwrap();
        // Cut at every byte: complete records come back, and the journal continues after them.
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (mut journal, records) = Journal::open(path.clone(), BOOT).unwrap();
            assert_eq!(records, all[..records.len()]);
            journal.append(&Record::Floor(Epoch(9))).unwrap();
            let again = read(&path);
            assert_eq!(again.len(), records.len() + 1);
            assert_eq!(again.last(), Some(&Record::Floor(Epoch(9))));
        }
    }

    #[test]
    fn damage_before_the_end_is_refused() {
        let (_dir, path) = path();
        let text = "{\"Boot\":\"first\"}\n{\"Took\":1}\n{\"To\n{\"Forgotten\":1}\n";
        std::fs::write(&path, text).unwrap();
        let error = Journal::open(path, BOOT).unwrap_err();
        assert!(matches!(error, JournalError::Damaged { line: 3, .. }), "{error}");
    }

    #[test]
    fn another_boots_is_refused() {
        let (_dir, path) = path();
        Journal::open(path.clone(), BOOT).unwrap().0.append(&ended(1)).unwrap();
        let error = Journal::open(path.clone(), "second").unwrap_err();
        assert!(matches!(error, JournalError::OtherBoot { .. }), "{error}");
        // What a power cut may leave behind.
        for text in [&b"\0\0\0\0\n"[..], b"{\"Took\":1}\n"] {
            std::fs::write(&path, text).unwrap();
            let error = Journal::open(path.clone(), BOOT).unwrap_err();
            assert!(matches!(error, JournalError::OtherBoot { .. }), "{error}");
        }
    }

    #[test]
    fn a_long_journal_starts_anew() {
        let (_dir, path) = path();
        let (mut journal, _) = Journal::open(path.clone(), BOOT).unwrap();
        journal.append(&Record::Took(Epoch(1))).unwrap();
        journal.compact(Epoch(1));
        assert_eq!(read(&path), [Record::Took(Epoch(1))]);
        journal.length = LENGTH_TO_COMPACT;
        journal.compact(Epoch(7));
        journal.append(&ended(8)).unwrap();
        assert_eq!(read(&path), [Record::Floor(Epoch(7)), ended(8)]);
    }

    const DISK: &str = "MUSTER_JOURNAL_DISK";

    #[test]
    fn a_disk_that_others_have_filled_does_not_stop_it() {
        let namespaces = std::process::Command::new("unshare").args(["-rm", "true"]).status();
        if !namespaces.is_ok_and(|status| status.success()) {
            return muster_testing::skip_or_fail("no user namespaces here");
        }
        let folder = tempfile::tempdir().unwrap();
        let script = format!("mount -t tmpfs -o size=2m none \"${DISK}\" && exec \"$@\"");
        let output = std::process::Command::new("unshare")
            .args(["-rm", "sh", "-c", &script, "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "journal::tests::on_the_full_disk", "--nocapture"])
            .env(DISK, folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("the journal continued"), "{said}");
    }

    /// The inner part. As an ordinary test it does nothing.
    #[test]
    fn on_the_full_disk() {
        let Ok(disk) = std::env::var(DISK) else { return };
        let path = Path::new(&disk).join("journal");
        let (mut journal, _) = Journal::open(path.clone(), BOOT).unwrap();
        journal.append(&Record::Took(Epoch(1))).unwrap();
        let full = std::fs::write(Path::new(&disk).join("ballast"), vec![1; 4 << 20]);
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
        let mut last = 1;
        while journal.length < 2 * LENGTH_TO_COMPACT {
            last += 1;
            journal.append(&ended(last)).unwrap();
        }
        journal.compact(Epoch(last));
        journal.append(&ended(last + 1)).unwrap();
        assert_eq!(read(&path).last(), Some(&ended(last + 1)));
        println!("the journal continued");
    }
}
