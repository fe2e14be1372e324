//! Writes that bypass the page cache. Large uploads would evict data that is read more often, and allocating pages for
//! them costs more than the disk does: a virtual machine may have to ask its host for each.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::sparse::{BLOCK_BYTES, Run, runs};

/// How much is collected before it is written.
pub const PIECE_BYTES: usize = 2 << 20;
/// The alignment of memory, lengths and file offsets that every disk accepts.
const ALIGNMENT: usize = BLOCK_BYTES;
/// The buffers that a pool keeps: enough for a few uploads at once.
const KEPT_MAX: usize = 12;
/// The large buffers that may be in use from one pool: half a gigabyte. Later callers get small ones, so that many
/// clients that send little take little memory.
const LARGE_MAX: usize = 256;
const SMALL_BYTES: usize = 128 << 10;

/// A part of a file in memory, aligned for direct I/O.
pub struct Piece {
    memory: Vec<u8>,
    from: usize,
    most: usize,
    place: Option<BufferPermit>,
}

impl Piece {
    pub fn with_room(bytes: usize) -> Piece {
        Piece::up_to(PIECE_BYTES, bytes)
    }

    fn up_to(most: usize, bytes: usize) -> Piece {
        let mut memory = Vec::<u8>::with_capacity(bytes.min(most) + ALIGNMENT);
        let from = memory.as_ptr().align_offset(ALIGNMENT);
        memory.resize(from, 0);
        Piece { memory, from, most, place: None }
    }

    /// Copies as much as there is room for, and returns the rest.
    pub fn fill<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let (now, later) = bytes.split_at(bytes.len().min(self.most - self.len()));
        self.memory.extend_from_slice(now);
        later
    }

    pub fn is_full(&self) -> bool {
        self.len() == self.most
    }
}

/// A permit for one of the large buffers of a pool.
struct BufferPermit(Arc<AtomicUsize>);

impl BufferPermit {
    fn find(taken: &Arc<AtomicUsize>) -> Option<BufferPermit> {
        let place = BufferPermit(taken.clone());
        // Counted first, and given back if that was too many.
        (taken.fetch_add(1, Ordering::Relaxed) < LARGE_MAX).then_some(place)
    }
}

impl Drop for BufferPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Buffers for reuse, because new memory is expensive only when the system provides it.
#[derive(Default)]
pub struct BufferPool {
    kept: Mutex<Vec<Piece>>,
    taken: Arc<AtomicUsize>,
}

impl BufferPool {
    /// Takes a buffer with room for this many bytes, or for a whole piece if that is less.
    pub fn take(&self, bytes: usize) -> Piece {
        if bytes <= SMALL_BYTES {
            return Piece::with_room(bytes);
        }
        let Some(place) = BufferPermit::find(&self.taken) else {
            return Piece::up_to(SMALL_BYTES, bytes);
        };
        let used = if bytes < PIECE_BYTES { None } else { self.lock().pop() };
        Piece { place: Some(place), ..used.unwrap_or_else(|| Piece::with_room(bytes)) }
    }

    pub fn give(&self, mut piece: Piece) {
        piece.place = None;
        let mut pieces = self.lock();
        if piece.memory.capacity() >= PIECE_BYTES + ALIGNMENT && pieces.len() < KEPT_MAX {
            piece.memory.truncate(piece.from);
            pieces.push(piece);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Piece>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.from..]
    }
}

/// A file that is written from start to end. Whole blocks of zeros become holes.
pub struct Target {
    file: File,
    is_direct: bool,
    /// The offset of the next byte.
    at: u64,
    /// Whether the file ends in a hole and still has to be extended to its full length.
    ends_in_hole: bool,
    /// The bytes written, without holes.
    written: u64,
}

impl Target {
    /// Bypasses the page cache if this many bytes are worth it and the file system supports it.
    pub fn new(file: File, bytes: Option<u64>) -> Target {
        let is_large = bytes.is_some_and(|bytes| bytes >= PIECE_BYTES as u64);
        let is_direct = is_large && set_direct(&file, true).is_ok();
        Target { file, is_direct, at: 0, ends_in_hole: false, written: 0 }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for run in runs(self.at, bytes) {
            match run {
                Run::Data(bytes) => self.write_data(bytes)?,
                Run::Hole(bytes) => self.write_hole(bytes)?,
            }
        }
        Ok(())
    }

    /// Writes this many zeros as a hole.
    pub fn write_hole(&mut self, bytes: u64) -> io::Result<()> {
        self.at += bytes;
        self.file.seek(io::SeekFrom::Start(self.at))?;
        self.ends_in_hole = true;
        Ok(())
    }

