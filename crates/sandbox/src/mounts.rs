//! Mounts that are nowhere yet, and their attributes: what nodes, jobs and the probe of both are put together from.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

/// All of `/dev` that programs count on; no more of the machine's is shown.
pub(crate) const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// What whoever has a GPU needs beside the GPU's own device, where the machine has it.
pub(crate) const GPU_DEVICES: [&str; 4] =
    ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"];
pub(crate) const DEVICE_LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];

/// A mount of what is at `path`, which is nowhere yet. Nothing can be mounted from one mount namespace into another, and
/// whoever puts it to its place may not be allowed to walk to where it comes from. `how`: with all that is mounted below
/// it, or not through a link.
pub(crate) fn take_up(path: &Path, how: OpenTreeFlags) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | how;
    Ok(open_tree(CWD, path, flags)?)
}

pub(crate) fn put(mount: &OwnedFd, path: &Path) -> io::Result<()> {
    Ok(move_mount(mount.as_fd(), "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Nothing in this mount can be changed any more through it, nor can a program in it gain rights; `recursive`: nor
/// in those below it.
pub(crate) fn make_read_only(path: &Path, recursive: bool) -> io::Result<()> {
    set_attributes(path, libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID, recursive, 0)
}

/// Adds attributes to a mount, or to it and all below it.
pub(crate) fn set_attributes(
    path: &Path,
    set: u64,
    recursive: bool,
    propagation: u64,
) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_encoded_bytes())?;
    let attributes = libc::mount_attr { attr_set: set, attr_clr: 0, propagation, userns_fd: 0 };
    let flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the kernel reads the path and the attributes, whose size goes with them, and keeps neither.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            name.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
