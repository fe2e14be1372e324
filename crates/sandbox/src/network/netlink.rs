//! A minimal netlink client for links and addresses: one request at a time on one socket.
//!
//! Five kinds of requests do not need a library, and reading only the attributes that we know is safer than a decoder
//! that rejects a whole link because of an attribute that a newer kernel has added.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

const MESSAGE_HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
/// The kernel sends at most 32 KiB at a time.
const ANSWER_MAX: usize = 64 * 1024;
/// The upper two bits of an attribute's kind are flags.
const KIND_MASK: u16 = 0x3fff;
const LIST_CHANGED_MEANWHILE: u16 = 0x10;

/// A request, built from front to back.
pub(super) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// `family_header` is the fixed part with which every message of this kind starts.
    pub(super) fn new(kind: u16, flags: libc::c_int, family_header: &[u8]) -> Request {
        let flags = (flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut bytes = vec![0; MESSAGE_HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(family_header);
        Request { bytes }
    }

    pub(super) fn attribute(mut self, kind: u16, value: &[u8]) -> Request {
        let length = (ATTRIBUTE_HEADER + value.len()) as u16;
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
        self
    }

    pub(super) fn number(self, kind: u16, value: u32) -> Request {
        self.attribute(kind, &value.to_ne_bytes())
    }

    pub(super) fn text(self, kind: u16, value: &str) -> Request {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// Adds an attribute that consists of `fixed` bytes and nested attributes.
    pub(super) fn nest(
        mut self,
        kind: u16,
        fixed: &[u8],
        fill: impl FnOnce(Request) -> Request,
    ) -> Request {
        let start = self.bytes.len();
        self = self.attribute(kind, fixed);
        self = fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn seal(mut self, sequence: u32) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// A socket for the network namespace that the thread was in when it was opened.
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Netlink> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Sends a request and waits for the end of the reply. Returns the bodies of its messages. Fails with `Interrupted`
    /// if a list changed while it was read.
    pub(super) fn ask(&mut self, request: Request) -> io::Result<Vec<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        send(&self.socket, &request.seal(self.sequence), SendFlags::empty())?;
        let mut answers = Answers { bodies: Vec::new(), has_changed: false };
        let mut buffer = vec![0; ANSWER_MAX];
        loop {
            let (length, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            if answers.read(&buffer[..length], self.sequence)? {
                // Checked only now, because the kernel accepts no other request on this socket before the list has
                // ended.
                let is_whole = !answers.has_changed;
                return is_whole.then_some(answers.bodies).ok_or(io::ErrorKind::Interrupted.into());
            }
        }
    }
}

struct Answers {
    bodies: Vec<Vec<u8>>,
    has_changed: bool,
}

impl Answers {
    /// Reads one datagram. Returns true if it contains the end of the reply.
    fn read(&mut self, mut rest: &[u8], sequence: u32) -> io::Result<bool> {
        while rest.len() >= MESSAGE_HEADER {
            let length = u32_at(rest, 0).unwrap_or(0) as usize;
            if length < MESSAGE_HEADER || length > rest.len() {
                let text = "the kernel sent a truncated message";
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            let (kind, flags) = (u16_at(rest, 4), u16_at(rest, 6).unwrap_or(0));
            let is_ours = u32_at(rest, 8) == Some(sequence);
            let body = &rest[MESSAGE_HEADER..length];
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            if !is_ours {
                continue;
            }
            self.has_changed |= flags & LIST_CHANGED_MEANWHILE != 0;
            match kind.map(libc::c_int::from) {
                Some(libc::NLMSG_DONE) => return Ok(true),
                Some(libc::NLMSG_ERROR) => match u32_at(body, 0).map(u32::cast_signed) {
                    Some(0) => return Ok(true),
                    Some(code) => return Err(io::Error::from_raw_os_error(code.saturating_neg())),
                    None => return Err(io::ErrorKind::InvalidData.into()),
                },
                _ => self.bodies.push(body.to_vec()),
            }
        }
        Ok(false)
    }
}

/// Iterates over the attributes in `bytes`, up to the first that is incomplete.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & KIND_MASK;
        let value = bytes.get(ATTRIBUTE_HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nests_know_their_length() {
        let request = Request::new(16, 0, &[9; 4])
            .text(3, "net1")
            .nest(18, &[], |inside| inside.text(1, "bridge"))
            .number(10, 7);
        let bytes = request.seal(5);
        assert_eq!(u32_at(&bytes, 0), Some(bytes.len() as u32));
        let found: Vec<_> = attributes(&bytes[MESSAGE_HEADER + 4..]).collect();
        assert_eq!(found[0], (3, &b"net1\0"[..]));
        assert_eq!(attributes(found[1].1).collect::<Vec<_>>(), [(1, &b"bridge\0"[..])]);
        assert_eq!(found[2], (10, &7_u32.to_ne_bytes()[..]));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn truncated_malformed_or_foreign_replies_do_no_harm() {
        let ack = |sequence: u32, code: i32| {
            let mut bytes = vec![0; 20];
            bytes[0..4].copy_from_slice(&20_u32.to_ne_bytes());
            bytes[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
            bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
            bytes[16..20].copy_from_slice(&code.to_ne_bytes());
            bytes
        };
        let read = |bytes: &[u8]| Answers { bodies: Vec::new(), has_changed: false }.read(bytes, 1);
        assert!(read(&ack(1, 0)).unwrap());
        assert!(!read(&ack(2, 0)).unwrap(), "a reply to an older request is ignored");
        let error = read(&ack(1, -libc::EEXIST)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(read(&ack(1, i32::MIN)).is_err());
        assert!(read(&[255; 64]).is_err());
        assert!(read(&[0; 64]).is_err());
        assert!(!read(&[]).unwrap());
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0, "shorter than its own header");
        assert_eq!(attributes(&[9, 0, 1, 0, 5]).count(), 0, "longer than the buffer");
    }
}