    fn write_data(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.written += bytes.len() as u64;
        self.ends_in_hole = false;
        let is_aligned = bytes.as_ptr().align_offset(ALIGNMENT) == 0;
        let begins = self.at - bytes.len() as u64;
        let is_aligned = is_aligned && begins.is_multiple_of(ALIGNMENT as u64);
        if !is_aligned || !bytes.len().is_multiple_of(ALIGNMENT) {
            self.through_cache()?;
        }
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // This file system needs another alignment, or an unaligned part was written.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput && self.is_direct => {
                    self.through_cache()?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// How many bytes were written, not counting holes.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn through_cache(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_direct) {
            set_direct(&self.file, false)?;
        }
        Ok(())
    }

    /// Makes sure that everything written is on disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.lengthen()?;
        self.file.sync_all()
    }

    fn lengthen(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.ends_in_hole) {
            self.file.set_len(self.at)?;
        }
        Ok(())
    }

    /// Returns the file, to read what was written.
    pub fn file(&mut self) -> io::Result<&mut File> {
        self.lengthen()?;
        self.through_cache()?;
        Ok(&mut self.file)
    }
}

fn set_direct(file: &File, is_direct: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, is_direct);
    Ok(fcntl_setfl(file, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(folder: &std::path::Path, content: &[u8], step: usize) -> Vec<u8> {
        let path = folder.join("file");
        let mut target = Target::new(File::create(&path).unwrap(), Some(content.len() as u64));
        let mut piece = Piece::with_room(step);
        for part in content.chunks(step) {
            let mut rest = part;
            while !rest.is_empty() {
                rest = piece.fill(rest);
                if piece.is_full() {
                    target.write(&std::mem::replace(&mut piece, Piece::with_room(step))).unwrap();
                }
            }
        }
        target.write(&piece).unwrap();
        target.sync().unwrap();
        std::fs::read(path).unwrap()
    }

    #[test]
    fn what_is_written_past_the_cache_is_what_is_read() {
        let content: Vec<u8> = (0..700_000u32).flat_map(u32::to_le_bytes).collect();
        // The second file system may not support direct I/O.
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap()];
        for folder in folders {
            for bytes in [0, 1, 4096, PIECE_BYTES, PIECE_BYTES + 1, content.len()] {
                for step in [1_000, 65_536, 3 << 20] {
                    let content = &content[..bytes];
                    assert!(written(folder.path(), content, step) == content, "{bytes} by {step}");
                }
            }
        }
    }

    #[test]
    fn pieces_lie_where_a_disk_takes_them() {
        for _ in 0..9 {
            let mut piece = Piece::with_room(usize::MAX);
            let long = vec![7; PIECE_BYTES + 5];
            assert_eq!(piece.fill(&long).len(), 5);
            assert!(piece.is_full() && piece.as_ptr().align_offset(ALIGNMENT) == 0);
        }
    }

    #[test]
    fn a_used_piece_is_empty_when_it_is_used_again() {
        let pool = BufferPool::default();
        let mut piece = pool.take(usize::MAX);
        let at = piece.as_ptr();
        piece.fill(&[1; PIECE_BYTES]);
        pool.give(piece);
        let again = pool.take(PIECE_BYTES);
        assert!(again.is_empty() && again.as_ptr() == at);
        // Smaller buffers are not kept.
        pool.give(pool.take(10));
        assert!(pool.lock().is_empty());
    }

    #[test]
    fn later_callers_get_small_buffers() {
        let pool = BufferPool::default();
        let mut out: Vec<Piece> = (0..LARGE_MAX).map(|_| pool.take(PIECE_BYTES)).collect();
        let long = vec![1; PIECE_BYTES];
        let room = |mut piece: Piece| PIECE_BYTES - piece.fill(&long).len();
        assert_eq!(room(pool.take(PIECE_BYTES)), SMALL_BYTES);
        assert_eq!(room(pool.take(SMALL_BYTES)), PIECE_BYTES, "a small one takes no permit");
        out.pop();
        assert_eq!(room(pool.take(PIECE_BYTES)), PIECE_BYTES);
        pool.give(out.pop().unwrap());
        let (one, other) = (pool.take(PIECE_BYTES), pool.take(PIECE_BYTES));
        assert_eq!([room(one), room(other), room(pool.take(usize::MAX))], [PIECE_BYTES; 3]);
    }

    #[test]
    fn parts_that_no_disk_takes_go_through_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut target = Target::new(File::create(&path).unwrap(), Some(PIECE_BYTES as u64));
        target.write(b"odd").unwrap();
        let mut piece = Piece::with_room(PIECE_BYTES);
        piece.fill(&[1; PIECE_BYTES]);
        target.write(&piece).unwrap();
        assert_eq!(std::fs::read(path).unwrap().len(), PIECE_BYTES + 3);
    }
}
