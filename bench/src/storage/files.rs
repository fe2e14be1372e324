//! File transfers: a large file in parts on several connections, and many small ones.

use std::fs::{self, File};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use muster_trees::Target;
use rustix::fs::{Advice, fadvise};
use rustls::ClientConfig;

use super::line::Line;

/// The size of a block, and of a part that is fetched.
const PART_BYTES: u64 = 8 << 20;
const LINES: u64 = 4;
const SMALL_LINES: u64 = 8;
const COPY_PIECE: usize = 1 << 20;

/// The location of files on a server.
pub struct FileStore {
    pub port: u16,
    pub tls: Arc<ClientConfig>,
    /// The prefix of every name.
    pub path: String,
    /// The query that gives access, or empty.
    pub query: String,
}

impl FileStore {
    fn at(&self, name: &str, more: &str) -> String {
        let query = [more, &self.query].into_iter().filter(|part| !part.is_empty());
        let query = query.collect::<Vec<_>>().join("&");
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}/{name}{mark}{query}", self.path)
    }

    fn connect(&self) -> Result<Line> {
        Line::connect(self.port, &self.tls)
    }
}

/// Runs `work` on this many threads at once.
fn at_once(threads: u64, work: impl Fn(u64) -> Result<()> + Sync) -> Result<Duration> {
    let started = Instant::now();
    let work = &work;
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|own| scope.spawn(move || work(own))).collect();
        running.into_iter().try_for_each(|one| one.join().expect("the thread does not panic"))
    })?;
    Ok(started.elapsed())
}

pub struct Large {
    path: PathBuf,
    pub bytes: u64,
    /// Changes the content, so that the server does not have it already when it is sent again.
    sent: AtomicU64,
}

impl Large {
    pub fn new(folder: &Path, bytes: u64) -> Result<Large> {
        let path = folder.join("large");
        let mut file = File::create(&path)?;
        io::copy(&mut File::open("/dev/urandom")?.take(bytes), &mut file)?;
        file.sync_all()?;
        Ok(Large { path, bytes, sent: AtomicU64::new(0) })
    }

    /// Copies the file as `cp` does, and syncs it to disk.
    pub fn copy(&self) -> Result<Duration> {
        let to = self.path.with_extension("copy");
        let started = Instant::now();
        let (mut source, mut target) = (File::open(&self.path)?, File::create(&to)?);
        let mut piece = vec![0; COPY_PIECE];
        loop {
            match source.read(&mut piece)? {
                0 => break,
                got => target.write_all(&piece[..got])?,
            }
        }
        target.sync_all()?;
        let took = started.elapsed();
        fs::remove_file(to)?;
        Ok(took)
    }

    /// A different name for each content, because servers keep files open after serving them.
    fn name(&self) -> String {
        format!("large{}", self.sent.load(Ordering::Relaxed))
    }

    fn parts(&self) -> u64 {
        self.bytes.div_ceil(PART_BYTES)
    }

    fn part(&self, number: u64) -> (u64, u64) {
        let from = number * PART_BYTES;
        (from, PART_BYTES.min(self.bytes - from))
    }

    /// Sends blocks on several connections, and then the block list.
    pub fn upload(&self, place: &FileStore) -> Result<Duration> {
        self.rewrite()?;
        let id = |number: u64| format!("{number:08}");
        let next = AtomicU64::new(0);
        let started = Instant::now();
        at_once(LINES, |_| {
            let mut line = place.connect()?;
            let mut source = File::open(&self.path)?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.parts() {
                    return Ok(());
                }
                let (from, bytes) = self.part(number);
                source.seek(SeekFrom::Start(from))?;
                let more = format!("comp=block&blockid={}", id(number));
                line.put(&place.at(&self.name(), &more), &mut source, bytes)?;
            }
        })?;
        let names: String =
            (0..self.parts()).map(|number| format!("<Latest>{}</Latest>", id(number))).collect();
        let list = format!("<BlockList>{names}</BlockList>");
        let at = place.at(&self.name(), "comp=blocklist");
        place.connect()?.put(&at, &mut list.as_bytes(), list.len() as u64)?;
        Ok(started.elapsed())
    }

    /// For a server without blocks: as many files as there are connections. [`Self::download`] needs a single file, so
    /// the whole file is sent as well, after the parts were measured.
    pub fn upload_whole(&self, place: &FileStore) -> Result<Duration> {
        let share = self.bytes / LINES;
        let took = at_once(LINES, |own| {
            let mut source = File::open(&self.path)?;
            source.seek(SeekFrom::Start(own * share))?;
            place.connect()?.put(&place.at(&format!("part{own}"), ""), &mut source, share)
        })?;
        let mut source = File::open(&self.path)?;
        place.connect()?.put(&place.at(&self.name(), ""), &mut source, self.bytes)?;
        Ok(took)
    }

    /// Fetches parts on several connections into one file, which is synced to disk at the end.
    pub fn download(&self, place: &FileStore) -> Result<Duration> {
        let to = self.path.with_extension("down");
        let target = File::create(&to)?;
        let next = AtomicU64::new(0);
        let started = Instant::now();
        at_once(LINES, |_| {
            let mut line = place.connect()?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.parts() {
                    return Ok(());
                }
                let (from, bytes) = self.part(number);
                let mut own = File::options().write(true).open(&to)?;
                own.seek(SeekFrom::Start(from))?;
                let range = Some((from, from + bytes - 1));
                let mut own = Target::new(own, Some(bytes));
                let got = line.get(&place.at(&self.name(), ""), range, &mut own)?;
                anyhow::ensure!(got == bytes, "only {got} of {bytes} bytes were received");
            }
        })?;
        target.sync_all()?;
        let took = started.elapsed();
        anyhow::ensure!(
            is_same(&self.path, &to)?,
            "the downloaded file differs from the uploaded one"
        );
        fs::remove_file(to)?;
        Ok(took)
    }

    /// Changes every block, because sending content that the server already has is cheaper.
    fn rewrite(&self) -> Result<()> {
        let run = self.sent.fetch_add(1, Ordering::Relaxed);
        let mut file = File::options().write(true).open(&self.path)?;
        for number in 0..self.parts() {
            file.seek(SeekFrom::Start(self.part(number).0))?;
            file.write_all(&run.to_le_bytes())?;
        }
        Ok(file.sync_all()?)
    }

    /// Drops the file from the page cache, so that the next reader reads it from disk.
    pub fn forget(&self) -> Result<()> {
        let file = File::open(&self.path)?;
        file.sync_all()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    }

    pub fn remove(self) -> Result<()> {
        Ok(fs::remove_file(self.path)?)
    }
}

