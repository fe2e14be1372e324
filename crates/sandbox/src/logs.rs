//! The logs of agents. Only the end of a log is kept, also after its node has been deleted.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The size of the end that is kept.
const BYTES_MAX: usize = 1 << 20;
/// How many logs of deleted nodes are kept.
const LOGS_MAX: usize = 200;

/// Opens the log of an agent, for [`append`].
pub fn open(log: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW).open(log)
}

/// Appends to a log. A log that reaches twice the size that is kept is cut first.
pub fn append(log: &File, bytes: &[u8]) -> io::Result<()> {
    let most = 2 * BYTES_MAX as u64;
    if log.metadata()?.len().saturating_add(bytes.len() as u64) > most {
        cut(log)?;
    }
    log.write_all_at(bytes, log.metadata()?.len())
}

/// Cuts a log that has reached twice the size that is kept. For a log that another process appends to: what it adds
/// meanwhile may be lost.
pub fn cut_if_long(log: &Path) -> io::Result<()> {
    let length = std::fs::symlink_metadata(log)?.len();
    if length < 2 * BYTES_MAX as u64 { Ok(()) } else { cut(&open(log)?) }
}

/// Keeps the last lines of a log. It uses no second file, for which a full disk would have no room.
fn cut(log: &File) -> io::Result<()> {
    let length = log.metadata()?.len();
    let kept = length.min(BYTES_MAX as u64);
    let mut end = vec![0; usize::try_from(kept).unwrap_or(BYTES_MAX)];
    log.read_exact_at(&mut end, length - kept)?;
    let first = end.iter().position(|byte| *byte == b'\n').map_or(0, |line| line + 1);
    log.write_all_at(&end[first..], 0)?;
    log.set_len((end.len() - first) as u64)
}

/// Moves the log of a node's agent to those of deleted nodes, and deletes the oldest of them.
pub fn keep(log: &Path, node: &str, logs: &Path) -> io::Result<()> {
    let kept = logs.join(format!("{node}.log"));
    match std::fs::symlink_metadata(log) {
        // A longer log is reduced to its end.
        Ok(found) if found.len() > BYTES_MAX as u64 => {
            std::fs::write(&kept, tail(log, BYTES_MAX)?)?
        }
        _ => none_is_fine(std::fs::rename(log, &kept))?,
    }
    drop_oldest(logs, LOGS_MAX)
}

/// Returns the end of a log, with at most this many bytes. A job can make its agent log nearly anything, so invalid
/// text is replaced and control characters are removed.
pub fn tail(log: &Path, most: usize) -> io::Result<String> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).custom_flags(libc::O_NOFOLLOW).open(log)?;
    let skipped = file.metadata()?.len().saturating_sub(most as u64);
    file.seek(io::SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes)?;
    let is_plain = |letter: &char| *letter == '\n' || !letter.is_control();
    let text: String = String::from_utf8_lossy(&bytes).chars().filter(is_plain).collect();
    // A replacement character takes more bytes than what it replaces.
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    Ok(text[from..].to_owned())
}

fn drop_oldest(logs: &Path, keep: usize) -> io::Result<()> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(logs)? {
        let entry = entry?;
        // Another deletion may have removed it just now.
        if let Ok(modified) = entry.metadata().and_then(|metadata| metadata.modified()) {
            found.push((modified, entry.path()));
        }
    }
    found.sort();
    let excess = found.len().saturating_sub(keep);
    found[..excess].iter().try_for_each(|(_, path)| none_is_fine(std::fs::remove_file(path)))
}

fn none_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_tail_is_plain_text_and_no_longer_than_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("agent.log");
        assert!(tail(&log, 8).is_err());
        for (written, shown) in [
            (&b"short\n"[..], "short\n"),
            (b"the last words", "st words"),
            (b"\x1b[1mred\x07", "[1mred"),
            (b"\xff\xff\xff", "\u{fffd}\u{fffd}"),
        ] {
            std::fs::write(&log, written).unwrap();
            assert_eq!(tail(&log, 8).unwrap(), shown);
        }
    }

    #[test]
    fn a_log_keeps_its_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.log");
        let log = open(&path).unwrap();
        let line = |number: usize| format!("{number:0>99}\n");
        for number in 0..50_000 {
            append(&log, line(number).as_bytes()).unwrap();
            assert!(log.metadata().unwrap().len() <= 2 * BYTES_MAX as u64);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.len() > BYTES_MAX - 100, "{}", text.len());
        let count = text.len() / 100;
        let last: String = (50_000 - count..50_000).map(line).collect();
        assert!(text == last, "its last {count} lines are whole and in order");

        // Text without line ends is cut anywhere.
        append(&log, &vec![b'x'; 2 * BYTES_MAX]).unwrap();
        cut_if_long(&path).unwrap();
        assert_eq!(log.metadata().unwrap().len(), BYTES_MAX as u64);
        cut_if_long(&path).unwrap();
        assert_eq!(log.metadata().unwrap().len(), BYTES_MAX as u64, "the log was cut");
        assert!(cut_if_long(&dir.path().join("none")).is_err());
    }

    #[test]
    fn the_newest_logs_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for age in 0..5 {
            let file = std::fs::File::create(dir.path().join(format!("{age}.log"))).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        drop_oldest(dir.path(), 2).unwrap();
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["0.log", "1.log"]);
        drop_oldest(dir.path(), 2).unwrap();
    }
}
