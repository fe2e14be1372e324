//! What the standard mount calls do not do.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `struct mount_attr` of the kernel.
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const RDONLY: u64 = 0x1;
const NOSUID: u64 = 0x2;
const AT_RECURSIVE: libc::c_long = 0x8000;

/// Nothing in this mount can be changed any more through it, nor can a program in it gain rights; `recursive`: nor
/// in those below it.
pub(crate) fn make_read_only(path: &Path, recursive: bool) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attributes =
        Attributes { set: RDONLY | NOSUID, clear: 0, propagation: 0, user_namespace: 0 };
    let flags = if recursive { AT_RECURSIVE } else { 0 };
    // SAFETY: the path and the attributes live until the call returns, and the size is theirs.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
