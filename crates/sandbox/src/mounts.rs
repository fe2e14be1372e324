//! Detached mounts and their attributes, from which nodes, jobs and the probe assemble their files.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

/// The devices in `/dev` that programs rely on. No others of the host are visible.
pub(crate) const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// The devices that any GPU needs besides its own, if the host has them.
pub(crate) const GPU_DEVICES: [&str; 4] =
    ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"];
pub(crate) const DEVICE_LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];

/// Opens a detached mount of `path`. Nothing can be mounted from one mount namespace into another, and the process that
/// attaches the mount may not be allowed to walk to `path`. `how` chooses whether to include the mounts below it and
/// whether to follow a link.
pub(crate) fn take_up(path: &Path, how: OpenTreeFlags) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | how;
    Ok(open_tree(CWD, path, flags)?)
}

pub(crate) fn put(mount: &OwnedFd, path: &Path) -> io::Result<()> {
    Ok(move_mount(mount.as_fd(), "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Makes a mount read-only, and prevents programs in it from gaining privileges; with `recursive`, also those below it.
pub(crate) fn make_read_only(path: &Path, recursive: bool) -> io::Result<()> {
    set_attributes(path, libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID, recursive, 0)
}

/// Adds attributes to a mount, or to the mount and all below it.
pub(crate) fn set_attributes(
    path: &Path,
    set: u64,
    recursive: bool,
    propagation: u64,
) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_encoded_bytes())?;
    let attributes = libc::mount_attr { attr_set: set, attr_clr: 0, propagation, userns_fd: 0 };
    let flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the kernel reads the path and the attributes, whose size is passed with them, and keeps neither.
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
