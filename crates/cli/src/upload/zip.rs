//! Packs a folder into one file, byte for byte like Python's `zipfile`: without compression, and with times in UTC. If
//! Python uses another time zone, the bytes differ, and so does the hash of the file.

use std::fs::{self, File};
use std::io::{BufWriter, Read as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::failure::{CliResult, Failure, quoted};

/// The maximum size of an archive: larger ones need another format.
const BYTES_MAX: u64 = 2 << 30;
const FILES_MAX: usize = 65_000;
/// The time from 1970 to 1980, when zip's time begins.
const EPOCH_S: i64 = 315_532_800;
const DAY_S: i64 = 86_400;

struct Entry {
    name: String,
    crc: u32,
    bytes: u32,
    time: u16,
    date: u16,
    attributes: u32,
    at: u32,
}

/// `files` are the sorted paths below `folder`. Their names in the archive start with the name of the folder.
pub fn write(target: &Path, folder: &Path, files: &[String]) -> CliResult {
    let failed = |path: &Path, why: &dyn std::fmt::Display| {
        Failure::refused(format!("cannot pack {}: {why}", quoted(&path.display().to_string())))
    };
    if files.len() > FILES_MAX {
        let why = format!("it has {} files; the limit is {FILES_MAX}", files.len());
        return Err(failed(folder, &why));
    }
    let top = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let out = File::create(target).map_err(|why| failed(target, &why))?;
    let mut out = Out { file: BufWriter::new(out), at: 0 };
    let mut entries = Vec::new();
    let paths = files.iter().map(|path| (folder.join(path), format!("{top}/{path}")));
    for (path, name) in [(folder.to_owned(), format!("{top}/"))].into_iter().chain(paths) {
        let about = fs::metadata(&path).map_err(|why| failed(&path, &why))?;
        let mut content = Vec::new();
        if about.is_file() {
            let left = BYTES_MAX.saturating_sub(out.at);
            let file = File::open(&path).map_err(|why| failed(&path, &why))?;
            file.take(left + 1).read_to_end(&mut content).map_err(|why| failed(&path, &why))?;
            if content.len() as u64 > left {
                let why = format!("it has more than {BYTES_MAX} bytes; pack it yourself");
                return Err(failed(folder, &why));
            }
        }
        let (date, time) = stamp(about.mtime());
        let is_folder = u32::from(about.is_dir()) << 4;
        let entry = Entry {
            name,
            crc: crc(&content),
            bytes: u32::try_from(content.len()).unwrap_or(u32::MAX),
            time,
            date,
            attributes: (about.mode() & 0xffff) << 16 | is_folder,
            at: u32::try_from(out.at).unwrap_or(u32::MAX),
        };
        let written = out.header(&entry).and_then(|()| out.put(&content));
        written.map_err(|why| failed(target, &why))?;
        entries.push(entry);
    }
    out.finish(&entries).map_err(|why| failed(target, &why))
}

struct Out {
    file: BufWriter<File>,
    at: u64,
}

impl Out {
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.at += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    fn shorts(&mut self, all: &[u16]) -> std::io::Result<()> {
        all.iter().try_for_each(|one| self.put(&one.to_le_bytes()))
    }

    fn longs(&mut self, all: &[u32]) -> std::io::Result<()> {
        all.iter().try_for_each(|one| self.put(&one.to_le_bytes()))
    }

    /// The part that both headers of an entry have.
    fn about(&mut self, entry: &Entry) -> std::io::Result<()> {
        let flags = if entry.name.is_ascii() { 0 } else { 0x800 };
        // Version 2.0 of the format, which supports folders; stored without compression.
        self.shorts(&[20, flags, 0, entry.time, entry.date])?;
        self.longs(&[entry.crc, entry.bytes, entry.bytes])?;
        self.shorts(&[length(&entry.name), 0])
    }

    fn header(&mut self, entry: &Entry) -> std::io::Result<()> {
        self.put(b"PK\x03\x04")?;
        self.about(entry)?;
        self.put(entry.name.as_bytes())
    }

    fn finish(mut self, entries: &[Entry]) -> std::io::Result<()> {
        let start = self.at;
        for entry in entries {
            self.put(b"PK\x01\x02")?;
            // Created on Unix.
            self.shorts(&[3 << 8 | 20])?;
            self.about(entry)?;
            self.shorts(&[0, 0, 0])?;
            self.longs(&[entry.attributes, entry.at])?;
            self.put(entry.name.as_bytes())?;
        }
        let count = u16::try_from(entries.len()).unwrap_or(u16::MAX);
        let long = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let bytes = long(self.at - start);
        self.put(b"PK\x05\x06")?;
        self.shorts(&[0, 0, count, count])?;
        self.longs(&[bytes, long(start)])?;
        self.shorts(&[0])?;
        self.file.flush()
    }
}

fn length(name: &str) -> u16 {
    u16::try_from(name.len()).unwrap_or(u16::MAX)
}

/// Date and time in steps of two seconds, from 1980 to 2107.
fn stamp(unix_s: i64) -> (u16, u16) {
    let seconds = unix_s.max(EPOCH_S);
    let (days, rest) = (seconds.div_euclid(DAY_S), seconds.rem_euclid(DAY_S));
    let (year, month, day) = civil(days);
    let short = |number: i64| u16::try_from(number).unwrap_or(0);
    let date = short((year - 1980).min(127) << 9 | month << 5 | day);
    (date, short((rest / 3_600) << 11 | (rest / 60 % 60) << 5 | (rest % 60 / 2)))
}

/// The calendar date for a number of days since 1970. Years start in March, so that the leap day is the last one.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let is_next = i64::from(month >= 10);
    (year + era * 400 + is_next, if month < 10 { month + 3 } else { month - 9 }, day)
}

/// The CRC-32 of zip and gzip.
fn crc(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    let add = |crc: u32, byte: &u8| TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ crc >> 8;
    !bytes.iter().fold(!0, add)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut number = 0;
    while number < 256 {
        let mut left = number as u32;
        let mut bit = 0;
        while bit < 8 {
            left = if left & 1 == 1 { 0xedb8_8320 ^ left >> 1 } else { left >> 1 };
            bit += 1;
        }
        table[number] = left;
        number += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_format() {
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc(b""), 0);
        // 2024-02-29 12:34:57, and a time before 1980.
        assert_eq!(
            stamp(1_709_210_097),
            ((2024 - 1980) << 9 | 2 << 5 | 29, 12 << 11 | 34 << 5 | 28)
        );
        assert_eq!(stamp(0), (1 << 5 | 1, 0));
    }
}
