//! File descriptors that a child must not inherit.

use std::io;
use std::os::fd::RawFd;

/// Marks everything but the standard three to be closed by the next exec. What Rust opens is marked
/// so already; this is for what we inherited ourselves, from a shell or a supervisor.
///
/// For use between fork and exec: one system call, no allocation, no lock.
pub fn close_others_on_exec() -> io::Result<()> {
    let (first, last): (libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX);
    // SAFETY: no memory is passed; marking a descriptor does not close it for anyone who holds it
    // now.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    match result {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // A kernel before 5.11: then what we inherited is passed on, as it always was.
            error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => Ok(()),
            error => Err(error),
        },
    }
}

/// Closes everything but the standard three and these, at once. For a process that goes on as something else without an exec.
pub fn close_all_but(kept: &mut [RawFd]) -> io::Result<()> {
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept.iter().map(|fd| fd.unsigned_abs()).chain([libc::c_uint::MAX]) {
        if first < fd {
            // SAFETY: no memory is passed; nobody in this process uses what is closed any more.
            let done = unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) };
            if done != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        first = fd.saturating_add(1);
    }
    Ok(())
}
