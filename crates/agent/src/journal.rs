//! What the agent must not forget: one JSON record a line, on disk before anything that follows
//! from it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use muster_core::agent::Record;
use muster_core::ids::Epoch;

/// Beyond this the journal is written anew as soon as nothing in it is still owed. A node that
/// lives for years runs any number of jobs.
const LENGTH_TO_COMPACT: u64 = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    /// Opened by the first record: a node that never runs anything need not wait for the disk.
    file: Option<File>,
    length: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot read or write the journal {path}")]
    Io { path: PathBuf, source: io::Error },
    #[error("the journal {path} is damaged at line {line}")]
    Damaged { path: PathBuf, line: usize, source: serde_json::Error },
}

impl Journal {
    /// Opens what is there and reads it back. A last line without its end was being written when
    /// the agent or the machine died: nothing followed from it yet, so it is cut off.
    pub(crate) fn open(path: PathBuf) -> Result<(Journal, Vec<Record>), JournalError> {
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(JournalError::Io { path, source }),
        };
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut records = Vec::new();
        for (index, line) in text[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
            let record = serde_json::from_slice(line).map_err(|source| JournalError::Damaged {
                path: path.clone(),
                line: index + 1,
                source,
            })?;
            records.push(record);
        }
        let journal = Journal { path, file: None, length: whole as u64 };
        if whole < text.len() {
            journal.cut(whole as u64).map_err(|source| journal.failed(source))?;
        }
        Ok((journal, records))
    }

    /// Returns when the record is on disk.
    pub(crate) fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        self.try_append(record).map_err(|source| self.failed(source))
    }

    /// Starts anew with the floor alone, if the journal has grown long. Only for a node that owes
    /// nothing.
    pub(crate) fn compact(&mut self, floor: Epoch) -> Result<(), JournalError> {
        if self.length < LENGTH_TO_COMPACT {
            return Ok(());
        }
        self.try_compact(floor).map_err(|source| self.failed(source))
    }

    fn try_append(&mut self, record: &Record) -> io::Result<()> {
        let line = line_of(record)?;
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(open_for_append(&self.path)?),
        };
        // One write, so that a crash tears at most this line.
        file.write_all(&line)?;
        // A new file's name is committed with its content (ext4, xfs, btrfs); to sync its folder as
        // well would cost the first job of every node another turn of the disk.
        file.sync_data()?;
        self.length += line.len() as u64;
        Ok(())
    }

    fn try_compact(&mut self, floor: Epoch) -> io::Result<()> {
        let temporary = self.path.with_extension("new");
        let line = line_of(&Record::Floor(floor))?;
        let _ = std::fs::remove_file(&temporary);
        let mut file = open_for_append(&temporary)?;
        file.write_all(&line)?;
        file.sync_data()?;
        std::fs::rename(&temporary, &self.path)?;
        sync_parent(&self.path)?;
        self.file = None;
        self.length = line.len() as u64;
        Ok(())
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.set_len(length)?;
        file.sync_data()
    }

    fn failed(&self, source: io::Error) -> JournalError {
        JournalError::Io { path: self.path.clone(), source }
    }
}

fn line_of(record: &Record) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    Ok(line)
}

fn open_for_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// A new name for an old file is on disk only when its folder is.
fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_data())
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

    #[test]
    fn records_come_back_in_order_and_a_torn_one_does_not() {
        let (_dir, path) = path();
        let (mut journal, records) = Journal::open(path.clone()).unwrap();
        assert_eq!(records, []);
        assert!(!path.exists());
        let all = [Record::Took(Epoch(1)), ended(1), Record::Forgotten(Epoch(1))];
        for record in &all {
            journal.append(record).unwrap();
        }
        let whole = std::fs::read(&path).unwrap();
        // Torn at every byte: what is whole comes back, and the journal goes on after it.
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (mut journal, records) = Journal::open(path.clone()).unwrap();
            assert_eq!(records, all[..records.len()]);
            journal.append(&Record::Floor(Epoch(9))).unwrap();
            let (_, again) = Journal::open(path.clone()).unwrap();
            assert_eq!(again.len(), records.len() + 1);
            assert_eq!(again.last(), Some(&Record::Floor(Epoch(9))));
        }
    }

    #[test]
    fn damage_before_the_end_is_refused() {
        let (_dir, path) = path();
        std::fs::write(&path, "{\"Took\":1}\n{\"To\n{\"Forgotten\":1}\n").unwrap();
        let error = Journal::open(path).unwrap_err();
        assert!(matches!(error, JournalError::Damaged { line: 2, .. }), "{error}");
    }

    #[test]
    fn a_long_journal_starts_anew() {
        let (_dir, path) = path();
        std::fs::write(&path, "{\"Took\":1}\n").unwrap();
        let (mut journal, _) = Journal::open(path.clone()).unwrap();
        journal.compact(Epoch(1)).unwrap();
        assert_eq!(Journal::open(path.clone()).unwrap().1, [Record::Took(Epoch(1))]);
        journal.length = LENGTH_TO_COMPACT;
        journal.compact(Epoch(7)).unwrap();
        journal.append(&ended(8)).unwrap();
        assert_eq!(Journal::open(path).unwrap().1, [Record::Floor(Epoch(7)), ended(8)]);
    }
}
