//! Determines which ports are listening in the network of this thread. It reads the kernel's own list, because a test
//! connection would show up in the listener's log.

use std::collections::BTreeSet;

/// The kernel's code for a listening socket.
const LISTEN: &str = "0A";

pub(super) fn ports() -> BTreeSet<u16> {
    let mut ports = BTreeSet::new();
    for table in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        ports.extend(text.lines().filter_map(listening));
    }
    ports
}

/// `  0: 0100007F:1F90 00000000:0000 0A …`
fn listening(line: &str) -> Option<u16> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, state) = (words.next()?, words.nth(1)?);
    let (_, port) = local.rsplit_once(':').filter(|_| state == LISTEN)?;
    u16::from_str_radix(port, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_listened_on_until_it_is_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(ports().contains(&port));
        drop(listener);
        assert!(!ports().contains(&port));
    }

    #[test]
    fn only_what_listens_counts() {
        assert_eq!(listening("  0: 0100007F:1F90 00000000:0000 0A 0 0"), Some(8080));
        assert_eq!(listening("  0: 0100007F:1F90 0100007F:0050 01 0 0"), None);
        assert_eq!(listening("  sl  local_address rem_address   st"), None);
        assert_eq!(listening(""), None);
    }
}
