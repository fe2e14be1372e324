//! Attaches a file to a block device for as long as it is mounted.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

pub(super) const CONTROL: &str = "/dev/loop-control";
/// From `linux/loop.h`.
const GET_FREE: libc::Ioctl = 0x4C82;
const CONFIGURE: libc::Ioctl = 0x4C0A;
const AUTOCLEAR: u32 = 4;
const DIRECT_IO: u32 = 16;
/// Other servers on this host may take the same free device at the same time.
const ATTEMPTS_MAX: u32 = 64;

/// `struct loop_info64`.
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    names: [u8; 160],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct Config {
    file: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Config>() == 304);

/// A loop device. It belongs to the file as long as this is held or the device is mounted.
pub(super) struct Device {
    pub path: PathBuf,
    _open: File,
}

pub(super) fn attach(file: &File) -> io::Result<Device> {
    let options = || {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options
    };
    let control = options().open(CONTROL)?;
    for _ in 0..ATTEMPTS_MAX {
        // SAFETY: no memory is passed.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let open = options().open(&path)?;
        // Bypasses the page cache, because the file system inside already caches its own contents.
        match configure(&open, file, AUTOCLEAR | DIRECT_IO) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => continue,
            // Not every file system supports direct I/O.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                configure(&open, file, AUTOCLEAR)?;
            }
            done => done?,
        }
        return Ok(Device { path, _open: open });
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

fn configure(device: &File, file: &File, flags: u32) -> io::Result<()> {
    let config = Config {
        file: file.as_raw_fd().unsigned_abs(),
        block_size: 0,
        info: Info {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags,
            names: [0; 160],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: the kernel reads the structure, whose size it knows, and keeps nothing of it.
    match unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, &raw const config) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
