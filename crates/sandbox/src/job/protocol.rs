//! How an agent, its spawner and the inits speak: one JSON value in each packet of a socket that keeps packets apart.
//!
//! A launch can be larger than a packet may be; it lies in a file without a name, whose descriptor travels with the
//! log's and the line's.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::MemfdFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Launch, LaunchError};

/// More than the kernel lets a program start with.
pub(super) const LAUNCH_BYTES_MAX: usize = 8 << 20;
/// An event carries at most one message of ours.
const PACKET_BYTES_MAX: usize = 16 << 10;
/// Packets that announce a launch carry nothing but descriptors. An empty one would look like the end.
const LAUNCH: &[u8] = b"L";

/// A launch, as the spawner needs it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) launch: Launch,
    /// Who the job is outside: user and group.
    pub(super) outside: (u32, u32),
    /// Whether there is more than one user.
    pub(super) has_range: bool,
}

/// What comes with it.
#[derive(Debug)]
pub(super) struct Attachments {
    body: File,
    pub(super) log: OwnedFd,
    pub(super) line: OwnedFd,
    /// The network that it runs in; `None`: the node's.
    pub(super) network: Option<OwnedFd>,
}

impl Attachments {
    pub(super) fn request(&self) -> Result<Request, String> {
        let length = self.body.metadata().map_err(|error| error.to_string())?.len();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > LAUNCH_BYTES_MAX {
            return Err(format!("a launch of {length} bytes; at most {LAUNCH_BYTES_MAX}"));
        }
        let mut bytes = vec![0; length];
        self.body.read_exact_at(&mut bytes, 0).map_err(|error| error.to_string())?;
        serde_json::from_slice(&bytes).map_err(|error| format!("an unreadable launch: {error}"))
    }
}

pub(super) fn send_launch(
    socket: BorrowedFd<'_>,
    request: &Request,
    log: BorrowedFd<'_>,
    line: BorrowedFd<'_>,
    network: Option<BorrowedFd<'_>>,
) -> Result<(), LaunchError> {
    let bytes = serde_json::to_vec(request).map_err(LaunchError::NotText)?;
    if bytes.len() > LAUNCH_BYTES_MAX {
        return Err(LaunchError::TooLarge { bytes: bytes.len() });
    }
    let send = || {
        let mut body = File::from(rustix::fs::memfd_create("launch", MemfdFlags::CLOEXEC)?);
        body.write_all(&bytes)?;
        let descriptors: Vec<_> = [body.as_fd(), log, line].into_iter().chain(network).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room");
        let packet = [IoSlice::new(LAUNCH)];
        rustix::net::sendmsg(socket, &packet, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    };
    send().map_err(LaunchError::Spawner)
}

/// Waits for a launch; `None` when nobody can send one any more.
pub(super) fn receive_launch(socket: BorrowedFd<'_>) -> io::Result<Option<Attachments>> {
    let mut byte = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    let network = (descriptors.len() == 4).then(|| descriptors.pop()).flatten();
    match <[OwnedFd; 3]>::try_from(descriptors) {
        Ok([body, log, line]) => Ok(Some(Attachments { body: body.into(), log, line, network })),
        // No room for descriptors here: they were dropped, and the sender sees his line closed.
        Err(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

pub(super) fn send(socket: BorrowedFd<'_>, value: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(value)?;
    rustix::net::send(socket, &bytes, SendFlags::NOSIGNAL)?;
    Ok(())
}

pub(super) fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<T>> {
    let mut buffer = [0; PACKET_BYTES_MAX];
    let (length, _) = rustix::net::recv(socket, &mut buffer, RecvFlags::empty())?;
    match length {
        0 => Ok(None),
        length => Ok(Some(serde_json::from_slice(&buffer[..length])?)),
    }
}
