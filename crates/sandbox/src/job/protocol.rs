//! How an agent, its spawner and the inits communicate: each packet of a packet socket holds one JSON value.
//!
//! A launch can be larger than a packet may be, so it is passed in an unnamed file, whose descriptor is sent together
//! with those of the log and the line.

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

/// More than the kernel accepts as arguments and environment of a program.
pub(super) const LAUNCH_BYTES_MAX: usize = 8 << 20;
/// An event carries at most one of our messages.
const PACKET_BYTES_MAX: usize = 16 << 10;
/// Packets that announce a launch carry nothing but descriptors. An empty packet would look like end of file.
const LAUNCH: &[u8] = b"L";

/// A launch in the form that the spawner needs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) launch: Launch,
    /// The user and group of the job outside its sandbox.
    pub(super) outside: (u32, u32),
    /// Whether the node has more than one user.
    pub(super) has_range: bool,
}

/// The descriptors that come with a launch.
#[derive(Debug)]
pub(super) struct Attachments {
    body: File,
    pub(super) log: OwnedFd,
    pub(super) line: OwnedFd,
    /// The network that the job runs in. `None` means the node's.
    pub(super) network: Option<OwnedFd>,
}

impl Attachments {
    pub(super) fn request(&self) -> Result<Request, String> {
        let length = self.body.metadata().map_err(|error| error.to_string())?.len();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > LAUNCH_BYTES_MAX {
            return Err(format!(
                "a launch takes {length} bytes; at most {LAUNCH_BYTES_MAX} are allowed"
            ));
        }
        let mut bytes = vec![0; length];
        self.body.read_exact_at(&mut bytes, 0).map_err(|error| error.to_string())?;
        serde_json::from_slice(&bytes).map_err(|error| format!("cannot parse a launch: {error}"))
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

/// Waits for a launch. Returns `None` once no process can send one any more.
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
        // There was no room for the descriptors, so they were dropped, and the sender sees its line closed.
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
