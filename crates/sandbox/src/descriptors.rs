//! File descriptors that a child must not inherit.

use std::io;
use std::os::fd::RawFd;

/// Marks every descriptor except the standard three to be closed by the next exec. Rust already marks what it opens;
/// this covers what we inherited from a shell or a supervisor.
///
/// Safe to use between fork and exec: it makes one system call, and neither allocates nor locks.
pub fn close_others_on_exec() -> io::Result<()> {
    let (first, last): (libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX);
    // SAFETY: no memory is passed, and marking a descriptor does not close it for its current holders.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    match result {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // Kernels before 5.11 lack this call; inherited descriptors are passed on there.
            error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => Ok(()),
            error => Err(error),
        },
    }
}

/// Closes at once every descriptor except the standard three and these. For a process that takes on a new role without
/// an exec.
pub fn close_all_but(kept: &mut [RawFd]) -> io::Result<()> {
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept.iter().map(|fd| fd.unsigned_abs()).chain([libc::c_uint::MAX]) {
        if first < fd {
            // SAFETY: no memory is passed, and nothing in this process uses the closed descriptors any more.
            let done = unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) };
            if done != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        first = fd.saturating_add(1);
    }
    Ok(())
}
