//! Files with holes. A hole takes no space at either end, and is not sent.
//!
//! A file consists of data and holes, which read as zeros. It is transferred as a sequence of frames: eight bytes,
//! little-endian, of which the highest bit marks a hole and the others give its length. The data of a frame follows it.

use std::fs::File;
use std::io;

use bytes::Bytes;
use futures_util::{Stream, stream};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::digest::Hasher;

/// The unit in which file systems allocate space.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Smaller holes are sent as zeros, because there could be millions of them.
const HOLE_BYTES_MIN: u64 = 64 << 10;
/// How much is read or hashed at once.
const PIECE_BYTES: usize = 256 << 10;
static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];
const IS_HOLE: u64 = 1 << 63;
const FRAME_BYTES: usize = 8;

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run<'b> {
    Data(&'b [u8]),
    Hole(u64),
}

/// Splits bytes at this offset of a file into parts to write and parts that are zeros up to the end of a block, which
/// need not be written.
pub(crate) fn runs(at: u64, bytes: &[u8]) -> impl Iterator<Item = Run<'_>> {
    let mut rest = bytes;
    let mut in_block = (at % BLOCK_BYTES as u64) as usize;
    let mut next_block = move || {
        let (block, later) = rest.split_at(rest.len().min(BLOCK_BYTES - in_block));
        (rest, in_block) = (later, 0);
        (!block.is_empty()).then(|| (block.len(), block == &ZEROS[..block.len()]))
    };
    let (mut left, mut block) = (bytes, next_block());
    std::iter::from_fn(move || {
        let (mut length, is_hole) = block?;
        block = next_block();
        while let Some((more, same)) = block
            && same == is_hole
        {
            length += more;
            block = next_block();
        }
        let (run, later) = left.split_at(length);
        left = later;
        Some(if is_hole { Run::Hole(length as u64) } else { Run::Data(run) })
    })
}

impl Hasher {
    /// Hashes this many zeros.
    pub fn add_hole(&mut self, bytes: u64) {
        let mut left = bytes;
        while left > 0 {
            let now = left.min(PIECE_BYTES as u64);
            self.add(&ZEROS[..now as usize]);
            left -= now;
        }
    }
}

/// A hole, which may be empty, and the data after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub hole: u64,
    pub data: u64,
}

