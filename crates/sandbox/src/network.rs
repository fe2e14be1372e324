//! Addresses of nodes.
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
pub fn address(network: u16, host: u16) -> Ipv4Addr {
    Ipv4Addr::from(0x6440_0000 + u32::from(network) * 4096 + u32::from(host))
}
pub fn connect(_n: u16, _h: u16, _fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(())
}
pub fn enter_new_hub() -> io::Result<()> {
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }?)
}