fn is_same(one: &Path, other: &Path) -> Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    let (mut left, mut right) = (vec![0; COPY_PIECE], vec![0; COPY_PIECE]);
    loop {
        let got = one.read(&mut left)?;
        if got == 0 {
            return Ok(other.read(&mut right)? == 0);
        }
        other.read_exact(&mut right[..got])?;
        if left[..got] != right[..got] {
            return Ok(false);
        }
    }
}

/// Nothing is deleted while others are measured: ext4 spends a long time on space that was freed a moment ago.
pub struct Small {
    folder: PathBuf,
    files: u64,
    bytes: usize,
}

impl Small {
    pub fn new(folder: &Path, round: u64, files: u64, bytes: usize) -> Result<Small> {
        let folder = folder.join(format!("small{round}"));
        fs::create_dir_all(&folder)?;
        let mut chance = File::open("/dev/urandom")?;
        let mut content = vec![0; bytes];
        for number in 0..files {
            chance.read_exact(&mut content)?;
            fs::write(folder.join(number.to_string()), &content)?;
        }
        Ok(Small { folder, files, bytes })
    }

    /// The share of one of this many threads.
    fn of(&self, own: u64, all: u64) -> impl Iterator<Item = u64> {
        (own..self.files).step_by(all as usize)
    }

    /// Copies the files as `cp` does, and syncs each to disk before the next.
    pub fn copy(&self) -> Result<Duration> {
        self.copy_by(1)
    }

    /// As fast as a copy can be: with as many threads as there are connections elsewhere.
    pub fn copy_fast(&self) -> Result<Duration> {
        self.copy_by(SMALL_LINES)
    }

    fn copy_by(&self, threads: u64) -> Result<Duration> {
        let to = self.folder.with_extension(format!("by{threads}"));
        fs::create_dir_all(&to)?;
        at_once(threads, |own| {
            for number in self.of(own, threads) {
                let content = fs::read(self.folder.join(number.to_string()))?;
                let mut file = File::create(to.join(number.to_string()))?;
                file.write_all(&content)?;
                file.sync_all()?;
            }
            Ok(())
        })
    }

    pub fn upload(&self, place: &FileStore) -> Result<Duration> {
        at_once(SMALL_LINES, |own| {
            let mut line = place.connect()?;
            for number in self.of(own, SMALL_LINES) {
                let mut file = File::open(self.folder.join(number.to_string()))?;
                line.put(&place.at(&format!("small{number}"), ""), &mut file, self.bytes as u64)?;
            }
            Ok(())
        })
    }

    /// Fetches into files that are synced to disk before the next is requested.
    pub fn download(&self, place: &FileStore, from: &str) -> Result<Duration> {
        let to = self.folder.with_extension(from);
        fs::create_dir_all(&to)?;
        at_once(SMALL_LINES, |own| {
            let mut line = place.connect()?;
            for number in self.of(own, SMALL_LINES) {
                let mut file = Target::new(File::create(to.join(number.to_string()))?, None);
                line.get(&place.at(&format!("small{number}"), ""), None, &mut file)?;
                file.sync()?;
            }
            Ok(())
        })
    }
}
