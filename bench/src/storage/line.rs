//! A TLS connection that transfers files, the same for every server. It shares the machine with what it measures, so it
//! uses large buffers and copies little.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use muster_trees::{PIECE_BYTES, Piece, Target};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

const READ_BYTES: usize = 256 << 10;
/// The time limit for anything that should take seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// Rustls reads a few kilobytes at a time; the system is asked for more.
struct Ahead {
    tcp: TcpStream,
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Read for Ahead {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.from == self.to {
            (self.from, self.to) = (0, self.tcp.read(&mut self.buffer)?);
        }
        let bytes = into.len().min(self.to - self.from);
        into[..bytes].copy_from_slice(&self.buffer[self.from..self.from + bytes]);
        self.from += bytes;
        Ok(bytes)
    }
}

impl Write for Ahead {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.tcp.write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

pub struct Line {
    stream: StreamOwned<ClientConnection, Ahead>,
    piece: Vec<u8>,
}

impl Line {
    pub fn connect(port: u16, tls: &Arc<ClientConfig>) -> Result<Line> {
        let tcp = TcpStream::connect(("127.0.0.1", port))?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        tcp.set_write_timeout(Some(PATIENCE))?;
        let mut tls = ClientConnection::new(tls.clone(), ServerName::try_from("localhost")?)?;
        tls.set_buffer_limit(Some(READ_BYTES));
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        let stream = StreamOwned::new(tls, Ahead { tcp, buffer, from: 0, to: 0 });
        Ok(Line { stream, piece: vec![0; READ_BYTES] })
    }

    /// Sends this many bytes and waits until the server confirms them.
    pub fn put(&mut self, path: &str, source: &mut impl Read, bytes: u64) -> Result<()> {
        let head = format!(
            "PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {bytes}\r\n\
             x-ms-blob-type: BlockBlob\r\nx-ms-version: 2023-11-03\r\n\r\n"
        );
        self.stream.write_all(head.as_bytes())?;
        let mut left = bytes;
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(READ_BYTES).min(READ_BYTES);
            let got = source.read(&mut self.piece[..wanted])?;
            anyhow::ensure!(got > 0, "the file is shorter than announced");
            self.stream.write_all(&self.piece[..got])?;
            left -= got as u64;
        }
        self.stream.flush()?;
        self.answer(None).map(drop)
    }

    /// Fetches a whole file, or a part of it: from one byte to another, inclusive.
    pub fn get(&mut self, path: &str, range: Option<(u64, u64)>, into: &mut Target) -> Result<u64> {
        let range =
            range.map(|(from, to)| format!("Range: bytes={from}-{to}\r\n")).unwrap_or_default();
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{range}\r\n");
        self.stream.write_all(head.as_bytes())?;
        self.answer(Some(into))
    }

    /// Reads the body of a successful response, and writes it in large pieces.
    fn answer(&mut self, mut into: Option<&mut Target>) -> Result<u64> {
        let mut have = 0;
        let head_end = loop {
            have += self.more(have)?;
            if let Some(at) = self.piece[..have].windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = std::str::from_utf8(&self.piece[..head_end])?.to_owned();
        let length = length(&head)?;
        let (mut from, mut left) = (head_end, length);
        let mut piece = Piece::with_room(usize::try_from(length)?);
        loop {
            let mut rest = &self.piece[from..have];
            left -= rest.len() as u64;
            while !rest.is_empty() {
                rest = piece.fill(rest);
                let is_ready = piece.is_full() || left == 0 && rest.is_empty();
                if is_ready && let Some(into) = &mut into {
                    into.write(&std::mem::replace(&mut piece, Piece::with_room(PIECE_BYTES)))?;
                }
            }
            if left == 0 {
                break;
            }
            (from, have) = (0, self.more(0)?);
        }
        anyhow::ensure!(head.starts_with("HTTP/1.1 2"), "the request failed: {head}");
        Ok(length)
    }

    fn more(&mut self, have: usize) -> Result<usize> {
        match self.stream.read(&mut self.piece[have..])? {
            0 => bail!("the connection was closed in the middle of a response"),
            bytes => Ok(bytes),
        }
    }
}

fn length(head: &str) -> Result<u64> {
    if head.starts_with("HTTP/1.1 204 ") {
        return Ok(0);
    }
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    Ok(length.context("the response has no Content-Length")?.1.parse()?)
}