/// Returns what is at this offset of a file, up to `end`. Small holes count as data. If the file system cannot tell,
/// everything is data.
pub fn extent(file: &File, at: u64, end: u64) -> io::Result<Extent> {
    let all = Extent { hole: 0, data: end - at };
    let begins = match seek(file, SeekFrom::Data(at)) {
        Ok(begins) => begins.clamp(at, end),
        // There is no more data, or the file has ended.
        Err(Errno::NXIO) => end,
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(all),
        Err(error) => return Err(error.into()),
    };
    let hole = if begins - at < HOLE_BYTES_MIN { 0 } else { begins - at };
    let mut until = begins;
    while until < end {
        until = match seek(file, SeekFrom::Hole(until)) {
            Ok(until) => until.min(end),
            Err(Errno::NXIO) => end,
            Err(error) => return Err(error.into()),
        };
        match seek(file, SeekFrom::Data(until)) {
            Ok(next) if until < end && next - until < HOLE_BYTES_MIN => until = next.min(end),
            Ok(_) | Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Extent { hole, data: until - at - hole })
}

/// Returns how many of a file's first bytes are in holes.
pub(crate) fn hole_bytes(file: &File, bytes: u64) -> io::Result<u64> {
    let (mut at, mut holes) = (0, 0);
    while at < bytes {
        let Extent { hole, data } = extent(file, at, bytes)?;
        holes += hole;
        at += hole + data;
    }
    Ok(holes)
}

/// A file with holes, in the form in which it is sent.
#[derive(Debug)]
pub struct Packed {
    file: File,
    extents: Vec<Extent>,
    /// The size of all frames and their data.
    pub bytes: u64,
}

impl Packed {
    /// Packs the first bytes of a file. Returns the file itself if they contain no hole.
    pub fn new(file: File, bytes: u64) -> io::Result<Result<Packed, File>> {
        let (mut at, mut extents) = (0, Vec::new());
        while at < bytes {
            let found = extent(&file, at, bytes)?;
            at += found.hole + found.data;
            extents.push(found);
        }
        if extents.iter().all(|extent| extent.hole == 0) {
            rustix::fs::seek(&file, SeekFrom::Start(0))?;
            return Ok(Err(file));
        }
        let frames = |part: u64| if part == 0 { 0 } else { FRAME_BYTES as u64 };
        let sent = |extent: &Extent| frames(extent.hole) + frames(extent.data) + extent.data;
        let bytes = extents.iter().map(sent).sum();
        Ok(Ok(Packed { file, extents, bytes }))
    }

    /// Ends early if the file has become shorter.
    pub fn pieces(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let Packed { file, extents, .. } = self;
        let file = std::sync::Arc::new(file);
        let mut parts = Vec::with_capacity(2 * extents.len());
        let mut at = 0;
        for Extent { hole, data } in extents {
            parts.extend((hole > 0).then_some((None, hole)));
            parts.extend((data > 0).then_some((Some(at + hole), data)));
            at += hole + data;
        }
        let state = (file, parts.into_iter(), None::<(u64, u64)>);
        stream::try_unfold(state, |(file, mut parts, reading)| async move {
            if let Some((at, left)) = reading {
                let own = file.clone();
                let read = move || read_at(&own, at, left);
                let piece = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
                let read = piece.len() as u64;
                if read == 0 {
                    return Ok(None);
                }
                let rest = (left > read).then_some((at + read, left - read));
                return Ok(Some((piece, (file, parts, rest))));
            }
            let Some((place, length)) = parts.next() else { return Ok(None) };
            let (frame, reading) = match place {
                Some(at) => (length, Some((at, length))),
                None => (length | IS_HOLE, None),
            };
            Ok(Some((Bytes::copy_from_slice(&frame.to_le_bytes()), (file, parts, reading))))
        })
    }
}

fn read_at(file: &File, at: u64, left: u64) -> io::Result<Bytes> {
    use std::os::unix::fs::FileExt as _;
    let mut piece = vec![0; left.min(PIECE_BYTES as u64) as usize];
    let read = file.read_at(&mut piece, at)?;
    piece.truncate(read);
    Ok(piece.into())
}

/// Decodes a file that was sent in frames.
#[derive(Debug, Default)]
pub struct Unpacking {
    /// The part of an incomplete frame.
    frame: Vec<u8>,
    /// The data that is still expected.
    left: u64,
}

impl Unpacking {
    /// Returns the next part of the received bytes, or `None` when all of them have been used.
    pub fn next<'b>(&mut self, come: &mut &'b [u8]) -> Option<Run<'b>> {
        loop {
            if come.is_empty() {
                return None;
            }
            if self.left > 0 {
                let now = usize::try_from(self.left).unwrap_or(usize::MAX).min(come.len());
                let (data, rest) = come.split_at(now);
                (*come, self.left) = (rest, self.left - now as u64);
                return Some(Run::Data(data));
            }
            let (head, rest) = come.split_at(come.len().min(FRAME_BYTES - self.frame.len()));
            self.frame.extend_from_slice(head);
            *come = rest;
            let Ok(frame) = <[u8; FRAME_BYTES]>::try_from(&self.frame[..]) else { continue };
            self.frame.clear();
            let frame = u64::from_le_bytes(frame);
            match frame & IS_HOLE {
                0 => self.left = frame,
                _ => return Some(Run::Hole(frame & !IS_HOLE)),
            }
        }
    }

    /// Returns true if it ended at the end of a frame.
    pub fn is_whole(&self) -> bool {
        self.left == 0 && self.frame.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use futures_util::TryStreamExt as _;

    use super::*;
    use crate::{Target, blob_of};

    const MIB: u64 = 1 << 20;

    /// Creates a file of a little over 9 MiB with data in two places.
    fn holey() -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 5_000], 3 * MIB).unwrap();
        file.write_all_at(&[2; 10], 9 * MIB).unwrap();
        file
    }

    fn content(file: &File) -> Vec<u8> {
        let mut all = vec![7; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut all, 0).unwrap();
        all
    }

    async fn sent(packed: Packed) -> Vec<u8> {
        let announced = packed.bytes;
        let sent: Vec<Bytes> = packed.pieces().try_collect().await.unwrap();
        let sent = sent.concat();
        assert_eq!(sent.len() as u64, announced);
        sent
    }

    #[tokio::test]
    async fn a_file_comes_out_as_it_went_in_and_holes_are_not_sent() {
        let file = holey();
        let whole = content(&file);
        let bytes = whole.len() as u64;
        let packed = Packed::new(file, bytes).unwrap().expect("it has holes");
        let sent = sent(packed).await;
        assert!((sent.len() as u64) < MIB, "{} bytes for 9 MiB of holes", sent.len());
        for step in [1, 7, 4096, sent.len()] {
            let (mut unpacking, mut out, mut hasher) =
                (Unpacking::default(), Vec::new(), Hasher::default());
            for mut come in sent.chunks(step) {
                while let Some(run) = unpacking.next(&mut come) {
                    match run {
                        Run::Data(data) => {
                            out.extend_from_slice(data);
                            hasher.add(data);
                        }
                        Run::Hole(hole) => {
                            out.resize(out.len() + hole as usize, 0);
                            hasher.add_hole(hole);
                        }
                    }
                }
            }
            assert!(unpacking.is_whole() && out == whole, "in steps of {step}");
            assert_eq!(hasher.finish(), blob_of(&whole));
        }
    }

    #[tokio::test]
    async fn a_file_without_holes_is_sent_as_it_is_and_small_holes_are_data() {
        let file = tempfile::tempfile().unwrap();
        for place in 0..64 {
            file.write_all_at(&[3; 4096], place * 2 * 4096).unwrap();
        }
        let bytes = file.metadata().unwrap().len();
        assert!(Packed::new(file, bytes).unwrap().is_err());
        // Only a part of the file is sent, and that part is a hole.
        let packed = Packed::new(holey(), MIB).unwrap().expect("it has holes");
        assert_eq!(sent(packed).await, (MIB | IS_HOLE).to_le_bytes());
    }

    #[test]
    fn zeros_that_are_written_take_no_space() {
        let folder = tempfile::tempdir().unwrap();
        let mut whole = vec![0; 8 << 20];
        whole[5_000_000] = 1;
        whole.extend([0; 100]);
        for step in [1_000, 4096, 100_000, whole.len()] {
            let path = folder.path().join("file");
            let mut target = Target::new(File::create(&path).unwrap(), None);
            whole.chunks(step).for_each(|part| target.write(part).unwrap());
            target.write_hole(3 * MIB).unwrap();
            target.sync().unwrap();
            let found = File::open(&path).unwrap();
            let about = found.metadata().unwrap();
            assert_eq!(about.len(), whole.len() as u64 + 3 * MIB);
            let content = content(&found);
            assert!(
                content[..whole.len()] == whole && content[whole.len()..].iter().all(|b| *b == 0)
            );
            assert!(about.blocks() * 512 < MIB, "{} blocks in steps of {step}", about.blocks());
        }
    }
}
